# SPDX-License-Identifier: GPL-2.0-only
"""Each header form has a Scapy layer: `from uetproto.layers import PdsRudReq, SesRequestStdSom`.

Each layer is made from a table of `wire/headers`. Its name is the name of the form in CamelCase. The import binds UET
to UDP and to native IP. `bind_roce()`, `bind_sharp()` and `bind_mcast()` bind the other protocols.
"""

import sys

import scapy.layers
from scapy.config import conf

from uetproto.errors import similar
from uetproto.layers import uet
from uetproto.layers.base import LayerError
from uetproto.layers.messages import UetPackets, uet_message
from uetproto.layers.replies import UetResponder, uet_reply
from uetproto.layers.session import PdcSession, UetMessage
from uetproto.layers.uet import *  # noqa: F403

__all__ = [
    *uet.__all__,
    "LayerError",
    "PdcSession",
    "UetMessage",
    "UetPackets",
    "UetResponder",
    "uet_message",
    "uet_reply",
]


def __getattr__(name: str) -> object:
    hint = "" if name.startswith("_") else similar(name, __all__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")


def _introduce() -> None:
    """Give modules and layers names below `scapy.layers`: Scapy's `explore` and `load_layer` know no others."""
    known = conf.layers.ldict
    known[__name__] = [
        layer for group in (uet.LAYERS, uet.ROCE_LAYERS, uet.SHARP_LAYERS, uet.MCAST_LAYERS) for layer in group.values()
    ]
    for name in [name for name in sys.modules if name == __name__ or name.startswith(f"{__name__}.")]:
        classes = known.pop(name, None)
        for package in ("scapy.layers.uetproto", f"scapy.layers.{__name__}"):
            alias = package + name.removeprefix(__name__)
            sys.modules[alias] = sys.modules[name]
            if classes is not None:
                known[alias] = classes
    scapy.layers.uetproto = sys.modules[__name__]


_introduce()
