# SPDX-License-Identifier: GPL-2.0-only
"""This module compiles all headers of a frame into one function, which makes encoding and decoding fast.

`stack.py` can decode and encode any frame, one header at a time. Traffic, however, has few *shapes*. Frames have the
same shape if they have the same headers in the same order, with the same values in the fields that select the next
header. A shape that has come several times is compiled, from the header tables, into one function over one `struct`
format. Such a function decodes only frames of its shape that have no defect. It returns None for any other frame, which
`stack.py` then decodes. A test compares the results of both modules.

`shape_of` and `compile_shape` compile all shapes for decoding. The functions of `stack_reader` return the layers below
UET and RoCE, and those of `audit/reader/fast_path_codegen.py` return an `ObservedPacket`. `header_reader` compiles one
header.
"""

import operator
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Set
from functools import cache
from typing import Any, NamedTuple

from uetproto.wire.codec import Plan, compile_functions, plan
from uetproto.wire.crc import CRC_SIZE, crc32, crc32c
from uetproto.wire.defaults import steps_for, variable
from uetproto.wire.fields import Header
from uetproto.wire.forms import FORMS, NEXT, rows_after
from uetproto.wire.headers.uet_ses import PAYLOAD_MTUS
from uetproto.wire.icrc import ICRC_SIZE, invariant_mask, invariant_start
from uetproto.wire.packet import Layer, Packet

_WARM = 8  # frames of a shape before it is compiled, which costs as much as walking some hundred
_MOST = 256  # shapes kept
_MOST_UNITS = 1024  # values of one unit kept

ImpliedBy = Callable[[list[Layer]], tuple[int, str] | int | None]

# Fields below UET and of RoCE whose value must be that of the frame from which the shape was learnt.
_EXACT = {
    "ipv4": ("version", "ihl", "dscp", "mf", "fragment_offset", "protocol"),
    "ipv6": ("version", "dscp", "next_header"),
    "udp": ("dport", "checksum"),
    "grh": ("ipver", "nxthdr"),
    "vxlan": (),
    "geneve": ("version", "opt_len", "protocol"),
    "gre": ("checksum_present", "routing_present", "key_present", "sequence_present", "version", "protocol"),
    "erspan.ii": ("version", "truncated"),
    "erspan.iii": ("version", "truncated", "platform_present", "frame_type"),
    "mpls": ("bottom",),
    "mpls.control": ("zero",),
    "bth": ("opcode", "padcnt"),
}
# Fields that must agree with the length of the frame, and how many bytes before the next header they start to count.
_LENGTHS = {"ipv4": ("total_length", 20), "ipv6": ("payload_length", 0), "udp": ("length", 8), "grh": ("paylen", 0)}
_CRC_FROM = {"ipv4": 12, "ipv6": 8}
NATIVE = ("lrh", "erf")  # rare, and with a VCRC
SUSPECT_SIZES = frozenset(mtu + CRC_SIZE for mtu in PAYLOAD_MTUS)
"""Payload sizes in bytes that may be a full payload and a wrong CRC32C behind it: each payload MTU plus 4."""
_PADDED = ("sharp", "gre.checksum")  # what they say of the bytes behind them is not compiled


class CoveredHeaders(NamedTuple):
    """This tuple says what the ICRC covers: `size` bytes of headers from offset `start`, and all bytes behind them.

    The bits of `mask` count as ones in these headers.
    """

    start: int
    size: int
    mask: int
    crc: int  # CRC state before these headers


def invariant_of(forms: tuple[str, ...]) -> CoveredHeaders:
    """Return what the ICRC covers in a packet whose headers have these forms. One of the forms must be "bth"."""
    first, crc = invariant_start(forms[: forms.index("bth")])
    covered = tuple((form, FORMS[form].size) for form in forms[first:])
    start = sum(FORMS[form].size for form in forms[:first])
    return CoveredHeaders(start, sum(size for _, size in covered), invariant_mask(covered), crc)


@cache
def exact_fields(header: Header) -> tuple[str, ...]:
    """Return the names of the fields that identify this header, or that select which header follows it."""
    if header.name in _EXACT:
        return _EXACT[header.name]
    groups = [group for row in NEXT for group in (*row.then.values(), row.otherwise or ()) if header in group]
    names = [field.name for group in groups for form in group for field in form.fields if field.only]
    names += [row.by for row in rows_after(header) if row.by] + ["type", "eom"]
    return tuple(name for name in dict.fromkeys(names) if name in header.names)


def _guards(text: Plan, header: Header, values: Mapping[str, int], exact: Iterable[str]) -> list[str]:
    """Return one comparison for each unit that holds fields of `exact`, whose value must be the one in `values`."""
    masks: dict[str, int] = {}
    wanted: dict[str, int] = {}
    for name in exact:
        unit, low = text.places[name]
        masks[unit] = masks.get(unit, 0) | ((1 << header[name].bits) - 1) << low
        wanted[unit] = wanted.get(unit, 0) | (values[name] & (1 << header[name].bits) - 1) << low
    whole = {
        unit: (1 << 8 * struct.calcsize(">" + code)) - 1 for unit, code in zip(text.units, text.format, strict=True)
    }
    return [
        f"{unit} != {wanted[unit]}" if mask == whole[unit] else f"{unit} & {mask} != {wanted[unit]}"
        for unit, mask in masks.items()
    ]


class Shape(NamedTuple):
    """A shape is Python source text that reads all headers of a frame. `compile_shape` adds the expression of the
    result.

    The source may use these variables: `data`, the captured bytes; `there`, the length of `data`; `n`, the length of
    the frame; `end`, the length of the frame without its trailer; the fields; and `value`, the number in the trailer.
    """

    format: str
    """Format with one `struct` code for each unit."""
    units: list[str]
    guards: list[str]
    """Conditions. At least one of them is true if the frame has another shape or a defect."""
    fields: list[dict[str, str]]
    """Expressions that read the fields, by name, in one dict for each layer. For a field whose value is part of the
    shape, the expression is this value.
    """
    size: int
    """Size of all headers in bytes."""
    pad: int
    implied: str | None
    """Expression for the number of payload bytes that the headers imply, or None if they do not imply any."""
    trailer: int
    """Size of the trailer in bytes, which `end` does not include. It is 0 if there is none."""
    check: str
    """Statements that return None if the trailer is wrong."""
    least: int
    """Least number of bytes that must have been captured."""
    length: str = "there"
    """Expression that gives the length of the frame."""


def shape_of(
    layers: list[Layer],
    ending: str,
    implied_by: ImpliedBy,
    exact: Callable[[Header], Iterable[str]] = exact_fields,
    *,
    padded: bool = False,
) -> Shape:
    """Return the shape of all frames that have the same forms as `layers`, and the same values in the fields that
    `exact` names.

    `ending` says what ends the frame:

    - "matching": a right CRC32C,
    - "none": no CRC32C; the compiled function refuses a frame that might have a CRC32C,
    - "unchecked": bytes that are not checked,
    - "invariant": a right ICRC.

    With `padded`, the first header that has a length says where the frame ends. `data` may then be longer or shorter
    than the frame, which the caller has to handle.
    """
    roce = ending == "invariant"
    format_, units, guards = "", [], []
    fields: list[dict[str, str]] = []
    crc_from = 0
    length = ""
    for index, (form, values, offset) in enumerate(layers):
        header = FORMS[form]
        text = plan(header, f"h{index}_")
        reads = dict(zip(header.names, text.reads, strict=True))
        reads |= {name: str(values[name]) for name in exact(header)}
        fields.append(reads)
        format_ += text.format
        units += text.units
        guards += _guards(text, header, values, exact(header))
        if form in _LENGTHS:
            field, before = _LENGTHS[form]
            if padded and not length:
                length = f"({reads[field]}) + {offset + header.size - before}"
            else:
                guards.append(f"({reads[field]}) != n - {offset + header.size - before}")
        crc_from = offset + _CRC_FROM[form] if form in _CRC_FROM else crc_from
    size = struct.calcsize(">" + format_)
    source = None if roce else implied_by(layers)
    implied = f"({fields[source[0]][source[1]]})" if isinstance(source, tuple) else source
    icrc = invariant_of(tuple(layer.form for layer in layers)) if roce else CoveredHeaders(0, 0, 0, 0)
    pad = next((layer.values["padcnt"] for layer in layers if layer.form == "bth"), 0)
    check = {
        "invariant": f"""
    value, = little(data, end)
    head = (number(data[{icrc.start}:{size}], "big") | {icrc.mask}).to_bytes({icrc.size}, "big")
    payload = data[{size}:end]
    if crc32(payload, crc32(head, {icrc.crc})) != value:
        return None""",
        "matching": f"""
    value, = word(data, end)
    if crc32c(data[{crc_from}:end]) != value:
        return None""",
        "none": f"""
    if end >= {size + CRC_SIZE}:
        if {0 if source is None else 1} and end - {size + CRC_SIZE} == {implied or 0}:
            return None
        if {1 if source is None else 0} and end - {size} in suspect:
            return None
        value, = word(data, end - {CRC_SIZE})
        if crc32c(data[{crc_from}:end - {CRC_SIZE}]) == value:
            return None
    if n != there and crc32c(data[{crc_from}:there - {CRC_SIZE}]) == word(data, there - {CRC_SIZE})[0]:
        return None""",
        "unchecked": "",
    }[ending]
    trailer = CRC_SIZE if ending == "matching" else ICRC_SIZE if roce else 0
    implied = None if source is None else str(implied)
    least = size + pad + trailer
    return Shape(format_, units, guards, fields, size, pad, implied, trailer, check, least, length or "there")


def compile_shape(shape: Shape, result: str, name: str, arguments: str = "", **scope: Any) -> Any:
    """Compile and return `read(data, …arguments)`, which returns the value of the expression `result` for a frame.

    It returns None for a frame of another shape or with a defect.
    """
    guards = shape.guards + ([f"end - {shape.size} < {shape.implied}"] if shape.implied else [])
    used = set(_WORD.findall(" ".join((*guards, shape.check, shape.length, result))))
    wanted = [unit for unit in shape.units if unit in used]
    layout = "".join(
        code if unit in used else f"{struct.calcsize('>' + code)}x"
        for code, unit in zip(shape.format, shape.units, strict=True)
    )
    functions = compile_functions(
        f"""
def read(data{arguments}):
    there = len(data)
    if there < {shape.least}:
        return None
    {", ".join(wanted)}, = unpack(data)
    n = {shape.length}
    end = n - {shape.trailer}
    if {" or ".join(guards)}:
        return None{shape.check}
    return {result}
""",
        name,
        unpack=struct.Struct(">" + layout).unpack_from,
        word=struct.Struct(">I").unpack_from,
        little=struct.Struct("<I").unpack_from,
        number=int.from_bytes,
        crc32=crc32,
        crc32c=crc32c,
        suspect=SUSPECT_SIZES,
        new=tuple.__new__,
        **scope,
    )
    return functions["read"]


_WORD = re.compile(r"\w+")


@cache
def header_reader(header: Header) -> Callable[[bytes, int], Layer]:
    """Compile and return `read(data, at)`, which returns the header at the offset `at` as a `Layer`.

    `read` raises `struct.error` if `data` ends before the header does.
    """
    text = plan(header)
    statements, layer, tables = _layer(header.name, text, dict(zip(header.names, text.reads, strict=True)), "at")
    functions = compile_functions(
        f"""
def read(data, at):
    {", ".join(text.units)}, = unpack(data, at){statements}
    return {layer}
""",
        f"layer {header.name}",
        unpack=struct.Struct(">" + text.format).unpack_from,
        new=tuple.__new__,
        Layer=Layer,
        **tables,
    )
    reader: Callable[[bytes, int], Layer] = functions["read"]
    return reader


@cache
def lower_fields(form: str) -> tuple[str, ...]:
    """Return the names of the fields of a header below UET and RoCE whose values are part of the shape."""
    return tuple(name for name in exact_fields(FORMS[form]) if name != "dscp")


def stack_reader(layers: list[Layer], trimmed_dscp: Set[int]) -> Callable[[bytes], list[Layer] | None]:
    """Compile and return `read(data)`, which returns the layers of a frame below UET or RoCE if they have the shape of
    `layers`.

    `read` returns None if the layers have another shape, if a length in them is not that of the frame, or if the DSCP
    is one of `trimmed_dscp`.
    """
    shape = shape_of(layers, "unchecked", lambda _: None, lambda header: lower_fields(header.name))
    guards = [f"({fields['dscp']}) in trimmed_dscp" for fields in shape.fields if "dscp" in fields]
    statements, built = "", []
    scope: dict[str, Any] = {"Layer": Layer, "trimmed_dscp": trimmed_dscp}
    for index, ((form, _, at), fields) in enumerate(zip(layers, shape.fields, strict=True)):
        more, layer, tables = _layer(form, plan(FORMS[form], f"h{index}_"), fields, at)
        statements += more
        built.append(layer)
        scope |= tables
    name = "stack " + " ".join(layer.form for layer in layers)
    shape = shape._replace(guards=shape.guards + guards, check=statements)
    reader: Callable[[bytes], list[Layer] | None] = compile_shape(shape, f"[{', '.join(built)}]", name, **scope)
    return reader


class _FieldsByUnit(dict[int, Callable[[], dict[str, int]]]):
    """This table has for each value met of one unit a function that returns a new dict of all fields of a header.

    In this dict the fields of the unit are set, which is faster than to take them from the unit one by one.
    """

    def __init__(self, begin: Callable[[int], dict[str, int]]) -> None:
        self._begin = begin

    def __missing__(self, unit: int) -> Callable[[], dict[str, int]]:
        if len(self) >= _MOST_UNITS:
            self.clear()
        self[unit] = copy = self._begin(unit).copy
        return copy


def _layer(form: str, text: Plan, fields: Mapping[str, str], offset: int | str) -> tuple[str, str, dict[str, Any]]:
    """Make statements and an expression for the `Layer` of a form from the expressions of its `fields`.

    Also return the tables of beginnings that the statements use.
    """
    small = [unit for unit, code in zip(text.units, text.format, strict=True) if code in "BH"]
    held = [text.places[name][0] for name, value in fields.items() if name in text.places and not value.isdigit()]
    unit = max(small, key=held.count, default="")
    pairs = ", ".join(f"'{name}': {value}" for name, value in fields.items())
    if held.count(unit) < 2:
        return "", f"new(Layer, ('{form}', {{{pairs}}}, {offset}))", {}
    begun = {name for name, value in fields.items() if value.isdigit() or text.places.get(name, ("",))[0] == unit}
    pairs = ", ".join(f"'{name}': {value if name in begun else 0}" for name, value in fields.items())
    begin = compile_functions(f"def begin({unit}): return {{{pairs}}}", f"beginning of {form}")["begin"]
    values = f"{unit}_values"
    statements = [f"{values} = {unit}_begun[{unit}]()"]
    statements += [f"{values}['{name}'] = {value}" for name, value in fields.items() if name not in begun]
    layer = f"new(Layer, ('{form}', {values}, {offset}))"
    return "".join(f"\n    {one}" for one in statements), layer, {f"{unit}_begun": _FieldsByUnit(begin)}


@cache
def completer(forms: tuple[str, ...], present: tuple[frozenset[str], ...]) -> Callable[..., list[dict[str, int]]]:
    """Return a function that computes the values of all fields that are not in `present`.

    The function takes a dict of the given values for each layer, and `size`, the number of bytes that follow the last
    UET header. It returns a dict of the computed values for each layer. It raises `TypeError` if a value that it needs
    is no integer.
    """
    steps = steps_for(forms, present)
    fetches = [
        f"{variable(layer, name)} = values[{layer}]['{name}']"
        for layer, form in enumerate(forms)
        for name in (FORMS[form].names if form in FORMS else ())
        if name in present[layer]
    ]
    sets = [f"{variable(layer, field)} = {value}" for layer, field, value in steps]
    pairs = [
        ", ".join(f"'{step.field}': {variable(*step[:2])}" for step in steps if step.layer == layer)
        for layer in range(len(forms))
    ]
    body = "\n    ".join((*fetches, *sets, f"return [{', '.join(f'{{{pair}}}' for pair in pairs)}]"))
    function: Callable[..., list[dict[str, int]]] = compile_functions(
        f"def complete(values, size):\n    {body}", "defaults " + " ".join(forms), index=operator.index
    )["complete"]
    return function


_Fields = tuple[tuple[str, ...], ...]
_Writer = tuple[Any, Any, int | None, CoveredHeaders | None]


class Writers:
    """This class compiles and keeps functions that encode packets, one for each shape that has come several times."""

    def __init__(self) -> None:
        self._by_forms: dict[tuple[str, ...], _Writer | int] = {}
        self._by_fields: dict[tuple[tuple[str, ...], _Fields], _Writer | int] = {}

    def write(self, packet: Packet, fill: bool) -> bytes | None:
        """Return the bytes of a packet whose shape is compiled and whose values fit their fields.

        Return None for any other packet. `fill` has the meaning that it has in `stack.encode`.
        """
        layers = packet.layers
        forms = tuple([layer[0] for layer in layers])
        known = self._by_forms.get(forms, 0)
        if type(known) is int:
            self._warm(forms, known)
            return None
        try:
            return _write(packet, fill, known)  # type: ignore[arg-type]
        except _DoesNotFitError:
            if not fill:
                return None  # `stack.assemble` finds out what is wrong, and where
        except _ERRORS:
            return None
        fields = tuple([tuple(layer[1]) for layer in layers])
        known = self._by_fields.get((forms, fields), 0)
        if type(known) is int:
            self._warm_fields(forms, fields, known)
            return None
        try:
            return _write(packet, fill, known)  # type: ignore[arg-type]
        except (_DoesNotFitError, *_ERRORS):
            return None

    def _warm_fields(self, forms: tuple[str, ...], fields: "_Fields", met: int) -> None:
        if len(self._by_fields) >= _MOST:
            self._by_fields.clear()
        known = all(set(names) <= set(FORMS[form].names) for form, names in zip(forms, fields, strict=True))
        if met < _WARM or not known:
            self._by_fields[forms, fields] = min(met + 1, _WARM)
        else:
            self._by_fields[forms, fields] = _writer(forms, tuple(map(frozenset, fields)))

    def _warm(self, forms: tuple[str, ...], met: int) -> None:
        if len(self._by_forms) >= 16 * _MOST:
            self._by_forms.clear()
        slow = any(form not in FORMS or form in NATIVE or form in _PADDED for form in forms)
        if slow or not forms or ("bth" in forms and (forms.count("bth") > 1 or not _is_covered(forms))):
            return  # no header to compile
        if met < _WARM:
            self._by_forms[forms] = met + 1
        else:
            self._by_forms[forms] = _writer(forms)


class _DoesNotFitError(Exception):
    pass


_ERRORS = (KeyError, TypeError, AttributeError, OverflowError, struct.error)


def _write(packet: Packet, fill: bool, writer: "_Writer") -> bytes | None:
    """Return the bytes of a packet of the forms of `writer`, or None if its trailer is of another kind."""
    verbatim, filled, crc_from, invariant = writer
    layers, payload, trailer = packet.layers, packet.payload, packet.trailer
    if invariant is not None:
        return _write_roce(packet, fill, verbatim, filled, invariant)
    if packet.pad or packet.vcrc is not None or (trailer is not None and trailer[0] != "crc32c"):
        return None
    if not fill:
        head = verbatim(layers)
        if trailer is None:
            return b"".join((head, payload, packet.raw))
        return b"".join((head, payload, trailer[1].to_bytes(CRC_SIZE, "big"), packet.raw))
    size = len(payload)
    if trailer is None:
        return b"".join((filled(layers, size, size), payload, packet.raw))
    if crc_from is None:
        return None
    head = filled(layers, size + CRC_SIZE, size)
    crc: int = crc32c(payload, crc32c(head[crc_from:]))
    return b"".join((head, payload, crc.to_bytes(CRC_SIZE, "big"), packet.raw))


def _write_roce(packet: Packet, fill: bool, verbatim: Any, filled: Any, invariant: CoveredHeaders) -> bytes | None:
    layers, payload, trailer = packet.layers, packet.payload, packet.trailer
    if trailer is None or trailer[0] != "icrc" or packet.vcrc is not None:
        return None
    value = trailer[1].to_bytes(ICRC_SIZE, "little")
    if not fill:
        return b"".join((verbatim(layers), payload, packet.pad, value, packet.raw))
    pad = bytes(-len(payload) & 3)
    head = filled(layers, len(payload) + len(pad) + ICRC_SIZE, len(payload), len(pad))
    start, size, mask, crc = invariant
    crc = crc32((int.from_bytes(head[start:], "big") | mask).to_bytes(size, "big"), crc)
    crc = crc32(pad, crc32(payload, crc))
    return b"".join((head, payload, pad, crc.to_bytes(ICRC_SIZE, "little"), packet.raw))


def _writer(forms: tuple[str, ...], present: tuple[frozenset[str], ...] | None = None) -> _Writer:
    """Compile a stack of forms, of which the fields `present` are set (None: all), into writers of its headers.

    Return the writer of verbatim headers, the writer that fills absent fields, lengths and checksums, the offset of the
    first byte that a CRC32C covers, and what an ICRC covers.
    """
    present = tuple(frozenset(FORMS[form].names) for form in forms) if present is None else present
    format_, fetches, shared, unfit, writes, lengths, sums = ">", [], [], [], [], [], []
    crc_from = None
    size = sum(FORMS[form].size for form in forms)
    offset = 0
    for layer, form in enumerate(forms):
        header, prefix = FORMS[form], variable(layer, "")
        text = plan(header, prefix)
        format_ += text.format
        names = present[layer]
        fetches.append(f"if len(v{layer}) != {len(names)}: raise DoesNotFit")
        fetches += [f"{prefix}{f.name} = v{layer}['{f.name}']" for f in header.fields if f.name in names]
        shared += [f"{name} = {expression}" for name, expression in text.shared.items()]
        unfit += text.unfit
        writes += text.writes
        if form in _LENGTHS:
            field, before = _LENGTHS[form]
            lengths.append(f"{prefix}{field} = below + {size - offset - header.size + before}")
        if form in ("ipv4", "udp"):
            lengths.append(f"{prefix}checksum = 0")
        if form == "bth":
            lengths.append(f"{prefix}padcnt = pad")
        if form == "geneve":
            lengths.append(f"{prefix}opt_len = 0")
        if form == "ipv4":
            lengths.append(f"{prefix}version = 4; {prefix}ihl = 5")
            # 2^16 is 1 modulo 65535, so the header as one number modulo 65535 is the ones' complement sum of its words;
            # a unit that ends at an odd offset counts 256 times.
            ends = [struct.calcsize(">" + text.format[: i + 1]) for i in range(len(text.format))]
            weighted = [
                f"({unit}) * 256" if end % 2 else f"({unit})" for unit, end in zip(text.writes, ends, strict=True)
            ]
            total = " + ".join(weighted)
            sums.append(f"{prefix}checksum = 65535 - (({total}) % 65535 or 65535)")
        if form in _CRC_FROM:
            crc_from = offset + _CRC_FROM[form]
        offset += header.size
    values = ", ".join(f"(_, v{i}, _)" for i in range(len(forms)))
    body = "\n    ".join(fetches)
    check = f"{'; '.join(shared) or 'pass'}\n    if {' or '.join(unfit) or 'False'}: raise DoesNotFit"
    functions = compile_functions(
        f"""
def verbatim(layers):
    {values}, = layers
    {body}
    {check}
    return pack({", ".join(writes)})
def filled(layers, below, size, pad=0):
    {values}, = layers
    {body}
    {"; ".join(f"{variable(step.layer, step.field)} = {step.value}" for step in steps_for(forms, present)) or "pass"}
    {"; ".join(lengths) or "pass"}
    {check}
    {"; ".join(sums) or "pass"}
    return pack({", ".join(writes)})
""",
        "stack " + " ".join(forms),
        pack=struct.Struct(format_).pack,
        class_of=type,
        index=operator.index,
        DoesNotFit=_DoesNotFitError,
    )
    invariant = invariant_of(forms) if "bth" in forms else None
    return functions["verbatim"], functions["filled"], crc_from, invariant


def _is_covered(forms: tuple[str, ...]) -> bool:
    """Return whether there is a network header below the BTH, from which an ICRC counts."""
    return any(form in _LENGTHS and form != "udp" for form in forms[: forms.index("bth")])
