# SPDX-License-Identifier: GPL-2.0-only
"""This module lists the legal stacks of UET headers, by the table `NEXT`: the codes in a header say which header
follows."""

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from typing import NamedTuple

from uetproto.testing.strategies.headers import codes
from uetproto.wire.codec import codec_of
from uetproto.wire.fields import Header
from uetproto.wire.forms import FIRST, Candidates, matches, rows_after
from uetproto.wire.headers.uet_pds import LEGAL_NEXT_HDR, Mode, NextHdr, PdsType
from uetproto.wire.headers.uet_ses import ATOMICS, OPCODE_PROFILES, STANDARD, Opcode

MODES = tuple(mode.name.lower() for mode in Mode)
_TYPE_OF = {PdsType.RUD_CC_REQ: Mode.RUD, PdsType.ROD_CC_REQ: Mode.ROD} | {PdsType(mode): mode for mode in Mode}
_IN_ONE_PACKET = (*ATOMICS, Opcode.NO_OP, Opcode.DEFERRABLE_RTR)


class StackStep(NamedTuple):
    """This tuple has one header of a stack, and the codes in it that say which header follows."""

    header: Header
    codes: Mapping[str, int]


class HeaderStack(NamedTuple):
    """A stack lists the headers of a packet: all from the PDS header to the payload, or in a sealed packet the security
    header alone."""

    steps: tuple[StackStep, ...]
    mode: str | None
    """Delivery mode of a request; None for other packets, such as an ACK or a control packet."""
    opcode: Opcode | None
    """Opcode of the request, if the packet is one."""

    @property
    def name(self) -> str | None:
        """Return the name of the opcode."""
        return None if self.opcode is None else self.opcode.name

    @property
    def forms(self) -> tuple[str, ...]:
        return tuple(step.header.name for step in self.steps)

    @property
    def ses(self) -> str | None:
        """Return the form of the SES header, extension headers not counted; None if the packet has no SES header."""
        return next((form for form in self.forms if form.startswith("ses.")), None)


@cache
def all_stacks() -> tuple[HeaderStack, ...]:
    """Return all legal stacks. Stacks with fewer headers come first; stacks with equally many headers are in the order
    of the tables."""
    return tuple(sorted((found for first in FIRST for found in _stacks(first)), key=lambda stack: len(stack.steps)))


def _stacks(first: Header) -> Iterator[HeaderStack]:
    mode = _TYPE_OF.get(PdsType(first["type"].only[0]))
    for steps in _walk((), ((first,),), mode):
        opcodes = (Opcode(step.codes["opcode"]) for step in steps if "opcode" in step.codes)
        yield HeaderStack(steps, None if mode is None else mode.name.lower(), next(opcodes, None))


def _walk(
    done: tuple[StackStep, ...], todo: tuple[Candidates, ...], mode: Mode | None
) -> Iterator[tuple[StackStep, ...]]:
    """Continue a stack in every legal way."""
    if not todo:
        yield done
        return
    for header in todo[0]:
        rows = rows_after(header)
        names = tuple(dict.fromkeys(row.by for row in rows if row.by is not None))
        for values in product(*(_legal(name, header, todo[0], done, mode) for name in names)):
            chosen = dict(zip(names, values, strict=True))
            groups = (row.otherwise if row.by is None else row.then.get(chosen[row.by], row.otherwise) for row in rows)
            yield from _walk((*done, StackStep(header, chosen)), (*filter(None, groups), *todo[1:]), mode)


def _legal(
    name: str, header: Header, siblings: Candidates, done: tuple[StackStep, ...], mode: Mode | None
) -> tuple[int, ...]:
    """Return the legal values of a field that says what follows."""
    if name == "next_hdr":
        return header[name].only or tuple(sorted(LEGAL_NEXT_HDR[header["type"].only[0]]))
    if name != "opcode":
        return codes(header.name, name)
    form = next(NextHdr(step.codes["next_hdr"]) for step in done if "next_hdr" in step.codes)
    return tuple(code for code in OPCODE_PROFILES if _is_request(code, header, siblings, form, mode))


def _is_request(code: Opcode, header: Header, siblings: Candidates, form: NextHdr, mode: Mode | None) -> bool:
    """Return whether a request of the opcode has this header in this form and mode (ses.md §5.1)."""
    profile = OPCODE_PROFILES[code]
    if form not in profile.forms or mode not in profile.modes:
        return False
    if mode is Mode.RUDI and header["hd"].only == (1,):
        return False  # completion data would be told twice
    values = {field.name: field.default for field in header.fields} | {"opcode": code}
    word = int.from_bytes(codec_of(header).encode(values)[:2], "big")
    if next(each for each in siblings if matches(each, word)) is not header:
        return False
    is_later = header in STANDARD and header["som"].only == (0,)
    if code == Opcode.MSG_ERROR:
        return is_later
    return not is_later or not (code in _IN_ONE_PACKET or mode is Mode.UUD)
