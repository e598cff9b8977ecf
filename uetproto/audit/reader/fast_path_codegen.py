# SPDX-License-Identifier: GPL-2.0-only
"""This module makes the readers of expected packets: one function for each sequence of headers, compiled by
`wire.shapes`."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from uetproto.audit.reader.address import ADDRESSED, TENANT_AT
from uetproto.audit.reader.expected_values import is_data
from uetproto.audit.reader.observed import ObservedPacket, head_class
from uetproto.audit.reader.slow_path import awaited
from uetproto.wire.codec import codec_of
from uetproto.wire.crc import CRC_SIZE
from uetproto.wire.fields import Header
from uetproto.wire.flow_crc import Flow
from uetproto.wire.forms import (
    FORMS,
    NEXT,
    SYNDROMES,
    VERSIONS,
    Candidates,
    code_fields,
    is_vendors,
    matches,
    reserved_fields,
)
from uetproto.wire.headers.roce import OPERATIONS, PMTUS, WHOLE_WRITES, Load, Operation, Transport, opcode_of
from uetproto.wire.headers.sharp import MAGIC, VERSION
from uetproto.wire.headers.sharp_am import AM_QP
from uetproto.wire.headers.uet_ses import SEND_STD_SOM
from uetproto.wire.headers.uet_tss import ICV_SIZE
from uetproto.wire.implied import implied_by
from uetproto.wire.packet import Layer, Packet, crc_start, inner_from
from uetproto.wire.shapes import Shape, compile_shape, exact_fields, shape_of
from uetproto.wire.stack import TRIMMED_DSCP
from uetproto.wire.words.tenants import WITH_VNI, Tenants

Reader = Callable[[bytes, int, int], ObservedPacket | None]


@dataclass(slots=True)
class ReadFlows:
    """This class holds what readers note about the packets of one vantage point."""

    with_crc: dict[Flow, bool]
    """Maps a flow of UET to whether its packets have a CRC32C."""
    with_icrc: dict[Flow, bool]
    """Maps a flow of RoCE to whether one of its packets has a right ICRC."""
    counts: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Number of expected packets, by the number that `FastReader` gave to their `Kind`."""


class Here:
    """This class refers to the vantage point whose packets are read at present. All readers share it."""

    __slots__ = ("flows", "tenants")

    def __init__(self, flows: ReadFlows) -> None:
        self.flows = flows
        self.tenants = Tenants()
        """VNIs of tunnels of all vantage points."""


_BEGINNINGS = 1_024
"""Number of different beginnings of SES headers of one shape that are kept."""


# What expected headers have in common ---------------------------------------------------------------------------------


@cache
def exact_of(header: Header) -> tuple[str, ...]:
    """Return the fields of a header whose values are compiled into a reader, because they select the next header or
    have a fixed value."""
    names = [*exact_fields(header), *reserved_fields(header.name)]
    names += [name for name in VERSIONS if name in header.names]
    names += {"ipv4": ["df"], "ethernet": ["type"], "vlan": ["type"]}.get(header.name, [])
    return tuple(name for name in dict.fromkeys(names) if name not in _ALIKE)


_ALIKE = ("dscp", "atomic_opcode")
"""Fields that also select what follows, but whose values are not compiled in, because most of these many values select
the same headers."""


def classes_of(layers: list[Layer], index: int) -> dict[str, frozenset[int]]:
    """Return a map for the header at `index` in `layers`. It has an entry for each field that holds a code and is not
    in `exact_of`: the codes that this field may have in an expected header of the same shape."""
    form, values, offset = layers[index]
    found = {"dscp": _EXPECTED_DSCP} if "dscp" in values else {}
    for name in code_fields(form):
        if name not in exact_of(FORMS[form]):
            found[name] = _expected_codes(form, name)
    if "atomic_opcode" in values:
        implied = implied_by(layers)
        found["atomic_opcode"] = frozenset(
            code
            for code in _expected_codes(form, "atomic_opcode")
            if implied_by([*layers[:index], Layer(form, {**values, "atomic_opcode": code}, offset)]) == implied
        )
    return found


_EXPECTED_DSCP = frozenset(range(64)) - TRIMMED_DSCP


@cache
def _expected_codes(form: str, name: str) -> frozenset[int]:
    if form == "aeth":
        return frozenset(SYNDROMES)
    header = FORMS[form]
    groups = [group for row in NEXT for group in (*row.then.values(), row.otherwise or ()) if header in group]
    others = {code for group in groups for other in group if name in other.names for code in other[name].only}
    known = header[name].only or code_fields(form)[name] - others
    return frozenset(code for code in known if not is_vendors(form, name, code))


# Where a capture cut packets ------------------------------------------------------------------------------------------


def following_of(layers: list[Layer], rest: bytes) -> str | None:
    """Return the form of the header that begins with `rest`. It is "" if `rest` is too short to tell, and None if
    payload follows or no header fits."""
    candidates = awaited(layers)
    if not candidates:
        return None
    return _form_at(candidates)[int.from_bytes(rest[:2], "big")] if len(rest) > 1 else ""


class _FormAt(dict[int, str | None]):
    """This table maps the first two bytes of a header to its form, one of some candidates; None: no candidate."""

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates

    def __missing__(self, word: int) -> str | None:
        self[word] = form = next((header.name for header in self._candidates if matches(header, word)), None)
        return form


_form_at = cache(_FormAt)


def _cut_within(shape: Shape, layers: list[Layer], following: str | None) -> tuple[Shape, list[str], dict[str, Any]]:
    """Return shape and guards of packets that end in the header `following` behind `layers`, or in the payload."""
    size, guards = shape.size, ["n <= there"]
    if following is None:
        return shape._replace(least=size + ("bth" in [layer.form for layer in layers])), guards, {}
    if not following:
        return shape._replace(least=size), [*guards, f"there >= {size + 2}"], {}
    shape = shape._replace(format=shape.format + "H", units=[*shape.units, "rest"], least=size + 2)
    guards += [f"there >= {size + FORMS[following].size}", f"FORM_AT[rest] != '{following}'"]
    return shape, guards, {"FORM_AT": _form_at(awaited(layers))}


_WITHOUT_CRC = f"""
    if crc32c(data[{{start}}:end - {CRC_SIZE}]) == number(data[end - {CRC_SIZE}:end], "big"):
        return None"""
"""Statements for a sealed packet: if its last bytes are a right CRC32C, it is not as expected."""


# Readers --------------------------------------------------------------------------------------------------------------


def reader_of(packet: Packet, following: str | None, crc: str, kind: int, here: Here) -> Reader:
    """Compile a reader, which reads packets with the same headers as `packet` and counts them under the number `kind`.
    If `packet` is truncated, it ends within the header `following`, or within the payload if `following` is None."""
    layers = packet.layers
    forms = [layer.form for layer in layers]
    whole, sealed, roce = "truncated" not in packet.notes, forms[-1].startswith("tss"), "bth" in forms
    matching = packet.trailer is not None and packet.trailer.ok
    ending = "unchecked" if not whole or sealed or (crc == "off" and not roce) else "matching" if matching else "none"
    ending = "invariant" if roce and whole else ending
    shape = shape_of(layers, ending, implied_by, exact_of, padded=True)
    guards, scope = _code_guards(layers, shape)
    guards += _network_guards(layers, shape)
    tail = ICV_SIZE if sealed else shape.pad
    if whole:
        guards = ["n > there", f"end < {shape.size + tail}", *guards, *_length_guards(layers, shape, sealed)]
        shape = shape._replace(check=shape.check + _WITHOUT_CRC.format(start=crc_start(layers))) if sealed else shape
    else:
        shape, cut, form_at = _cut_within(shape, layers, following)
        guards = [*cut, *guards]
        scope |= form_at
    seen, heads = _observed_packet(layers, shape, following, whole, tail)
    shape = shape._replace(
        implied=None,
        guards=shape.guards + guards + _inside_guards(layers, shape),
        check=shape.check + _count_statements(layers, shape, ending, kind),
    )
    scope |= heads | {"ObservedPacket": ObservedPacket, "here": here}
    reader: Reader = compile_shape(shape, seen, "seen " + " ".join(forms), ", number_, time_ns", **scope)
    return reader


def _observed_packet(
    layers: list[Layer], shape: Shape, following: str | None, whole: bool, tail: int
) -> tuple[str, dict[str, Any]]:
    """Make the expression of an `ObservedPacket`, and the classes in it. `tail`: bytes behind the payload."""
    src = dst = dscp = ecn = entropy = "0"
    heads: list[str] = []
    kinds: list[str] = []
    scope: dict[str, Any] = {}
    behind, outer = shape.size, shape.trailer
    for index, ((form, _, offset), fields) in enumerate(zip(layers, shape.fields, strict=True)):
        if form in ADDRESSED:
            src, dst = _ends(form, fields, _tenant(layers, shape))
            if form == "grh":
                dscp, ecn = f"({fields['tclass']}) >> 2", f"({fields['tclass']}) & 3"
            else:
                dscp, ecn = fields.get("dscp", dscp), fields.get("ecn", ecn)
        elif form in ("udp", "entropy"):
            entropy = fields["sport" if form == "udp" else "entropy"]
            outer = shape.trailer + FORMS[form].size
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
    told = heads[ses] if ses and following is None else None  # its extensions may be missing
    last = f"end - {shape.pad}" if shape.pad else "end"
    size, content = (f"end - {shape.size + tail}", f"crc32c(data[{behind}:{last}])") if whole else ("-1", "None")
    return (
        f"new(ObservedPacket, (number_, time_ns, {src}, {dst}, {dscp}, {ecn}, {entropy}, {heads[0]}, "
        f"{told}, ({', '.join(more)}{',' if more else ''}), {size}, {content}, None, None, {outer}))"
    ), scope


def _ends(form: str, fields: Mapping[str, str], tenant: str) -> list[str]:
    """Return the expressions of the sender's address and of the receiver's; `tenant` is that of their network, or
    empty."""
    sender, receiver, mark = ADDRESSED[form]
    more = (f" | {mark}" if mark else "") + tenant
    return [f"({fields[name]}){more}" if more else fields[name] for name in (sender, receiver)]


def _tenant(layers: list[Layer], shape: Shape) -> str:
    """Return what follows an address in a tunnel with a VNI, else an empty text."""
    vnis = [fields["vni"] for layer, fields in zip(layers, shape.fields, strict=True) if layer.form in WITH_VNI]
    return f" | here.tenants[{vnis[-1]}] << {TENANT_AT}" if vnis else ""


class _Beginnings(dict[bytes, tuple[int, ...]]):
    """This table keeps the fields in front of `message_offset`, by their bytes: packets of a message begin alike."""

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


def _code_guards(layers: list[Layer], shape: Shape) -> tuple[list[str], dict[str, Any]]:
    """Return guards for the fields that hold codes, and the sets of codes that the guards name."""
    guards: list[str] = []
    classes: dict[str, Any] = {}
    for index, fields in enumerate(shape.fields):
        for name, codes in classes_of(layers, index).items():
            guards.append(f"({fields[name]}) not in CLASS{len(classes)}")
            classes[f"CLASS{len(classes)}"] = codes
    return guards, classes


def _network_guards(layers: list[Layer], shape: Shape) -> list[str]:
    """Return guards for IP in an expected packet (`expected_values.is_expected`)."""
    found = []
    forms = [layer.form for layer in layers]
    inner = layers[inner_from(layers)].offset
    for (form, _, offset), fields in zip(layers, shape.fields, strict=True):
        if form == "ipv4":
            found.append(f'number(data[{offset}:{offset + 20}], "big") % 65535')
        if form in ("ipv4", "ipv6") and offset >= inner and is_data(forms):
            found.append(f"not ({fields['ecn']})")
    return found


def _length_guards(layers: list[Layer], shape: Shape, sealed: bool) -> Sequence[str]:
    """Return guards for the length of the payload behind these headers."""
    if any(layer.form == "bth" for layer in layers):
        return _roce_guards(layers, shape)
    return [f"end - {shape.size} != {shape.implied}"] if shape.implied is not None and not sealed else []


def _inside_guards(layers: list[Layer], shape: Shape) -> list[str]:
    """Return guards that exclude packets which may hold a message of SHARP."""
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


def _roce_guards(layers: list[Layer], shape: Shape) -> Sequence[str]:
    """Return guards for the lengths of RoCE (`expected_values.misfit_of_roce`)."""
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
    if operation in WHOLE_WRITES:
        wrong.append(f"({by_form['reth']['dmalen']}) != {size}")
    if operation is Operation.RDMA_WRITE_FIRST:
        wrong.append(f"({by_form['reth']['dmalen']}) <= {size}")
    return wrong


def _count_statements(layers: list[Layer], shape: Shape, ending: str, kind: int) -> str:
    """Return statements that count the packet and note a CRC of its flow; without one, the flow must have none."""
    flows = "\n    flows = here.flows"
    counted = f"\n    flows.counts[{kind}] += 1"
    network = max((i for i, layer in enumerate(layers) if layer.form in ("ipv4", "ipv6", "grh")), default=None)
    if network is None or ending == "unchecked":
        return flows + counted
    flow = f"({', '.join(_ends(layers[network].form, shape.fields[network], _tenant(layers, shape)))})"
    if ending != "none":
        table = "with_icrc" if any(layer.form == "bth" for layer in layers) else "with_crc"
        noted = f"\n    if {flow} not in flows.{table}:\n        flows.{table}[{flow}] = True"
        return flows + noted + counted
    return f"{flows}\n    if flows.with_crc.get({flow}) is not False:\n        return None{counted}"
