# SPDX-License-Identifier: GPL-2.0-only
"""This module measures messages of 1 KiB, and 30,000 PDCs of one endpoint, for `uetproto bench`.

A message of one packet costs more than a packet of a long message: it needs a grant, the work of the SES at both ends,
and an acknowledgement of its own. A figure says how many packets of a long message take as much CPU time as one message
of 1 KiB.
"""

from collections.abc import Iterator
from statistics import median
from time import process_time

from uetproto.bench.engine import BenchResponder, BenchStream, Figure, carry, endpoints
from uetproto.cli.collective.run import CollectiveCase, PreparedCase
from uetproto.collectives.dtypes import dtype
from uetproto.engine.config import PdsConfig
from uetproto.errors import LocalError
from uetproto.garbage import seldom_collected

ROWS = ("small", "pdcs")
RANKS, SMALL = 64, 1024
"""Number of ranks of the ring all_reduce, and bytes of a small message."""
PACKET, LONG, FEW = 4096, 64, 8
"""Bytes of a packet of a long message, number of its packets, and number of ranks of the ring with long messages."""
_RATE, _BULK = 2000, 6
"""Limits: messages a second of CPU, and the cost of a small message in packets of long messages. Small messages touch
the state of many ranks, so that other load on the machine costs them more than packets of long messages: the cost was
4.9 to 5.7 on two idle cores, and 6 to 7 beside 9 other programs."""
_TURNS = 6
"""Number of runs with long messages for one with small messages, so that both take equally long. Otherwise the shorter
would find a moment without other load more often."""
PDCS, EACH = 30_000, 8
"""Number of PDCs, and of packets on each."""
_MANY_RATE = 30_000
"""Limit: packets a second of CPU."""


def message(ranks: int, size: int) -> float:
    """Return CPU seconds for a message of a ring all_reduce. Raises `LocalError` if the result is wrong."""
    prepared = PreparedCase(CollectiveCase(
        op="all_reduce", algorithm="ring", ranks=ranks, length=ranks * size, dtype=dtype("float32")
    ))  # fmt: skip
    began = process_time()
    found = prepared.run()
    if not found.correct:
        raise LocalError("bench: all_reduce differs from NumPy's", id="bench-failed")
    return (process_time() - began) / found.messages


def many(count: int) -> float:
    """Return the packets that both ends process per CPU second when `count` PDCs send in turn."""
    a, b = endpoints(PdsConfig(max_pdcs=count, close_thresh=0))
    with seldom_collected():
        began = process_time()
        for context in range(count):
            a.send(BenchStream(EACH, context), 0)
        carry(a, b)
        seconds = process_time() - began
    assert isinstance(b.user, BenchResponder)
    if b.user.delivered != count * EACH or len(a.pdcs) != count:
        raise LocalError(f"bench: {b.user.delivered} packets were delivered on {len(a.pdcs)} PDCs", id="bench-failed")
    return count * EACH / seconds


def measure(names: tuple[str, ...], quick: bool) -> Iterator[Figure]:
    """Yield each figure as soon as it is measured; each is the best of three runs, or the median of their costs."""
    if "small" in names:
        ranks = RANKS // 8 if quick else RANKS
        turns = 1 if quick else _TURNS
        runs = [
            (message(ranks, SMALL), sum(message(FEW, LONG * PACKET) for _ in range(turns)) / turns / LONG)
            for _ in range(3)
        ]
        cost = median(small / bulk for small, bulk in runs)
        what = f"messages of {SMALL // 1024} KiB in a ring over {ranks} ranks"
        yield Figure("small", f"{what}, with packets", 1 / min(small for small, _ in runs), "messages/s", _RATE)
        yield Figure("small", "one of them, in packets of a long message", cost, "packets", _BULK, most=True)
    if "pdcs" in names:
        count = PDCS // 10 if quick else PDCS
        what = f"RUD streams of {EACH} packets on {count:,} PDCs, PDS only"
        yield Figure("pdcs", what, max(many(count) for _ in range(3)), "packets/s", _MANY_RATE)
