"""Each header form has a Scapy layer: `from uetproto.layers import PdsRudReq, SesRequestStdSom`.

The layers are made from the tables of `wire/headers`, and named as the form in CamelCase. The import binds UET to UDP
and to native IP. `bind_roce()`, `bind_sharp()` and `bind_mcast()` bind the other protocols.
"""

from typing import TYPE_CHECKING, Any

from uetproto.layers import uet
from uetproto.layers.base import LayerError
from uetproto.layers.messages import UetPackets, uet_message
from uetproto.layers.replies import uet_reply
from uetproto.layers.session import PdcSession, UetMessage
from uetproto.layers.uet import *  # noqa: F403

__all__ = [*uet.__all__, "LayerError", "PdcSession", "UetMessage", "UetPackets", "uet_message", "uet_reply"]

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...  # the layers, which are made at import
