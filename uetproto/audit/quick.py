"""From bytes straight to `Seen`: shapes that were met are compiled, as `wire.shapes` does, without a packet in between.

A reader says None for whatever is not usual in every way, and for what it has not met: that goes the long way, which
decides alone what a frame means. A test holds both ways to the same result.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from uetproto.audit.seen import Seen, head_class
from uetproto.audit.usual import (
    SYNDROMES,
    VERSIONS,
    code_fields,
    is_data,
    reserved_fields,
)
from uetproto.wire.fields import Header
from uetproto.wire.forms import FORMS
from uetproto.wire.packet import Layer, Packet
from uetproto.wire.roce import BTH_FOLLOWS, OPERATIONS, PMTUS, Load, Operation, Transport, opcode_of
from uetproto.wire.shapes import Shape, compile_shape, exact_fields, shape_of
from uetproto.wire.sharp import MAGIC, VERSION
from uetproto.wire.sharp_am import AM_QP
from uetproto.wire.stack import implied_by
from uetproto.wire.uet_ses import SEND_STD_SOM
from uetproto.wire.uet_tss import ICV_SIZE

_WARM = 4
"""Packets of a shape before it is compiled."""
_MOST = 1024
"""Shapes kept."""

Reader = Callable[[bytes, int, int], Seen | None]
Flows = dict[tuple[int, int], bool]


class Kind(NamedTuple):
    """What usual packets have in common for the rules about a packet alone."""

    forms: tuple[str, ...]
    trailer: str | None


class QuickReader:
    """The compiled shapes of one vantage point, and how many packets had each."""

    def __init__(self, crc: str, with_crc: Flows, with_icrc: Flows) -> None:
        """By source and destination: whether there is a CRC32C, or an ICRC; a right one is entered there."""
        self._crc = crc
        self._with_crc = with_crc
        self._with_icrc = with_icrc
        self._by_hint: dict[bytes, tuple[Reader, ...]] = {}
        self._by_shape: dict[tuple[Any, ...], Reader] = {}
        self._met: dict[tuple[Any, ...], int] = {}
        self._counts: dict[Kind, list[int]] = {}

    def read(self, data: bytes, number: int, time_ns: int) -> Seen | None:
        """A usual packet whose shape is known; None for any other."""
        # The most common first: UDP behind Ethernet and IPv4; the two bytes of SES tell flags and opcode.
        hint = data[42:44] + data[54:56] if data[14:24:9] == _IPV4_UDP else _hint(data)
        for reader in self._by_hint.get(hint) or self._by_hint.get(hint[:2]) or ():
            seen = reader(data, number, time_ns)
            if seen is not None:
                return seen
        return None

    def learn(self, data: bytes, packet: Packet) -> None:
        """Remember the shape of a usual packet that went the long way, and count it."""
        kind, count = self.count(packet)
        trailer = kind.trailer
        if packet.layers[0].offset or any(form not in FORMS or form in ("lrh", "erf") for form in kind.forms):
            return
        key = (trailer, *((form, *(values[f] for f in _exact(FORMS[form]))) for form, values, _ in packet.layers))
        reader = self._by_shape.get(key)
        if reader is None:
            met = self._met[key] = self._met.get(key, 0) + 1
            if met < _WARM:
                return
            if len(self._by_shape) >= _MOST or len(self._met) > 16 * _MOST:
                for known in (self._by_shape, self._by_hint, self._met):
                    known.clear()
            reader = self._by_shape[key] = _compile(
                packet, self._crc, count, self._with_icrc if "bth" in kind.forms else self._with_crc
            )
        hint = data[42:44] + data[54:56] if data[14:24:9] == _IPV4_UDP else _hint(data)
        hint = hint if any(form in _TOLD_APART for form in kind.forms) else hint[:2]
        readers = self._by_hint.get(hint, ())
        if reader not in readers:
            self._by_hint[hint] = (reader, *readers)[:_TRIED]

    def count(self, packet: Packet) -> tuple[Kind, list[int]]:
        """Count a usual packet: its kind, and the number of these."""
        trailer = packet.trailer.kind if packet.trailer else None
        kind = Kind(tuple([layer.form for layer in packet.layers]), trailer)
        count = self._counts.setdefault(kind, [0])
        count[0] += 1
        return kind, count

    @property
    def counts(self) -> dict[Kind, int]:
        """Usual packets by kind, whichever way they took."""
        return {kind: count[0] for kind, count in self._counts.items() if count[0]}


_IPV4_UDP = b"\x45\x11"  # bytes 14 and 23
_TRIED = 8  # readers for one hint
_TOLD_APART = frozenset(
    form for form in FORMS if form.startswith(("pds.rud_req", "pds.rod_req", "pds.ack.")) or form == "pds.ack"
)
"""Headers of 12 bytes with SES behind: its first two bytes tell shapes apart. Elsewhere there are counters."""


def _hint(data: bytes) -> bytes:
    """The first two bytes of PDS or BTH and the two behind twelve, where IP has no options. It may be wrong."""
    at = 14
    while data[at - 2 : at] in _TAGS:
        at += 4
    if data[at - 2 : at] not in _TYPES:  # no Ethernet
        at = 16 if data[14:16] in _TYPES else 20 if data[:2] in _TYPES else 0
    if data[at : at + 1] == b"\x45":
        at += 28 if data[at + 9 : at + 10] == b"\x11" else 24
    else:
        following = data[at + 6 : at + 7]
        at += 48 if following == b"\x11" else 40 if following == _BTH_FOLLOWS else 44
    return data[at : at + 2] + data[at + 12 : at + 14]


_TAGS = (b"\x81\x00", b"\x88\xa8")
_TYPES = (b"\x08\x00", b"\x86\xdd", b"\x89\x15")
_BTH_FOLLOWS = bytes([BTH_FOLLOWS])


@cache
def _exact(header: Header) -> tuple[str, ...]:
    """The fields of a usual header that are compiled in: they choose what follows, are 0, or hold a code."""
    names = [*exact_fields(header), *reserved_fields(header.name)]
    names += [name for name in code_fields(header.name) if name != "syndrome"]
    names += [name for name in VERSIONS if name in header.names]
    names += {"ipv4": ["df"], "ethernet": ["type"], "vlan": ["type"]}.get(header.name, [])
    return tuple(dict.fromkeys(names))


def _compile(packet: Packet, crc: str, count: list[int], with_crc: Flows) -> Reader:
    layers = packet.layers
    forms = [layer.form for layer in layers]
    sealed, roce = forms[-1].startswith("tss"), "bth" in forms
    matching = packet.trailer is not None and packet.trailer.ok
    ending = "unchecked" if sealed or crc == "off" else "matching" if matching else "none"
    ending = "invariant" if roce else ending
    shape = shape_of(layers, ending, implied_by, _exact)
    seen, scope = _seen(layers, shape, ICV_SIZE if sealed else shape.pad, sealed)
    shape = shape._replace(
        implied=None,
        guards=shape.guards + _more_guards(layers, shape, sealed),
        check=shape.check + _noting(layers, shape, ending),
    )
    name = "seen " + " ".join(forms)
    reader: Reader = compile_shape(
        shape,
        seen,
        name,
        ", number_, time_ns",
        Seen=Seen,
        SYNDROMES=frozenset(SYNDROMES),
        count=count,
        with_crc=with_crc,
        **scope,
    )
    return reader


def _seen(layers: list[Layer], shape: Shape, tail: int, sealed: bool) -> tuple[str, dict[str, Any]]:
    """The expression that makes a `Seen`, and the classes of headers that it needs."""
    src = dst = dscp = ecn = entropy = "0"
    heads: list[str] = []
    kinds: list[str] = []
    scope: dict[str, Any] = {}
    behind = shape.size
    for index, ((form, _, offset), fields) in enumerate(zip(layers, shape.fields, strict=True)):
        if form in ("ethernet", "ipv4", "ipv6"):
            src, dst = fields["src"], fields["dst"]
            dscp, ecn = fields.get("dscp", dscp), fields.get("ecn", ecn)
        elif form == "grh":
            src, dst, dscp, ecn = (
                fields["sgid"],
                fields["dgid"],
                f"({fields['tclass']}) >> 2",
                f"({fields['tclass']}) & 3",
            )
        elif form in ("udp", "entropy"):
            entropy = fields["sport" if form == "udp" else "entropy"]
        elif form.startswith(("pds.", "tss", "ses.")) or heads or form == "bth":
            scope[f"H{index}"] = head_class(form)
            heads.append(f"new(H{index}, ({', '.join(fields.values())},))")
            kinds.append(form)
            if not form.startswith(("pds.", "tss")) and form != "bth":
                behind = min(behind, offset)
    ses = next((i for i, form in enumerate(kinds) if form.startswith("ses.")), None)
    more = [head for i, head in enumerate(heads) if i not in (0, ses)]
    size = f"end - {shape.size + tail}" if tail else f"end - {shape.size}"
    last = f"end - {shape.pad}" if shape.pad else "end"
    return (
        f"new(Seen, (number_, time_ns, {src}, {dst}, {dscp}, {ecn}, {entropy}, {heads[0]}, "
        f"{heads[ses] if ses else None}, ({', '.join(more)}{',' if more else ''}), {size}, "
        f"crc32c(data[{behind}:{last}]), None))"
    ), scope


def _more_guards(layers: list[Layer], shape: Shape, sealed: bool) -> list[str]:
    """What else a usual packet is (`usual.is_usual`)."""
    found = []
    by_form = {layer.form: fields for layer, fields in zip(layers, shape.fields, strict=True)}
    forms = list(by_form)
    for form, _, offset in layers:
        if form == "ipv4":
            found.append(f'number(data[{offset}:{offset + 20}], "big") % 65535')
        if form in ("ipv4", "ipv6") and is_data(forms):
            found.append(f"not {_bracketed(by_form[form]['ecn'])}")
        if form == "aeth":
            found.append(f"{_bracketed(by_form[form]['syndrome'])} not in SYNDROMES")
    if sealed:
        found.append(f"end < {shape.size + ICV_SIZE}")
    if "bth" in by_form:
        found += _roce_guards(layers, shape, by_form)
    elif shape.implied is not None and not sealed:
        found.append(f"end - {shape.size} != {shape.implied}")
    if forms[-1] == SEND_STD_SOM.name:
        found.append(f"{_bracketed(by_form[forms[-1]]['header_data'])} >> 32 == {MAGIC}")
    return found


_MAY_AGGREGATE = (
    opcode_of(Transport.RC, Operation.SEND_FIRST), opcode_of(Transport.RC, Operation.SEND_ONLY),
    opcode_of(Transport.UD, Operation.SEND_ONLY),
)  # fmt: skip
_WHOLE_WRITES = (Operation.RDMA_WRITE_ONLY, Operation.RDMA_WRITE_ONLY_WITH_IMMEDIATE)


def _roce_guards(layers: list[Layer], shape: Shape, by_form: dict[str, dict[str, str]]) -> Sequence[str]:
    """Lengths (`usual.misfit_of_roce`); and what may be a message of SHARP is looked into."""
    opcode = next(layer.values["opcode"] for layer in layers if layer.form == "bth")
    size = f"(end - {shape.size + shape.pad})"
    if opcode >> 5 == Transport.CNP:
        return [f"{size} != 0"]
    operation = Operation(opcode & 0x1F)
    wrong = {
        Load.NONE: [f"{size} != 0"],
        Load.WORD: [f"{size} != 8"],
        Load.SOME: [f"{size} == 0"],
        Load.FULL: [f"{size} not in {PMTUS}"],
        Load.ANY: [],
    }[OPERATIONS[operation].load]
    wrong += [f"{size} > {PMTUS[-1]}", f"-{size} & 3 != {shape.pad}"]
    if operation in _WHOLE_WRITES:
        wrong.append(f"{_bracketed(by_form['reth']['dmalen'])} != {size}")
    if operation is Operation.RDMA_WRITE_FIRST:
        wrong.append(f"{_bracketed(by_form['reth']['dmalen'])} <= {size}")
    if opcode in _MAY_AGGREGATE:
        wrong.append(f"{size} and data[{shape.size}] >> 4 == {VERSION}")
    if "deth" in by_form:
        wrong.append(f"{_bracketed(by_form['bth']['destqp'])} == {AM_QP}")
    return wrong


def _noting(layers: list[Layer], shape: Shape, ending: str) -> str:
    """Statements: the packet is counted; a right CRC tells that its flow has one, and none is right only where a flow
    is known to have none."""
    counted = "\n    count[0] += 1"
    network = max((i for i, layer in enumerate(layers) if layer.form in ("ipv4", "ipv6", "grh")), default=None)
    if network is None or ending == "unchecked":
        return counted
    source, destination = ("sgid", "dgid") if layers[network].form == "grh" else ("src", "dst")
    flow = f"({shape.fields[network][source]}, {shape.fields[network][destination]})"
    if ending != "none":
        return f"\n    if {flow} not in with_crc:\n        with_crc[{flow}] = True{counted}"
    return f"\n    if with_crc.get({flow}) is not False:\n        return None{counted}"


def _bracketed(expression: str) -> str:
    return f"({expression})"
