# SPDX-License-Identifier: GPL-2.0-only
"""This module measures the state machines for `uetproto bench`: packet delivery alone, without frames, links or bytes.

A measured value is compared with a required rate, size or time. There is no ratio, as no other software is measured
beside the library.
"""

import cProfile
import gc
import pstats
import random
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from tempfile import TemporaryDirectory
from time import process_time, process_time_ns
from typing import NamedTuple

from uetproto.check.fuzz import MACHINES, fuzz
from uetproto.engine import Datagram, Mode, Pds, PdsConfig, PdsError, Preset, Response
from uetproto.engine.contract import Buffer
from uetproto.engine.pds.service import Connection, Outgoing
from uetproto.engine.ses.headers import build_response
from uetproto.engine.ses.matching import PostedReceives
from uetproto.errors import LocalError
from uetproto.traffic.generate import generate
from uetproto.traffic.profile import load
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import ResponseOpcode, ReturnCode

A, B = 1, 2
_OK = Response(build_response(ResponseOpcode.DEFAULT_RESPONSE, ReturnCode.OK, 1, 0, 0))


class Figure(NamedTuple):
    """A figure has a measured value and the required one. If `most` is true, the required value is an upper limit;
    otherwise it is a lower one."""

    name: str
    what: str
    value: float
    unit: str
    asked: float
    most: bool = False
    shares: tuple[tuple[str, float], ...] = ()
    """Name of each layer, and its share of the time (0 to 1). It is empty if the shares were not measured."""
    wanted: float | None = None
    """The value that was wanted, if it is known to be missed; `asked` is what was reached."""

    @property
    def reached(self) -> bool:
        return self.value <= self.asked if self.most else self.value >= self.asked


class BenchStream:
    """A bench stream is a message of many packets without payload. It has the interface of `service.Outgoing`."""

    __slots__ = ("context", "index", "left")

    peer, mode, message_id, next_hdr = B, Mode.RUD, 1, int(NextHdr.REQUEST_STD)
    reserved = lock = False

    def __init__(self, packets: int, context: int = 0) -> None:
        self.left = packets
        self.index = -1
        self.context = context

    def unsent(self) -> tuple[int, int]:
        """Return the number of packets that were not sent, which have no bytes."""
        return self.left, 0

    def next_packet(self) -> tuple[int, bytes, Buffer, bool]:
        self.index += 1
        self.left -= 1
        return self.index, b"", b"", self.left == 0


class BenchResponder:
    """A bench responder is an SES that accepts every packet. It has the interface of `service.PdsUser`."""

    __slots__ = ("answered", "delivered")

    def __init__(self) -> None:
        self.delivered = self.answered = 0

    def on_request(
        self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer, now: int
    ) -> Response:
        self.delivered += 1
        return _OK

    def on_reread(self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer) -> Response:
        return _OK

    def on_response(self, message: Outgoing, index: int, next_hdr: int, response: Buffer | None, now: int) -> None:
        self.answered += 1

    def on_error(self, message: Outgoing, index: int, error: PdsError) -> None:
        raise LocalError(f"bench: packet {index} failed: {error.reason.value}", id="bench-failed")

    def on_closed(self, pdc: Connection) -> None:
        """Do nothing when a PDC closes."""


def endpoints(config: PdsConfig, far: PdsConfig | None = None) -> tuple[Pds, Pds]:
    return (
        Pds(A, config, random.Random(1), BenchResponder(), objects=True),
        Pds(B, far or config, random.Random(2), BenchResponder(), objects=True),
    )


def carry(a: Pds, b: Pds) -> None:
    """Deliver all packets of both endpoints without loss, until neither has a packet to send."""
    now = 0
    packets: list[Datagram] = a.poll(now)
    while packets:
        for packet in packets:
            b.receive(packet, now)
        for packet in b.poll(now):
            a.receive(packet, now)
        now += 1_000_000
        packets = a.poll(now)


# Rates ----------------------------------------------------------------------------------------------------------------


def stream(packets: int) -> float:
    """Return how many packets of one message both endpoints together process per CPU second."""
    a, b = endpoints(PdsConfig())
    began = process_time()
    a.send(BenchStream(packets), 0)
    carry(a, b)
    seconds = process_time() - began
    assert isinstance(b.user, BenchResponder)
    if b.user.delivered != packets:
        raise LocalError(f"bench: {b.user.delivered} of {packets} packets were delivered", id="bench-failed")
    return packets / seconds


def steps(count: int) -> float:
    """Return how many fuzzer steps are played per CPU second by two endpoints on a faulty wire. Each step checks the
    invariants."""
    done = 0
    began = process_time()
    for tally in fuzz("all", 1, steps=count):
        done += tally.moves
        if tally.failed:
            raise LocalError(f"bench: the fuzzer found something: {tally.findings[0].text}", id="bench-failed")
    return done / (process_time() - began)


def generated(records: int) -> float:
    """Return how many packets of a capture are generated per CPU second. All layers from SES to the capture file take
    part."""
    profile = load("bench")
    with TemporaryDirectory(prefix="uetproto-bench-") as folder:
        began = process_time()
        generate(profile, f"{folder}/bench.pcap", packets=records)
        return records / (process_time() - began)


LAYERS = (
    (
        "invariants",
        (
            "check/uet/invariant",
            "check/uet/ses_invariants",
            "check/uet/shadow_state",
            "check/uet/registry",
            "check/registry",
        ),
    ),
    ("scripted SES", ("check/uet/scripted_ses", "bench/engine")),
    ("fuzzer", ("check/",)),
    ("source half", ("engine/pds/source", "engine/pds/retransmit")),
    ("destination half", ("engine/pds/destination", "engine/pds/psn_window")),
    ("PDC, control packets", ("engine/pds/pdc", "engine/pds/control", "engine/pds/lifecycle")),
    ("RUDI, UUD", ("engine/pds/rudi_uud",)),
    ("transport headers", ("engine/pds/messages", "<codec")),
    ("manager", ("engine/pds/",)),
    ("SES", ("engine/ses/", "engine/memory", "engine/fep")),
    ("workload", ("traffic/workload", "traffic/profile")),
    ("capture", ("wire/capture/",)),
    ("wire, frames", ("wire/", "framing/", "emulator/", "traffic/")),
)
"""Names of layers, and prefixes of the paths of their files in the package. A file belongs to the first layer that has
a matching prefix."""


def shares(function: Callable[[], object]) -> tuple[tuple[str, float], ...]:
    """Run `function` under cProfile and return the share of the time in each layer. The time of a built-in function
    counts for the layer that calls the function."""
    profile = cProfile.Profile()
    profile.enable()
    function()
    profile.disable()
    spent: Counter[str] = Counter()
    for (path, _, _), (_, _, own, _, callers) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        layer = _layer(path)
        if layer is not None:
            spent[layer] += own
        else:
            for (caller, _, _), (_, _, part, _) in callers.items():
                spent[_layer(caller) or "other"] += part
    total = sum(spent.values())
    return tuple((name, own / total) for name, own in spent.most_common())


def _layer(path: str) -> str | None:
    place = path.rpartition("/uetproto/")[2]
    return next((name for name, starts in LAYERS if place.startswith(starts)), None)


# Matching -------------------------------------------------------------------------------------------------------------


class Tagged(NamedTuple):
    """This record has the tag, the mask and the source of a posted receive, as `ses.matching` requires them."""

    tag: int
    ignore: int
    source: int | None


MASKS = (0xFF, 0xFFFF, 0xFFFFFFFF)
SOURCES = 1000


def match(receives: int, searches: int) -> tuple[float, float]:
    """Return the nanoseconds of CPU for one `find` and for one `take` among posted receives. Half of the receives
    accept a single source, and 1 % ignore some bits of the tag.

    Messages arrive in random order: each search is for a receive that is chosen at random. A receive that was taken is
    posted again.
    """
    rng = random.Random(1)
    posted: PostedReceives[Tagged] = PostedReceives()
    all_of_them = []
    for k in range(receives):
        wildcard, turn = k % 100 == 0, k // 100 if k % 100 == 0 else k
        source = rng.randrange(SOURCES) if turn % 2 else None
        all_of_them.append(Tagged(rng.getrandbits(64), MASKS[turn % len(MASKS)] if wildcard else 0, source))
        posted.post(all_of_them[-1])

    def messages() -> list[tuple[int, int]]:
        picked = rng.sample(all_of_them, _BATCH)
        return [
            (one.tag ^ rng.getrandbits(64) & one.ignore, rng.randrange(SOURCES) if one.source is None else one.source)
            for one in picked
        ]

    spent = {posted.find: 0, posted.take: 0}
    gc.collect()
    for _ in range(searches // _BATCH):
        for search in spent:
            batch = messages()
            began = process_time_ns()
            found = [search(match_bits, initiator) for match_bits, initiator in batch]
            spent[search] += process_time_ns() - began
            if None in found:
                raise LocalError("bench: a receive that is posted was not found", id="bench-failed")
        for receive in found:
            assert receive is not None
            posted.post(receive)
    return spent[posted.find] / searches, spent[posted.take] / searches


_BATCH = 500


# Sizes ----------------------------------------------------------------------------------------------------------------


def allocated(make: Callable[[], object]) -> int:
    """Return the bytes of memory that the result of `make` holds."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = make()
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    del kept
    return held


def idle_pdc(count: int) -> float:
    """Return the bytes of memory of one end of an idle PDC that has carried a packet."""

    def make() -> object:
        a, b = endpoints(PdsConfig(max_pdcs=count, close_thresh=0))
        for context in range(count):
            a.send(BenchStream(1, context), 0)
        carry(a, b)
        a.events()
        b.events()
        if len(a.pdcs) + len(b.pdcs) != 2 * count or not (a.quiescent and b.quiescent):
            raise LocalError("bench: the PDCs are not idle", id="bench-failed")
        return a, b

    return allocated(make) / count / 2


def outstanding_packet(count: int) -> float:
    """Return the bytes of memory that a packet in flight takes: the packet without its payload, and the sender's record
    of the packet."""

    def make() -> object:
        a, _ = endpoints(PdsConfig(default_mpr=255))
        a.adopt(B, Mode.RUD, True, Preset(pdcid=1, peer_pdcid=1, forward_next=1, return_next=1))
        a.send(BenchStream(count), 0)
        sent = a.poll(0)
        if len(sent) != count:
            raise LocalError(f"bench: {len(sent)} packets are in flight, not {count}", id="bench-failed")
        return a, sent

    return allocated(make) / count


# All of them ----------------------------------------------------------------------------------------------------------

ROWS = ("stream", "steps", "match", "generate", "memory")


def measure(names: Iterable[str], quick: bool) -> Iterator[Figure]:
    """Measure the benchmarks that `names` contains, and yield each figure as soon as it is known. A rate is the best
    of three runs."""
    scale = 10 if quick else 1
    if "stream" in names:
        packets = 1_000_000 // scale
        best = max(stream(packets) for _ in range(3))
        split = shares(lambda: stream(packets // 10))
        yield Figure("stream", f"RUD stream of {packets:,} packets, PDS only", best, "packets/s", 100_000, shares=split)
    if "steps" in names:
        count = 500_000 // scale
        best = max(steps(count) for _ in range(3))
        split = shares(lambda: steps(count // 10))
        what = f"fuzzer, {', '.join(MACHINES)}, invariants on"
        yield Figure("steps", what, best, "steps/s", 50_000, shares=split)
    if "match" in names:
        few, many = 1000, 100_000
        runs = [(match(few, many // scale), match(many, many // scale)) for _ in range(3)]
        for which, name in enumerate(("find", "take")):
            short, long = (min(run[size][which] for run in runs) for size in (0, 1))
            yield Figure(
                "match", f"{name} one of {many:,} receives (twice that of {few:,})", long, "ns", 2 * short, most=True
            )
    if "generate" in names:
        records = 500_000 // scale
        best = max(generated(records) for _ in range(3))
        split = shares(lambda: generated(records // 10))
        what = f"generate bench: {records:,} packets of 1 KiB to a file"
        yield Figure("generate", what, best, "packets/s", 100_000, shares=split)
    if "memory" in names:
        yield Figure("memory", "one end of an idle PDC", idle_pdc(1000), "bytes", 4096, most=True)
        yield Figure("memory", "a packet in flight, no payload", outstanding_packet(30_000), "bytes", 1024, most=True)
