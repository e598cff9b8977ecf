# SPDX-License-Identifier: GPL-2.0-only
"""Packets as the Construct schemas have them, beside the layers that the decoder finds."""

from collections.abc import Iterable, Mapping
from typing import Any

from uetproto.schemas.packet import PacketStruct
from uetproto.wire.packet import Layer


def layers_in(packet: Mapping[str, Any]) -> list[tuple[str, dict[str, int]]]:
    """Return form and fields of each part that is there, in wire order."""
    parts = [part for part in packet.values() if isinstance(part, Mapping) and "_form" in part]
    return [(part["_form"], {name: int(value) for name, value in part.items() if name != "_form"}) for part in parts]


def parts_of(schema: PacketStruct, layers: Iterable[Layer]) -> dict[str, dict[str, Any]]:
    """Return the layers of a packet as the named parts of `schema`, without their forms."""
    names = {header.name: part for part, headers in schema.parts.items() for header in headers}
    return {names[layer.form]: dict(layer.values) for layer in layers}
