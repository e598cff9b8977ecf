"""The aggregation manager and its ANs (sharp.md §2.9, §4.2): MADs, discovery, and trees with their edges.

`FabricGraph` in, configured trees out; `sharp_manager.SharpManager` has jobs run on them.
"""

from collections.abc import Callable
from dataclasses import replace

from uetproto.engine.sharp.config import SharpConfig
from uetproto.engine.sharp.manager.grants import KnownAn
from uetproto.engine.sharp.manager.mads import Mad, child_rows, read
from uetproto.engine.sharp.manager.trees import AggregationTree, FabricGraph, TreeNode, build_trees
from uetproto.engine.sharp.options import SharpOptions
from uetproto.errors import LocalError
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
from uetproto.wire.headers.sharp_am import MOST_QPS, AllocationOp, TreeOp

Send = Callable[[int, bytes], bytes]
"""Brings a MAD to an AN, by GUID, and the answer back; b"": there is none."""


class ManagedTrees:
    """What a manager knows of the ANs, and asks of them."""

    def __init__(
        self,
        fabric: FabricGraph,
        send: Send,
        config: SharpConfig,
        options: SharpOptions,
        am_key: int,
        psn: Callable[[], int],
    ) -> None:
        self.fabric = fabric
        self.send = send
        self.config = config
        self.options = options
        self.am_key = am_key
        self.psn = psn
        self.ans: dict[int, KnownAn] = {}
        self.trees: list[AggregationTree] = []
        self.traps: list[Values] = []
        """What ANs told unasked: the fields of each Notice, in the order of arrival."""
        self._configured: dict[int, list[tuple[int, int]]] = {}
        """By LLT: (AN, connection) of its edges, both trees."""
        self._tid = 0

    # MADs

    def ask(self, an: int, method: AmMethod, attribute: AmAttribute, **values: int) -> Mad | None:
        """A request and its answer; None: there is none."""
        self._tid += 1
        mad = Mad(method=method, attribute=attribute, values=values, am_key=self.am_key, tid=self._tid)
        answer = read(self.send(an, mad.pack()))
        return answer if answer is not None and answer.tid == self._tid else None

    def _set(self, an: int, attribute: AmAttribute, **values: int) -> Values:
        """A Set that has to succeed."""
        answer = self.ask(an, AmMethod.SET, attribute, **values)
        if answer is None or answer.status != MadStatus.OK:
            raise JobRefusedError(LibsharpStatus.NO_RESOURCE if answer else LibsharpStatus.DEVICE)
        return answer.values

    def trap(self, data: bytes) -> bool:
        """A MAD that an AN sends unasked; False: it is no Notice, and nothing happens."""
        mad = read(data)
        if mad is None or (mad.method, mad.attribute) != (AmMethod.TRAP, AmAttribute.NOTICE):
            return False
        self.traps.append(mad.values)
        return True

    # Start

    def start(self) -> None:
        """Discovers the ANs and builds the trees; an AN that does not answer is none."""
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
                    "llt_trees",
                    f"{self.config.llt_trees} static trees do not fit the ANs ({refused.status.name})",
                    "fewer, or dynamic_tree_allocation",
                ) from None

    def _build(self) -> None:
        alive = FabricGraph([
            replace(switch, has_an=guid in self.ans) for guid, switch in self.fabric.switches.items()
        ])  # fmt: skip
        radix = min((an.info["radix"] for an in self.ans.values()), default=self.config.children)
        built = build_trees(alive, self.config.llt_trees, min(radix, self.config.children))
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

    def _connect(self, an: int, conn: int, address: int, remote: int, own_psn: int = 0, their_psn: int = 0) -> None:
        options = self.options
        self._set(
            an, AmAttribute.QPC_CONFIG, qpn=conn, state=QpState.ACTIVE, rqpn=remote, rgid=address, sq_psn=own_psn,
            rq_psn=their_psn, mtu=5, rnr_retry=options.ib_rnr_retry, ack_timeout=options.ib_timeout,
            retry=options.ib_retry_count,
        )  # fmt: skip

    def _configure(self, tree: AggregationTree) -> None:
        """Edges between ANs, then the tree itself, as LLT and as SAT."""
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
        """Adds children, as many at a time as fit a MAD; the connection 0 takes one away."""
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
        """The tree goes, with its edges."""
        for number in (tree.tree_id, tree.sat_id):
            for guid in tree.nodes:
                if guid in self.ans:
                    self.ask(guid, AmMethod.SET, AmAttribute.TREE_CONFIG, tree_id=number, op=TreeOp.REMOVE)
        for guid, conn in self._configured.pop(tree.tree_id, ()):
            self._release(guid, [conn])


class JobRefusedError(Exception):
    """A job cannot begin."""

    def __init__(self, status: LibsharpStatus) -> None:
        super().__init__(status.name)
        self.status = status


def _depth(tree: AggregationTree, node: TreeNode) -> int:
    """Levels up to an AN; 1: a leaf."""
    return 1 + max((_depth(tree, tree.nodes[child.guid]) for child in node.children if not child.is_host), default=0)


__all__ = ["JobRefusedError", "ManagedTrees", "Send"]
