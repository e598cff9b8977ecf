# SPDX-License-Identifier: GPL-2.0-only
"""This module draws single packets: `packets` draws decoded packets, and `frames` draws the bytes of frames."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, overload

from hypothesis import strategies as st

from uetproto.audit.reader.expected_values import is_data, misfit_of_roce
from uetproto.testing.strategies.arguments import check_choice, illegal, named
from uetproto.testing.strategies.chance import DrawnChance
from uetproto.testing.strategies.lower import ENCAPSULATIONS, IP_VERSIONS, lower_layers
from uetproto.testing.strategies.roce import PATH_MTUS, RoceStack, roce_layers, roce_stacks
from uetproto.testing.strategies.spoilt import Spoilt, spoilt_value
from uetproto.testing.strategies.stacks import HeaderStack, all_stacks
from uetproto.testing.strategies.values import Draft
from uetproto.wire.forms import FORMS, UET_FORMS
from uetproto.wire.headers import uet_pds
from uetproto.wire.headers.uet_ses import PAYLOAD_MTUS
from uetproto.wire.headers.uet_tss import ICV_SIZE, TSS, TSS_SSI
from uetproto.wire.mutate.frame import Frame, Mutation
from uetproto.wire.mutate.mutation import mutate
from uetproto.wire.packet import Packet, Trailer
from uetproto.wire.stack import decode, encode

_MTU = 1024
TRANSPORTS = ("uet", "roce")
_MORE = 4
_MOST_SEALED = 256
_DRAWN_BYTES = 64
"""Number of bytes of a payload that are drawn; zeros follow."""


class LegalStacks(NamedTuple):
    """This tuple holds the stacks of headers that may be drawn. A stack is drawn in four steps: the kind of the first
    header, the first header itself, the SES header, and the codes that say which headers follow. The simplest choice is
    the first one in each step, so that a failing packet shrinks step by step."""

    kinds: tuple[tuple[tuple[tuple[HeaderStack, ...], ...], ...], ...]

    @classmethod
    def of(cls, stacks: Iterable[HeaderStack]) -> "LegalStacks":
        """Return these stacks in the order in which they are drawn.

        SES headers that can follow many first headers come before those that can follow few. An SES header
        therefore mostly keeps its place in the order when Hypothesis changes the first header.
        """
        found = list(stacks)
        having = Counter(ses for _, ses in {(stack.forms[0], stack.ses) for stack in found})
        found.sort(key=lambda stack: (-having[stack.ses], _size(stack.ses)))
        found.sort(key=lambda stack: _size(stack.forms[0]))  # those of one size stay in the order of the tables
        kinds = _grouped(found, lambda stack: _KINDS[stack.forms[0]])
        kinds.sort(key=lambda kind: min(len(stack.forms) for stack in kind))
        kinds += [max(kinds, key=len)] * _MORE  # requests, of which there are most, are drawn more often
        firsts = ([_grouped(first, lambda stack: stack.ses) for first in _grouped(kind, _first)] for kind in kinds)
        return cls(tuple(tuple(tuple(map(tuple, first)) for first in kind) for kind in firsts))

    def __repr__(self) -> str:
        """Return a short text; all stacks fill pages."""
        return f"<stacks of {len(self.kinds)} kinds>"

    def draw(self, draw: st.DrawFn) -> HeaderStack:
        kind = draw(st.sampled_from(self.kinds))
        return draw(st.sampled_from(draw(st.sampled_from(draw(st.sampled_from(kind))))))


_KINDS = {
    header.name: number
    for number, headers in enumerate((uet_pds.ACKS, uet_pds.NACKS, (uet_pds.CP, uet_pds.CP_SYN), uet_pds.REQUESTS,
                                      (uet_pds.RUDI_REQ,), (uet_pds.RUDI_RESP,), (uet_pds.UUD_REQ,), (TSS, TSS_SSI)))
    for header in headers
}  # fmt: skip
"""Kind of each header that may be the first."""


def _grouped(stacks: Iterable[HeaderStack], key: Callable[[HeaderStack], object]) -> list[list[HeaderStack]]:
    found: dict[object, list[HeaderStack]] = {}
    for stack in stacks:
        found.setdefault(key(stack), []).append(stack)
    return list(found.values())


def _first(stack: HeaderStack) -> str:
    return stack.forms[0]


def _size(form: str | None) -> int:
    return 0 if form is None else FORMS[form].size


class _Described(Protocol):
    """A described stack tells what arguments can ask for."""

    @property
    def name(self) -> str | None: ...
    @property
    def mode(self) -> str | None: ...
    @property
    def forms(self) -> tuple[str, ...]: ...


S = TypeVar("S", bound=_Described)
_ASKED: dict[str, Callable[[_Described], tuple[str | None, ...]]] = {
    "opcode": lambda stack: (stack.name,),
    "mode": lambda stack: (stack.mode,),
    "form": lambda stack: stack.forms,
}


def _narrowed(stacks: Sequence[S], **wanted: str | None) -> Sequence[S]:
    """Return the stacks with this opcode, mode and form; None stands for any. Raises `InvalidArgument` if there is no
    such stack."""
    found = stacks
    asked: list[str] = []
    for name, has in _ASKED.items():
        value = wanted[name]
        if value is not None:
            check_choice(name, value, dict.fromkeys(each for stack in stacks for each in has(stack) if each))
            legal = dict.fromkeys(each for stack in found for each in has(stack) if each)
            if value not in legal:
                raise illegal(name, value, legal, f" with {' and '.join(asked)}")
            found = [stack for stack in found if value in has(stack)]
            asked.append(f"{name}={value!r}")
    return found


@cache
def stacks_of(form: str | None, mode: str | None, opcode: str | None) -> LegalStacks:
    """Return the stacks of UET with this form, mode and opcode; None stands for any."""
    return LegalStacks.of(_narrowed(all_stacks(), form=form, mode=mode, opcode=opcode))


class Surroundings(NamedTuple):
    """This tuple says what is around the UET headers of a packet. None stands for anything that is legal."""

    encapsulation: str | None
    ip_version: int | None
    crc: bool | None
    mtu: int

    def check(self, transport: str) -> None:
        """Raise `InvalidArgument` for a value that is not legal with a transport."""
        roce = transport == "roce"
        check_choice("encapsulation", self.encapsulation, ENCAPSULATIONS[:1] if roce else ENCAPSULATIONS)
        check_choice("ip_version", self.ip_version, IP_VERSIONS)
        check_choice("crc", self.crc, (True,) if roce else (False, True))
        check_choice("mtu", self.mtu, PATH_MTUS if roce else PAYLOAD_MTUS)

    def told(self) -> dict[str, object]:
        """Return the arguments that are not the default."""
        return {name: value for name, value in self._asdict().items() if value not in (None, _MTU)}


@st.composite
def _roce_frames(draw: st.DrawFn, stacks: Sequence[RoceStack], around: Surroundings) -> bytes:
    layers, size = draw(roce_layers(stacks, around.ip_version, around.mtu))
    return encode(Packet(layers, draw(payloads(size)), Trailer("icrc", 0)), fill=True)


@st.composite
def _uet_frames(draw: st.DrawFn, stacks: LegalStacks, around: Surroundings) -> bytes:
    stack = stacks.draw(draw)
    first = stack.forms[0]
    layers = draw(lower_layers(around.encapsulation, around.ip_version, is_data([first])))
    draft = Draft(draw, stack, around.mtu)
    layers += draft.layers()
    if first.startswith("tss"):
        payload, icv = draw(st.binary(max_size=_MOST_SEALED)), draw(st.binary(min_size=ICV_SIZE, max_size=ICV_SIZE))
        return encode(Packet(layers, payload, Trailer("icv", int.from_bytes(icv, "big"))), fill=True)
    crc = draw(st.booleans()) if around.crc is None else around.crc
    payload = draw(payloads(draft.payload_size))
    return encode(Packet(layers, payload, Trailer("crc32c", 0) if crc else None), fill=True)


def _right(
    transport: str, around: Surroundings, **wanted: str | None
) -> tuple[st.SearchStrategy[bytes], dict[str, object]]:
    """Return a strategy for legal frames, and the arguments that reports show."""
    check_choice("transport", transport, TRANSPORTS)
    around.check(transport)
    told = wanted | around.told()
    if transport == "roce":
        return _roce_frames(_narrowed(roce_stacks(), **wanted), around), {"transport": transport, **told}
    return _uet_frames(stacks_of(**wanted), around), told


def payloads(size: int) -> st.SearchStrategy[bytes]:
    """Return a strategy for `size` bytes. Only the first bytes are drawn, and the rest are zeros."""
    return st.binary(max_size=min(size, _DRAWN_BYTES)).map(lambda drawn: drawn.ljust(size, b"\0"))


def whole(packet: Packet) -> st.SearchStrategy[Packet]:
    """Return a strategy that always draws `packet`. Reports of Hypothesis show all fields of the packet."""
    parts = {"layers": packet.layers, "payload": packet.payload, "trailer": packet.trailer, "notes": packet.notes,
             "error": packet.error, "raw": packet.raw, "pad": packet.pad}  # fmt: skip
    return st.builds(Packet, **{name: st.just(part) for name, part in parts.items() if part})


# With one fault -------------------------------------------------------------------------------------------------------


_ALONE = (
    "reserved-bit", "bad-version", "reserved-type", "bad-next-hdr", "unknown-opcode", "unknown-code", "clear-positive",
    "bad-crc", "length-over", "length-under", "extra-bytes", "cut",
)  # fmt: skip
"""Mutations whose damage one packet shows."""


_OF_ALL_PACKETS = {"ROCE-ICRC": "ROCE-ICRC-CAPTURE"}
"""Rules that are broken in place of others where no packet of a capture is right."""


@st.composite
def _damages(draw: st.DrawFn, right: st.SearchStrategy[bytes]) -> Mutation:
    first = draw(st.sampled_from(range(len(_ALONE))))
    data = draw(right)
    packet = decode(data)
    if "sealed" in packet.notes:
        start = next(index for index, layer in enumerate(packet.layers) if layer.form.startswith("tss"))
        return Frame(data, packet, start).changed(start, "rsvd", 1)._replace(rule="WIRE-RESERVED-BIT")
    found = (mutate(name, data, DrawnChance(draw)) for name in (*_ALONE[first:], *_ALONE[:first]))
    damage = next(each for each in found if each is not None and _tells(each, packet))
    return damage._replace(rule=_OF_ALL_PACKETS.get(rule_of(damage), damage.rule))


def _tells(mutation: Mutation, packet: Packet) -> bool:
    """Return whether the frame itself shows the damage: it still is UET or RoCE, and ends with a CRC if it did."""
    wrong = decode(mutation.frame)
    if wrong.error is not None:
        return any(layer.form in ("udp", *UET_FORMS) for layer in wrong.layers)
    if "truncated" in wrong.notes:
        return False  # a packet of RoCE that is cut may as well be one that the capture has cut
    if mutation.rule == "ROCE-LENGTH":
        layers = [layer[:2] for layer in wrong.layers]
        return misfit_of_roce(layers, len(wrong.payload), len(wrong.pad)) is not None
    return (wrong.trailer is None) is (packet.trailer is None)


def told(mutation: Mutation) -> str:
    """Return what a mutation has changed, in words."""
    where = mutation.field if mutation.form is None else f"{mutation.form}.{mutation.field}"
    return f"{where} at byte {mutation.offset} is {mutation.after}, {mutation.before} is right"


def rule_of(mutation: Mutation) -> str:
    assert mutation.rule is not None
    return mutation.rule


@st.composite
def _spoilt_frames(draw: st.DrawFn, right: st.SearchStrategy[bytes]) -> Spoilt[bytes]:
    damage = draw(_damages(right))
    return draw(spoilt_value(damage.frame, rule_of(damage), told(damage)))


@st.composite
def _packets(draw: st.DrawFn, right: st.SearchStrategy[bytes]) -> Packet:
    return draw(whole(decode(draw(right))))


@st.composite
def _spoilt_packets(draw: st.DrawFn, right: st.SearchStrategy[bytes]) -> Spoilt[Packet]:
    damage = draw(_damages(right))
    return draw(spoilt_value(draw(whole(decode(damage.frame))), rule_of(damage), told(damage)))


# The strategies -------------------------------------------------------------------------------------------------------


@overload
def packets(
    *, form: str | None = ..., mode: str | None = ..., opcode: str | None = ..., encapsulation: str | None = ...,
    ip_version: int | None = ..., crc: bool | None = ..., mtu: int = ..., transport: str = ...,
    spoilt: Literal[False] = ...,
) -> st.SearchStrategy[Packet]: ...  # fmt: skip
@overload
def packets(
    *, form: str | None = ..., mode: str | None = ..., opcode: str | None = ..., encapsulation: str | None = ...,
    ip_version: int | None = ..., crc: bool | None = ..., mtu: int = ..., transport: str = ...,
    spoilt: Literal[True],
) -> st.SearchStrategy[Spoilt[Packet]]: ...  # fmt: skip
def packets(
    *,
    form: str | None = None,
    mode: str | None = None,
    opcode: str | None = None,
    encapsulation: str | None = None,
    ip_version: int | None = None,
    crc: bool | None = None,
    mtu: int = _MTU,
    transport: str = "uet",
    spoilt: bool = False,
) -> st.SearchStrategy[Any]:
    """Return a strategy for one packet of UET or RoCEv2, as `uetproto.decode` returns it: `encode(packet)` gives its
    bytes.

    Each packet is legal by itself: its headers follow each other by the table `NEXT`, its fields agree, and an audit
    finds nothing. With `spoilt`, the packet has one fault, and the audit reports the rule that `Spoilt.rule` names.

    An argument that is None is drawn. `form` is a form that the packet has, of UET or RoCE. `mode` is rud, rod, rudi or
    uud, `opcode` the name of a request opcode; with the `transport` "roce", `mode` is rc, uc, ud, xrc or cnp, `opcode`
    the name of an operation. `encapsulation` is udp or native. `ip_version` is 4 or 6. `crc` says whether a CRC32C ends
    a packet that is not sealed. `mtu` is the payload MTU. Raises `InvalidArgument` for arguments that are not legal,
    alone or together.
    """
    around = Surroundings(encapsulation, ip_version, crc, mtu)
    right, told = _right(transport, around, form=form, mode=mode, opcode=opcode)
    return named("packets", _spoilt_packets(right) if spoilt else _packets(right), spoilt, told)


@overload
def frames(
    *, form: str | None = ..., mode: str | None = ..., opcode: str | None = ..., encapsulation: str | None = ...,
    ip_version: int | None = ..., crc: bool | None = ..., mtu: int = ..., transport: str = ...,
    spoilt: Literal[False] = ...,
) -> st.SearchStrategy[bytes]: ...  # fmt: skip
@overload
def frames(
    *, form: str | None = ..., mode: str | None = ..., opcode: str | None = ..., encapsulation: str | None = ...,
    ip_version: int | None = ..., crc: bool | None = ..., mtu: int = ..., transport: str = ...,
    spoilt: Literal[True],
) -> st.SearchStrategy[Spoilt[bytes]]: ...  # fmt: skip
def frames(
    *,
    form: str | None = None,
    mode: str | None = None,
    opcode: str | None = None,
    encapsulation: str | None = None,
    ip_version: int | None = None,
    crc: bool | None = None,
    mtu: int = _MTU,
    transport: str = "uet",
    spoilt: bool = False,
) -> st.SearchStrategy[Any]:
    """Return a strategy for the bytes of one Ethernet frame; the arguments are those of `packets`."""
    around = Surroundings(encapsulation, ip_version, crc, mtu)
    right, told = _right(transport, around, form=form, mode=mode, opcode=opcode)
    return named("frames", _spoilt_frames(right) if spoilt else right, spoilt, told)
