# SPDX-License-Identifier: GPL-2.0-only
"""When a completion may be told: delivery complete (ses.md §13.1, §13.2)."""

from typing import Any

import pytest

from tests.support.engine.world import KEY
from tests.support.ses.requests import MTU, Pair
from tests.support.ses.world import MS, US
from uetproto.engine import Mode, Region
from uetproto.engine.contract import Atomic, Completion, Event, Send, Write
from uetproto.wire.headers.uet_ses import AtomicDatatype, AtomicOpcode

LATENCY = 50 * US


def _works() -> dict[str, Any]:
    one = (1).to_bytes(8, "little")
    return {
        "write": Write(peer=0, data=b"x" * 3 * MTU, key=KEY),
        "small write": Write(peer=0, data=b"x", key=KEY),
        "rudi write": Write(peer=0, data=b"x", key=1 << 63 | 9, mode=Mode.RUDI),
        "send": Send(peer=0, data=b"x" * 3 * MTU),
        "truncated send": Send(peer=0, data=b"x" * 100 * MTU),
        "atomic": Atomic(peer=0, opcode=AtomicOpcode.SUM, datatype=AtomicDatatype.UINT64, data=one, key=KEY),
        "fetching atomic": Atomic(peer=0, opcode=AtomicOpcode.SUM, datatype=AtomicDatatype.UINT64, data=one, key=KEY,
                                  result=bytearray(8)),
        "sync write": Write(peer=0, data=b"x", key=KEY, sync=(1, 1)),
    }  # fmt: skip


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("kind", _works())
def test_delivery_complete(kind: str, complete: bool) -> None:
    """With dc the answer waits until the effect is observable, without it does not."""
    x = Pair(write_latency=LATENCY, sync_operations=True)
    x.theirs.register(Region(1 << 63 | 9, bytearray(64)))
    x.post(64 * MTU)
    work = _works()[kind]
    work.delivery_complete = complete
    at: list[int] = []

    def listen(address: int, event: Event) -> None:
        if isinstance(event, Completion):
            at.append(x.now)

    x.listeners.append(listen)
    x.do(work)
    x.settle()
    assert x.completions()[0].ok
    assert (at[0] >= LATENCY) == complete


def test_delivery_complete_of_a_held_message() -> None:
    x = Pair(write_latency=LATENCY)
    x.send(b"x", delivery_complete=True)
    x.run(MS)
    posted = x.now
    x.post()
    at: list[int] = []
    x.listeners.append(lambda address, event: at.append(x.now) if isinstance(event, Completion) else None)
    x.settle()
    assert at[0] >= posted + LATENCY


def test_all_packets_have_the_same_dc() -> None:
    """§13.2."""
    x = Pair(write_latency=LATENCY)
    x.do(Write(peer=0, data=bytes(5 * MTU), key=KEY, delivery_complete=True))
    x.settle()
    assert {p.request.dc for p in x.log.packets} == {1}
