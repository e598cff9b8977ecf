# SPDX-License-Identifier: GPL-2.0-only
"""`import uetproto.layers` makes no layer; whatever a user of Scapy does then finds all of them made."""

import json
import pickle
import subprocess
import sys

from scapy.layers.inet import IP, UDP

from uetproto.layers import PdsAck

ACK = bytes(PdsAck(cack_psn=7)).hex()
ACTS = {
    "a layer is named": "uetproto.layers.PdsAck",
    "a layer is imported": "run('from uetproto.layers import PdsAck') and PdsAck",
    "all layers are imported": "run('from uetproto.layers import *') and (Bth, Sharp, uet_message, PdcSession, PdsAck)",
    "one module is imported": "run('from uetproto.layers.roce import Bth') or (Bth and not made())",
    "a module is named": "uetproto.layers.roce.Bth",
    "names are completed": "'PdsAck' in dir(uetproto.layers)",
    "the dictionary is read": "vars(uetproto.layers)['PdsAck']",
    "layers are listed": "'PdsAck' in repr(conf.layers)",
    "ls finds a layer": "'PdsAck' in printed(ls, 'pdsack')",
    "the package is explored": "'PdsAck' in printed(explore, uetproto.layers)",
    "a module is explored": "'Bth' in printed(explore, 'scapy.layers.uetproto.roce')",
    "modules are described": "dict(conf.layers.layers())['scapy.layers.uetproto.roce']",
    "Scapy loads the layers": "load_layer('uetproto') or (PdsAck, Bth)",
    "others make a layer": "type(IP)('Other', (IP,), {'__module__': 'scapy.layers.inet'}) in conf.layers",
    "UET over UDP is dissected": f"IP(bytes(IP() / UDP(dport=4793) / bytes.fromhex('{ACK}'))).haslayer('PdsAck')",
    "UET over IP is dissected": f"IPv6(bytes(IPv6(nh=253) / bytes.fromhex('12340000{ACK}'))).haslayer('PdsAck')",
    "no UET is dissected": "'Raw' in IP(bytes(IP() / UDP(dport=4793) / b'no UET')) and IPv6(bytes(IPv6(nh=253)))",
    "a packet is unpickled": "pickle.loads(bytes.fromhex(pickled))[UDP].payload",
    "a misspelled name is refused": "'PdsAck' in refused('PdsAkc')",
    "another attribute is looked for": "refused('__wrapped__') and not made()",
}
"""What a user does first, as an expression that is true."""
SCRIPT = """
import builtins, contextlib, io, json, os, pickle, sys
from scapy.config import conf
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.main import load_layer
from scapy.packet import explore, ls
import uetproto.layers

def made(): return "uetproto.layers.uet" in sys.modules
def run(line): exec(line, globals()); return made()
def refused(name):
    try: getattr(uetproto.layers, name)
    except AttributeError as error: return str(error)
def printed(function, argument):
    with contextlib.redirect_stdout(io.StringIO()) as out: function(argument)
    return out.getvalue()

assert not made()
acts, pickled = json.load(sys.stdin)
for name, act in acts.items():
    if not os.fork():
        result = eval(act)
        assert result, (name, result)
        from uetproto.layers import uet
        listed = [layer.__name__ for layer in conf.layers]
        assert listed.count("PdsAck") == listed.count("Bth") == listed.count("Uet") == 1, name
        assert [upper.__name__ for _, upper in UDP.payload_guess].count("Uet") == 1, name
        assert type(conf.layers).__name__ == "LayersList", name
        assert bytes(IP() / UDP() / uetproto.layers.PdsAck())[22:24] == (4793).to_bytes(2, "big"), name
        os._exit(0)
    assert os.wait()[1] == 0, name
print(len(acts))
"""


def test_the_import_makes_no_layer_and_everything_else_does() -> None:
    """Each act is done in a process that has imported the layers, and has done nothing else."""
    pickled = pickle.dumps(IP() / UDP() / PdsAck()).hex()
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], input=json.dumps((ACTS, pickled)), capture_output=True, text=True, timeout=120
    )
    assert (ran.stdout, ran.stderr) == (f"{len(ACTS)}\n", "")
