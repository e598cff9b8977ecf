# SPDX-License-Identifier: GPL-2.0-only
"""This module reads rows `[[operation]]` of a scenario over RoCE: the work requests of both nodes, in order.

    do = "send"          length, imm, invalidate (a key), to (ud: a queue pair, or the address of a group), qkey
    do = "write"         length, key, offset, imm
    do = "read"          length, key, offset
    do = "compare_swap"  key, offset, compare, swap
    do = "fetch_add"     key, offset, add
                         all five also take qp, signaled, solicited, fence, inline, lkey
    do = "receive"       posts a buffer: length, qp, lkey
    do = "region"        registers memory: length, key, base, access
    do = "deregister"    removes the region `key`
    do = "modify"        brings the queue pair `qp` to the state `to_state`: rts, sqd, err
    do = "incast"        a region and a write for each flow of the pattern between the nodes, in their order: length;
                         key is that of the first region; also "outcast", "permutation", "all_to_all" (fabric.md).
                         Two nodes with a flow between them have two queue pairs, such as h0.h4 and h4.h0

`node` names the node that performs the operation. The default is the node of `qp`; without `qp` it is the target for
`receive`, `region` and `deregister`, and the initiator for the other operations. `offset` counts from the start of the
peer's region `key`, and may lie outside the region. `at` and `after` say when a row begins, as in `operations`.
`expect` is the status of the completion; the default is SUCCESS. NONE means that the work request has no completion,
for example because it is not signaled.

The bytes are drawn with the seed; with `value`, a region is filled with equal bytes instead. If a row writes to memory
that an earlier READ reads, it needs `fence`, as otherwise the READ may return the new bytes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from uetproto.emulator.flows import PATTERNS
from uetproto.emulator.scenario.operations import NONE, OperationKind, OperationRow, Table, checked_rows
from uetproto.emulator.scenario.roce_settings import ACCESS, QpSetup, qp_name
from uetproto.emulator.scenario.script_syntax import Refuse
from uetproto.engine.roce.contract import Opcode, QpState, QpType, Status
from uetproto.engine.roce.segments import KINDS as SENDS
from uetproto.errors import Location, similar
from uetproto.knobs import KeyType
from uetproto.toml.values import ADDRESS, BOOLEAN, TEXT, choice, integer, one_of, size, time

_U32, _U64 = integer(0, 2**32 - 1), integer(0, 2**64 - 1)

KEYS = {
    "do": TEXT,
    "node": TEXT,
    "at": time(),
    "after": one_of(("previous", "all")),
    "expect": one_of((*(status.name for status in Status), NONE)),
    "qp": TEXT,
    "length": size(0, 1 << 30),
    "key": _U32,
    "offset": KeyType(integer(-(1 << 62), 1 << 62).check, "a whole number of bytes"),
    "imm": _U32,
    "invalidate": _U32,
    "to": TEXT,
    "qkey": _U32,
    "compare": _U64,
    "swap": _U64,
    "add": _U64,
    "signaled": BOOLEAN,
    "solicited": BOOLEAN,
    "fence": BOOLEAN,
    "inline": BOOLEAN,
    "lkey": _U32,
    "base": _U64,
    "access": ACCESS,
    "value": integer(0, 255),
    "to_state": choice({state.name.lower(): state for state in (QpState.RTS, QpState.SQD, QpState.ERR)}),
}
_POSTED = ("expect", "qp", "signaled", "solicited", "fence", "lkey")

KINDS = {
    "send": OperationKind((*_POSTED, "length", "imm", "invalidate", "to", "qkey", "inline"), ("length",)),
    "write": OperationKind((*_POSTED, "length", "key", "offset", "imm", "inline"), ("length", "key")),
    "read": OperationKind((*_POSTED, "length", "key", "offset"), ("length", "key")),
    "compare_swap": OperationKind((*_POSTED, "key", "offset", "compare", "swap"), ("key", "compare", "swap")),
    "fetch_add": OperationKind((*_POSTED, "key", "offset", "add"), ("key", "add")),
    "receive": OperationKind(("expect", "length", "qp", "lkey"), ("length",), by_target=True),
    "region": OperationKind(("length", "key", "base", "access", "value"), ("length", "key"), by_target=True),
    "deregister": OperationKind(("key",), ("key",), by_target=True),
    "modify": OperationKind(("qp", "to_state"), ("to_state",)),
    **dict.fromkeys(PATTERNS, OperationKind(("expect", "length", "key"), ("length",))),
}
_OPCODES = {
    "send": (Opcode.SEND, Opcode.SEND_WITH_IMM),
    "write": (Opcode.RDMA_WRITE, Opcode.RDMA_WRITE_WITH_IMM),
    "read": (Opcode.RDMA_READ,) * 2,
    "compare_swap": (Opcode.ATOMIC_CMP_AND_SWP,) * 2,
    "fetch_add": (Opcode.ATOMIC_FETCH_AND_ADD,) * 2,
}
"""Opcodes of a work request without and with an immediate."""
_FIRST_KEY = 0x100
"""Key of the first region of traffic patterns for which no key is given."""
POSTED = tuple(_OPCODES)
"""Names (`do`) of the operations that are work requests of the send queue."""


def opcode_of(do: str, fields: Mapping[str, Any]) -> Opcode:
    """Return the opcode of the work request that a row stands for."""
    if do == "send" and "invalidate" in fields:
        return Opcode.SEND_WITH_INV
    plain, with_imm = _OPCODES[do]
    return with_imm if "imm" in fields else plain


def operations_of(
    rows: Sequence[Any], run: Any, qps: Mapping[str, QpSetup], nodes: Mapping[str, Any], table: Table,
    where: Callable[[str], Location], refuse: Refuse,
) -> tuple[OperationRow, ...]:  # fmt: skip
    """Check all rows, and return them. `table` checks the keys of a row, and `run` holds the values of `[run]`."""
    found: list[OperationRow] = []
    keys = count(_FIRST_KEY)
    for path, _, do, kind, values, at in checked_rows(rows, KEYS, KINDS, table, refuse):
        if do in PATTERNS:
            if "node" in values:
                raise refuse(
                    f"{path}.node", f"does not go with {do}, which is between all nodes", id="not-with-operation"
                )
            _check_carried(path, "write", values, run.transport, qps, refuse)
            first = values.pop("key", None)
            found += _flows(where(path), do, at, values, tuple(nodes), keys if first is None else count(first))
            continue
        node = _node(path, values, run.target if kind.by_target else run.initiator, qps, nodes, refuse)
        if "qp" in kind.keys:
            values["qp"] = _qp(path, values, node, qps, refuse)
        if do in POSTED:
            _check_carried(path, do, values, run.transport, qps, refuse)
        silent = do in POSTED and not values.get("signaled", True)
        after, expect = values.pop("after", None), values.pop("expect", NONE if silent else Status.SUCCESS.name)
        found.append(OperationRow(where(path), do, node, at, after, expect, values))
    return tuple(found)


def pairs_of(rows: Sequence[Any], nodes: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of nodes between which traffic patterns of `rows` have flows, each once."""
    names = [row.get("do") for row in rows if isinstance(row, dict)]
    flows = [flow for name in PATTERNS if name in names for flow in PATTERNS[name](len(nodes), 1)]
    pairs = dict.fromkeys((min(flow.source, flow.target), max(flow.source, flow.target)) for flow in flows)
    return tuple((nodes[one], nodes[other]) for one, other in pairs)


def _flows(
    where: Location, do: str, at: int, values: dict[str, Any], nodes: Sequence[str], keys: Iterator[int]
) -> Iterator[OperationRow]:
    """Yield the rows of a traffic pattern: first all regions, then all writes."""
    size, expect, after = values["length"], values.pop("expect", Status.SUCCESS.name), values.pop("after", None)
    flows = [(nodes[flow.source], nodes[flow.target], next(keys)) for flow in PATTERNS[do](len(nodes), size)]
    for _, target, key in flows:
        fields = {"length": size, "key": key, "value": 0}
        yield OperationRow(where, "region", target, at, None, Status.SUCCESS.name, fields, pattern=do)
    for number, (source, target, key) in enumerate(flows):
        fields = {"length": size, "key": key, "qp": qp_name(source, target)}
        yield OperationRow(where, "write", source, at, None if number else after, expect, fields, target, do)


def _node(
    path: str, values: dict[str, Any], default: str, qps: Mapping[str, QpSetup], nodes: Mapping[str, Any],
    refuse: Refuse,
) -> str:  # fmt: skip
    node = values.pop("node", None)
    if node is None:
        setup = qps.get(values.get("qp", ""))
        return setup.node if setup else default
    if node not in nodes:
        raise refuse(
            f"{path}.node", f"no such node: {node!r}{similar(node, nodes)}", ", ".join(nodes), id="unknown-node"
        )
    return str(node)


def _qp(path: str, values: Mapping[str, Any], node: str, qps: Mapping[str, QpSetup], refuse: Refuse) -> str:
    """Return the queue pair that a row names, or the first queue pair of its node."""
    here = [name for name, setup in qps.items() if setup.node == node]
    name = values.get("qp", here[0] if here else None)
    if name not in here:
        legal = ", ".join(here) if here else f"none, {node} has no queue pair"
        raise refuse(
            f"{path}.qp" if "qp" in values else path, f"{name!r} is no queue pair of {node}", legal,
            id="unknown-queue-pair"
        )  # fmt: skip
    return str(name)


def _check_carried(
    path: str, do: str, values: dict[str, Any], kind: QpType, qps: Mapping[str, QpSetup], refuse: Refuse
) -> None:  # fmt: skip
    """Refuse an operation that the transport lacks, and a datagram without a destination."""
    services = SENDS[opcode_of(do, values)].services
    if kind not in services:
        legal = ", ".join(service.name.lower() for service in services)
        what = " with invalidate" if "invalidate" in values else ""
        raise refuse(
            f"{path}.do", f"{do}{what} is not there on {kind.name.lower()}; transports that have it: {legal}",
            id="not-with-mode"
        )  # fmt: skip
    for name, other in (("imm", "invalidate"), ("lkey", "inline")):
        if name in values and values.get(other, False) is not False:
            raise refuse(f"{path}.{name}", f"does not go with {other}", "one of them", id="conflicting-arguments")
    if kind is not QpType.UD:
        for name in ("to", "qkey"):
            if name in values:
                raise refuse(
                    f"{path}.{name}", "goes with ud only: the peer of a queue pair is in [qp.NAME]",
                    id="not-with-protocol"
                )  # fmt: skip
        return
    to = values.get("to")
    if to is None:
        others = [name for name in qps if name != values["qp"]]
        if len(others) != 1:
            raise refuse(
                path, "to is missing", f"one of {', '.join(others)}, or the address of a group", id="missing-key"
            )
        values["to"] = others[0]
    elif to not in qps:
        try:
            values["to"] = ADDRESS.check(to)[0]
        except ValueError:
            legal = f"{', '.join(qps)}, or the address of a multicast group"
            raise refuse(f"{path}.to", f"{to!r} is no queue pair", legal, id="unknown-queue-pair") from None
