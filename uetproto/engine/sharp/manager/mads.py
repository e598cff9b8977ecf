# SPDX-License-Identifier: GPL-2.0-only
"""A `Mad` holds a management datagram of SHARP, 256 bytes on the wire (sharp.md §1.7, §2.9)."""

from dataclasses import dataclass, field

from uetproto.engine.contract import Buffer
from uetproto.wire.codec import Values, codec_of
from uetproto.wire.headers.sharp_am import AM, AM_CLASS, ATTRIBUTES

SIZE = 256
CLASS_VERSION = 2

_HEAD = codec_of(AM)
_NAMED = {int(attribute): codec_of(header) for attribute, header in ATTRIBUTES.items()}


@dataclass(slots=True, kw_only=True)
class Mad:
    """A MAD holds the fields of a management datagram by name.

    The numbers are plain integers, as a received number need not be a member of an enumeration.
    """

    method: int
    attribute: int
    values: Values = field(default_factory=dict)
    """Fields of the attribute, by name."""
    am_key: int = 0
    tid: int = 0
    status: int = 0
    class_version: int = CLASS_VERSION
    mgmt_class: int = AM_CLASS

    def pack(self) -> bytes:
        """Return the 256 bytes of the MAD; an attribute whose layout is not known gets a body of zeros."""
        head = _HEAD.encode({
            "mgmt_class": self.mgmt_class, "class_version": self.class_version, "method": self.method,
            "status": self.status, "tid": self.tid, "attr_id": self.attribute, "am_key": self.am_key,
        })  # fmt: skip
        codec = _NAMED.get(self.attribute)
        return (head + (codec.encode(self.values) if codec else b"")).ljust(SIZE, b"\0")


def read(data: Buffer) -> Mad | None:
    """Return the MAD that the bytes hold; None if they hold no MAD of the SHARP class. Received bytes never raise an
    error."""
    if len(data) != SIZE:
        return None
    head = _HEAD.decode(data)
    if head["base_version"] != 1 or head["mgmt_class"] != AM_CLASS:
        return None
    codec = _NAMED.get(head["attr_id"])
    return Mad(
        method=head["method"], attribute=head["attr_id"], values=codec.decode(data, AM.size) if codec else {},
        am_key=head["am_key"], tid=head["tid"], status=head["status"], class_version=head["class_version"],
    )  # fmt: skip


def children_of(values: Values) -> dict[int, int]:
    """Return the child list of a TreeConfig, as a map from child_idx to connection."""
    return {values[f"child{at}_idx"]: values[f"child{at}_qpn"] for at in range(values["n_children"])}


def child_rows(children: dict[int, int]) -> Values:
    """Return the fields of a TreeConfig for a child list, which maps child_idx to connection."""
    rows = {"n_children": len(children)}
    for at, (index, qpn) in enumerate(children.items()):
        rows |= {f"child{at}_idx": index, f"child{at}_qpn": qpn}
    return rows
