"""Every header table is a Scapy layer: `from uetproto.layers import PdsRudReq, SesRequestStdSom`.

One class a form, the form in CamelCase, made from the tables of `wire/headers`; bound for both encapsulations of UET
at import. `bind_roce()`, `bind_sharp()` and `bind_mcast()` add the other protocols.
"""

from typing import TYPE_CHECKING, Any

from uetproto.layers.uet import *  # noqa: F403
from uetproto.layers.uet import __all__ as __all__

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...  # the layers, which are made at import
