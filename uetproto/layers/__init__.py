"""Each header form has a Scapy layer: `from uetproto.layers import PdsRudReq, SesRequestStdSom`.

The layers are made from the tables of `wire/headers`, and named as the form in CamelCase. The import binds UET to UDP
and to native IP. `bind_roce()`, `bind_sharp()` and `bind_mcast()` bind the other protocols.
"""

from scapy.config import conf

from uetproto.layers import uet
from uetproto.layers.base import LayerError
from uetproto.layers.messages import UetPackets, uet_message
from uetproto.layers.replies import uet_reply
from uetproto.layers.session import PdcSession, UetMessage
from uetproto.layers.uet import *  # noqa: F403

__all__ = [*uet.__all__, "LayerError", "PdcSession", "UetMessage", "UetPackets", "uet_message", "uet_reply"]

# Scapy's explore() knows only names of its own packages.
conf.layers.ldict["scapy.layers.uetproto"] = [
    layer for layers in (uet.LAYERS, uet.ROCE_LAYERS, uet.SHARP_LAYERS, uet.MCAST_LAYERS) for layer in layers.values()
]
