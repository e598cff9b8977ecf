# SPDX-License-Identifier: GPL-2.0-only
"""Kinds of damage: a capture in which all is right, one thing that is made wrong, and where which rule finds it.

A kind is a row of `pds_kinds.py`, `ses_kinds.py` or `other_kinds.py`. Its capture is a golden one. A `Change` alters a
list of packets and returns the index of the packet in which the audit must find it; CRCs and lengths are made right
again, so that nothing else is wrong.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.support import paths
from uetproto.audit.auditor import audit
from uetproto.audit.finding import Finding
from uetproto.audit.reader.options import Options
from uetproto.audit.rule import Requires
from uetproto.audit.rules import BY_ID
from uetproto.engine.tss.keys import KeyRing
from uetproto.traffic import profile
from uetproto.traffic.generate import generate
from uetproto.wire.capture.pcap import PcapWriter, open_capture
from uetproto.wire.forms import FORMS, ROCE_PORT
from uetproto.wire.mutate.frame import open_frame
from uetproto.wire.packet import Layer, Packet
from uetproto.wire.stack import decode, encode

COMPUTED = {
    "ipv4": ("total_length", "checksum"), "ipv6": ("payload_length",), "udp": ("length", "checksum"),
    "bth": ("padcnt",),
}  # fmt: skip
"""Fields that follow from the rest of a packet."""


class Item(NamedTuple):
    """A packet of the trace and when it was seen; `data` is None once it has been changed."""

    time_ns: int
    packet: Packet
    data: bytes | None

    @property
    def frame(self) -> bytes:
        return encode(self.packet, fill=True) if self.data is None else self.data

    @property
    def src(self) -> int:
        return next(int(layer.values["src"]) for layer in self.packet.layers if layer.form in ("ipv4", "ipv6"))

    def find(self, prefix: str) -> int | None:
        """Return the index of the first layer whose form is `prefix`, or begins with it and a dot."""
        return next(
            (at for at, each in enumerate(self.packet.layers) if f"{each.form}.".startswith(f"{prefix}.")), None
        )

    def value(self, prefix: str, name: str) -> int:
        at = self.find(prefix)
        assert at is not None
        return int(self.packet.layers[at].values[name])


Trace = list[Item]
Change = Callable[[Trace, int], int]
"""A change takes the trace and the index of the packet that it is about."""
Value = int | Callable[[int], int]


class Kind(NamedTuple):
    """A kind of damage."""

    says: str
    """What is wrong."""
    about: str
    """The invariant of a page, such as "pds 20", or a section, such as "tss.md §6"."""
    capture: str
    at: Callable[[Trace], int]
    change: Change
    rule: str
    also: Mapping[str, str] = {}
    """Other rules that find the same packet, each with the reason."""
    keys: bool = False
    """Tells that the audit has the keys of the capture."""
    certain: bool = False
    """Tells that a complete capture in order is needed."""
    found: int = 0
    """Tells how many places behind the packet that `change` returns the audit finds the damage."""


# Packets --------------------------------------------------------------------------------------------------------------


def at(prefix: str, number: int = 0, src: int | None = None, **values: int) -> Callable[[Trace], int]:
    """The packet with this number among those that have such a layer and, in that layer, such values."""

    def find(trace: Trace) -> int:
        found = []
        for index, item in enumerate(trace):
            layer = item.find(prefix)
            if layer is not None and (src is None or item.src == src):
                held = item.packet.layers[layer].values
                if all(held.get(name) == value for name, value in values.items()):
                    found.append(index)
        return found[number]

    return find


# Changes --------------------------------------------------------------------------------------------------------------


def plus(step: int, bits: int = 32) -> Callable[[int], int]:
    return lambda value: (value + step) % (1 << bits)


def flip(bit: int) -> Callable[[int], int]:
    return lambda value: value ^ 1 << bit


def _with(item: Item, prefix: str, values: Mapping[str, Value], form: str | None = None) -> Item:
    """Return the packet with other values in one header, and another form of this header."""
    index = item.find(prefix)
    assert index is not None, f"no {prefix} in {item.packet}"
    layer = item.packet.layers[index]
    fields = {name: value(layer.values[name]) if callable(value) else value for name, value in values.items()}
    header = FORMS[form or layer.form]
    mixed = {field.name: field.only[0] if field.only else 0 for field in header.fields} | {
        name: value
        for name, value in layer.values.items()
        if name in header.names and value in (header[name].only or (value,))
    }
    layers = list(item.packet.layers)
    layers[index] = Layer(header.name, {**(layer.values if form is None else mixed), **fields}, layer.offset)
    return changed(item, layers=layers)


def changed(item: Item, **parts: object) -> Item:
    """Return the packet with other parts; what follows from the rest of it is computed anew."""
    packet = replace(item.packet, **parts)  # type: ignore[arg-type]
    layers = [
        Layer(layer.form, {name: value for name, value in layer.values.items() if name not in COMPUTED[layer.form]})
        if layer.form in COMPUTED else layer
        for layer in packet.layers
    ]  # fmt: skip
    return Item(item.time_ns, replace(packet, layers=layers), None)


def put(prefix: str, form: str | None = None, **values: Value) -> Change:
    """Set fields of the first header whose form starts with `prefix`, which may become another form."""

    def change(trace: Trace, index: int) -> int:
        trace[index] = _with(trace[index], prefix, values, form)
        return index

    return change


def put_on(prefix: str, **values: Value) -> Change:
    """Set fields of this packet, and of all later ones of the same sender and PDC that have such a header."""

    def change(trace: Trace, index: int) -> int:
        src, pdc = trace[index].src, trace[index].value("pds", "spdcid")
        for each in range(index, len(trace)):
            item = trace[each]
            if item.src == src and item.find(prefix) is not None and item.value("pds", "spdcid") == pdc:
                trace[each] = _with(trace[each], prefix, values)
        return index

    return change


def without(prefix: str) -> Change:
    """Remove the first header whose form starts with `prefix`."""

    def change(trace: Trace, index: int) -> int:
        layer = trace[index].find(prefix)
        layers = trace[index].packet.layers
        trace[index] = changed(trace[index], layers=[each for at, each in enumerate(layers) if at != layer])
        return index

    return change


def copy(later: int = 1, *edits: Change) -> Change:
    """Insert a copy of the packet, changed, so many places behind it."""

    def change(trace: Trace, index: int) -> int:
        place = index + later
        before = trace[place - 1]
        trace.insert(place, trace[index]._replace(time_ns=before.time_ns))
        for edit in edits:
            edit(trace, place)
        return place

    return change


def drop(found: int = 0) -> Change:
    """Remove the packet; the one so many places behind it tells of that."""

    def change(trace: Trace, index: int) -> int:
        del trace[index]
        return index + found

    return change


def copies(number: int) -> Change:
    """Insert so many copies behind the packet, at growing intervals; they push what follows back."""

    def change(trace: Trace, index: int) -> int:
        item = trace[index]
        times = [item.time_ns + (1_000_000 << step) for step in range(1, number + 1)]
        trace[index + 1 :] = [each._replace(time_ns=max(each.time_ns, times[-1])) for each in trace[index + 1 :]]
        trace[index + 1 : index + 1] = [item._replace(time_ns=time) for time in times]
        return index + number

    return change


def changed_time(reference: Callable[[Trace], int], later: int) -> Change:
    """Let the packet come `later` ns behind another one, and what follows not before it."""

    def change(trace: Trace, index: int) -> int:
        item = trace[index]._replace(time_ns=trace[reference(trace)].time_ns + later)
        del trace[index]
        place = next((at for at, other in enumerate(trace) if other.time_ns > item.time_ns), len(trace))
        trace.insert(place, item)
        return place

    return change


def move(places: int, found: int = 0) -> Change:
    """Move the packet; `found` places from its new one an audit tells of it."""

    def change(trace: Trace, index: int) -> int:
        item = trace.pop(index)
        place = index + places
        neighbour = trace[min(place, len(trace) - 1)]
        trace.insert(place, item._replace(time_ns=neighbour.time_ns))
        return place + found

    return change


def both(*edits: Change, found: int = 0) -> Change:
    """Apply several changes to one packet."""

    def change(trace: Trace, index: int) -> int:
        places = [edit(trace, index) for edit in edits]
        return places[-1] + found

    return change


def swap(places: int) -> Change:
    """Let the packet change places with another one; the later of the two is told."""

    def change(trace: Trace, index: int) -> int:
        other = index + places
        trace[index], trace[other] = (
            trace[other]._replace(time_ns=trace[index].time_ns), trace[index]._replace(time_ns=trace[other].time_ns)
        )  # fmt: skip
        return max(index, other)

    return change


def from_capture(name: str) -> Change:
    """Put the packet with the same number in another capture in its place."""

    def change(trace: Trace, index: int) -> int:
        trace[index] = trace_of(name)[index]._replace(time_ns=trace[index].time_ns)
        return index

    return change


def at_other(other: Callable[[Trace], int], edit: Change) -> Change:
    """Apply a change to another packet, in which the audit finds it."""
    return lambda trace, index: edit(trace, other(trace))


def elsewhere(other: Callable[[Trace], int]) -> Change:
    """Change nothing; the audit finds the other packet."""
    return lambda trace, index: other(trace)


def payload(edit: Callable[[bytes], bytes]) -> Change:
    def change(trace: Trace, index: int) -> int:
        trace[index] = changed(trace[index], payload=edit(trace[index].packet.payload))
        return index

    return change


def raw(edit: Callable[[bytes], bytes]) -> Change:
    """Change bytes of the frame, and nothing that follows from them."""

    def change(trace: Trace, index: int) -> int:
        trace[index] = trace[index]._replace(data=edit(trace[index].frame))
        return index

    return change


def flip_in(prefix: str, byte: int, bit: int) -> Change:
    """Turn a bit of a header's byte, and mend the CRC."""

    def change(trace: Trace, index: int) -> int:
        layer = trace[index].find(prefix)
        frame = open_frame(trace[index].frame, "ethernet", ROCE_PORT)
        assert layer is not None
        assert frame is not None
        at = trace[index].packet.layers[layer].offset + byte
        trace[index] = trace[index]._replace(data=frame.flipped(at, bit).frame)
        return index

    return change


def answer(*layers: Layer, data: bytes = b"") -> Change:
    """Insert a packet of the receiver behind the packet, with these headers of PDS and SES."""

    def change(trace: Trace, index: int) -> int:
        return insert(*layers, data=data, back=True)(trace, index)

    return change


def insert(*layers: Layer, data: bytes = b"", back: bool = False) -> Change:
    """Insert a packet with these headers of PDS and SES behind the packet, from the same sender or `back`."""

    def change(trace: Trace, index: int) -> int:
        item = trace[index]
        first = next(
            place for place, layer in enumerate(item.packet.layers) if layer.form.startswith(("pds.", "bth", "tss"))
        )
        lower = []
        for layer in item.packet.layers[:first]:
            values = dict(layer.values)
            if back and "dst" in values:
                values["src"], values["dst"] = values["dst"], values["src"]
            lower.append(Layer(layer.form, values))
        trace.insert(index + 1, changed(item, layers=[*lower, *layers], payload=data))
        return index + 1

    return change


def layer(form: str, **values: int) -> Layer:
    """A header whose other fields are 0, or the one value that the form allows."""
    fields = {field.name: field.only[0] if field.only else 0 for field in FORMS[form].fields}
    assert not values.keys() - fields.keys(), values
    return Layer(form, fields | values)


# Judging --------------------------------------------------------------------------------------------------------------


GENERATED = {
    "long-rud": ("mixed", "modes=rud", "operations=write, read, send", "sizes=100, 3000, 20000"),
    "long-rod": ("mixed", "modes=rod", "operations=write, read, send", "sizes=100, 3000, 20000"),
    "lossy-rud": ("mixed", "modes=rud", "operations=write, send", "sizes=100, 20000", "loss=0.1"),
    "long-rudi": ("mixed", "modes=rudi", "operations=write, read", "sizes=100, 20000"),
    "deferred": ("sends", "modes=rud", "operations=deferrable_send", "sizes=20000", "ses.unexpected_policy=stop"),
    "rc": ("roce-rc", "sizes=100, 3000, 20000"),
    "ud": ("roce-ud",),
}
"""Captures that are longer than the golden ones: a profile and its settings."""
PACKETS = 120


@cache
def trace_of(name: str) -> tuple[Item, ...]:
    if name in GENERATED:
        with TemporaryDirectory() as folder:
            source = Path(folder) / "base.pcapng"
            which, *settings = GENERATED[name]
            _generate(which, settings, source)
            return _read(source)
    return _read(paths.PCAPS / f"{name}.pcapng", sharp=name.startswith("collective-sharp"))


def _generate(which: str, settings: list[str], to: Path) -> None:
    chosen = ["seed=4", "loss=0", "reorder=0", "protocol_errors=0", "endpoints=2"]
    generate(profile.load(which, [*chosen, *settings]), str(to), packets=PACKETS)


def _read(source: Path, *, sharp: bool = False) -> tuple[Item, ...]:
    with open_capture(source) as reader:
        return tuple(Item(record.time_ns, decode(record.data, sharp=sharp), record.data) for record in reader)


def keys_of(name: str) -> KeyRing:
    return KeyRing.read(paths.PCAPS / f"{name}.keys.toml")


def judged(trace: Trace, options: Options) -> list[Finding]:
    file = BytesIO()
    with PcapWriter(file) as writer:
        for number, item in enumerate(trace):
            writer.write(item.time_ns if number else trace[0].time_ns, item.frame)
    file.seek(0)
    return audit([file], options).findings


CERTAIN = Options(complete=True, ordered=True)


def promises(kind: Kind) -> Options:
    """What the rule needs of a capture, and no more."""
    requires = BY_ID[kind.rule].requires
    if kind.certain:
        return CERTAIN
    return Options(complete=requires is Requires.ABSENCE, ordered=requires is Requires.ORDER)


def told(findings: list[Finding]) -> list[str]:
    return [f"{finding.severity.value} {finding.rule.id} {finding.packet}: {finding.text}" for finding in findings]
