# SPDX-License-Identifier: GPL-2.0-only
"""Mixed operations between two endpoints of loopback, at a steady pace, over a link with faults.

`python -m tests.support.live_mixed 600` runs them for ten minutes, and prints what came of them.
"""

import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.live import addresses, running
from uetproto.api import fi
from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
from uetproto.audit.rule import Severity
from uetproto.live import Interface
from uetproto.live.rate import PeerRate

SLOTS, SLOT = 8, 64 << 10
"""Number of writes and reads that are open at a time, and the number of bytes that each has for itself."""
PACE = 25 * 10**9
"""Picoseconds between two operations."""
RECEIVES = 64
FAULTS = fi.Faults(
    drop=0.02, duplicate=0.02, reorder=0.02, reorder_time=5 * 10**9, delay=0.01, delay_time=5 * 10**9
)  # fmt: skip


def mixed(seconds: float, seed: int, folder: Path) -> dict[str, Any]:
    """Run mixed operations, and return counts. Raises `AssertionError` if anything is lost, doubled or wrong."""
    rng = random.Random(seed)
    files = [folder / "near.pcapng", folder / "far.pcapng"]
    here, there = (
        fi.Fabric(live=Interface(at, faults=FAULTS, seed=seed + number, capture=str(files[number])))
        for number, at in enumerate(addresses())
    )
    near, far = here.endpoint("local"), there.endpoint("local")
    near.av.insert(far.address.pack())
    memory, model = bytearray(SLOTS * SLOT + 8), bytearray(SLOTS * SLOT)
    region = far.domain.mr_reg(memory)
    here.live.learn(there.live.node.address, PeerRate(there.live.path.buffer))
    received: Counter[bytes] = Counter()
    sent: Counter[bytes] = Counter()

    def post(_: object = None) -> None:
        buffer = bytearray(256)
        far.recv(buffer, context=buffer)

    for _ in range(RECEIVES):
        post()

    def collect() -> None:
        for entry in far.cq.read(RECEIVES) if len(far.cq) else ():
            if isinstance(entry.op_context, bytearray):
                assert entry.ok
                received[bytes(entry.op_context[: entry.len])] += 1
                post()

    there.live.driver.on_event = _then(there.live.driver.on_event, collect)
    counts: Counter[str] = Counter()
    free, open_, adds = list(range(SLOTS)), 0, 0
    begun = here.live.now

    def ended() -> None:
        nonlocal open_
        for entry in near.cq.read(len(near.cq)) if len(near.cq) else ():
            assert entry.ok, str(entry)
            kind, slot, check = entry.op_context
            counts[kind] += 1
            open_ -= 1
            if slot is not None:
                free.append(slot)
            if check is not None:
                check()

    def read_check(into: bytearray, at: int) -> Any:
        wanted = bytes(model[at : at + len(into)])

        def check() -> None:
            assert into == wanted

        return check

    next_at = here.live.now
    with running(there.live):
        while here.live.now - begun < seconds * 10**12:
            here.live.advance(max(next_at - here.live.now, 0))
            next_at += PACE
            ended()
            kind = rng.choice(("write", "read", "send", "atomic"))
            if kind in ("write", "read") and not free:
                continue
            if kind == "send":
                text = f"message {sum(sent.values())} ".encode() * rng.randrange(1, 16)
                near.send(text, far.address, context=(kind, None, None))
                sent[text] += 1
            elif kind == "atomic":
                one = (1).to_bytes(8, "little")
                near.atomic(one, far.address, SLOTS * SLOT, region.key, fi.Datatype.UINT64, fi.Op.SUM,
                            context=(kind, None, None))  # fmt: skip
                adds += 1
            else:
                slot = free.pop()
                at = slot * SLOT + rng.randrange(SLOT // 2)
                size = rng.randrange(1, min(SLOT // 2, 1 << rng.randrange(4, 16)))
                if kind == "write":
                    data = rng.randbytes(size)
                    model[at : at + size] = data
                    near.write(data, far.address, at, region.key, context=(kind, slot, None))
                else:
                    into = bytearray(size)
                    near.read(into, far.address, at, region.key, context=(kind, slot, read_check(into, at)))
            open_ += 1

        def done() -> bool:
            ended()
            return not open_

        assert here.live.wait(done, 30 * 10**12), f"{open_} operations have not ended"
        assert here.live.wait(lambda: received.total() >= sent.total(), 10 * 10**12)
        again = dict(here.live.fep.retransmitted)
        faults = here.live.path.done  # type: ignore[attr-defined]
        here.close()
    assert memory[: SLOTS * SLOT] == model
    assert int.from_bytes(memory[SLOTS * SLOT :], "little") == adds
    assert received == sent
    worse = 0
    for file in files:
        report = audit([file], Options(complete=True))
        worse += sum(finding.rule.severity is not Severity.NOTE for finding in report.findings)
    assert not worse
    return {"seconds": seconds, **counts, "faults": faults, "retransmissions": again, "findings": worse}


def _then(first: Any, second: Any) -> Any:
    def both(event: Any) -> None:
        first(event)
        second()

    return both


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print(json.dumps(mixed(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1, Path(place))))
