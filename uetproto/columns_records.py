# SPDX-License-Identifier: GPL-2.0-only
"""This module reads the packets of a capture in batches for `columns`: the bytes of many packets in one array."""

import os
import struct
from collections import Counter
from collections.abc import Generator, Iterator
from itertools import islice
from stat import S_ISREG
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uetproto.wire.capture.base import MAX_LENGTH, SECOND, Source
from uetproto.wire.capture.pcap import LINK_NAMES, SNAPLEN, Damage, Record, open_capture
from uetproto.wire.capture.pcapng import SECTION
from uetproto.wire.malloc import keep_freed_memory

Array = NDArray[Any]
Bytes = NDArray[np.uint8]
Index = NDArray[np.intp]

LINKS = {name: number for number, name in enumerate(dict.fromkeys(LINK_NAMES.values()), 1)}
"""Numbers of the link types that are decoded. Any other link type has the number 0."""
NO_TIME = int(np.iinfo(np.int64).min)
"""Value in `Columns.times` for a time that does not fit into 64 bits. As `datetime64[ns]` the value is NaT."""
_LAST = np.iinfo(np.int64).max
_CHUNK = 1 << 22  # bytes read at a time: enough to make the calls cheap, few enough for the cache


class Batch(NamedTuple):
    """A batch holds packets that lie in `data`."""

    data: Bytes
    start: Index
    end: Index
    times: NDArray[np.int64]  # ns
    lengths: NDArray[np.uint32]  # bytes on the wire
    links: Bytes  # numbers of `LINKS`
    interfaces: NDArray[np.uint32]

    def part(self, first: int, last: int) -> "Batch":
        return Batch._make((self.data, *(column[first:last] for column in self[1:])))


def batches(path: Source, damage: list[Damage]) -> Iterator[Batch]:
    """Return the packets of a capture in batches, each valid until the next one; append damaged parts to `damage`."""
    keep_freed_memory()
    done = 0
    if isinstance(path, str | os.PathLike) and path != "-":
        with open(path, "rb", buffering=0) as file:
            # A pipe can be read only once.
            odd_from: int | None = 0
            if S_ISREG(os.fstat(file.fileno()).st_mode):
                magic = file.read(4)
                if magic in _MAGICS:
                    odd_from = yield from _plain_batches(file, *_MAGICS[magic])
                elif magic == SECTION:
                    odd_from = yield from _plain_blocks(path, file)
            if odd_from is None:
                return
            done = odd_from
    # A compressed file, or any other from its first odd record on, is read record by record, with a search for the next
    # good record after damage.
    with open_capture(path) as reader:
        records = islice(reader, done, None)
        noted = 0
        while some := _some(records):
            damage += reader.damage[noted:]
            noted = len(reader.damage)
            late = {record.index: record for record in some if not NO_TIME < record.time_ns <= _LAST}
            if late:
                first = next(iter(late.values()))
                reason = f"time {first.time_ns} ns of #{first.index + 1} does not fit 64 bits"
                damage.append(Damage(first.offset, reason + (f", and {len(late) - 1} more" if len(late) > 1 else "")))
            ends = np.cumsum([len(record.data) for record in some], dtype=np.intp)
            yield Batch(
                data=np.frombuffer(b"".join([record.data for record in some]), np.uint8),
                start=np.concatenate(([0], ends[:-1])),
                end=ends,
                times=np.array([record.time_ns if record.index not in late else NO_TIME for record in some], np.int64),
                lengths=np.array([record.length for record in some], np.uint32),
                links=np.array([LINKS.get(LINK_NAMES.get(record.link, ""), 0) for record in some], np.uint8),
                interfaces=np.array([record.interface for record in some], np.uint32),
            )
        damage += reader.damage[noted:]


def _some(records: Iterator[Record]) -> list[Record]:
    """Return the next records: with their headers, about a quarter of `_CHUNK` bytes."""
    some: list[Record] = []
    size = 0
    while size < _CHUNK // 4 and (more := list(islice(records, 64))):
        some += more
        size += sum([_HEAD + len(record.data) for record in more])
    return some


_MAGICS = {
    struct.pack(order + "I", magic): (order, ticks)
    for order in "<>"
    for magic, ticks in ((0xA1B2C3D4, 10**6), (0xA1B23C4D, SECOND))
}
_HEAD = 16  # bytes in front of a frame: seconds, fraction, captured and original length
_LANES = 512  # parts of a chunk whose records are found in parallel
_FEW = 32  # fewer lanes than these are not worth an array operation


def _plain_batches(file: BinaryIO, order: str, ticks: int) -> Generator[Batch, None, int | None]:
    """Yield the frames of a pcap on disk up to the first record that `wire.pcap` would refuse.

    Return the number of this record, or None if there is none.
    """
    head = file.read(20)
    if len(head) < 20:
        return 0
    snaplen, link = struct.unpack(order + "12x2I", head)
    limit = min(SNAPLEN, max(snaplen, 65_535)) if snaplen else SNAPLEN
    number = LINKS.get(LINK_NAMES.get(link & 0xFFFF, ""), 0)
    buffer = bytearray(max(_CHUNK, 2 * SNAPLEN))
    view, data = memoryview(buffer), np.frombuffer(buffer, np.uint8)
    held = packets = 0
    while got := file.readinto(view[held:]):  # type: ignore[attr-defined]
        start = _starts(buffer, data, held + got, order, _RECORD)
        heads = gather(data, start, _HEAD).view(order + "u4")
        seconds, fraction, captured, length = (heads[:, column].astype(np.int64) for column in range(4))
        good = (captured <= limit) & (captured <= length) & (length <= MAX_LENGTH) & (fraction < ticks)
        good &= (seconds | fraction | length) != 0
        times = seconds * SECOND + fraction * (SECOND // ticks)
        frame = start + _HEAD
        links = np.full(len(start), number, np.uint8)
        zeros = np.zeros(len(start), np.uint32)
        batch = Batch(data, frame, frame + captured, times, length.astype(np.uint32), links, zeros)
        count = len(start) if good.all() else int(good.argmin())
        if count:
            packets += count
            yield batch.part(0, count)
        if count < len(start):
            return packets
        end = int(batch.end[-1]) if count else 0
        held = held + got - end
        view[:held] = bytes(view[end : end + held])
    return packets if held else None


_EPB, _NAMES, _STATISTICS = 6, 4, 5
_EPB_HEAD, _EPB_LEAST, _EPB_MOST = 28, 32, SNAPLEN + (1 << 17)


def _plain_blocks(path: Source, file: BinaryIO) -> Generator[Batch, None, int | None]:
    """Yield the frames of a pcapng on disk: those of Enhanced Packet Blocks that follow each other, up to the first
    block that has to be read with care.

    Return the number of the frame that follows them, or None if there is none.
    """
    with open_capture(path) as reader:
        first = next(reader, None)
        if first is None or reader.damage or any(SECOND % one.resolution for one in reader.interfaces):
            return 0
        interfaces = reader.interfaces
    file.seek(8)
    order = "<" if file.read(4) == b"\x4d\x3c\x2b\x1a" else ">"
    links = np.array([LINKS.get(LINK_NAMES.get(one.link, ""), 0) for one in interfaces], np.uint8)
    units = np.array([SECOND // one.resolution for one in interfaces], np.int64)
    shifts = [one.offset * SECOND for one in interfaces]
    latest = _LAST - max(map(abs, shifts))
    if latest < 0:
        return 0
    offsets = np.array(shifts, np.int64)
    file.seek(first.offset)
    buffer = bytearray(max(_CHUNK, 2 * SNAPLEN) + _EPB_HEAD)
    view, data = memoryview(buffer), np.frombuffer(buffer, np.uint8)
    most = len(buffer) - _EPB_HEAD
    held = packets = 0
    while got := file.readinto(view[held:most]):  # type: ignore[attr-defined]
        start = _starts(buffer, data, held + got, order, _BLOCK)
        heads = gather(data, start, _EPB_HEAD).view(order + "u4")
        kind, total, interface, high, low, captured, length = (heads[:, column].astype(np.int64) for column in range(7))
        behind = gather(data, start + np.clip(total, 4, most) - 4, 4).view(order + "u4")[:, 0]
        good = (kind == _EPB) & (total >= _EPB_LEAST) & (total <= _EPB_MOST) & (captured <= total - _EPB_LEAST)
        good &= (captured <= SNAPLEN) & (captured <= length) & (length <= MAX_LENGTH) & (interface < len(interfaces))
        unit = units[np.where(good, interface, 0)]
        good &= high < latest // unit >> 32
        other = (kind == _NAMES) | (kind == _STATISTICS)
        fits = (good | other) & (total == behind) & (total & 3 == 0)
        count = len(start) if fits.all() else int(fits.argmin())
        some = np.flatnonzero(good[:count])
        if len(some):
            packets += len(some)
            of, frame = interface[some], start[some] + _EPB_HEAD
            times = (high[some] << 32 | low[some]) * units[of] + offsets[of]
            yield Batch(
                data, frame, frame + captured[some], times, length[some].astype(np.uint32), links[of],
                of.astype(np.uint32),
            )  # fmt: skip
        if count < len(start):
            return packets
        end = int(start[-1] + total[-1]) if count else 0
        held = held + got - end
        view[:held] = bytes(view[end : end + held])
    return packets if held else None


class _Framing(NamedTuple):
    """A framing says how the records of a file follow each other: `head` bytes hold the size of a record at offset
    `size_at`, which does not count `added` bytes; `mark` are bytes of the head that many records share."""

    head: int
    size_at: int
    added: int
    mark: slice


_RECORD = _Framing(_HEAD, 8, _HEAD, slice(8, _HEAD))
_BLOCK = _Framing(12, 4, 0, slice(0, 8))


def _starts(buffer: bytearray, data: Bytes, stop: int, order: str, framing: _Framing) -> Index:
    """Return where the whole records in `buffer[:stop]` start; the first is at 0. `data` are the same bytes.

    The last one may be a record that states a size which is too small.
    """
    head, size_at, added, mark = framing
    size = struct.Struct(f"{order}{size_at}xI").unpack_from

    def one_by_one(at: int, limit: int) -> tuple[list[int], int]:
        starts = []
        while at + head <= limit and (end := at + added + size(buffer, at)[0]) <= limit:
            starts.append(at)
            if end < at + head:
                return starts, limit
            at = end
        return starts, at

    # Do all records have the same length?
    step = added + size(buffer)[0]
    count = stop // step if step >= head else 0
    if count > 1 and (np.ndarray(count, order + "u4", data, size_at, (step,)) == step - added).all():
        return np.append(np.arange(count) * step, np.array(one_by_one(count * step, stop)[0], np.intp))

    # The chunk is cut into lanes, which are walked in parallel. A lane starts where the most common mark stands, as a
    # record seems to start there. If each lane ends where the next one starts, every guess was right; if not, the chunk
    # is walked from its start, one record after the other.
    sample, _ = one_by_one(0, min(stop, 1 << 13))
    marks = Counter(bytes(buffer[at + mark.start : at + mark.stop]) for at in sample).most_common(1)
    lanes = [0]
    for border in range(stop // _LANES, stop, stop // _LANES + 1) if marks else ():
        if border > lanes[-1]:
            found = buffer.find(marks[0][0], border + mark.start, stop)
            if found < 0:
                break
            lanes.append(found - mark.start)
    at, limit = np.array(lanes), np.array([*lanes[1:], stop])
    sizes = np.ndarray(max(stop - head + 1, 0), "V4", data, size_at, (1,))
    steps = []
    while len(lanes) >= _FEW:
        after = at + added + sizes[np.minimum(at, stop - head)].view(order + "u4")
        moves = (after <= limit) & (after >= at + head)
        if np.count_nonzero(moves) < _FEW:
            break
        steps.append(at[moves])
        at = np.where(moves, after, at)
    for lane in np.flatnonzero(at < limit):
        starts, at[lane] = one_by_one(int(at[lane]), int(limit[lane]))
        steps.append(np.array(starts, np.intp))
    if (at[:-1] != limit[:-1]).any():
        return np.array(one_by_one(0, stop)[0], np.intp)
    return np.sort(np.concatenate(steps), kind="stable")


def gather(data: Bytes, at: Index, size: int) -> Bytes:
    """Return an array (n, size): the `size` bytes of `data` at each of the n offsets `at`."""
    if not len(at):
        return np.empty((0, size), np.uint8)
    step, rest = divmod(int(at[-1] - at[0]), max(len(at) - 1, 1))
    if not rest and (np.diff(at) == step).all():
        return np.ndarray((len(at), size), np.uint8, data, int(at[0]), (step, 1))  # evenly spaced: no copy
    # A view has a window of `size` bytes at every offset; to index windows is much faster than to index single bytes.
    windows = np.ndarray(len(data) - size + 1, f"V{size}", data, 0, (1,))
    return windows[at].view(np.uint8).reshape(-1, size)
