# SPDX-License-Identifier: GPL-2.0-only
"""This machine drives a SHARP aggregation node over RoCE. Its neighbours are ours: hosts, and a parent with one more
child (sharp.md §2–§4)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import precondition

from uetproto.testing.adapters.adapter import WorkRefused
from uetproto.testing.adapters.guarded import Observed
from uetproto.testing.adapters.sharp_node import SharpNodeEngine
from uetproto.testing.machines.machine import ProtocolMachine, start, step
from uetproto.testing.machines.sharp_neighbours import SharpNeighbours
from uetproto.testing.machines.sharp_node_model import (
    FLOAT_OPS,
    FLOATS,
    FORMATS,
    LEFT,
    LEFTOVERS,
    LOC,
    SharedCollective,
    SharpNodeModel,
    SharpShape,
)
from uetproto.testing.machines.world import ADDRESSES, IMPLEMENTATION, PEER, hold
from uetproto.wire.headers.sharp import Coll, Dtype, Op

ENDLESS = {"retry_cnt_seven": "endless"}
"""Settings with which no queue pair gives up."""
KNOBS: dict[str, tuple[Any, ...]] = {
    "semaphores": (1, 2), "sat_flows_per_an": (2, 1), "acc_native": (False, True),
}  # fmt: skip
"""Settings that a run may draw, each with its values; all of them are legal (sharp.md §5)."""
TIMERS = {"t_join": 60_000, "t_ost": 60_000}
"""Timers of nodes and hosts, in milliseconds, with which nobody gives up while the machine lets time pass."""
T_LOCK, LONG_T_LOCK = 100, 60_000
"""T_lock in milliseconds, at the root and below a parent. If T_lock of a node is over while LOCK_RESP OK of its parent
is on its way, its hosts are told LOCK_TIMEOUT, and the sibling OK (sharp.md §3.3). When the retries of the hosts are
used up, they do their collective on the LLT, and the sibling does it on the SAT. It then never ends, or it ends with
MISMATCH, whatever the node does.
"""
TIMEOUT, LONG_TIMEOUT = 8, 17
"""Codes of the time that a queue pair waits for an answer: 1 ms, and 0.5 s if the retries of the implementation are
limited."""
MTUS = (4096, 256)
LLT, SAT = 0, 63
JOB, GROUPS = 9, (7, 8)
CHUNK = 32
"""Bytes of a chunk on a SAT."""
MOST_CHILDREN = 4
MEMBERS = st.integers(0, MOST_CHILDREN)
COLLECTIVES = st.sampled_from(("allreduce", "allreduce", "allreduce", "reduce", "bcast", "barrier"))
COUNTS = st.sampled_from((1, 2, 12, 40, 120))
OPS = tuple(op.name for op in Op if op is not Op.NULL)
DTYPES = (*(dtype.name for dtype in FORMATS), *("FLOAT_SHORT", "BFLOAT16") * 2)
"""Data types. Short floats are drawn more often, as only three of them or more show what a node rounds."""
_NONE: dict[str, Any] = {}


class SharpNodeMachine(ProtocolMachine):
    """This machine drives an aggregation node as a leaf of the tree, with a parent, or as its root."""

    name = "sharp_node"
    peer = SharpNeighbours
    factory = SharpNodeEngine
    observed = Observed(state={"osts": int, "groups": int, "locks": int})
    trims = False
    notes = ("SHARP-",)

    @start(
        children=st.integers(2, MOST_CHILDREN), parent=st.booleans(), last=st.booleans(), groups=st.integers(1, 2),
        sat=st.booleans(), osts=st.integers(2, 3), payload=st.sampled_from((32, 128)),
        window=st.sampled_from((1, 2, 4)), batch=st.sampled_from((1, 2, 65535)), early=st.booleans(),
        mtu=st.sampled_from(MTUS), joined=st.sampled_from((True, True, True, False)),
        t_result=st.sampled_from((60_000, 100)), psn=st.sampled_from((0, 0xFFFFFE)),
        knobs=st.fixed_dictionaries(_NONE, optional={name: st.sampled_from(each) for name, each in KNOBS.items()}),
    )  # fmt: skip
    def begin(
        self, children: int, parent: bool, last: bool, groups: int, sat: bool, osts: int, payload: int, window: int,
        batch: int, early: bool, mtu: int, joined: bool, t_result: int, psn: int,
        knobs: dict[str, Any],
    ) -> None:  # fmt: skip
        """Reset the node and its neighbours, with connected queue pairs; all hosts join all groups. If `joined`, the
        network delivers what they need for it."""
        capabilities = self.adapter().capabilities
        self.endless = all(name in capabilities.knobs for name in ENDLESS)
        followed = self.knobs(knobs)
        self.shape = shape = SharpShape(children, parent, last)
        self.sat = sat and "sat" in capabilities.work
        self.model = SharpNodeModel(self.verdicts, shape, GROUPS[:groups], followed.get("acc_native", False))
        self.cleaned = False
        node, neighbours = _config(shape, self.sat, psn)
        qp = {"path_mtu": mtu, "retry_cnt": 7, "rnr_retry": 7, "min_rnr_timer": 12}
        common: dict[str, Any] = {
            "job_id": JOB, "retry": 255,
            "timers": {**TIMERS, "t_result": t_result, "t_lock": LONG_T_LOCK if parent else T_LOCK},
            "quota": {"osts": 0, "user_data": payload, "reproducible": True},
        }  # fmt: skip
        options = {
            "SHARP_COLL_ENABLE_SAT": str(int(self.sat)), "SHARP_COLL_SAT_THRESHOLD": "100",
            "SHARP_COLL_SAT_LOCK_BATCH_SIZE": str(batch), "SHARP_COLL_OSTS_PER_GROUP": str(osts),
            "SHARP_COLL_JOB_QUOTA_PAYLOAD_PER_OST": str(payload), "SHARP_COLL_LOCK_ON_COMM_INIT": str(int(early)),
            "SHARP_COLL_SAT_LOCK_RETRY_TIMEOUT": "20",
        }  # fmt: skip
        own_timeout = TIMEOUT if self.endless else LONG_TIMEOUT
        own = {
            "node": {"an_id": 5, **common, "qp": {**qp, "timeout": own_timeout}, "trees": node},
            "knobs": self.knobs(ENDLESS | knobs),
        }
        others = {
            "node": {**common, "qp": {**qp, "timeout": TIMEOUT}}, **neighbours, "options": options,
            "knobs": {**ENDLESS, **followed, "sat_chunk": CHUNK, "sat_window": window, "coll_timeout": 60 * 10**12},
        }  # fmt: skip
        self.make_world({}, (own, others))
        for member in range(shape.members):
            for group in self.model.groups:
                self.world.submit(PEER, {"op": "join", "member": member, "group": group})
        while joined and self.world.flight and not self.model.is_joined():
            self.world.deliver(self.world.number(0))

    # What the members do

    @precondition(ProtocolMachine.is_begun)
    @step(
        member=MEMBERS, group=st.sampled_from(GROUPS), coll=COLLECTIVES, op=st.sampled_from(OPS),
        dtype=st.sampled_from(DTYPES), count=COUNTS, root=MEMBERS, little_endian=st.booleans(),
    )  # fmt: skip
    def collective(
        self, member: int, group: int, coll: str, op: str, dtype: str, count: int, root: int, little_endian: bool
    ) -> None:
        """A member comes to its next collective; the first that comes decides which it is."""
        self._come(member % self.shape.members, group, self._made(coll, op, dtype, count, root, little_endian))

    @precondition(ProtocolMachine.is_begun)
    @step(
        group=st.sampled_from(GROUPS), coll=COLLECTIVES, op=st.sampled_from(OPS), dtype=st.sampled_from(DTYPES),
        count=COUNTS, root=MEMBERS, little_endian=st.booleans(),
    )  # fmt: skip
    def everybody(self, group: int, coll: str, op: str, dtype: str, count: int, root: int, little_endian: bool) -> None:
        """All members come to their next collective."""
        for member in range(self.shape.members):
            self._come(member, group, self._made(coll, op, dtype, count, root, little_endian))

    def _made(self, coll: str, op: str, dtype: str, count: int, root: int, little_endian: bool) -> SharedCollective:
        """Return a legal collective that the implementation does, which is like that of the arguments."""
        work = self.adapter().capabilities.work
        name = coll if coll in work else "allreduce"
        kind, data = Op[op], Dtype[dtype]
        if data in FLOATS and "floats" not in work:
            data = Dtype.UNSIGNED
        if (kind is Op.PROD and "prod" not in work) or (kind in LOC and "loc" not in work):
            kind = Op.SUM
        if data in FLOATS and kind not in FLOAT_OPS:
            kind = Op.SUM
        if name == "barrier":
            kind, data, count = Op.NULL, Dtype.NULL, 0
        if name == "bcast":
            kind = Op.NULL
        members = self.shape.members
        return SharedCollective(Coll[name.upper()], kind, data, count, root % members, self.serial, little_endian)

    @property
    def serial(self) -> int:
        """Return the number of collectives of all groups."""
        return sum(map(len, self.model.programs.values()))

    def _come(self, member: int, group: int, what: SharedCollective) -> None:
        model = self.model
        if model.states.get((member, group)) != "joined":
            return
        number, program = model.begun[member, group], model.programs[group]
        if number == len(program):
            program.append(what)
        self._begin(member, group, program[number])

    def _begin(self, member: int, group: int, what: SharedCollective) -> None:
        """A member begins its next collective."""
        number = self.model.begun[member, group]
        self.model.begun[member, group] += 1
        data = what.pack(what.vector(member)) if what.sends(member) else b""
        self.world.submit(PEER, {
            "op": "aggregate", "member": member, "group": group, "id": number * 10 + group, "coll": what.coll.name,
            "operation": what.op.name, "dtype": what.dtype.name, "tag_dtype": what.tag_dtype.name, "data": data.hex(),
            "count": what.count, "root": what.root, "little_endian": what.little_endian,
        })  # fmt: skip

    @precondition(ProtocolMachine.is_begun)
    @step(member=MEMBERS, group=st.sampled_from(GROUPS), rare=st.integers(0, 2))
    def disagree(self, member: int, group: int, rare: int) -> None:
        """A member does another operation than the others, seldom; nobody may then get a result."""
        model, member = self.model, member % self.shape.members
        if rare or model.harmed or model.states.get((member, group)) != "joined":
            return
        number, program = model.begun[member, group], model.programs[group]
        if number == len(program):
            program.append(SharedCollective(Coll.ALLREDUCE, Op.SUM, Dtype.UINT8, 12, 0, self.serial, False))
        what = program[number]
        if what.coll is not Coll.ALLREDUCE or what.dtype is not Dtype.UINT8 or what.op in LOC:
            return  # the same pieces are needed
        model.harmed, model.wrong = True, (group, number)
        self._begin(member, group, replace(what, op=Op.MIN if what.op is Op.MAX else Op.MAX))

    @precondition(ProtocolMachine.is_begun)
    @step(member=MEMBERS, back=st.integers(0, 20))
    def again(self, member: int, back: int) -> None:
        """A member sends an earlier request once more, with RETX: it changes nothing (sharp.md §3.2)."""
        if not self.model.harmed:
            self.world.submit(PEER, {"op": "again", "member": member % self.shape.members, "back": back})

    @precondition(ProtocolMachine.is_begun)
    @step(rare=st.integers(0, 9))
    def cleanup(self, rare: int) -> None:
        """The management ends the groups of the job at the node, if it is the root, seldom (ResourceCleanup)."""
        if rare or self.shape.parent or "cleanup" not in self.adapter().capabilities.work or not self.model.is_joined():
            return
        self.model.harmed = self.cleaned = True
        for tree in (LLT, SAT) if self.sat else (LLT,):
            self.world.submit(IMPLEMENTATION, {"op": "cleanup", "job_id": JOB, "tree_id": tree})

    # Judging

    def on_event(self, node: int, event: Mapping[str, Any]) -> None:
        if node == PEER:
            self.model.on_event(event, self.may_fail)

    @property
    def may_fail(self) -> bool:
        """Return whether enough was lost for a queue pair of the implementation to give up. The host at its other end
        is not told of it."""
        losses = self.world.disturbed + self.world.disordered
        return not self.endless and losses >= self.adapter().capabilities.losses

    def on_state(self, state: Mapping[str, Any] | None) -> None:
        self.state = state

    def finish(self) -> None:
        """Let the network deliver everything: all collectives end with the right results, all hosts leave, and nothing
        is left of their groups."""
        world, model = self.world, self.model
        world.finish(model.is_joined)
        if not self.may_fail:
            model.check_joined()
        for member, group, number in [*model.missing()]:
            self._begin(member, group, model.programs[group][number])
        world.finish(model.is_done)
        if not self.may_fail:
            model.end()
        for (member, group), state in model.states.items():
            if state != "left":
                try:
                    world.submit(PEER, {"op": "leave", "member": member, "group": group})
                except WorkRefused:
                    self.refused += 1
        world.finish(model.is_left)
        if not self.may_fail:
            self._check_left()
        world.end()

    def _check_left(self) -> None:
        for (member, group), state in self.model.states.items():
            self.verdicts.judged[LEFT] += 1
            hold(state == "left" or self.model.harmed, LEFT, f"member {member} is {state} in group {group}")
        if self.state is None:
            self.verdicts.skip(LEFTOVERS, "observe gives no state")
            return
        self.verdicts.judged[LEFTOVERS] += 1
        kept = {name: number for name in ("osts", "groups", "locks") if (number := self.state.get(name))}
        hold(not kept, LEFTOVERS, f"all members have left, and the node still has {kept}")


def _config(shape: SharpShape, sat: bool, psn: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the trees of the implementation, and the hosts and the parent among its neighbours. Queue pairs have
    consecutive numbers at each end, from 0x11 on."""
    numbers: dict[str, int] = {}

    def edge(lower: str, upper: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return an edge of the tree as its lower and its upper end see it."""
        ends = []
        for address in (lower, upper):
            numbers[address] = numbers.get(address, 0x10) + 1
        for address, other in ((lower, upper), (upper, lower)):
            ends.append({
                "address": other, "qp_num": numbers[address], "dest_qpn": numbers[other], "sq_psn": psn, "rq_psn": psn,
            })  # fmt: skip
        return ends[0], ends[1]

    own, parent = ADDRESSES
    hosts: list[dict[str, Any]] = [
        {"address": f"10.0.0.{3 + member}", "edges": []} for member in range(shape.members)
    ]  # fmt: skip
    trees, above = [], []
    for tree_id, kind in ((LLT, "llt"), (SAT, "sat"))[: 1 + sat]:
        about = {"tree_id": tree_id, "type": kind, "llt_tree_id": LLT if kind == "sat" else 0xFFFF}
        up = edge(own, parent) if shape.parent else None
        children = []
        for member in range(shape.children):
            below, above_it = edge(hosts[member]["address"], own)
            hosts[member]["edges"].append({**about, **below})
            children.append({"child_idx": member, **above_it})
        trees.append({**about, "level": 1, "parent": up and up[0], "children": children})
        if up is not None:
            below, beside = edge(hosts[-1]["address"], parent)
            hosts[-1]["edges"].append({**about, **below})
            pair = [beside, up[1]] if shape.last else [up[1], beside]
            above.append({
                **about, "level": 2, "children": [{"child_idx": index, **each} for index, each in enumerate(pair)]
            })  # fmt: skip
    return trees, {"hosts": hosts, "parent": {"address": parent, "an_id": 6, "trees": above} if shape.parent else None}
