"""The aggregation manager (sharp.md §1.3, §4.2): discovers ANs, configures trees, admits jobs, and ends them.

Every step on an AN is a MAD, handed to `send`. The GUID of an AN, and of the port of a host, is also its address for
the carrier (**choice**). With `dynamic_tree_allocation` a tree is configured when its first job begins, and removed
with the last; else all are configured at the start. The port of a host is in at most one job of a tree, as it has one
connection to it (§1.3). The percent of a SAT counts groups; each may have the window of chunks (**choice**), as the
pool of an AN is charged for a stream when it is locked.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from uetproto.engine.sharp.config import SharpConfig, buffer_bytes
from uetproto.engine.sharp.manager.grants import AttachPoint, JobGrant, KnownJob, Rail, Share
from uetproto.engine.sharp.manager.mads import child_rows
from uetproto.engine.sharp.manager.managed_trees import JobRefusedError, ManagedTrees, Send
from uetproto.engine.sharp.manager.trees import AggregationTree, FabricGraph, Subtree
from uetproto.engine.sharp.options import SharpOptions
from uetproto.errors import LocalError, shown
from uetproto.wire.headers.sharp import AmAttribute, AmMethod, LibsharpStatus
from uetproto.wire.headers.sharp_am import CleanupOp, QuotaFlag, QuotaOp, TreeOp

DEFAULT_USER_DATA = 128
"""User data of an OST that nobody asked for otherwise: that of the logs (§1.9)."""
TREES_PER_JOB = 4
REQUIRED = 2
"""Of SHARP_COLL_JOB_REQ_EXCLUSIVE_LOCK_MODE."""


class SharpManager(ManagedTrees):
    """`sharp_am`. Fails with a `LibsharpStatus`, which has the published code and name."""

    def __init__(
        self, fabric: FabricGraph, send: Send, config: SharpConfig | None = None, options: SharpOptions | None = None,
        am_key: int = 0, psn: Callable[[], int] | None = None,
    ) -> None:  # fmt: skip
        """`psn` draws the first PSNs of connections between ANs; None: they begin at 0."""
        super().__init__(fabric, send, config or SharpConfig(), options or SharpOptions(), am_key, psn or int)
        self.jobs: dict[int, KnownJob] = {}
        self._next_job = 1

    def an_died(self, guid: int) -> list[int]:
        """An AN is dead: trees that need it are partial, others are built around it. The jobs that ran on it."""
        self.ans.pop(guid, None)
        hit = [job for job, it in self.jobs.items() if any(guid in rail.part.ans for rail in it.grant.rails)]
        self.trees = [replace(tree, partial=True) if guid in tree.nodes else tree for tree in self.trees]
        self._build()
        return hit

    # Jobs

    def begin_job(self, hosts: Sequence[Sequence[int]], job_id: int | None = None) -> JobGrant | LibsharpStatus:
        """`hosts`: for each rail the ports, by GUID, in the order of the ranks. A refusal leaves nothing behind."""
        if not 1 <= len(hosts) <= TREES_PER_JOB:
            raise LocalError("hosts", f"{len(hosts)} rails; 1 … {TREES_PER_JOB}, one tree each")
        if any(not ports or len(set(ports)) != len(ports) or len(ports) != len(hosts[0]) for ports in hosts):
            raise LocalError("hosts", "every rail has one port of every host")
        number = self._next_job if job_id is None else job_id
        if number in self.jobs or not 0 <= number < 1 << 24:
            raise LocalError("job_id", f"{shown(job_id)}; 0 … {(1 << 24) - 1}, not of an active job")
        grant = JobGrant(number, (), self.options.user_data or DEFAULT_USER_DATA, False)
        job = self.jobs[number] = KnownJob(grant)
        try:
            if any(an.info["jobs"] <= len(self.jobs) - 1 for an in self.ans.values()):
                raise JobRefusedError(LibsharpStatus.JOB_CREATE)
            for ports in hosts:
                tree, part = self._choose(ports, {rail.tree.tree_id for rail in job.grant.rails})
                self._admit(job, tree, part, ports)
        except JobRefusedError as refused:
            self.end_job(number)
            return refused.status
        self._next_job = max(self._next_job, number) + 1
        return job.grant

    def _choose(self, ports: Sequence[int], taken: set[int]) -> tuple[AggregationTree, Subtree]:
        """The tree that reaches all ports and has the lowest load (§4.2, 6)."""
        loads: Counter[int] = Counter()
        busy: set[tuple[int, int]] = set()
        for job in self.jobs.values():
            for rail in job.grant.rails:
                loads[rail.tree.tree_id] += 1
                busy |= {(rail.tree.tree_id, place.an << 16 | place.child_idx) for place in rail.llt}
        choices = []
        for tree in self.trees:
            part = tree.part_for(ports)
            if part is None or tree.tree_id in taken or any(guid not in self.ans for guid in part.ans):
                continue
            places = {(tree.tree_id, an << 16 | index) for an, index in _places(tree, ports)}
            if not places & busy:
                choices.append((loads[tree.tree_id], tree.tree_id, tree, part))
        if not choices:
            raise JobRefusedError(LibsharpStatus.NO_TREES)
        return min(choices, key=lambda choice: choice[:2])[2:]

    def _admit(self, job: KnownJob, tree: AggregationTree, part: Subtree, ports: Sequence[int]) -> None:
        """Quotas, then connections for the hosts (§4.2, 6 and 7)."""
        options, job_id, user_data = self.options, job.grant.job_id, job.grant.user_data
        ans = [self.ans[guid] for guid in part.ans]
        if any(user_data > an.info["max_user_data"] for an in ans):
            raise JobRefusedError(LibsharpStatus.INVALID)
        streams, exclusive = self._stream(job, part)
        percent = options.llt_percent
        osts = options.quota_osts or min(percent * an.osts // 100 for an in ans)
        groups = options.quota_groups or min(percent * an.groups // 100 for an in ans)
        costs = {
            guid: buffer_bytes(self.config, user_data, len(tree.nodes[guid].children), reproducible=self.config.repro)
            for guid in part.ans
        }
        for guid, an in zip(part.ans, ans, strict=True):
            lacking = osts > an.osts or groups > an.groups or osts * costs[guid] > an.buffers
            if min(osts, groups) < 1 or lacking:
                raise JobRefusedError(LibsharpStatus.QUOTA)
        for guid, an in zip(part.ans, ans, strict=True):
            an.osts, an.groups, an.buffers = an.osts - osts, an.groups - groups, an.buffers - osts * costs[guid]
            job.shares.append(Share(guid, osts, osts * costs[guid], groups))
        empty = Rail(tree, part, (), (), osts, groups)
        job.grant = replace(job.grant, rails=(*job.grant.rails, empty), exclusive=exclusive)
        self._configure(tree)
        numbers = [tree.tree_id, *([tree.sat_id] if streams else [])]
        sat_groups = max(1, min(options.sat_percent * an.info["groups"] // 100 for an in ans))
        sat_osts = options.sat_osts or sat_groups * self.config.sat_window
        places = []
        for number in numbers:
            sat = number == tree.sat_id
            for guid in part.ans:
                flags = (QuotaFlag.IS_ROOT if guid == part.root else 0) | (
                    QuotaFlag.REPRODUCIBLE if self.config.repro else 0
                )
                self._set(
                    guid, AmAttribute.QUOTA_CONFIG, job_id=job_id, tree_id=number, op=QuotaOp.SET, flags=flags,
                    osts=sat_osts if sat else osts, buffers=0 if sat else osts * costs[guid],
                    groups=sat_groups if sat else groups,
                    qps=len(ports) * (options.quota_qps or 1), user_data=user_data,
                )  # fmt: skip
            places.append(self._place(job, tree, number, ports))
        whole = replace(empty, llt=places[0], sat=places[1] if streams else ())
        job.grant = replace(job.grant, rails=(*job.grant.rails[:-1], whole))

    def _stream(self, job: KnownJob, part: Subtree) -> tuple[bool, bool]:
        """Whether the job may stream, and whether alone (**choice** where the mode is none or best effort: if all
        semaphores have exclusive owners, the job gets the LLT only)."""
        mode = self.options.exclusive_lock
        if not self.options.enable_sat:
            return False, False
        ans = [self.ans[guid] for guid in part.ans]
        alone = mode and all(an.semaphores - (an.shared > 0) > 0 for an in ans)
        if mode == REQUIRED and not alone:
            raise JobRefusedError(LibsharpStatus.QUOTA)
        if not all(an.semaphores > 0 for an in ans):
            return False, False
        for guid, an in zip(part.ans, ans, strict=True):
            an.exclusive += bool(alone)
            an.shared += not alone
            job.streams.append((guid, bool(alone)))
        return True, bool(alone)

    def _place(
        self, job: KnownJob, tree: AggregationTree, number: int, ports: Sequence[int]
    ) -> tuple[AttachPoint, ...]:
        """A connection at the leaf AN for every host."""
        where = _places(tree, ports)
        conns: dict[tuple[int, int], int] = {}
        for an in dict.fromkeys(an for an, _ in where):
            indices = [index for leaf, index in where if leaf == an]
            made = dict(zip(indices, self._allocate(an, len(indices), job.grant.job_id), strict=True))
            job.qps += [(an, number, index, conn) for index, conn in made.items()]
            conns |= {(an, index): conn for index, conn in made.items()}
            self._update(an, number, made)
        return tuple(AttachPoint(number, an, conns[an, index], index) for an, index in where)

    def connect(
        self, place: AttachPoint, *, address: int, remote: int, own_psn: int = 0, their_psn: int = 0
    ) -> LibsharpStatus:
        """A host has its connection: the leaf AN connects to it, too. PSNs as the AN sees them."""
        try:
            self._connect(place.an, place.conn, address, remote, own_psn, their_psn)
        except JobRefusedError:
            return LibsharpStatus.TREE_CONNECT
        return LibsharpStatus.OK

    def end_job(self, job_id: int) -> None:
        """ResourceCleanup and QuotaConfig CLEAR on every AN; connections and shares are free again."""
        if job_id not in self.jobs:
            raise LocalError("job_id", f"{shown(job_id)} is not active; active: {sorted(self.jobs)}")
        job = self.jobs.pop(job_id)
        for rail in job.grant.rails:
            for guid in rail.part.ans:
                if guid not in self.ans:
                    continue
                self.ask(guid, AmMethod.SET, AmAttribute.RESOURCE_CLEANUP, op=CleanupOp.JOB, job_id=job_id)
                for number in (rail.tree.tree_id, rail.tree.sat_id):
                    self.ask(
                        guid, AmMethod.SET, AmAttribute.QUOTA_CONFIG, job_id=job_id, tree_id=number, op=QuotaOp.CLEAR
                    )
        for guid, number, index, conn in job.qps:
            if guid in self.ans:
                gone = child_rows({index: 0})
                self.ask(guid, AmMethod.SET, AmAttribute.TREE_CONFIG, tree_id=number, op=TreeOp.UPDATE, **gone)
                self._release(guid, [conn])
        for share in job.shares:
            if (an := self.ans.get(share.guid)) is not None:
                an.osts, an.buffers, an.groups = (
                    an.osts + share.osts,
                    an.buffers + share.buffers,
                    an.groups + share.groups,
                )
        for guid, alone in job.streams:
            if (an := self.ans.get(guid)) is not None:
                an.exclusive -= alone
                an.shared -= not alone
        used = {rail.tree.tree_id for other in self.jobs.values() for rail in other.grant.rails}
        for rail in job.grant.rails:
            if self.options.dynamic_trees and rail.tree.tree_id not in used:
                self._remove(rail.tree)

    def active_jobs(self, an: int) -> list[int]:
        """What an AN says of its jobs (ANActiveJobs), mod 1536."""
        answer = self.ask(an, AmMethod.GET, AmAttribute.AN_ACTIVE_JOBS)
        words = [answer.values[f"jobs{word}"] for word in range(48)] if answer else []
        return [32 * at + bit for at, word in enumerate(words) for bit in range(32) if word >> 31 - bit & 1]


def _places(tree: AggregationTree, ports: Sequence[int]) -> list[tuple[int, int]]:
    """The leaf AN and the child_idx of each port."""
    return [(leaf, tree.nodes[leaf].index_of(port)) for port in ports if (leaf := tree.leaf_of(port)) is not None]


__all__ = ["DEFAULT_USER_DATA", "AttachPoint", "JobGrant", "Rail", "SharpManager"]
