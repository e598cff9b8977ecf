# SPDX-License-Identifier: GPL-2.0-only
"""The table "to add X, touch these files" of docs/architecture.md is true.

Each test applies the smallest change that the table names to a copy of the package, with a made-up X, and shows that
everything that should know X does.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.effort import effort
from tests.support.paths import ROOT

HEADERS = "uetproto/wire/headers"


class Copy:
    """A copy of the package, with what generates its files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("uetproto", "docs"):
            shutil.copytree(ROOT / name, folder / name)  # with the compiled files, which stay valid: times are kept
        (folder / "tools").mkdir()
        shutil.copyfile(ROOT / "tools" / "generate", folder / "tools" / "generate")
        self.touched: set[str] = set()

    def replace(self, file: str, old: str, new: str) -> None:
        """Replace a text that stands once in a file."""
        path = self.folder / file
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{file} has {text.count(old)} × {old!r}"
        path.write_text(text.replace(old, new), encoding="utf-8")
        self.touched.add(file)

    def write(self, file: str, text: str) -> None:
        (self.folder / file).write_text(dedent(text), encoding="utf-8")
        self.touched.add(file)

    def run(self, *arguments: str) -> str:
        """Run Python in the copy. Returns what it prints."""
        command = [sys.executable, *arguments]
        environment = {"PYTHONPATH": str(self.folder), "PATH": "/usr/bin:/bin", "COLUMNS": "200"}
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def python(self, code: str) -> str:
        return self.run("-c", dedent(code))

    def generated(self, *names: str) -> dict[str, str]:
        """Write the generated files, in the profile `ci` those alone whose texts are returned. Returns their texts by
        name."""
        files = [f"uetproto/{name}" for name in names]
        self.run("tools/generate", *effort(files, [], []))
        return {Path(name).name: (self.folder / name).read_text(encoding="utf-8") for name in files}


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def test_a_collective_algorithm(copy: Copy) -> None:
    copy.write(
        "uetproto/collectives/algorithms/backwards.py",
        '''
        """A ring around which the ranks are numbered backwards."""

        from uetproto.collectives.algorithms import ring
        from uetproto.collectives.algorithms.plan import PlannedSchedule
        from uetproto.collectives.algorithms.request import ScheduleRequest


        def all_reduce(request: ScheduleRequest) -> PlannedSchedule:
            """Return the schedule of a ring."""
            return ring.all_reduce(request)
        ''',
    )
    catalogue = "uetproto/collectives/algorithms/catalogue.py"
    copy.replace(catalogue, "import all_to_all, barrier,", "import all_to_all, backwards, barrier,")
    row = '        "tree":               Algorithm('
    copy.replace(
        catalogue, row, '        "backwards":          Algorithm(backwards.all_reduce, formulas.ring),\n' + row
    )
    assert len(copy.touched) == 2
    arguments = ("all_reduce", "--ranks", "3", "--bytes", "1KiB", "--algorithm", "backwards", "--json")
    told = copy.run("-m", "uetproto", "collective", *arguments)
    assert '"algorithm": "backwards"' in told
    assert '"correct": true' in told
    assert '"steps": 4' in told
    helped = copy.run("-m", "uetproto", "collective", "--help")
    assert "backwards" in helped
    summed = copy.python("""
        import numpy as np
        from uetproto.api import distributed as dist

        def program(rank):
            dist.init_process_group()
            x = np.full(8, rank + 1)
            dist.all_reduce(x)
            return int(x[0])

        print(dist.run(program, ranks=3, algorithm="backwards"))
    """)
    assert summed == "[6, 6, 6]\n"


def test_an_audit_rule_on_an_event_that_exists(copy: Copy) -> None:
    rule = """
    def _thirteen(_: object, seen: ObservedPacket) -> Verdict:
        return Violation("another length", "13") if seen.length == 13 else None


    RULES = (
        Rule(id="WIRE-THIRTEEN", on=WireEvent.DATA, check=_thirteen, severity=Severity.NOTE, cite=CHOICE,
             says="No request has 13 bytes."),
    """
    copy.replace("uetproto/audit/wire/rules.py", "\nRULES = (\n", dedent(rule))
    assert len(copy.touched) == 1
    assert "WIRE-THIRTEEN" in copy.generated("audit/RULES.md")["RULES.md"]
    assert "WIRE-THIRTEEN" in copy.run("-m", "uetproto", "audit", "--list-rules")
    assert "No request has 13 bytes." in copy.run("-m", "uetproto", "audit", "--explain", "WIRE-THIRTEEN")


def test_a_pds_control_packet_type(copy: Copy) -> None:
    header, states, page = f"{HEADERS}/uet_pds.py", "uetproto/engine/pds/states.py", "docs/protocol/wire.md"
    copy.replace(header, "    NEGOTIATION = 9\n", "    NEGOTIATION = 9\n    ECHO = 10\n")
    row = "    _C.NEGOTIATION: ControlProfile("
    new = '    _C.ECHO: ControlProfile(_W.SOURCE, _N.NONE, 1, _D.PSN, False, "tag", "asks for an echo", "ECHO"),\n'
    copy.replace(header, row, new + row)
    copy.replace(states, "    NEGOTIATION = auto()\n", "    NEGOTIATION = auto()\n    ECHO = auto()\n")
    copy.replace(page, "9 NEGOTIATION", "9 NEGOTIATION, 10 ECHO")
    assert len(copy.touched) == 3
    texts = copy.generated("wireshark/uetproto.lua", "wire/TABLES.md", "engine/STATES.md")
    assert '[10] = "ECHO"' in texts["uetproto.lua"]
    assert "ECHO" in texts["TABLES.md"]
    assert "control packet ECHO: asks for an echo" in texts["STATES.md"]
    told = copy.python("""
        import random
        from uetproto import decode, encode
        from uetproto.engine import Datagram, Fep, Mode, Preset
        from uetproto.engine.pds.messages import Control
        from uetproto.engine.pds.states import CONTROL_INPUTS, DEFAULTS, Input
        from uetproto.layers import PdsCp
        from uetproto.schemas import SCHEMAS
        from uetproto.wire.headers.uet_pds import CtlType

        assert DEFAULTS[CONTROL_INPUTS[CtlType.ECHO]] == "refuse_unexpected"
        schema = SCHEMAS["pds.cp"]
        built = schema.build({**schema.parse(bytes(PdsCp())), "ctl_type": "ECHO"})
        assert schema.parse(built).ctl_type == 10 and PdsCp(bytes(PdsCp(ctl_type="ECHO"))).ctl_type == 10
        from scapy.all import IP, UDP, Ether
        frame = bytes(Ether(dst="02:00:00:00:00:01") / IP(src="10.0.0.1", dst="10.0.0.2") / UDP() /
                      PdsCp(ctl_type="ECHO", ar=1, psn=2, spdcid=5, dpdcid=6, ctl_payload=77))
        packet = decode(frame)
        assert packet.error is None and packet["pds.cp"]["ctl_type"] == 10 and encode(packet) == frame
        open("echo.pcap", "wb").close()
        from uetproto.wire.pcap import open_writer
        with open_writer("echo.pcap") as writer:
            writer.write(0, frame)
        fep = Fep(0x0A000002, random.Random(1))
        fep.pds.adopt(0x0A000001, Mode.RUD, False, Preset(pdcid=6, peer_pdcid=5, forward_next=2, return_next=1))
        fep.receive(Datagram(0x0A000001, 0x0A000002, frame[42:58]), 0)
        fep.poll(0)
        print(dict(fep.pds.nack_tx))
    """)
    assert "UNEXP_EVENT" in told, "the default row of an open PDC refuses it"
    assert "ECHO" in copy.run("-m", "uetproto", "dissect", "echo.pcap")


def test_an_ses_opcode(copy: Copy) -> None:
    header, page = f"{HEADERS}/uet_ses.py", "docs/protocol/wire.md"
    copy.replace(header, "    SYNC_ATOMIC = 0x11\n", "    SYNC_ATOMIC = 0x11\n    WRITE_ZERO = 0x12\n")
    row = "    _O.SYNC_ATOMIC:        _R("
    copy.replace(
        header, row, "    _O.WRITE_ZERO: _R(_RELIABLE, _ONE, _S.RMA, _P.REGION, _X.NONE, False, _EVERY),\n" + row
    )
    copy.replace(page, "0x11 SYNC_ATOMIC", "0x11 SYNC_ATOMIC, 0x12 WRITE_ZERO")
    assert len(copy.touched) <= 3
    texts = copy.generated("wireshark/uetproto.lua", "wire/TABLES.md")
    assert '[18] = "WRITE_ZERO"' in texts["uetproto.lua"]
    assert "WRITE_ZERO" in texts["TABLES.md"]
    copy.python("""
        from uetproto import decode
        from uetproto.layers import PdsRudReq, SesRequestStdSom
        from uetproto.schemas import SCHEMAS
        from uetproto.wire.headers.uet_ses import OPCODE_PROFILES, Opcode
        from scapy.all import IP, UDP, Ether

        frame = bytes(Ether(dst="02:00:00:00:00:01") / IP(src="10.0.0.1", dst="10.0.0.2") / UDP() /
                      PdsRudReq(psn=1, clear_psn_offset=-1, spdcid=1, dpdcid=2) /
                      SesRequestStdSom(opcode="WRITE_ZERO", eom=1, message_id=1, request_length=4) / b"data")
        packet = decode(frame)
        assert packet.error is None and packet["ses.request_std.som"]["opcode"] == 18, packet
        assert OPCODE_PROFILES[Opcode.WRITE_ZERO].modes
        from uetproto.wire.pcap import open_writer
        with open_writer("zero.pcap") as writer:
            writer.write(0, frame)
    """)
    assert "WRITE_ZERO" in copy.run("-m", "uetproto", "dissect", "zero.pcap")
    assert '"SES-UNKNOWN-OPCODE", "severity"' not in copy.run("-m", "uetproto", "audit", "--json", "zero.pcap")


def test_a_roce_opcode(copy: Copy) -> None:
    header, page = f"{HEADERS}/roce.py", "docs/protocol/roce.md"
    copy.replace(header, "    ATOMIC_WRITE = 0x1D\n", "    ATOMIC_WRITE = 0x1D\n    PING = 0x1E\n")
    row = "    Operation.ATOMIC_WRITE: "
    copy.replace(header, row, "    Operation.PING: Form(_RELIABLE, (RETH,), Load.NONE),\n" + row)
    copy.replace(page, "\n| 1d | ATOMIC_WRITE", "\n| 1e | PING | 1e | – | – | – | – | reth | 0 |\n| 1d | ATOMIC_WRITE")
    assert len(copy.touched) <= 3
    assert "RC_PING" in copy.generated("wire/TABLES.md")["TABLES.md"]
    copy.python("""
        from uetproto import decode
        from uetproto.layers import Bth, Reth, bind_roce
        from scapy.all import IP, UDP, Ether

        bind_roce()
        frame = bytes(Ether(dst="02:00:00:00:00:01") / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(dport=4791) /
                      Bth(opcode="RC_PING", destqp=1) / Reth(va=7))
        packet = decode(frame)
        assert packet.error is None and packet["reth"]["va"] == 7, packet
        from uetproto.wire.pcap import open_writer
        with open_writer("ping.pcap") as writer:
            writer.write(0, frame)
    """)
    assert "RC_PING" in copy.run("-m", "uetproto", "dissect", "ping.pcap")
