# SPDX-License-Identifier: GPL-2.0-only
"""This module checks the CRC32C of all UET packets of a batch for `columns`, and finds out which flows carry a CRC32C.

The decision is that of `wire/flow_crc.py`: one packet with a right CRC32C proves that its flow carries CRCs. If a flow
has no such packet, its first packets decide. Here, all packets of a piece of the capture are read before the decision.
"""

from collections.abc import Callable
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uetproto.wire.codec import codec_of
from uetproto.wire.crc import CRC_SIZE, crc32c
from uetproto.wire.fields import Header
from uetproto.wire.flow_crc import PATIENCE, verdict
from uetproto.wire.headers import ethernet as eth
from uetproto.wire.headers.tunnels import ERSPAN_II, ERSPAN_III
from uetproto.wire.implied import implied_by
from uetproto.wire.packet import CRC_SUSPECT, Layer, Packet, network_of
from uetproto.wire.shapes import SUSPECT_SIZES
from uetproto.wire.stack import TRIMMED_DSCP

Array = NDArray[Any]
Bytes = NDArray[np.uint8]
Index = NDArray[np.intp]

RIGHT, WRONG, NONE, SUSPECT = 1, 0, -1, -2
"""Values of `Columns.crc32c` for a packet. `RIGHT` and `WRONG`: the CRC32C is right or wrong. `NONE`: the packet has no
CRC32C. `SUSPECT`: it may have a wrong one (crc-suspect)."""
_NOT_RIGHT = -3
"""Value of a packet that does not end with a right CRC32C, and need not end with one."""
_SUSPECT_SIZES = np.array(sorted(SUSPECT_SIZES))
_TRIMMED = np.isin(np.arange(64), list(TRIMMED_DSCP))
_NETWORKS, _ERSPAN = (eth.IPV4, eth.IPV6), (ERSPAN_II, ERSPAN_III)
_MIRROR_CUT = 1 << 31 - ERSPAN_II.offset_of("truncated")  # in the two bytes from the third one of ERSPAN on
_DECIDING = ("opcode", "som", "eom", "atomic_opcode")  # fields on which the implied length depends


class Packets(NamedTuple):
    """This record has a group of UET packets of one batch. All packets of the group have the same headers, the headers
    are complete, and payload follows them. `data` has the bytes of the whole batch; every other array has one entry for
    each packet of the group.
    """

    data: Bytes
    rows: Index
    start: Index
    pos: Index
    """Offsets at which the payloads begin."""
    end: Index
    """Offsets at which the packets end: where their headers say so, or earlier if the capture did not keep the whole
    packet."""
    kept: Index
    """Offsets at which the captured bytes end."""
    cut: NDArray[np.bool_]
    """Whether the capture kept less than was on the wire."""
    interfaces: NDArray[np.uint32]
    path: tuple[Header, ...]

    def where(self, keep: Array) -> "Packets":
        return Packets._make((self.data, *(column[keep] for column in self[1:-1]), self.path))

    def number(self, at: Index, size: int) -> Array:
        """Return the big-endian numbers (n,) that `size` bytes (1, 2 or 4) at each of the n offsets `at` hold."""
        numbers: Array = self.data[at[:, None] + np.arange(size)].view(f">u{size}")[:, 0]
        return numbers


class FlowTrailers:
    """This class judges the CRC32C of packets. It takes a capture in pieces, and remembers the flows of all earlier
    pieces.
    """

    def __init__(self) -> None:
        self._flows: dict[bytes, int] = {}
        self._known: NDArray[np.bool_] = np.zeros(0, bool)  # of each flow: whether its packets have a CRC
        self._found: list[tuple[Array, Array]] = []

    def begin(self, packets: int) -> None:
        """Begin a batch of `packets` packets."""
        self._state = np.full(packets, NONE, np.int8)
        self._flow = np.zeros(packets, np.uint32)
        self._found.append((self._state, self._flow))

    def check(self, packets: Packets, decoded: Callable[[int], Packet]) -> None:
        """Check a group of UET packets of the batch. Packets with IP options, extension headers or a UDP checksum are
        checked one by one: `decoded(row)` returns such a packet, and `row` is its number in the batch.
        """
        path = packets.path
        last = max(place for place, header in enumerate(path) if header in _NETWORKS)
        plain = packets.pos - packets.start == sum(header.size for header in path)
        if eth.UDP in path[last:]:
            checksum = packets.start + sum(header.size for header in path[: last + 1]) + 6
            plain &= packets.number(np.where(plain, checksum, packets.start), 2) == 0
        if not plain.all():
            rows, start, kept, interfaces = (
                column[~plain].tolist() for column in (packets.rows, packets.start, packets.kept, packets.interfaces)
            )
            for row, first, end, interface in zip(rows, start, kept, interfaces, strict=True):
                self._check_one(row, interface, packets.data[first:end].tobytes(), decoded(row))
            packets = packets.where(plain)
        packets = packets.where(_are_whole(packets))
        if len(packets.rows):
            v4 = path[last] is eth.IPV4
            covered = packets.start + sum(header.size for header in path[:last]) + (12 if v4 else 8)
            self._check_plain(packets, covered, 8 if v4 else 32)

    def _check_plain(self, packets: Packets, covered: Index, addresses: int) -> None:
        rows, end = packets.rows, packets.end
        low = int(covered[0])
        data, ends = packets.data[low : int(end.max())].tobytes(), end - CRC_SIZE - low
        value = packets.number(end - CRC_SIZE, CRC_SIZE)
        starts = (covered - low).tolist()
        computed = [crc32c(data[first:last]) for first, last in zip(starts, ends.tolist(), strict=True)]
        right = value == np.array(computed, np.uint32)
        flows, width = self._flows, addresses + 4
        keys = np.empty((len(rows), width), np.uint8)
        keys[:, :4] = packets.interfaces.view(np.uint8).reshape(-1, 4)
        keys[:, 4:] = packets.data[covered[:, None] + np.arange(addresses)]
        raw = keys.tobytes()
        self._flow[rows] = [flows.setdefault(raw[at : at + width], len(flows)) for at in range(0, len(raw), width)]
        self._state[rows] = RIGHT
        if not right.all():
            others = packets.where(~right)
            self._state[others.rows] = _placed(others)

    def _check_one(self, row: int, interface: int, data: bytes, packet: Packet) -> None:
        """Check a packet with IP options, extension headers or a UDP checksum."""
        right = verdict(packet, data) if "pds" in packet else None
        if right is None:
            return
        form, values, _ = network_of(packet.layers)
        size = 4 if form == "ipv4" else 16
        ends = [values[name].to_bytes(size, "big") for name in ("src", "dst")]
        key = b"".join((np.uint32(interface).tobytes(), *ends))
        self._flow[row] = self._flows.setdefault(key, len(self._flows))
        other = WRONG if packet.trailer else SUSPECT if CRC_SUSPECT in packet.notes else _NOT_RIGHT
        self._state[row] = RIGHT if right else other

    def finish(self) -> NDArray[np.int8]:
        """Return the verdict (`RIGHT`, `WRONG`, `NONE` or `SUSPECT`) on each packet of the batches that began since the
        last call.
        """
        state = np.concatenate([np.empty(0, np.int8), *(state for state, _ in self._found)])
        flow = np.concatenate([np.empty(0, np.uint32), *(flow for _, flow in self._found)])
        self._found.clear()
        known = self._known = np.pad(self._known, (0, len(self._flows) - len(self._known)))
        known[flow[state == RIGHT]] = True
        rows = np.flatnonzero((state != RIGHT) & (state != NONE))
        rows = rows[np.argsort(flow[rows], kind="stable")]  # by flow, in the order of capture
        flows, first, count = np.unique(flow[rows], return_index=True, return_counts=True)
        rank = np.arange(len(rows)) - first.repeat(count)
        early = rows[rank < PATIENCE]
        placed = np.bincount(flow[early], state[early] == WRONG, len(known))
        known[flows] |= placed[flows] * 2 >= np.minimum(count, PATIENCE)
        state[rows[known[flow[rows]]]] = WRONG
        state[state == _NOT_RIGHT] = NONE
        return state


def _are_whole(packets: Packets) -> NDArray[np.bool_]:
    """Return for each packet whether nothing of it is missing: no capture, mirror or switch has cut it."""
    whole, at = ~packets.cut, packets.start
    for header, following in zip_longest(packets.path, packets.path[1:]):
        behind = at + header.size
        if header in _NETWORKS:
            v4 = header is eth.IPV4
            end = at + packets.number(at + 2, 2) if v4 else behind + packets.number(at + 4, 2)
            dscp = packets.number(at + 1, 1) >> 2 if v4 else packets.number(at, 2) >> 6 & 63
            whole = whole & (end <= packets.kept) & ~_TRIMMED[dscp]
            if following is eth.UDP:
                whole &= behind + packets.number(behind + 4, 2) <= end
        elif header in _ERSPAN:
            whole = whole & (packets.number(at + 2, 2) & _MIRROR_CUT == 0)
        at = behind
    return whole


def _placed(packets: Packets) -> NDArray[np.int8]:
    """Return what the headers tell about packets whose last four bytes are no right CRC.

    WRONG: the headers account for all bytes but these four. SUSPECT: the headers tell no length, and a payload MTU is
    before the four bytes.
    """
    headers: list[tuple[Header, Index]] = []  # from the PDS header on, and where they are
    at = packets.pos
    for header in reversed(packets.path):
        at = at - header.size
        headers.insert(0, (header, at))
        if header.name.startswith("pds."):
            break
    code = np.zeros(len(packets.rows), np.uint64)
    for header, at in headers:
        for name in _DECIDING:
            if name in header.names:
                code = code << np.uint64(header[name].bits) | _value(packets, header, name, at)
    size = packets.end - packets.pos
    state = np.full(len(size), _NOT_RIGHT, np.int8)
    _, samples, which = np.unique(code, return_index=True, return_inverse=True)
    for number, sample in enumerate(samples):
        layers = [
            Layer(header.name, codec_of(header).decode(packets.data[at[sample] : at[sample] + header.size].tobytes()))
            for header, at in headers
        ]
        source = implied_by(layers)
        some = np.flatnonzero(which == number)
        if source is None:
            state[some[np.isin(size[some], _SUSPECT_SIZES)]] = SUSPECT
            continue
        implied: Any = source
        if isinstance(source, tuple):
            header, at = headers[source[0]]
            implied = _value(packets.where(some), header, source[1], at[some])
        state[some[size[some] - CRC_SIZE == implied]] = WRONG
    return state


def _value(packets: Packets, header: Header, name: str, at: Index) -> NDArray[np.uint64]:
    """Return the values (n,) of a field of at most 57 bits; `header` is at the offsets `at`."""
    low, bits = header.offset_of(name), header[name].bits
    first, last = low // 8, (low + bits + 7) // 8
    value = np.zeros(len(at), np.uint64)
    for place in range(first, last):
        value = value << np.uint64(8) | packets.data[at + place]
    return value >> np.uint64(last * 8 - low - bits) & np.uint64((1 << bits) - 1)
