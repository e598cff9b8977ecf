# SPDX-License-Identifier: GPL-2.0-only
"""The aggregation manager discovers aggregation nodes (ANs), configures trees and runs jobs (sharp.md §1.3, §4.2).

Every action on an AN is a MAD, which the manager hands to `send`. By a choice of this project, the GUIDs of ANs and of
host ports are also their addresses for the carrier. With `dynamic_tree_allocation` a tree is configured when its first
job begins and removed with its last job; otherwise all trees are configured at the start. A host port has one
connection to a tree, so on one tree it can be in one job only (sharp.md §1.3). On a SAT, the quota in percent is a
share of the groups of an AN. Each of these groups may use a whole window of chunks, because a group on a SAT has OSTs
only while it holds the lock. This is a choice of this project.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from uetproto.engine.sharp.config import SharpConfig, buffer_bytes
from uetproto.engine.sharp.manager.grants import AttachPoint, JobGrant, KnownAn, KnownJob, Rail, Share
from uetproto.engine.sharp.manager.mads import Mad, child_rows, read
from uetproto.engine.sharp.manager.trees import AggregationTree, FabricGraph, Subtree, TreeNode, build_trees
from uetproto.engine.sharp.options import SharpOptions
from uetproto.errors import LocalError, shown
from uetproto.wire.codec import Values
from uetproto.wire.headers.sharp import (
    INVALID_TREE,
    AmAttribute,
    AmMethod,
    LibsharpStatus,
    MadStatus,
    QpState,
    TreeMode,
)
from uetproto.wire.headers.sharp_am import MOST_QPS, AllocationOp, CleanupOp, QuotaFlag, QuotaOp, TreeOp

Send = Callable[[int, bytes], bytes]
"""A function that takes the GUID of an aggregation node and a MAD, and returns the answer of the node, or b"" if it
does not answer."""

DEFAULT_USER_DATA = 128
"""Default size of the user data of an OST in bytes, as published logs show it (sharp.md §1.9)."""
TREES_PER_JOB = 4
REQUIRED = 2
"""Value of SHARP_COLL_JOB_REQ_EXCLUSIVE_LOCK_MODE. With this value, a job that cannot have an exclusive lock is
refused."""


class JobRefusedError(Exception):
    """This error refuses a job; `status` is the published code."""

    def __init__(self, status: LibsharpStatus) -> None:
        super().__init__(status.name)
        self.status = status


class SharpManager:
    """The manager configures aggregation nodes and runs jobs; the published software calls it `sharp_am`.

    A refused job gets a `LibsharpStatus`, which has the published code and its name.
    """

    def __init__(
        self, fabric: FabricGraph, send: Send, config: SharpConfig | None = None, options: SharpOptions | None = None,
        am_key: int = 0, psn: Callable[[], int] | None = None, roots: Collection[int] | None = None,
    ) -> None:  # fmt: skip
        """`psn` returns a first PSN for a connection between aggregation nodes; if it is None, PSNs begin at 0. `roots`
        has the GUIDs of the ANs that may be roots (`root_guids_file`); if it is None, the ANs on the highest level may
        be roots.
        """
        self.fabric = fabric
        self.send = send
        self.config = config or SharpConfig()
        self.options = options or SharpOptions()
        self.am_key = am_key
        self.psn = psn or int
        self.roots = roots
        self.ans: dict[int, KnownAn] = {}
        self.trees: list[AggregationTree] = []
        self.traps: list[Values] = []
        """Fields of each Notice, in the order of arrival."""
        self.jobs: dict[int, KnownJob] = {}
        self._configured: dict[int, list[tuple[int, int]]] = {}
        """Maps the number of each configured LLT to the (aggregation node, connection) pairs of its edges and of those
        of its SAT."""
        self._tid = 0
        self._next_job = 1

    # MADs

    def ask(self, an: int, method: AmMethod, attribute: AmAttribute, **values: int) -> Mad | None:
        """Send a request to an AN and return the answer; None if the AN does not answer."""
        self._tid += 1
        mad = Mad(method=method, attribute=attribute, values=values, am_key=self.am_key, tid=self._tid)
        answer = read(self.send(an, mad.pack()))
        return answer if answer is not None and answer.tid == self._tid else None

    def _set(self, an: int, attribute: AmAttribute, **values: int) -> Values:
        """Send a SET request and return the values of the answer. Raises `JobRefusedError` unless it succeeds."""
        answer = self.ask(an, AmMethod.SET, attribute, **values)
        if answer is None or answer.status != MadStatus.OK:
            raise JobRefusedError(LibsharpStatus.NO_RESOURCE if answer else LibsharpStatus.DEVICE)
        return answer.values

    def trap(self, data: bytes) -> bool:
        """Store a Notice from an AN; return False for any other MAD."""
        mad = read(data)
        if mad is None or (mad.method, mad.attribute) != (AmMethod.TRAP, AmAttribute.NOTICE):
            return False
        self.traps.append(mad.values)
        return True

    # Start

    def start(self) -> None:
        """Discover the ANs and build the trees; an AN that does not answer is not used."""
        for guid, switch in self.fabric.switches.items():
            answer = self.ask(guid, AmMethod.GET, AmAttribute.AN_INFO) if switch.has_an else None
            if answer is not None and answer.status == MadStatus.OK:
                info = answer.values
                self.ans[guid] = KnownAn(info, info["osts"], info["buffers"], info["groups"], info["qps"])
        self._build()
        if not self.options.dynamic_trees:
            try:
                for tree in self.trees:
                    self._configure(tree)
            except JobRefusedError as refused:
                raise LocalError(
                    "llt_trees", f"{self.config.llt_trees} static trees do not fit the ANs ({refused.status.name})",
                    "fewer, or dynamic_tree_allocation", id="too-many"
                ) from None  # fmt: skip

    def _build(self) -> None:
        alive = FabricGraph([
            replace(switch, has_an=guid in self.ans) for guid, switch in self.fabric.switches.items()
        ])  # fmt: skip
        radix = min((an.info["radix"] for an in self.ans.values()), default=self.config.children)
        built = build_trees(alive, self.config.llt_trees, min(radix, self.config.children), self.roots)
        self.trees = [
            next((old for old in self.trees if old.tree_id == new.tree_id and new.tree_id in self._configured), new)
            for new in built
        ]

    # Trees

    def _allocate(self, an: int, count: int, job: int = 0) -> list[int]:
        if self.ans[an].qps < count:
            raise JobRefusedError(LibsharpStatus.QUOTA)
        made: list[int] = []
        while len(made) < count:
            some = min(count - len(made), MOST_QPS)
            values = self._set(an, AmAttribute.QP_ALLOCATION, op=AllocationOp.ALLOC, count=some, job_id=job)
            made += [values[f"qpn{at}"] for at in range(some)]
        self.ans[an].qps -= count
        return made

    def _connect(
        self, an: int, conn: int, address: int, remote: int, own_psn: int = 0, their_psn: int = 0, flow_label: int = 0
    ) -> None:  # fmt: skip
        options = self.options
        self._set(
            an, AmAttribute.QPC_CONFIG, qpn=conn, state=QpState.ACTIVE, rqpn=remote, rgid=address, sq_psn=own_psn,
            rq_psn=their_psn, mtu=5, rnr_retry=options.ib_rnr_retry, ack_timeout=options.ib_timeout,
            retry=options.ib_retry_count, flow_label=flow_label,
        )  # fmt: skip

    def _configure(self, tree: AggregationTree) -> None:
        """Configure the edges between ANs, then the tree itself, as LLT and as SAT."""
        if tree.tree_id in self._configured:
            return
        edges = self._configured[tree.tree_id] = []
        for number, mode in ((tree.tree_id, TreeMode.LLT), (tree.sat_id, TreeMode.SAT)):
            up: dict[int, int] = {}
            down: dict[int, dict[int, int]] = {guid: {} for guid in tree.nodes}
            for guid, node in tree.nodes.items():
                if node.parent is not None:
                    [above], [own] = self._allocate(node.parent, 1), self._allocate(guid, 1)
                    edges += [(node.parent, above), (guid, own)]
                    down_psn, up_psn = self.psn(), self.psn()
                    self._connect(node.parent, above, guid, own, down_psn, up_psn)
                    self._connect(guid, own, node.parent, above, up_psn, down_psn)
                    up[guid] = own
                    down[node.parent][tree.nodes[node.parent].index_of(guid)] = above
            for guid, node in tree.nodes.items():
                self._set(
                    guid, AmAttribute.TREE_CONFIG, tree_id=number, op=TreeOp.SET, mode=mode,
                    llt_tree_id=tree.tree_id if mode == TreeMode.SAT else INVALID_TREE,
                    record_locator=_depth(tree, node), parent_qpn=up.get(guid, 0),
                )  # fmt: skip
                self._update(guid, number, down[guid])

    def _update(self, an: int, tree_id: int, children: dict[int, int]) -> None:
        """Add children, as many at a time as fit a MAD; the connection 0 removes a child."""
        rows = list(children.items())
        for at in range(0, len(rows), MOST_QPS):
            some = child_rows(dict(rows[at : at + MOST_QPS]))
            self._set(an, AmAttribute.TREE_CONFIG, tree_id=tree_id, op=TreeOp.UPDATE, **some)

    def _release(self, an: int, conns: list[int]) -> None:
        if an not in self.ans:
            return
        for at in range(0, len(conns), MOST_QPS):
            some = conns[at : at + MOST_QPS]
            qpns = {f"qpn{place}": conn for place, conn in enumerate(some)}
            self.ask(an, AmMethod.SET, AmAttribute.QP_ALLOCATION, op=AllocationOp.RELEASE, count=len(some), **qpns)
        self.ans[an].qps += len(conns)

    def _remove(self, tree: AggregationTree) -> None:
        """Remove a tree and its edges."""
        for number in (tree.tree_id, tree.sat_id):
            for guid in tree.nodes:
                if guid in self.ans:
                    self.ask(guid, AmMethod.SET, AmAttribute.TREE_CONFIG, tree_id=number, op=TreeOp.REMOVE)
        for guid, conn in self._configured.pop(tree.tree_id, ()):
            self._release(guid, [conn])

    def an_died(self, guid: int) -> list[int]:
        """Drop a failed AN, rebuild the trees that are not configured, and return the jobs that ran on the AN.

        Configured trees that contain the AN stay, and are marked as partial.
        """
        self.ans.pop(guid, None)
        hit = [job for job, it in self.jobs.items() if any(guid in rail.part.ans for rail in it.grant.rails)]
        self.trees = [replace(tree, partial=True) if guid in tree.nodes else tree for tree in self.trees]
        self._build()
        return hit

    # Jobs

    def begin_job(self, hosts: Sequence[Sequence[int]], job_id: int | None = None) -> JobGrant | LibsharpStatus:
        """Begin a job and return its grant, or the code with which it is refused; a refusal changes nothing.

        `hosts` has, for each rail, the GUIDs of the host ports in the order of the ranks. If `job_id` is None, the
        manager chooses a number.
        """
        if not 1 <= len(hosts) <= TREES_PER_JOB:
            raise LocalError("hosts", f"{len(hosts)} rails; 1 … {TREES_PER_JOB}, one tree each", id="wrong-count")
        if any(not ports or len(set(ports)) != len(ports) or len(ports) != len(hosts[0]) for ports in hosts):
            raise LocalError("hosts", "every rail has one port of every host", id="wrong-topology")
        number = self._next_job if job_id is None else job_id
        if number in self.jobs or not 0 <= number < 1 << 24:
            raise LocalError(
                "job_id", f"{shown(job_id)}; 0 … {(1 << 24) - 1}, not of an active job", id="already-there"
            )
        grant = JobGrant(number, (), self.options.user_data or DEFAULT_USER_DATA, False)
        job = self.jobs[number] = KnownJob(grant)
        try:
            if any(an.info["jobs"] <= len(self.jobs) - 1 for an in self.ans.values()):
                raise JobRefusedError(LibsharpStatus.JOB_CREATE)
            for ports in hosts:
                tree, part = self._choose(ports, {rail.tree.tree_id for rail in job.grant.rails})
                self._admit(job, tree, part, ports)
            for at, ports in enumerate(hosts):  # streams get what the LLTs of all rails leave
                self._admit_stream(job, at, ports)
        except JobRefusedError as refused:
            self.end_job(number)
            return refused.status
        self._next_job = max(self._next_job, number) + 1
        return job.grant

    def _choose(self, ports: Sequence[int], taken: set[int]) -> tuple[AggregationTree, Subtree]:
        """Return the tree that reaches all ports and has the lowest load (sharp.md §4.2 item 6)."""
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
        """Admit one rail of a job to the LLT of a tree (sharp.md §4.2 items 6 and 7)."""
        options, user_data = self.options, job.grant.user_data
        ans = [self.ans[guid] for guid in part.ans]
        if any(user_data > an.info["max_user_data"] for an in ans):
            raise JobRefusedError(LibsharpStatus.INVALID)
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
        reserved = min(options.osts_of(osts, groups), osts, self.config.max_group_osts)
        for guid, an in zip(part.ans, ans, strict=True):
            an.osts, an.groups, an.buffers = an.osts - osts, an.groups - groups, an.buffers - osts * costs[guid]
            an.reserved += reserved
            job.shares.append(Share(guid, osts, osts * costs[guid], groups, reserved))
        empty = Rail(tree, part, (), (), osts, groups)
        job.grant = replace(job.grant, rails=(*job.grant.rails, empty))
        self._configure(tree)
        quotas = {guid: {"osts": osts, "buffers": osts * costs[guid], "groups": groups} for guid in part.ans}
        whole = replace(empty, llt=self._open(job, empty, tree.tree_id, ports, quotas))
        job.grant = replace(job.grant, rails=(*job.grant.rails[:-1], whole))

    def _admit_stream(self, job: KnownJob, at: int, ports: Sequence[int]) -> None:
        """Admit one rail of a job to the SAT of its tree, if the job may stream there."""
        options, rail = self.options, job.grant.rails[at]
        if not self._stream(job, rail.part):
            return
        groups = max(1, min(options.sat_percent * self.ans[guid].info["groups"] // 100 for guid in rail.part.ans))
        quota = {"osts": options.sat_osts or groups * self.config.sat_window, "buffers": 0, "groups": groups}
        sat = self._open(job, rail, rail.tree.sat_id, ports, dict.fromkeys(rail.part.ans, quota))
        rails = (*job.grant.rails[:at], replace(rail, sat=sat), *job.grant.rails[at + 1 :])
        job.grant = replace(job.grant, rails=rails, exclusive=all(job.semaphores.values()))

    def _open(
        self, job: KnownJob, rail: Rail, number: int, ports: Sequence[int], quotas: Mapping[int, Mapping[str, int]]
    ) -> tuple[AttachPoint, ...]:  # fmt: skip
        """Set the quotas of a job on one tree, and allocate connections for the hosts."""
        for guid, quota in quotas.items():
            flags = (QuotaFlag.IS_ROOT if guid == rail.part.root else 0) | (
                QuotaFlag.REPRODUCIBLE if self.config.repro else 0
            )
            self._set(
                guid, AmAttribute.QUOTA_CONFIG, job_id=job.grant.job_id, tree_id=number, op=QuotaOp.SET, flags=flags,
                qps=len(ports) * (self.options.quota_qps or 1), user_data=job.grant.user_data, **quota,
            )  # fmt: skip
        return self._place(job, rail.tree, number, ports)

    def _stream(self, job: KnownJob, part: Subtree) -> bool:
        """Return whether the job may stream on one more tree.

        A job takes one semaphore of an AN, whatever number of its trees stream there; each of these trees is one of the
        AN's flows and needs OSTs for its window (sharp.md §4.2 item 7). If any of this is lacking and the mode is none
        or best effort, the tree is an LLT only, by a choice of this project.
        """
        mode, config = self.options.exclusive_lock, self.config
        if not self.options.enable_sat:
            return False
        ans = [(guid, self.ans[guid]) for guid in part.ans]
        fresh = [an for guid, an in ans if guid not in job.semaphores]
        alone = bool(mode) and all(an.semaphores - (an.shared > 0) > 0 for an in fresh)
        shares = {guid for guid, exclusive in job.semaphores.items() if not exclusive}
        flows = [an.flows + 1 + (job.flows[guid] if guid in shares else 0) for guid, an in ans]
        room = all(
            number <= config.sat_flows_per_an
            and (config.lazy_ost or number * config.sat_window + an.reserved <= an.info["osts"])
            for number, (_, an) in zip(flows, ans, strict=True)
        )
        if mode == REQUIRED and not (alone and room):
            raise JobRefusedError(LibsharpStatus.QUOTA)
        if not room or not all(an.semaphores > 0 for an in fresh):
            return False
        for guid, an in ans:
            if guid not in job.semaphores:
                job.semaphores[guid] = alone
                an.exclusive += alone
                an.shared += not alone
            job.flows[guid] += 1
            an.flows += job.semaphores[guid]
        return True

    def _place(
        self, job: KnownJob, tree: AggregationTree, number: int, ports: Sequence[int]
    ) -> tuple[AttachPoint, ...]:
        """Allocate a connection at the leaf AN for every host."""
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
        self, place: AttachPoint, *, address: int, remote: int, own_psn: int = 0, their_psn: int = 0,
        flow_label: int = 0,
    ) -> LibsharpStatus:  # fmt: skip
        """Connect the leaf AN of an attach point to a host; `remote` is the connection of the host, and `own_psn` is
        the first PSN of the AN."""
        try:
            self._connect(place.an, place.conn, address, remote, own_psn, their_psn, flow_label)
        except JobRefusedError:
            return LibsharpStatus.TREE_CONNECT
        return LibsharpStatus.OK

    def end_job(self, job_id: int) -> None:
        """End a job: send ResourceCleanup and QuotaConfig CLEAR to its ANs, then release its connections and shares."""
        if job_id not in self.jobs:
            raise LocalError(
                "job_id", f"{shown(job_id)} is not active; active: {sorted(self.jobs)}", id="not-registered"
            )
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
                an.osts += share.osts
                an.buffers += share.buffers
                an.groups += share.groups
                an.reserved -= share.reserved
        for guid, alone in job.semaphores.items():
            if (an := self.ans.get(guid)) is not None:
                an.exclusive -= alone
                an.shared -= not alone
                an.flows -= job.flows[guid] if alone else 0
        used = {rail.tree.tree_id for other in self.jobs.values() for rail in other.grant.rails}
        for rail in job.grant.rails:
            if self.options.dynamic_trees and rail.tree.tree_id not in used:
                self._remove(rail.tree)

    def active_jobs(self, an: int) -> list[int]:
        """Return the job_ids of the active jobs of an AN, modulo 1536, as ANActiveJobs is a bitmap of 1536 bits."""
        answer = self.ask(an, AmMethod.GET, AmAttribute.AN_ACTIVE_JOBS)
        words = [answer.values[f"jobs{word}"] for word in range(48)] if answer else []
        return [32 * at + bit for at, word in enumerate(words) for bit in range(32) if word >> 31 - bit & 1]


def _depth(tree: AggregationTree, node: TreeNode) -> int:
    """Return the level of an AN; 1 is a leaf."""
    return 1 + max((_depth(tree, tree.nodes[child.guid]) for child in node.children if not child.is_host), default=0)


def _places(tree: AggregationTree, ports: Sequence[int]) -> list[tuple[int, int]]:
    """Return the leaf AN and the child_idx of each port."""
    return [(leaf, tree.nodes[leaf].index_of(port)) for port in ports if (leaf := tree.leaf_of(port)) is not None]
