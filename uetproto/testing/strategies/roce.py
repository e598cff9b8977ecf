# SPDX-License-Identifier: GPL-2.0-only
"""This module draws packets of RoCEv2: a BTH, the headers of its opcode, payload, pad and ICRC."""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from hypothesis import strategies as st

from uetproto.testing.strategies.headers import Numbers, drawn_together, field_values, numbers
from uetproto.testing.strategies.lower import lower_layers
from uetproto.wire.forms import FORMS, ROCE_PORT, SYNDROMES
from uetproto.wire.headers.roce import (
    OPERATIONS,
    PMTUS,
    RD_OPCODES,
    SEQUENCES,
    WHOLE_WRITES,
    Load,
    Operation,
    Transport,
)
from uetproto.wire.packet import Layer

PATH_MTUS = tuple(mtu for mtu in PMTUS if mtu >= 1024)
"""Path MTUs that are payload MTUs of UET, too."""
_M31 = (1 << 31) - 1
_ALIGNED = numbers(0, (1 << 61) - 1).map(lambda words: 8 * words)


class RoceStack(NamedTuple):
    """This tuple names the headers of a packet of RoCE, which follow from its opcode."""

    code: int
    mode: str
    """Transport: rc, uc, ud, xrc or cnp."""
    operation: Operation | None
    """Operation; None for a congestion notification, which has none."""

    @property
    def name(self) -> str | None:
        """Return the name of the operation."""
        return None if self.operation is None else self.operation.name

    @property
    def forms(self) -> tuple[str, ...]:
        return ("bth", *(header.name for header in SEQUENCES[self.code]))


@cache
def roce_stacks() -> tuple[RoceStack, ...]:
    """Return the stacks of all opcodes of RoCEv2, those of the fewest headers first, but none of RD, which decoding
    leaves raw."""
    found = (
        RoceStack(code, transport.name.lower(), None if transport is Transport.CNP else Operation(code & 0x1F))
        for code, transport in ((code, Transport(code >> 5)) for code in sorted(SEQUENCES))
        if code not in RD_OPCODES
    )
    return tuple(sorted(found, key=lambda stack: len(stack.forms)))


@st.composite
def roce_layers(
    draw: st.DrawFn, stacks: Sequence[RoceStack], ip_version: int | None, mtu: int
) -> tuple[list[Layer], int]:
    """Draw the layers of a packet, from Ethernet on, and the size of its payload."""
    modes = [[stack for stack in stacks if stack.mode == mode] for mode in dict.fromkeys(one.mode for one in stacks)]
    stack = draw(st.sampled_from(draw(st.sampled_from(modes))))
    layers = draw(lower_layers("udp", ip_version, True, ROCE_PORT))
    drawn = [draw(_independent(form, stack.operation)) for form in stack.forms]
    size = draw(_sizes(stack.operation, mtu))
    for form, values in zip(stack.forms, drawn, strict=True):
        if form == "bth":
            values["opcode"] = stack.code
        if form == "reth":
            values["dmalen"] = draw(_lengths(stack.operation, size))
        layers.append(Layer(form, {name: values[name] for name in FORMS[form].names if name in values}))
    return layers, size


@cache
def _independent(form: str, operation: Operation | None) -> st.SearchStrategy[dict[str, int]]:
    """Return a strategy for the fields of a header that depend on no other field."""
    later = {"bth": ("opcode", "padcnt"), "reth": ("dmalen",)}.get(form, ())
    rules = {name: field_values(form, name) for name in FORMS[form].names if name not in later}
    if form == "aeth":
        rules["syndrome"] = st.sampled_from(SYNDROMES) if operation is Operation.ACKNOWLEDGE else numbers(0, 0x1F)
    if form == "atomic_eth" or (form == "reth" and operation is Operation.ATOMIC_WRITE):
        rules["va"] = _ALIGNED
    if form == "feth":
        rules |= {"sel": numbers(0, 1), "plt": numbers(1, 3)}
    return drawn_together(rules)


def _sizes(operation: Operation | None, mtu: int) -> Numbers:
    """Return a strategy for the size of the payload (roce.md §3)."""
    load = Load.NONE if operation is None else OPERATIONS[operation].load
    least, most = (mtu if bound is None else bound for bound in load.value)
    return numbers(least, most)


def _lengths(operation: Operation | None, size: int) -> Numbers:
    """Return a strategy for the length in a RETH: that of the whole message."""
    if operation in WHOLE_WRITES or operation is Operation.ATOMIC_WRITE:
        return numbers(size, size)
    return numbers(size + 1 if operation is Operation.RDMA_WRITE_FIRST else 0, _M31)
