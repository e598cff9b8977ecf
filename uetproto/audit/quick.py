"""From bytes straight to `Seen`: shapes that were met are compiled, as `wire.shapes` does, without a packet in between.

A reader says None for whatever is not usual in every way, and for what it has not met: that goes the long way, which
decides alone what a frame means. A test holds both ways to the same result.
"""

import struct
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from uetproto.audit.seen import Seen, head_class
from uetproto.audit.usual import (
    SYNDROMES,
    VERSIONS,
    code_fields,
    is_data,
    is_vendors,
    reserved_fields,
)
from uetproto.wire.codec import codec_of
from uetproto.wire.fields import Header
from uetproto.wire.forms import FORMS
from uetproto.wire.packet import Layer, Packet
from uetproto.wire.roce import BTH_FOLLOWS, OPERATIONS, PMTUS, Load, Operation, Transport, opcode_of
from uetproto.wire.shapes import Shape, compile_shape, exact_fields, shape_of
from uetproto.wire.sharp import MAGIC, VERSION
from uetproto.wire.sharp_am import AM_QP
from uetproto.wire.stack import TRIMMED_DSCP, implied_by
from uetproto.wire.uet_ses import SEND_STD_SOM
from uetproto.wire.uet_tss import ICV_SIZE

_WARM = 4
"""Packets of a shape before it is compiled."""
_MOST = 1024
"""Shapes kept."""

Reader = Callable[[bytes, int, int], Seen | None]
Flows = dict[tuple[int, int], bool]
Hint = tuple[int, ...]
"""The first two bytes of PDS or BTH and the two behind twelve of them, which may be left out. It may be wrong."""


class Kind(NamedTuple):
    """What usual packets have in common for the rules about a packet alone."""

    forms: tuple[str, ...]
    trailer: str | None
    whole: bool = True
    """False: the capture kept the headers, and not all behind them."""


class QuickReader:
    """The compiled shapes of one vantage point, and how many packets had each."""

    def __init__(self, crc: str, with_crc: Flows, with_icrc: Flows) -> None:
        """By source and destination: whether there is a CRC32C, or an ICRC; a right one is entered there."""
        self._crc = crc
        self._with_crc = with_crc
        self._with_icrc = with_icrc
        self._by_hint: dict[Hint, tuple[Reader, ...]] = {}
        self._cut_by_hint: dict[Hint, tuple[Reader, ...]] = {}
        self._by_shape: dict[tuple[Any, ...], Reader] = {}
        self._met: dict[tuple[Any, ...], int] = {}
        self._counts: dict[Kind, list[int]] = defaultdict(lambda: [0])

    def read(self, data: bytes, number: int, time_ns: int, cut: bool = False) -> Seen | None:
        """A usual packet whose shape is known; None for any other.

        `cut`: the capture kept less than there was; nothing may be unusual as far as the headers go.
        """
        by_hint = self._cut_by_hint if cut else self._by_hint
        # `_hint` without the call for what is most common, UDP behind Ethernet and IPv4.
        hint: Hint = _ipv4_udp(data) if len(data) >= _HINTED else ()
        for reader in by_hint.get(hint) or by_hint.get(hint[:-1]) or self._by_rare_hint(by_hint, data):
            seen = reader(data, number, time_ns)
            if seen is not None:
                return seen
        return None

    @staticmethod
    def _by_rare_hint(by_hint: dict[Hint, tuple[Reader, ...]], data: bytes) -> tuple[Reader, ...]:
        hint = _hint(data)
        return by_hint.get(hint) or by_hint.get(hint[:-1]) or ()

    def learn(self, data: bytes, packet: Packet) -> None:
        """Remember the shape of a usual packet that went the long way, and count it if it is whole."""
        layers = packet.layers
        whole = "truncated" not in packet.notes
        kind, count = self.count(packet) if whole else self._counter(packet)
        if layers[0].offset or any(form not in FORMS or form in ("lrh", "erf") for form in kind.forms):
            return
        key = (kind.trailer, whole, *(
            (layer.form, *(layer.values[name] for name in _exact(FORMS[layer.form])), *_classes(layers, index).values())
            for index, layer in enumerate(layers)
        ))  # fmt: skip
        reader = self._by_shape.get(key)
        if reader is None:
            met = self._met[key] = self._met.get(key, 0) + 1
            if met < _WARM:
                return
            if len(self._by_shape) >= _MOST or len(self._met) > 16 * _MOST:
                for known in (self._by_shape, self._by_hint, self._cut_by_hint, self._met):
                    known.clear()
            flows = self._with_icrc if "bth" in kind.forms else self._with_crc
            reader = self._by_shape[key] = _compile(packet, self._crc, whole, count, flows)
        by_hint = self._by_hint if whole else self._cut_by_hint
        hint = _hint(data)
        apart = kind.forms[-1].startswith("ses.") and any(form in _TOLD_APART for form in kind.forms)
        hint = hint if apart else hint[:-1]
        readers = by_hint.get(hint, ())
        if reader not in readers:
            if len(by_hint) >= _HINTS:
                by_hint.clear()
            by_hint[hint] = (reader, *readers)[:_TRIED]

    def count(self, packet: Packet) -> tuple[Kind, list[int]]:
        """Count a usual packet: its kind, and the number of these."""
        kind, count = self._counter(packet)
        count[0] += 1
        return kind, count

    def _counter(self, packet: Packet) -> tuple[Kind, list[int]]:
        trailer = packet.trailer.kind if packet.trailer else None
        kind = Kind(tuple([layer.form for layer in packet.layers]), trailer, "truncated" not in packet.notes)
        return kind, self._counts[kind]

    @property
    def counts(self) -> dict[Kind, int]:
        """Usual packets by kind, whichever way they took."""
        return {kind: count[0] for kind, count in self._counts.items() if count[0]}


_HINTED = 56
_ipv4_udp: Callable[[bytes], tuple[int, ...]] = struct.Struct(">14xB8xB18xH10xH").unpack_from
"""Hint of a frame that has UDP behind Ethernet and IPv4, in front of it the two bytes that tell so."""
_IPV4_UDP = (0x45, 17)
_TRIED = 8  # readers for one hint
_HINTS = 16_384  # hints kept
_BEGINNINGS = 1024  # of headers of one shape that are kept
_TOLD_APART = frozenset(
    form for form in FORMS if form.startswith(("pds.rud_req", "pds.rod_req", "pds.ack.")) or form == "pds.ack"
)
"""Headers of 12 bytes with SES behind: its first two bytes tell shapes apart. Elsewhere there are counters."""


def _hint(data: bytes) -> Hint:
    """That of any frame, where IP has no options."""
    if len(data) >= _HINTED and (hint := _ipv4_udp(data))[:2] == _IPV4_UDP:
        return hint
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
    return int.from_bytes(data[at : at + 2], "big"), int.from_bytes(data[at + 12 : at + 14], "big")


_TAGS = (b"\x81\x00", b"\x88\xa8")
_TYPES = (b"\x08\x00", b"\x86\xdd", b"\x89\x15")
_BTH_FOLLOWS = bytes([BTH_FOLLOWS])


@cache
def _exact(header: Header) -> tuple[str, ...]:
    """The fields of a usual header that are compiled in: they choose what follows, or are 0."""
    names = [*exact_fields(header), *reserved_fields(header.name)]
    names += [name for name in VERSIONS if name in header.names]
    names += {"ipv4": ["df"], "ethernet": ["type"], "vlan": ["type"]}.get(header.name, [])
    return tuple(name for name in dict.fromkeys(names) if name not in _ALIKE)


_ALIKE = ("dscp", "atomic_opcode")
"""They choose what follows as well, but few ways of it for many values."""


def _classes(layers: list[Layer], index: int) -> dict[str, frozenset[int]]:
    """Of the other fields of a header that hold codes: what a usual one may have, with all else the same."""
    form, values, offset = layers[index]
    found = {"dscp": _USUAL_DSCP} if "dscp" in values else {}
    for name in code_fields(form):
        if name not in _exact(FORMS[form]):
            found[name] = _usual_codes(form, name)
    if "atomic_opcode" in values:
        implied = implied_by(layers)
        found["atomic_opcode"] = frozenset(
            code
            for code in _usual_codes(form, "atomic_opcode")
            if implied_by([*layers[:index], Layer(form, {**values, "atomic_opcode": code}, offset)]) == implied
        )
    return found


_USUAL_DSCP = frozenset(range(64)) - TRIMMED_DSCP


@cache
def _usual_codes(form: str, name: str) -> frozenset[int]:
    if form == "aeth":
        return frozenset(SYNDROMES)
    field = FORMS[form][name]
    known = field.only or code_fields(form)[name]
    return frozenset(code for code in known if not is_vendors(form, name, code))


def _compile(packet: Packet, crc: str, whole: bool, count: list[int], with_crc: Flows) -> Reader:
    layers = packet.layers
    forms = [layer.form for layer in layers]
    sealed, roce = forms[-1].startswith("tss"), "bth" in forms
    matching = packet.trailer is not None and packet.trailer.ok
    ending = "unchecked" if not whole or sealed or (crc == "off" and not roce) else "matching" if matching else "none"
    ending = "invariant" if roce and whole else ending
    shape = shape_of(layers, ending, implied_by, _exact, padded=True)
    classes = [
        (shape.fields[index][name], usual)
        for index in range(len(layers))
        for name, usual in _classes(layers, index).items()
    ]
    guards = [f"({text}) not in CLASS{number}" for number, (text, _) in enumerate(classes)]
    guards += _network_guards(layers, shape)
    if whole:
        least = shape.size + (ICV_SIZE if sealed else shape.pad)
        guards = ["n > there", f"end < {least}", *guards, *_length_guards(layers, shape, sealed)]
    else:
        shape = shape._replace(least=shape.size + 1)
        guards = ["n <= there", *guards]
    seen, heads = _seen(layers, shape, whole, ICV_SIZE if sealed else shape.pad)
    shape = shape._replace(
        implied=None,
        guards=shape.guards + guards + _inside_guards(layers, shape),
        check=shape.check + _noting(layers, shape, ending),
    )
    reader: Reader = compile_shape(
        shape,
        seen,
        "seen " + " ".join(forms),
        ", number_, time_ns",
        Seen=Seen,
        count=count,
        with_crc=with_crc,
        **heads,
        **{f"CLASS{number}": usual for number, (_, usual) in enumerate(classes)},
    )
    return reader


def _seen(layers: list[Layer], shape: Shape, whole: bool, tail: int) -> tuple[str, dict[str, Any]]:
    """The expression that makes a `Seen`, and the classes of headers in it. `tail`: bytes behind the payload."""
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
            made = f"({', '.join(fields.values())},)"
            if "message_offset" in fields and fields.get("eom", "0") == "0":
                scope[f"BEGINNING{index}"] = beginning = _Beginnings(FORMS[form])
                rest = ", ".join(list(fields.values())[beginning.fields :])
                made = f"BEGINNING{index}[data[{offset}:{offset + beginning.size}]] + ({rest},)"
            heads.append(f"new(H{index}, {made})")
            kinds.append(form)
            if not form.startswith(("pds.", "tss")) and form != "bth":
                behind = min(behind, offset)
    ses = next((i for i, form in enumerate(kinds) if form.startswith("ses.")), None)
    more = [head for i, head in enumerate(heads) if i not in (0, ses)]
    last = f"end - {shape.pad}" if shape.pad else "end"
    size, content = (f"end - {shape.size + tail}", f"crc32c(data[{behind}:{last}])") if whole else ("-1", "None")
    return (
        f"new(Seen, (number_, time_ns, {src}, {dst}, {dscp}, {ecn}, {entropy}, {heads[0]}, "
        f"{heads[ses] if ses else None}, ({', '.join(more)}{',' if more else ''}), {size}, {content}, None))"
    ), scope


class _Beginnings(dict[bytes, tuple[int, ...]]):
    """What headers of SES say in front of `message_offset`, by their bytes: the packets of a message begin alike."""

    def __init__(self, header: Header) -> None:
        self.fields = header.names.index("message_offset")
        bits = sum(field.bits for field in header.fields[: self.fields])
        self.size = bits // 8
        self._rest = bytes(header.size - self.size)
        self._decode = codec_of(header).decode

    def __missing__(self, raw: bytes) -> tuple[int, ...]:
        if len(self) >= _BEGINNINGS:
            self.clear()
        values = self[raw] = tuple(self._decode(raw + self._rest).values())[: self.fields]
        return values


def _network_guards(layers: list[Layer], shape: Shape) -> list[str]:
    """Of IP in a usual packet (`usual.is_usual`)."""
    found = []
    forms = [layer.form for layer in layers]
    for (form, _, offset), fields in zip(layers, shape.fields, strict=True):
        if form == "ipv4":
            found.append(f'number(data[{offset}:{offset + 20}], "big") % 65535')
        if form in ("ipv4", "ipv6") and is_data(forms):
            found.append(f"not ({fields['ecn']})")
    return found


def _length_guards(layers: list[Layer], shape: Shape, sealed: bool) -> Sequence[str]:
    """Payload, as it should be behind these headers."""
    if any(layer.form == "bth" for layer in layers):
        return _roce_guards(layers, shape)
    return [f"end - {shape.size} != {shape.implied}"] if shape.implied is not None and not sealed else []


def _inside_guards(layers: list[Layer], shape: Shape) -> list[str]:
    """What may be a message of SHARP is looked into."""
    form, values, _ = layers[-1]
    if form == SEND_STD_SOM.name:
        return [f"({shape.fields[-1]['header_data']}) >> 32 == {MAGIC}"]
    found = []
    for (form, values, _), fields in zip(layers, shape.fields, strict=True):
        if form == "bth" and values["opcode"] in _MAY_AGGREGATE:
            found.append(f"end != {shape.size} and data[{shape.size}] >> 4 == {VERSION}")
        if form == "bth" and any(layer.form == "deth" for layer in layers):
            found.append(f"({fields['destqp']}) == {AM_QP}")
    return found


_MAY_AGGREGATE = (
    opcode_of(Transport.RC, Operation.SEND_FIRST), opcode_of(Transport.RC, Operation.SEND_ONLY),
    opcode_of(Transport.UD, Operation.SEND_ONLY),
)  # fmt: skip
_WHOLE_WRITES = (Operation.RDMA_WRITE_ONLY, Operation.RDMA_WRITE_ONLY_WITH_IMMEDIATE)


def _roce_guards(layers: list[Layer], shape: Shape) -> Sequence[str]:
    """Lengths (`usual.misfit_of_roce`)."""
    by_form = dict(zip([layer.form for layer in layers], shape.fields, strict=True))
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
        wrong.append(f"({by_form['reth']['dmalen']}) != {size}")
    if operation is Operation.RDMA_WRITE_FIRST:
        wrong.append(f"({by_form['reth']['dmalen']}) <= {size}")
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
