"""What Scapy layers of all forms have in common."""

from collections.abc import Callable
from typing import Any

from scapy.packet import Packet, Padding

from uetproto.wire.fields import Header

__all__ = ["INSIDE", "FormLayer", "inside_of", "last_of", "layer_of"]

INSIDE: list[Callable[[Any, bytes], Any]] = []
"""Asked for the layer of what a layer carries that no code announces; None: not theirs."""


def inside_of(layer: Any, payload: bytes) -> Any:
    """The layer that one of `INSIDE` knows `payload` of `layer` for, or None."""
    return next((found for look in INSIDE if (found := look(layer, payload)) is not None), None)


class FormLayer(Packet):  # type: ignore[misc]
    """A layer made from the table of a form."""

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
    """The layer of a form, called as it is, in CamelCase; Scapy looks for `dispatch_hook` in the class itself."""
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
    """The last layer above `packet` that is neither padding nor one of `behind`."""
    while packet.payload and not isinstance(packet.payload, (Padding, *behind)):
        packet = packet.payload
    return packet
