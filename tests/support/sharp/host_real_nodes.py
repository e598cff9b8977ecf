# SPDX-License-Identifier: GPL-2.0-only
"""This module runs collectives of SHARP hosts over real aggregation nodes."""

from tests.support.sharp.fabric import HOSTS, Wire
from uetproto.engine.contract import SECOND
from uetproto.engine.sharp.config import SharpConfig
from uetproto.engine.sharp.host.work import Aggregate, AggregateDone
from uetproto.engine.sharp.manager.grants import JobGrant
from uetproto.engine.sharp.options import SharpOptions
from uetproto.wire.headers.sharp import Coll, Dtype, Op

SAT = {"SHARP_COLL_ENABLE_SAT": "1", "SHARP_COLL_SAT_THRESHOLD": "4000"}


def fabric(settings: dict[str, str] | None = None, *, multicast: bool = False, **config: object) -> Wire:
    values = {"lab_radix": 2, "llt_trees": 2, "heartbeat": 0, **config}
    wire = Wire(options=SharpOptions.of(settings or {}), config=SharpConfig(**values))  # type: ignore[arg-type]
    wire.manager.start()
    grant = wire.manager.begin_job([HOSTS])
    assert isinstance(grant, JobGrant)
    wire.join(grant, multicast=multicast)
    return wire


def run(
    wire: Wire, coll: Coll, count: int, *, op: Op = Op.NULL, root: int | None = None, op_id: int = 1
) -> list[bytes]:
    """Run a collective in which rank r gives bytes r + 1; return what each rank gets."""
    for rank, host in enumerate(wire.hosts.values()):
        data = b"" if coll == Coll.BCAST and rank != root else bytes([rank + 1]) * count
        dtype = Dtype.NULL if coll == Coll.BARRIER else Dtype.UINT8
        host.submit(Aggregate(
            op_id=op_id, group_id=7, coll=coll, op=op, dtype=dtype, data=data, count=count, root=root
        ), wire.now)  # fmt: skip
    wire.run(wire.now + 10 * SECOND)
    done = [[e for e in told if isinstance(e, AggregateDone) and e.op_id == op_id] for told in wire.happened.values()]
    assert [len(one) for one in done] == [1] * 4, wire.happened
    return [bytes(one[0].data) for one in done]
