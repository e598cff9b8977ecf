"""Each header form has a Scapy layer: `from uetproto.layers import PdsRudReq, SesRequestStdSom`.

The layers are made from the tables of `wire/headers`, and named as the form in CamelCase. The import binds UET to UDP
and to native IP. `bind_roce()`, `bind_sharp()` and `bind_mcast()` bind the other protocols.
"""

from typing import TYPE_CHECKING, Any

from uetproto.layers.uet import *  # noqa: F403
from uetproto.layers.uet import __all__ as __all__

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...  # the layers, which are made at import
