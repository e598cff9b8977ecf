# SPDX-License-Identifier: GPL-2.0-only
"""This module has the base class of the Scapy layers of all headers of UET, RoCE and SHARP."""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet, Padding, Raw

from uetproto.errors import LocalError, similar
from uetproto.layers.fields import NAMES, plain_field
from uetproto.layers.fields import LayerError as LayerError
from uetproto.wire.codec import class_name
from uetproto.wire.fields import Field, Header
from uetproto.wire.headers.ethernet import Ecn


class UnknownFieldError(LayerError, AttributeError):  # type: ignore[misc]  # both have a `name`: that of the field
    """A layer was made with a name that none of its fields has."""


@contextmanager
def refusing() -> Iterator[None]:
    """Turn a `LocalError` that the `with` block raises into a `LayerError`, which is an error of Scapy, too."""
    try:
        yield
    except LocalError as error:
        raise LayerError(*error.args, id=error.id) from None


INSIDE: list[Callable[[Any, bytes], Any]] = []
"""Functions that recognize the header at the start of a payload, if no header field announces this header.

Each function takes a layer and its payload. It returns the class of the next layer, or None if it does not know the
payload.
"""


def inside_of(layer: Any, payload: bytes) -> Any:
    """Return the class of layer that the first successful function of `INSIDE` finds for the payload, or None."""
    return next((found for look in INSIDE if (found := look(layer, payload)) is not None), None)


class FormLayer(Packet):  # type: ignore[misc]
    """This is the base class of the Scapy layers, each of which is made from the table of one header."""

    __slots__ = ["received"]  # whether no CRC or pad is appended when the layer is built, because it was dissected
    header: Header

    def __init__(self, _pkt: bytes = b"", *args: Any, received: bool = False, **kwargs: Any) -> None:
        self.received = received or bool(_pkt)
        try:
            super().__init__(_pkt, *args, **kwargs)
        except AttributeError as error:
            if (name := str(error)) not in kwargs:
                raise
            legal = [field.name for field in self.fields_desc]
            what = f"{type(self).__name__} has no such field{similar(name, legal)}"
            raise UnknownFieldError(name, what, ", ".join(legal), id="unknown-field") from None

    def is_cut(self) -> bool:
        """Return whether the packet was dissected from bytes that lack the CRC or pad at its end. Only a packet that
        the caller made from fields gets a CRC and a pad when it is built."""
        return False

    def _command(self, json: bool = False) -> Any:
        """Return the fields for `command()`; what makes the same bytes of a packet without its end has `received`."""
        return super()._command(json) + ([("received", "True")] if self.is_cut() and not json else [])

    def _resolve_alias(self, attr: str) -> str:
        """Return the name of the field that `attr`, a name of its table, stands for, and warn whoever used it."""
        name: str = self.deprecated_fields[attr][0]
        depth = 1
        while sys._getframe(depth).f_globals.get("__name__", "").startswith(("scapy.", "uetproto.layers.")):
            depth += 1
        text = f"the field {attr} of {type(self).__name__} is called {name}"
        warnings.warn(text, DeprecationWarning, stacklevel=depth + 1)
        return name

    def delfieldval(self, attr: str) -> None:
        super().delfieldval(self._resolve_alias(attr) if attr in self.deprecated_fields else attr)

    def sent_values(self) -> dict[str, int]:
        """Return the values of the fields as they are sent, by the names that the header table gives to the fields."""
        named = zip(self.header.names, self.fields_desc, strict=True)
        return {name: int(field.i2m(self, self.getfieldval(field.name))) for name, field in named}

    def mysummary(self) -> Any:
        """Return two values, as Scapy expects: a line that describes the layer, and a list with the class of the layer
        below. The line ends with the `marks` of the packet."""
        try:
            text = self.words() + "".join(f" [{mark}]" for mark in self.marks())
        except TypeError:  # a field has several values, or a random one
            text = self.header.title
        return text, [type(self.underlayer)]

    def words(self) -> str:
        """Return a text that describes the header: its title and the values of all fields that are not reserved.

        Subclasses return the words that `uetproto dissect` has for their headers.
        """
        told = [self.header.title]
        for row, value in zip(self.header.fields, self.sent_values().values(), strict=True):
            if not row.name.startswith("rsvd"):
                code = row.values is not None and next((code.name for code in row.values if code == value), None)
                told.append(f"{row.name}={code or value}")
        return " ".join(told)

    def marks(self) -> list[str]:
        """Return the marks that `uetproto dissect` shows in brackets behind the last header of a packet, such as "ECN"
        if the IP header has CE. The list is empty for the headers before the last one."""
        layer = None if isinstance(self.payload, FormLayer) else self.underlayer
        while layer is not None:
            if isinstance(layer, IP | IPv6):
                return ["ECN"] * ((layer.tos if isinstance(layer, IP) else layer.tc) & 3 == Ecn.CE)
            layer = layer.underlayer
        return []

    def copy(self) -> Any:
        clone = super().copy()
        clone.received = self.received
        return clone

    def clone_with(self, *args: Any, **kwargs: Any) -> Any:
        clone = super().clone_with(*args, **kwargs)
        clone.received = self.received
        return clone


def _fitting(cls: Any, /, _pkt: bytes = b"", *args: Any, **kwargs: Any) -> Any:
    """Return the class to which bytes are dissected: `cls`, or Raw for bytes that are too short for it."""
    return Raw if _pkt and len(_pkt) < cls.header.size else cls


def layer_of(
    header: Header,
    base: type,
    field_of: Callable[[Header, Field], Any] = plain_field,
    dispatch: Callable[..., Any] = _fitting,
) -> Any:
    """Return a Scapy layer class for a header. Its name is the name of the header in CamelCase.

    `field_of` makes the Scapy field for a field of the header, and `dispatch` selects the class for received bytes.
    """
    return type(Packet)(
        class_name(header).removesuffix("Header"),
        (base,),
        {
            "__module__": base.__module__,
            "__doc__": f"{header.title} ({header.spec}), form `{header.name}`.",
            "name": header.title,
            "header": header,
            "fields_desc": [field_of(header, row) for row in header.fields],
            "deprecated_fields": {
                row.name: (NAMES[header.name, row.name], "0.1.0")
                for row in header.fields
                if (header.name, row.name) in NAMES
            },
            "dispatch_hook": classmethod(dispatch),  # Scapy looks for this method in the class itself only
        },
    )


def nearest(layer: Any, kind: type) -> Any:
    """Return the first layer that is a `kind`, from `layer` towards the link layer, or None."""
    while layer is not None and not isinstance(layer, kind):
        layer = layer.underlayer
    return layer


def last_of(packet: Any, *behind: type) -> Any:
    """Return the last layer of a packet before its padding. If the packet has a layer of a class in `behind`, return
    the last layer before that layer."""
    while packet.payload and not isinstance(packet.payload, (Padding, *behind)):
        packet = packet.payload
    return packet
