# SPDX-License-Identifier: GPL-2.0-only
"""This module reads a capture as NumPy columns: `read(path)["pds.rud_req"]["psn"]` is an array with the field's value
in each header.

    capture = read("big.pcap")
    acks = capture["pds.ack"]
    acks["index"]                  # numbers of the packets that have this header
    capture.times[acks["index"]]   # when, in nanoseconds

The columns use the same tables of headers as `uetproto.decode`: the columns have a header exactly if `decode` finds it.
All packets of a batch whose next header is the same are decoded together. The cost is therefore some array operations
for each batch and header, and no Python code for each packet.

A *unit* is the bytes that some fields of a header share (as in `wire.codec`). The columns keep one array for each batch
and unit, in the byte order of the machine. They also keep 20 bytes for each packet. Altogether the columns are no
larger than the file, and much smaller if headers repeat. A field is not kept, but is computed from its unit whenever it
is read.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby, product
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from uetproto.columns_crc import FlowTrailers, Packets
from uetproto.columns_records import LINKS, NO_TIME, Array, Batch, Bytes, Index, batches, gather
from uetproto.errors import LocalError, listed, shown, similar, suggests_arguments
from uetproto.wire.capture.base import Source
from uetproto.wire.capture.pcap import Damage
from uetproto.wire.crc import crc32
from uetproto.wire.fields import Field, Header
from uetproto.wire.forms import (
    FIRST,
    FORMS,
    IP_PROTOCOL,
    MCAST_FORMS,
    ROCE_PORT,
    SHARP_FORMS,
    UDP_PORT,
    Candidates,
    rows_after,
)
from uetproto.wire.headers import ethernet as eth
from uetproto.wire.headers import roce, tunnels
from uetproto.wire.headers.ethernet import EtherType, IpProtocol
from uetproto.wire.headers.sharp import MAGIC, SHARP, VERSION
from uetproto.wire.headers.sharp_am import AM
from uetproto.wire.headers.tunnels import ErspanFrame, TunnelProtocol
from uetproto.wire.headers.uet_ses import SEND_STD_SOM
from uetproto.wire.headers.uet_tss import ENTROPY
from uetproto.wire.icrc import ICRC_SIZE, invariant_mask, invariant_start
from uetproto.wire.packet import Packet
from uetproto.wire.stack import RD_MODES, check_choice, check_number, decode

__all__ = ["NO_TIME", "Columns", "Rows", "iter_batches", "read"]

_SLICE = 1 << 12  # headers cut into units at a time: enough to make the calls cheap, few enough for the cache

# Where the fields of a header are ------------------------------------------------------------------------------------


class _Unit(NamedTuple):
    """A unit is the part of a header that is kept as one array: 1, 2, 4 or 8 bytes as a number, others as bytes."""

    offset: int
    size: int

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(f"u{self.size}" if self.size in (1, 2, 4, 8) else f"V{self.size}")

    def of(self, block: Bytes) -> Array:
        """Return the unit (n,), in wire order, of headers (n, size)."""
        return block[:, self.offset : self.offset + self.size].view(self.dtype.newbyteorder(">"))[:, 0]


class _Column(NamedTuple):
    """A column is a field: the bits from `low` up of the unit number `unit`."""

    unit: int
    low: int
    field: Field
    dtype: np.dtype[Any]  # the smallest that holds every value; bytes above 64 bits

    def of(self, unit: Array) -> Array:
        """Return the values (n,) of the field from its unit (n,)."""
        bits, width = self.field.bits, unit.dtype.itemsize * 8
        if not unit.flags.writeable and len(unit) > 1:  # one value
            return _repeat(self.of(unit[:1]), len(unit))
        if bits > 64:
            return unit
        if unit.dtype.kind == "V":  # an odd number of bytes, all of one field
            wide = np.zeros((len(unit), 8), np.uint8)
            wide[:, 8 - width // 8 :] = unit.view(np.uint8).reshape(len(unit), -1)
            unit = wide.view(">u8")[:, 0]
        elif self.field.signed:
            unit = (unit << (width - self.low - bits)).view(f"i{width // 8}") >> (width - bits)
        elif bits < width:
            unit = unit >> self.low & unit.dtype.type((1 << bits) - 1)
        return unit.astype(self.dtype, copy=False)


@cache
def _layout(header: Header) -> tuple[list[_Unit], dict[str, _Column]]:
    """Return the cheapest way to cut a header into units (few units, few shifts), and the columns of its fields."""
    borders = header.borders
    best: dict[int, tuple[int, list[_Unit]]] = {header.size: (0, [])}  # from an offset to the end: cost, units
    for start in sorted(borders, reverse=True)[1:]:
        options = []
        for end, (cost, units) in best.items():
            count, size = borders[end] - borders[start], end - start
            if count == 1 or size in (1, 2, 4, 8):
                options.append((cost + 1 + (size * count if count > 1 else 0), [_Unit(start, size), *units]))
        if options:
            best[start] = min(options)

    _, units = best[0]
    columns = {}
    for number, unit in enumerate(units):
        low = unit.size * 8
        for field in header.fields[borders[unit.offset] : borders[unit.offset + unit.size]]:
            low -= field.bits
            size = next((size for size in (1, 2, 4, 8) if field.bits <= size * 8), field.bits // 8)
            kind = "V" if size > 8 else "i" if field.signed else "u"
            columns[field.name] = _Column(number, low, field, np.dtype(f"{kind}{size}"))
    return units, columns


def _cut(header: Header, block: Bytes) -> list[Array]:
    """Cut headers (n, size) into units, each an array (n,); an array of one repeated value is not writeable.

    Such an array takes the memory of one value.
    """
    wires = [unit.of(block) for unit in _layout(header)[0]]
    arrays = [_repeat(wire[:1].astype(wire.dtype.newbyteorder("=")), len(wire)) for wire in wires]
    same = True  # every header so far equals the first
    for first in range(0, len(block), _SLICE):
        part = slice(first, first + _SLICE)
        if same:  # headers of one flow often are equal, and one comparison is quicker than one for each unit
            headers = block[part]
            same = headers.tobytes() == block[:1].tobytes() * len(headers)
            if same:
                continue
        for number, (wire, array) in enumerate(zip(wires, arrays, strict=True)):
            new = wire[part].astype(array.dtype)
            if not array.flags.writeable:
                if new[-1] == array[0] and new.tobytes() == array[:1].tobytes() * len(new):
                    continue
                arrays[number] = np.empty(array.shape, array.dtype)
                arrays[number][:first] = array[0]
            arrays[number][part] = new
    return arrays


def _repeat(one: Array, count: int) -> Array:
    """Return an array of `count` times the value in `one` (1,), in the memory of one value; `one` is empty for no
    value.
    """
    return np.ndarray(count, one.dtype, one.tobytes(), 0, (0,))


def _value(header: Header, name: str, units: list[Array]) -> Array:
    """Return the values (n,) of the field `name` of headers that are cut into `units`."""
    column = _layout(header)[1][name]
    return column.of(units[column.unit])


# What is read --------------------------------------------------------------------------------------------------------


class OctetColumn(np.ndarray[Any, Any]):
    """This class is a column of fields over 64 bits, which Arrow takes as binary."""

    def __arrow_array__(self, type: object = None) -> Any:  # pyarrow names the argument
        from uetproto.arrow import arrow_array, pyarrow_for

        return arrow_array(pyarrow_for("a column of bytes"), self)


class Rows(Mapping[str, Array], dict[str, Array]):  # type: ignore[misc,metaclass]  # pandas asks for a dict
    """Rows hold all headers of one form in packet order. `rows["psn"]` is the array (count,) of the values of a field,
    in the smallest type that holds them.

    `rows["index"]` (count,) has the number of each header's packet. If a packet has two headers of the form, such
    as VLAN tags, its number appears twice.
    """

    def __init__(self, header: Header, blocks: list[list[Array]], shape: Array, often: Bytes, first: int) -> None:
        self.header = header
        self.count = sum(len(units[0]) for units in blocks)
        self._blocks = blocks  # the units of each batch
        self._columns = _layout(header)[1]
        self._shape, self._often, self._first = shape, often, first

    def __getitem__(self, field: str) -> Array:
        if column := self._columns.get(field):
            found = np.concatenate([column.of(units[column.unit]) for units in self._blocks])
            return found.view(OctetColumn) if found.dtype.kind == "V" else found
        if field != "index":
            raise KeyError(f"{self.header.name}.{field}: no such field{similar(field, self)}; there are {listed(self)}")
        last = self._first + len(self._shape)
        numbers = np.arange(self._first, last, dtype=np.uint32 if last <= 1 << 32 else np.uint64)
        counts = self._often[self._shape]
        if counts.max() > 1:
            return numbers.repeat(counts)
        return numbers if self.count == len(numbers) else numbers[counts.view(bool)]

    def __iter__(self) -> Iterator[str]:
        return iter(("index", *self._columns))

    def __len__(self) -> int:
        return 1 + len(self._columns)

    def __repr__(self) -> str:
        return f"<Rows of {self.header.name}: {self.count} headers; {', '.join(self)}>"

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("the columns of a capture cannot be changed")

    __setitem__ = __delitem__ = __ior__ = pop = popitem = update = setdefault = clear = _refuse
    __copy__ = __deepcopy__ = __reduce__ = None  # type: ignore[assignment]  # those of dict would lose the rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as a stream of Arrow, for pyarrow, Polars, DuckDB and pandas. It needs pyarrow."""
        from uetproto.arrow import arrow_table

        return arrow_table({name: self[name] for name in self}, f"columns of {self.header.name}").__arrow_c_stream__(
            requested_schema
        )

    @property
    def nbytes(self) -> int:
        return sum(unit.nbytes if unit.flags.writeable else unit.itemsize for units in self._blocks for unit in units)


@dataclass(frozen=True, slots=True, eq=False)
class Columns(Mapping[str, Rows]):
    """Columns hold the headers of a capture or of a part of it: `columns[form][field]` is an array. The keys are the
    forms that occur, in the order of `FORMS`.

    These arrays have one value for each packet:

    - `times` (packets,) i8 has the time in nanoseconds since the epoch of the capture, or `NO_TIME` if the time does
      not fit into 64 bits.
    - `lengths` (packets,) u4 has the number of bytes on the wire.
    - `interfaces` (packets,) u4 has the number of the interface.
    - `icrc` (packets,) i1 has 1 for an ICRC that is right, 0 for one that is wrong, and -1 for a packet without an ICRC
      that can be checked. `icrc` is None unless the caller asked for this check.
    - `crc32c` (packets,) i1 has the same values for the CRC32C of UET, and -2 for a packet that `uetproto.decode` notes
      as crc-suspect. Whether a packet has a CRC32C is learnt from its flow. `crc32c` is None unless the caller asked
      for this check.

    `damage` lists what could not be read, and the times that do not fit. Raw layers (IPv4 options, IPv6 extension
    headers, options of GENEVE) have no columns. A packet in a tunnel has the headers of the tunnel, then its own;
    `decode` says why no further header follows.
    """

    times: NDArray[np.int64]
    lengths: NDArray[np.uint32]
    interfaces: NDArray[np.uint32]
    damage: tuple[Damage, ...]
    _rows: dict[str, Rows]
    icrc: NDArray[np.int8] | None = None
    crc32c: NDArray[np.int8] | None = None

    def __getitem__(self, form: str) -> Rows:
        if form not in self._rows:
            why = "does not occur here" if form in FORMS else f"no such form{similar(form, FORMS)}"
            raise KeyError(f"{form}: {why}; there are {listed(self._rows) or 'none'}")
        return self._rows[form]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def packets(self) -> int:
        return len(self.times)

    @property
    def forms(self) -> tuple[str, ...]:
        return tuple(self._rows)

    @property
    def nbytes(self) -> int:
        """Return the number of bytes that all arrays take in memory."""
        return 20 * self.packets + sum(rows.nbytes for rows in self._rows.values())


@suggests_arguments
def read(
    path: Source,
    *,
    udp_port: int = UDP_PORT,
    ip_protocol: int = IP_PROTOCOL,
    roce_port: int = ROCE_PORT,
    rd: str = "raw",
    icrc: bool = False,
    crc32c: bool = False,
    sharp: bool = False,
    mcast: bool = False,
) -> Columns:
    """Read every header of a capture (pcap, pcapng, `.gz`) as columns, in less memory than the uncompressed file needs.

    The settings are those of `uetproto.decode`. With `sharp` or `mcast`, `decode` is called for each packet that may
    have such headers, which is slow. With `icrc`, the ICRC of each RoCE packet is checked; with `crc32c`, the CRC32C of
    each UET packet. Raises `LocalError` for a file that is not a capture, and `OSError` for a file that cannot be
    opened. `Columns.damage` lists damaged parts of the capture.
    """
    damage: list[Damage] = []
    builder = _Builder(_Settings(udp_port, ip_protocol, roce_port, rd, icrc, crc32c, sharp, mcast))
    for batch in batches(path, damage):
        builder.feed(batch)
    return builder.finish(damage)


@suggests_arguments
def iter_batches(
    path: Source,
    rows: int = 1 << 18,
    *,
    udp_port: int = UDP_PORT,
    ip_protocol: int = IP_PROTOCOL,
    roce_port: int = ROCE_PORT,
    rd: str = "raw",
    icrc: bool = False,
    crc32c: bool = False,
    sharp: bool = False,
    mcast: bool = False,
) -> Iterator[Columns]:
    """Read a capture that may be larger than memory, in pieces of `rows` packets. The numbers of the packets continue
    from piece to piece.

    `damage` of a piece lists the damage found since the previous piece. A capture without packets yields one empty
    piece.
    """
    if type(rows) is not int or rows < 1:
        raise LocalError("rows", f"{shown(rows)} is not legal", "a whole number from 1 on", id="out-of-range")
    damage: list[Damage] = []
    settings = _Settings(udp_port, ip_protocol, roce_port, rd, icrc, crc32c, sharp, mcast)
    builder = _Builder(settings)
    for batch in batches(path, damage):
        while builder.packets + len(batch.start) >= rows:
            room = rows - builder.packets
            builder.feed(batch.part(0, room))
            yield builder.finish(damage)
            damage.clear()
            builder = _Builder(settings, builder.first + rows, builder.trailers)
            batch = batch.part(room, len(batch.start))
        builder.feed(batch)
    if builder.packets or damage or not builder.first:
        yield builder.finish(damage)


class _Settings(NamedTuple):
    udp_port: int
    ip_protocol: int
    roce_port: int
    rd: str
    icrc: bool
    crc32c: bool
    sharp: bool
    mcast: bool


class _Builder:
    """A builder takes batches of packets and makes columns of their headers."""

    def __init__(self, settings: _Settings, first: int = 0, trailers: FlowTrailers | None = None) -> None:
        check_number("udp_port", settings.udp_port, 0xFFFF)
        check_number("ip_protocol", settings.ip_protocol, 0xFF)
        check_number("roce_port", settings.roce_port, 0xFFFF)
        check_choice("rd", settings.rd, RD_MODES)
        self.first = first  # number of the first packet
        self.packets = 0
        self._settings = settings
        self._packets: list[tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]] = []
        self._icrc = [np.empty(0, np.int8)]
        self.trailers = trailers or (FlowTrailers() if settings.crc32c else None)
        self._blocks: dict[Header, list[list[Array]]] = {}
        # A shape is the sequence of headers that a packet has. One shape number for each packet says which packets
        # have a form, in less memory than a list of packet numbers for each form.
        self._shapes: dict[tuple[Header, ...], int] = {(): 0}

    def feed(self, batch: "Batch") -> None:
        if not len(batch.start):
            return
        walk = _BatchWalk(batch, self._settings, self._shapes, self.trailers)
        self.packets += len(batch.start)
        self._packets.append((batch.times, batch.lengths, batch.interfaces, walk.shape))
        self._icrc.append(walk.icrc)
        for header, found in walk.found.items():
            _, units = found[0]
            if len(found) > 1:  # packets with different headers before this one: sort by packet, outer headers first
                order = np.argsort(np.concatenate([rows for rows, _ in found]), kind="stable")
                units = [np.concatenate(parts)[order] for parts in zip(*[units for _, units in found], strict=True)]
            self._blocks.setdefault(header, []).append(units)

    def finish(self, damage: list[Damage]) -> Columns:
        none = (np.empty(0, np.int64), *(np.empty(0, np.uint32) for _ in range(3)))
        times, lengths, interfaces, shape = (np.concatenate(parts) for parts in zip(none, *self._packets, strict=True))
        rows = {}
        for form, header in FORMS.items():
            if header in self._blocks:
                often = np.array([path.count(header) for path in self._shapes], np.uint8)
                rows[form] = Rows(header, self._blocks[header], shape, often, self.first)
        icrc = np.concatenate(self._icrc) if self._settings.icrc else None
        crc32c = self.trailers.finish() if self.trailers else None
        return Columns(times, lengths, interfaces, tuple(damage), rows, icrc, crc32c)


# The walk ------------------------------------------------------------------------------------------------------------


class _PacketGroup(NamedTuple):
    """A group holds packets whose next header is the same: number, position of that header, and end of each packet."""

    rows: Index
    pos: Index
    end: Index
    path: tuple[Header, ...] = ()  # the headers before the position

    def where(self, keep: Array) -> "_PacketGroup":
        """Return the packets for which `keep` is true."""
        if keep.all():
            return self
        some = np.flatnonzero(keep)
        return _PacketGroup(self.rows[some], self.pos[some], self.end[some], self.path)

    def split(self, code: Array) -> Iterator[tuple[int, "_PacketGroup"]]:
        """Return every number that occurs in `code`, a small number of each packet, and the packets that have it."""
        if len(code) and (code == code[0]).all():
            yield int(code[0]), self
        else:
            for value in np.flatnonzero(np.bincount(code)):
                yield int(value), self.where(code == value)


class _BatchWalk:
    """This walk finds headers as `wire.stack` does, but for a whole batch at once, and reports no faults of packets."""

    def __init__(
        self,
        batch: "Batch",
        settings: _Settings,
        shapes: dict[tuple[Header, ...], int],
        trailers: FlowTrailers | None,
    ) -> None:
        self.data, self.trailers = batch.data, trailers
        if trailers:
            trailers.begin(len(batch.start))
        self.batch, self.settings = batch, settings
        self.udp_port, self.ip_protocol, self.roce_port, self.rd, *_ = settings
        self.options = {name: value for name, value in settings._asdict().items() if "crc" not in name}  # for `decode`
        self.icrc = np.full(len(batch.start) if settings.icrc else 0, -1, np.int8)
        self.shapes = shapes
        self.shape = np.zeros(len(batch.start), np.uint32)
        self.found: dict[Header, list[tuple[Index, list[Array]]]] = {}  # numbers of packets, units
        for link, group in _PacketGroup(np.arange(len(batch.start)), batch.start, batch.end).split(batch.links):
            if link in _TYPED:
                self.typed(_TYPED[link], group)
            elif link == LINKS["raw"]:
                self.ip(group)
            elif link == LINKS["infiniband"]:
                self.infiniband(group)
            elif link == LINKS["erf"]:
                self.erf(group)

    def take(self, header: Header, group: _PacketGroup) -> tuple[_PacketGroup, list[Array]]:
        """Return the packets that have a whole `header`, positioned behind it, and the units of these headers."""
        group = group.where(group.end - group.pos >= header.size)
        units = _cut(header, gather(self.data, group.pos, header.size))
        path = (*group.path, header)
        if count := len(group.rows):
            rows = group.rows if count < len(self.shape) else slice(None)
            self.shape[rows] = self.shapes.setdefault(path, len(self.shapes))
            self.found.setdefault(header, []).append((group.rows, units))
        return _PacketGroup(group.rows, group.pos + header.size, group.end, path), units

    def typed(self, header: Header, group: _PacketGroup, tags: int = 2) -> None:
        """Find a header with an EtherType, and up to two 802.1Q tags."""
        group, units = self.take(header, group)
        for kind, some in group.split(_ETHERTYPES[_value(header, "type", units)]):
            if kind != _VLAN:
                _FOLLOWING[kind](self, some)
            elif tags:
                self.typed(eth.VLAN, some, tags - 1)

    def ethernet(self, group: _PacketGroup) -> None:
        self.typed(eth.ETHERNET, group)

    def pfc(self, group: _PacketGroup) -> None:
        self.uet(group, ((eth.PFC,),))

    def other(self, group: _PacketGroup) -> None:
        """Leave packets of a protocol that has no tables."""

    def ip(self, group: _PacketGroup) -> None:
        """Find an IP header, whose first bits tell the version."""
        group = group.where(group.end > group.pos)
        version = gather(self.data, group.pos, 1)[:, 0] >> 4
        self.ipv6(group.where(version == 6))
        self.ipv4(group.where(version != 6))

    def ipv4(self, group: _PacketGroup) -> None:
        group, units = self.take(eth.IPV4, group)
        version, ihl, total, mf, offset, protocol = (_value(eth.IPV4, name, units) for name in _IPV4_FIELDS)
        start = group.pos - eth.IPV4.size
        pos, end = start + ihl * 4, np.minimum(group.end, start + total)
        good = (version == 4) & (ihl >= 5) & (pos <= end) & (mf | offset == 0)
        self.transport(group._replace(pos=pos, end=end), protocol, good)

    def ipv6(self, group: _PacketGroup) -> None:
        group, units = self.take(eth.IPV6, group)
        end = np.minimum(group.end, group.pos + _value(eth.IPV6, "payload_length", units))
        group = group._replace(pos=group.pos.copy(), end=end)
        protocol = _value(eth.IPV6, "next_header", units).copy()
        good = _value(eth.IPV6, "version", units) == 6
        at = np.flatnonzero(good & _EXTENSIONS[protocol])
        while len(at):  # each round skips one extension header of the packets that have one more
            good[at] = whole = group.end[at] - group.pos[at] >= 8  # bytes of the shortest extension header
            at = at[whole]
            head, kind = gather(self.data, group.pos[at], 4), protocol[at]
            length = head[:, 1].astype(np.intp)
            size = np.where(kind == IpProtocol.AH, length * 4 + 8, length * 8 + 8)
            size[kind == IpProtocol.FRAGMENT] = 8
            fragment = (kind == IpProtocol.FRAGMENT) & (head[:, 2] | head[:, 3] & 0xF9 != 0)
            group.pos[at] += size
            protocol[at] = head[:, 0]
            good[at] = goes_on = (group.pos[at] <= group.end[at]) & ~fragment
            at = at[goes_on & _EXTENSIONS[protocol[at]]]
        self.transport(group, protocol, good)

    def transport(self, group: _PacketGroup, protocol: Array, good: Array) -> None:
        """Find UDP or UET over native IP, in the packets for which `good` is true."""
        udp = protocol == IpProtocol.UDP
        self.udp(group.where(good & udp))
        native, others = protocol == self.ip_protocol, good & ~udp
        self.uet(group.where(others & native), ((ENTROPY,),))
        others &= ~native
        for kind, some in group.where(others).split(_PROTOCOLS[protocol[others]]):
            _FOLLOWING[kind](self, some)

    def udp(self, group: _PacketGroup) -> None:
        group, units = self.take(eth.UDP, group)
        length = _value(eth.UDP, "length", units)
        end = group.pos - eth.UDP.size + length
        good, port = length >= eth.UDP.size, _value(eth.UDP, "dport", units)
        self.uet(group._replace(end=np.minimum(group.end, end)).where(good & (port == self.udp_port)), (FIRST,))
        if self.roce_port != self.udp_port:
            self.bth(group, end, good & (port == self.roce_port))
        good &= (port != self.udp_port) & (port != self.roce_port)
        for kind, some in group._replace(end=np.minimum(group.end, end)).where(good).split(_PORTS[port[good]]):
            _FOLLOWING[kind](self, some)

    def tunnel(self, header: Header, group: _PacketGroup) -> tuple[_PacketGroup, list[Array]]:
        """Take the first header of a tunnel, unless the packets are in as many tunnels as are followed."""
        depth = sum(other in _TUNNELS for other, _ in groupby(group.path))  # a stack of labels is one tunnel
        return self.take(header, group.where(np.full(len(group.rows), depth < tunnels.MOST_TUNNELS)))

    def vxlan(self, group: _PacketGroup) -> None:
        self.ethernet(self.tunnel(tunnels.VXLAN, group)[0])

    def geneve(self, group: _PacketGroup) -> None:
        group, units = self.tunnel(tunnels.GENEVE, group)
        version, words, protocol = (_value(tunnels.GENEVE, name, units) for name in ("version", "opt_len", "protocol"))
        group = group._replace(pos=group.pos + words.astype(np.intp) * 4)
        self.carried(group, protocol, (version == 0) & (group.pos <= group.end))

    def carried(self, group: _PacketGroup, protocol: Array, good: Array) -> None:
        """Find what an EtherType announces, in the packets for which `good` is true."""
        for kind, some in group.where(good).split(_ETHERTYPES[protocol[good]]):
            if kind != _VLAN:
                _FOLLOWING[kind](self, some)

    def gre(self, group: _PacketGroup) -> None:
        group, units = self.tunnel(tunnels.GRE, group)
        flags = [_value(tunnels.GRE, name, units) for name in (*tunnels.GRE_PARTS, "version", "routing_present")]
        code = np.zeros(len(group.rows), np.uint16)
        for place, flag in enumerate(flags):
            code |= flag.astype(np.uint16) << place
        protocol = _value(tunnels.GRE, "protocol", units)
        for number, some in group.split(code):
            if number >> len(tunnels.GRE_PARTS):
                continue  # another version, or routing
            what = protocol[code == number]
            for place, header in enumerate(tunnels.GRE_PARTS.values()):
                if number >> place & 1:
                    what = what[some.end - some.pos >= header.size]
                    some, _ = self.take(header, some)
            numbered = number & _SEQUENCE
            bare = (what == TunnelProtocol.ERSPAN) & (not numbered)
            self.ethernet(some.where(bare))  # type I has no header of its own
            self.carried(some, what, ~bare)

    def erspan(self, group: _PacketGroup) -> None:
        group = group.where(group.end > group.pos)
        for version, some in group.split(gather(self.data, group.pos, 1)[:, 0] >> 4):
            if header := _ERSPAN.get(version):
                some, units = self.take(header, some)
                if header is tunnels.ERSPAN_II:
                    self.ethernet(some)
                    continue
                more, kind = (_value(header, name, units) for name in ("platform_present", "frame_type"))
                for present, few in some.split(more):
                    what = kind[more == present]
                    if present:
                        what = what[few.end - few.pos >= tunnels.ERSPAN_PLATFORM.size]
                        few, _ = self.take(tunnels.ERSPAN_PLATFORM, few)
                    self.ethernet(few.where(what == ErspanFrame.ETHERNET))
                    self.ip(few.where(what == ErspanFrame.IP))

    def mpls(self, group: _PacketGroup, labels: int = tunnels.MOST_LABELS) -> None:
        """Find a stack of labels, and what the first bits behind it announce."""
        first = labels == tunnels.MOST_LABELS
        group, units = self.tunnel(tunnels.MPLS, group) if first else self.take(tunnels.MPLS, group)
        bottom = _value(tunnels.MPLS, "bottom", units) == 1
        if labels > 1 and not bottom.all():
            self.mpls(group.where(~bottom), labels - 1)
        group = group.where(bottom & (group.end > group.pos))
        for nibble, some in group.split(gather(self.data, group.pos, 1)[:, 0] >> 4):
            if nibble in tunnels.BY_NIBBLE:
                _WALKS[tunnels.BY_NIBBLE[nibble]](self, some)

    def pseudowire(self, group: _PacketGroup) -> None:
        self.ethernet(self.take(tunnels.MPLS_CONTROL, group)[0])

    def erf(self, group: _PacketGroup) -> None:
        """Find an ERF record: extension headers while a type has its top bit set, then an InfiniBand packet."""
        group, units = self.take(eth.ERF, group)
        group = group._replace(pos=group.pos.copy())
        at = np.flatnonzero(_value(eth.ERF, "ext", units))
        while len(at):
            first = group.pos[at]
            more = first < group.end[at]
            more[more] = self.data[first[more]] >> 7 != 0
            group.pos[at] += eth.ERF_EXTENSION_SIZE
            at = at[more]
        good = (_value(eth.ERF, "type", units) == eth.ERF_INFINIBAND) & (group.pos <= group.end)
        self.infiniband(group.where(good))

    def infiniband(self, group: _PacketGroup) -> None:
        group, units = self.take(roce.LRH, group)
        end = group.pos - roce.LRH.size + _value(roce.LRH, "pktlen", units).astype(np.intp) * 4
        good, lnh = end >= group.pos, _value(roce.LRH, "lnh", units)
        self.bth(group, end, good & (lnh == roce.Lnh.LOCAL))
        whole = good & (lnh == roce.Lnh.GLOBAL)
        self.grh(group.where(whole), end[whole])

    def grh(self, group: _PacketGroup, ends: Index | None = None) -> None:
        """Find a GRH; behind an LRH, whose length says that the packets end at `ends`, the GRH must agree with it."""
        whole = group.end - group.pos >= roce.GRH.size
        group, units = self.take(roce.GRH, group)
        end = group.pos + _value(roce.GRH, "paylen", units)
        good = (_value(roce.GRH, "ipver", units) == 6) & (_value(roce.GRH, "nxthdr", units) == roce.BTH_FOLLOWS)
        if ends is not None:
            good &= end == ends[whole]
        self.bth(group, end, good)

    def bth(self, group: _PacketGroup, end: Index, good: Array) -> None:
        """Find a BTH and the headers behind it, in packets for which `good` is true.

        The packets end at `end` by their headers; the capture may have kept less.
        """
        self.uet(group._replace(end=np.minimum(group.end, end)).where(good), (_BTH,))
        if self.settings.icrc:
            whole = group._replace(end=end).where(good & (end <= group.end) & (end - group.pos >= roce.BTH.size))
            if len(whole.rows):
                self.invariant(whole)

    def invariant(self, group: _PacketGroup) -> None:
        """Check the ICRCs of whole packets whose next header is the BTH."""
        head = gather(self.data, group.pos, 2)
        above = _HEADERS[self.rd][head[:, 0]] + (head[:, 1] >> 4 & 3)
        group = group.where(group.end - group.pos >= above + ICRC_SIZE)
        path = [(header.name, header.size) for header in (*group.path, roce.BTH)]
        start = self.batch.start[group.rows]
        size = sum(size for _, size in path) - roce.BTH.size
        plain = group.pos - start == size
        for row in group.rows[~plain]:  # packets with IPv4 options or extension headers, which are rare
            self.icrc[row] = self.verdict(int(row))
        group, start = group.where(plain), start[plain]
        if not len(group.rows):
            return
        first, crc = invariant_start([form for form, _ in path])
        offset, covered = sum(size for _, size in path[:first]), tuple(path[first:])
        length = size + roce.BTH.size - offset
        mask = np.frombuffer(invariant_mask(covered).to_bytes(length, "big"), np.uint8)
        heads = (gather(self.data, start + offset, length) | mask).tobytes()
        data, ends = self.data[int(start[0]) : int(group.end[-1])].tobytes(), group.end - ICRC_SIZE - start[0]
        value = gather(self.data, group.end - ICRC_SIZE, ICRC_SIZE).view("<u4")[:, 0]
        rests = (group.pos + roce.BTH.size - start[0]).tolist()
        right = [
            crc32(data[rest:end], crc32(heads[at : at + length], crc))
            for at, rest, end in zip(range(0, len(heads), length), rests, ends.tolist(), strict=True)
        ]
        self.icrc[group.rows] = value == np.array(right, np.uint32)

    def verdict(self, row: int) -> int:
        """Check the ICRC of one packet: return 1 if it is right, 0 if it is wrong, -1 if it cannot be checked."""
        trailer = self.decoded(row).trailer
        return -1 if trailer is None or trailer.ok is None else int(trailer.ok)

    def decoded(self, row: int) -> Packet:
        """Decode one packet by `wire.stack`."""
        batch = self.batch
        data = batch.data[batch.start[row] : batch.end[row]].tobytes()
        link = next(name for name, number in LINKS.items() if number == batch.links[row])
        return decode(data, link=link, length=int(batch.lengths[row]), **self.options)

    def inside(self, group: _PacketGroup) -> None:
        """Find SHARP headers behind the last header; packets whose first bytes allow SHARP are decoded one by one."""
        last = group.path[-1] if group.path else None
        if last is SEND_STD_SOM:
            magic = gather(self.data, group.pos - last.size + last.offset_of("header_data") // 8, 4)
            group = group.where(magic.view(">u4")[:, 0] == MAGIC)
        elif last is roce.BTH or last is roce.DETH:
            group = group.where(group.end - group.pos >= SHARP.size)
            first = gather(self.data, group.pos, 1)[:, 0]
            group = group.where((first >> 4 == VERSION) | (first == AM["base_version"].default))
        else:
            return
        found: dict[tuple[Header, ...], list[int]] = {}
        for number, row in enumerate(group.rows.tolist()):
            forms = [layer.form for layer in self.decoded(row).layers if layer.form in SHARP_FORMS]
            found.setdefault(tuple(SHARP_FORMS[form] for form in forms), []).append(number)
        for headers, numbers in found.items():
            some = group.where(np.isin(np.arange(len(group.rows)), numbers))
            for header in headers:
                some, _ = self.take(header, some)

    def immediates(self, group: _PacketGroup) -> Iterator[tuple[Header, _PacketGroup]]:
        """Split packets whose next header is an immediate by its layout: one of those of multicast, or `IMM`."""
        kind = np.zeros(len(group.rows), np.uint8)
        headers = (roce.IMM, *MCAST_FORMS.values())
        for number, row in enumerate(group.rows.tolist()):
            form = next((layer.form for layer in self.decoded(row).layers if layer.form in MCAST_FORMS), roce.IMM.name)
            kind[number] = [header.name for header in headers].index(form)
        for which, some in group.split(kind):
            yield headers[which], some

    def uet(self, group: _PacketGroup, todo: tuple[Candidates, ...]) -> None:
        """Find headers by the rows of `NEXT` and `ROCE_NEXT`; `todo` has the candidates for each header, in order."""
        if not len(group.rows):
            return
        if not todo:
            if self.trailers and any(header.name.startswith("pds.") for header in group.path):
                rows, pos, end, path = group
                batch = self.batch
                start, kept, interfaces = batch.start[rows], batch.end[rows], batch.interfaces[rows]
                cut = batch.lengths[rows] > kept - start
                self.trailers.check(
                    Packets(self.data, rows, start, pos, end, kept, cut, interfaces, path), self.decoded
                )
            if self.settings.sharp:
                self.inside(group)
            return
        if self.settings.mcast and todo == ((roce.IMM,),):
            for header, some in self.immediates(group):
                self.take(header, some)
            return
        candidates, *later = todo
        group = group.where(group.end - group.pos >= 2)
        words = gather(self.data, group.pos, 2).view(">u2")[:, 0]
        for number, some in group.split(_which(candidates)[words]):
            if number == _NONE:
                continue
            header = candidates[number]
            some, units = self.take(header, some)
            by, plan_of, plans = _after(header, self.rd)
            code: Array = np.zeros(len(some.rows), np.uint16)
            for name in by:
                code = code << header[name].bits | _value(header, name, units)
            for plan, few in some.split(plan_of[code]):
                self.uet(few, (*plans[plan], *later))


_NONE = 255  # no candidate fits
_BTH = (roce.BTH,)
_TUNNELS = frozenset((tunnels.VXLAN, tunnels.GENEVE, tunnels.GRE, tunnels.MPLS))
_ERSPAN = {header["version"].default: header for header in (tunnels.ERSPAN_II, tunnels.ERSPAN_III)}
_SEQUENCE = 1 << list(tunnels.GRE_PARTS).index("sequence_present")
_WALKS: dict[Header | None, Callable[[_BatchWalk, _PacketGroup], None]] = {
    None: _BatchWalk.other,
    eth.VLAN: _BatchWalk.other,
    roce.GRH: _BatchWalk.grh,
    eth.PFC: _BatchWalk.pfc,
    eth.ETHERNET: _BatchWalk.ethernet,
    eth.IPV4: _BatchWalk.ipv4,
    eth.IPV6: _BatchWalk.ipv6,
    tunnels.VXLAN: _BatchWalk.vxlan,
    tunnels.GENEVE: _BatchWalk.geneve,
    tunnels.GRE: _BatchWalk.gre,
    tunnels.ERSPAN_II: _BatchWalk.erspan,
    tunnels.ERSPAN_III: _BatchWalk.erspan,
    tunnels.MPLS: _BatchWalk.mpls,
    tunnels.MPLS_CONTROL: _BatchWalk.pseudowire,
}
_FOLLOWING, _KINDS = list(_WALKS.values()), {header: number for number, header in enumerate(_WALKS)}
_VLAN = _KINDS[eth.VLAN]


def _kinds(size: int, following: Mapping[int, Header]) -> Bytes:
    """Return a table (size,) from the codes of a field to the kinds of the headers that they announce."""
    table = np.zeros(size, np.uint8)
    for code, header in following.items():
        table[code] = _KINDS[header]
    return table


_ETHERTYPES = _kinds(1 << 16, {
    **dict.fromkeys(eth.VLAN_TYPES, eth.VLAN), EtherType.ROCEV1: roce.GRH, EtherType.MAC_CONTROL: eth.PFC,
    **tunnels.BY_ETHERTYPE,
})  # fmt: skip
_PROTOCOLS, _PORTS = _kinds(1 << 8, tunnels.BY_PROTOCOL), _kinds(1 << 16, tunnels.BY_PORT)
_IPV4_FIELDS = ("version", "ihl", "total_length", "mf", "fragment_offset", "protocol")
_EXTENSIONS = np.isin(np.arange(256), list(eth.IPV6_EXTENSIONS))
_HEADERS = {rd: np.full(256, roce.BTH.size, np.intp) for rd in RD_MODES}  # bytes from the BTH to the payload by opcode
for _rd, _opcode in product(RD_MODES, roce.SEQUENCES):
    if _rd == "headers" or _opcode not in roce.RD_OPCODES:
        _HEADERS[_rd][_opcode] += sum(header.size for header in roce.SEQUENCES[_opcode])
_TYPED = {LINKS["ethernet"]: eth.ETHERNET, LINKS["sll"]: eth.SLL, LINKS["sll2"]: eth.SLL2}


@cache
def _which(candidates: Candidates) -> Bytes:
    """Return a table (65536,) from the first two bytes of a header to the number of its candidate, or `_NONE`."""
    table = np.full(1 << 16, _NONE, np.uint8)
    for number, header in reversed(list(enumerate(candidates))):  # the first that matches is written last
        fits = np.ones(1 << 16, bool)
        low = 16
        for row in header.fields:
            low -= row.bits
            if low < 0:
                break
            if row.only:
                others = np.isin(np.arange(1 << row.bits), row.only, invert=True)
                fits.reshape(-1, 1 << row.bits, 1 << low)[:, others] = False
        table[fits] = number
    return table


@cache
def _after(header: Header, rd: str) -> tuple[tuple[str, ...], Bytes, list[tuple[Candidates, ...]]]:
    """Return which headers follow `header`: the fields that decide it, a table of plan numbers, and the plans.

    A plan has the candidates for each header that follows. The joined bits of the fields are the index into the table.
    A reserved value of a field adds no header, as in `decode`; with `rd` "raw" no header follows the BTH of RD.
    """
    rows = rows_after(header)
    by = tuple(dict.fromkeys(row.by for row in rows if row.by))
    plans: dict[tuple[Candidates, ...], int] = {}
    numbers = []
    for values in product(*[range(1 << header[name].bits) for name in by]):
        value = dict(zip(by, values, strict=True))
        following = [row.then.get(value[row.by], row.otherwise) if row.by else row.otherwise for row in rows]
        if header is roce.BTH and rd == "raw" and value["opcode"] in roce.RD_OPCODES:
            following = []
        numbers.append(plans.setdefault(tuple(some for some in following if some), len(plans)))
    return by, np.array(numbers, np.uint8), list(plans)
