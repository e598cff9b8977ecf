"""The Scapy layers of all forms share this base."""

from collections.abc import Callable
from typing import Any

from scapy.packet import Packet, Padding

from uetproto.wire.fields import Header

__all__ = ["INSIDE", "FormLayer", "inside_of", "last_of", "layer_of"]

INSIDE: list[Callable[[Any, bytes], Any]] = []
"""Functions that find the layer of what a layer carries without a code; None if it is not theirs."""


def inside_of(layer: Any, payload: bytes) -> Any:
    """Return the layer that one of `INSIDE` finds for `payload` of `layer`, or None."""
    return next((found for look in INSIDE if (found := look(layer, payload)) is not None), None)


class FormLayer(Packet):  # type: ignore[misc]
    """A form layer is made from the table of a form."""

    __slots__ = ["received"]  # whether it was dissected: then nothing is appended when it is built
    header: Header

    def __init__(self, _pkt: bytes = b"", *args: Any, **kwargs: Any) -> None:
        self.received = bool(_pkt)
        super().__init__(_pkt, *args, **kwargs)

    def copy(self) -> Any:
        clone = super().copy()
        clone.received = self.received
        return clone

    def clone_with(self, *args: Any, **kwargs: Any) -> Any:
        clone = super().clone_with(*args, **kwargs)
        clone.received = self.received
        return clone


def layer_of(header: Header, base: type, fields: list[Any], dispatch: Callable[..., Any]) -> Any:
    """Return the layer of a form, named as the form in CamelCase; Scapy looks for `dispatch_hook` in the class
    itself."""
    return type(Packet)(
        "".join(word.capitalize() for word in header.name.replace(".", "_").split("_")),
        (base,),
        {
            "__module__": base.__module__,
            "__doc__": f"{header.title} ({header.spec}), form `{header.name}`.",
            "name": header.title,
            "header": header,
            "fields_desc": fields,
            "dispatch_hook": classmethod(dispatch),
        },
    )


def last_of(packet: Any, *behind: type) -> Any:
    """Return the last layer above `packet` that is neither padding nor one of `behind`."""
    while packet.payload and not isinstance(packet.payload, (Padding, *behind)):
        packet = packet.payload
    return packet
