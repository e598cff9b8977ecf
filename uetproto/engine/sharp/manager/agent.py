# SPDX-License-Identifier: GPL-2.0-only
"""The management agent turns MADs into calls of a `ManagedNode` (sharp.md §1.7, §2.9).

`SERVED` lists the attributes that the agent serves. This project chose what sharp.md leaves open: A SET with a wrong
AM_Key is answered with BAD_FIELD. `record_locator` of TreeConfig carries the level of the node in the tree. TreeConfig
SET ends all groups of the tree. TreeConfig UPDATE ends only the groups to which a removed child belongs.
"""

from collections.abc import Callable
from typing import Any

from uetproto.engine.sharp.contract import Ports
from uetproto.engine.sharp.management import OTHER_PORT, ManagedNode, Quota, TrapRaised
from uetproto.engine.sharp.manager.mads import Mad, child_rows, children_of, read
from uetproto.errors import LocalError
from uetproto.wire.codec import Values
from uetproto.wire.headers.sharp import COUNTERS, VERSION, AmAttribute, AmMethod, MadStatus, QpState, Trap, TreeMode
from uetproto.wire.headers.sharp_am import MOST_QPS, AllocationOp, AnCap, CleanupOp, QuotaFlag, QuotaOp, TreeOp

CLASS_VERSIONS = (1, 2)
MOST_CHILDREN = MOST_QPS
_JOBS = 48 * 32
_MOST = 2**32 - 1


class SharpAgent:
    """The agent answers MADs and turns traps into MADs."""

    def __init__(self, node: ManagedNode, ports: Ports, am_key: int = 0) -> None:
        self.node = node
        self.ports = ports
        self.am_key = am_key
        self.qps: dict[int, int] = {}
        """Maps each allocated connection to its job; job 0 stands for a connection between aggregation nodes."""
        self.active: set[int] = set()
        """Lists the allocated connections that are connected."""
        self._traps: list[bytes] = []

    def handle(self, data: bytes, now: int) -> bytes:
        """Return the answer to a MAD, or b"" if the bytes are no SHARP MAD. Received bytes never raise an error."""
        mad = read(data)
        if mad is None or mad.method not in (AmMethod.GET, AmMethod.SET):
            return b"" if mad is None else self._answer(mad, {}, MadStatus.BAD_METHOD)
        if mad.class_version not in CLASS_VERSIONS:
            return self._answer(mad, {}, MadStatus.BAD_CLASS_VERSION)
        serve = SERVED.get((mad.method, mad.attribute))
        if serve is None:
            return self._answer(mad, {}, MadStatus.BAD_METHOD_ATTRIBUTE)
        if mad.am_key != self.am_key and mad.method == AmMethod.SET:
            self.trap(TrapRaised(Trap.AM_KEY_VIOLATION, 0, 0, 0, 0, 0, 0))
            return self._answer(mad, {}, MadStatus.BAD_FIELD)
        try:
            values, status = serve(self, mad.values, now)
        except LocalError:
            values, status = mad.values, MadStatus.BAD_FIELD
        return self._answer(mad, values, status)

    def _answer(self, mad: Mad, values: Values, status: MadStatus) -> bytes:
        key = mad.am_key if mad.am_key == self.am_key else 0
        return Mad(
            method=AmMethod.GET_RESP, attribute=mad.attribute, values=values, am_key=key, tid=mad.tid, status=status,
            class_version=mad.class_version,
        ).pack()  # fmt: skip

    def trap(self, raised: TrapRaised) -> None:
        """Queue a trap for the manager."""
        values = {
            "trap": raised.trap, "syndrome": raised.syndrome, "job_id": raised.job_id, "tree_id": raised.tree_id,
            "an_lid": self.node.an_id & 0xFFFF, "local_qpn": raised.conn, "group_id": raised.group_id,
            "seq": raised.seq,
        }  # fmt: skip
        self._traps.append(Mad(method=AmMethod.TRAP, attribute=AmAttribute.NOTICE, values=values).pack())

    def traps(self) -> list[bytes]:
        """Return the trap MADs that were queued since the last call."""
        traps, self._traps = self._traps, []
        return traps

    # Attributes

    def get_an_info(self, values: Values, now: int) -> tuple[Values, MadStatus]:
        config = self.node.config
        caps = AnCap.STREAMING | AnCap.AM_KEY | (AnCap.HALF_LINE if config.half_line else AnCap(0))
        return {
            "tree_table_size": config.tree_table_size, "radix": config.children, "max_radix": config.children,
            "groups": config.groups, "osts": config.osts, "buffers": min(config.buffers, _MOST),
            "qps": config.qps - len(self.qps), "max_user_data": config.max_user_data,
            "semaphores": config.semaphores, "active_semaphores": config.semaphores, "jobs": config.jobs,
            "data_versions": 1 << VERSION, "active_data_versions": 1 << VERSION, "sat_qps": config.qps,
            "llt_qps": config.qps, "caps": caps, "mtu": 5, "line_size": config.line_size,
            "worst_case_lines": config.worst_case_lines,
        }, MadStatus.OK  # fmt: skip

    def set_qp_allocation(self, values: Values, now: int) -> tuple[Values, MadStatus]:
        count, job = values["count"], values["job_id"]
        if count > MOST_QPS or values["op"] not in set(AllocationOp):
            return values, MadStatus.BAD_FIELD
        qpns = [values[f"qpn{at}"] for at in range(count)]
        if values["op"] == AllocationOp.ALLOC:
            if len(self.qps) + count > self.node.config.qps:
                return values, MadStatus.BUSY
            made = [self.ports.allocate() for _ in range(count)]
            self.qps.update(dict.fromkeys(made, job))
            return {**values, **{f"qpn{at}": conn for at, conn in enumerate(made)}}, MadStatus.OK
        if any(qpn not in self.qps for qpn in qpns):
            return values, MadStatus.BAD_FIELD
        if values["op"] == AllocationOp.RELEASE:
            for qpn in qpns:
                del self.qps[qpn]
                self.active.discard(qpn)
                self.ports.release(qpn, now)
        return values, MadStatus.OK

    def set_qpc_config(self, values: Values, now: int) -> tuple[Values, MadStatus]:
        qpn = values["qpn"]
        if qpn not in self.qps or qpn in self.active or values["state"] != QpState.ACTIVE:
            return values, MadStatus.BAD_FIELD
        self.ports.connect(
            qpn, address=values["rgid"], remote=values["rqpn"], own_psn=values["sq_psn"], their_psn=values["rq_psn"],
            now=now, flow_label=values["flow_label"],
        )  # fmt: skip
        self.active.add(qpn)
        return values, MadStatus.OK

    def get_tree_config(self, values: Values, now: int) -> tuple[Values, MadStatus]:
        tree = self.node.trees.get(values["tree_id"])
        if tree is None:
            return {"tree_id": values["tree_id"]}, MadStatus.BAD_FIELD
        listed = dict(list(tree.children.items())[:MOST_CHILDREN])
        return {
            "tree_id": tree.tree_id, "mode": tree.mode, "llt_tree_id": tree.llt_tree_id, "record_locator": tree.depth,
            "parent_qpn": tree.parent or 0, **child_rows(listed),
        }, MadStatus.OK  # fmt: skip

    def set_tree_config(self, values: Values, now: int) -> tuple[Values, MadStatus]:
        tree_id, op = values["tree_id"], values["op"]
        tree = self.node.trees.get(tree_id)
        if values["n_children"] > MOST_CHILDREN or values["mode"] not in set(TreeMode):
            return values, MadStatus.BAD_FIELD
        children = children_of(values)
        if any(qpn not in self.qps for qpn in children.values() if qpn or op != TreeOp.UPDATE):
            return values, MadStatus.BAD_FIELD
        if op == TreeOp.SET:
            parent = values["parent_qpn"]
            self.node.set_tree(
                tree_id, mode=values["mode"], llt_tree_id=values["llt_tree_id"], parent=parent or None,
                children=children, depth=values["record_locator"] or 1,
            )  # fmt: skip
        elif tree is None:
            return values, MadStatus.BAD_FIELD
        elif op == TreeOp.UPDATE:
            self.node.update_tree(tree_id, children)
        elif op == TreeOp.REMOVE:
            self.node.remove_tree(tree_id)
        elif op == TreeOp.DISABLE:
            self.node.disable_tree(tree_id)
        else:
            return values, MadStatus.BAD_FIELD
        return values, MadStatus.OK

    def get_quota_config(self, values: Values, now: int) -> tuple[Values, MadStatus]:
        quota = self.node.quotas.get((values["job_id"], values["tree_id"]))
        if quota is None:
            return values, MadStatus.BAD_FIELD
        flags = sum(flag for flag in QuotaFlag if getattr(quota, str(flag.name).lower()))
        return {**{name: getattr(quota, name) for name in _QUOTA_FIELDS}, "flags": flags}, MadStatus.OK

    def set_quota_config(self, values: Values, now: int) -> tuple[Values, MadStatus]:
        job, tree = values["job_id"], values["tree_id"]
        if values["op"] == QuotaOp.CLEAR:
            self.node.clear_quota(job, tree)
        elif values["op"] == QuotaOp.SET:
            numbers: dict[str, Any] = {name: values[name] for name in _QUOTA_FIELDS}
            flags = {str(flag.name).lower(): bool(values["flags"] & flag) for flag in QuotaFlag}
            self.node.set_quota(Quota(**numbers, **flags))
        else:
            return values, MadStatus.BAD_FIELD
        return values, MadStatus.OK

    def set_resource_cleanup(self, values: Values, now: int) -> tuple[Values, MadStatus]:
        job, tree = values["job_id"], values["tree_id"]
        scopes: dict[int, tuple[int, ...]] = {
            CleanupOp.AN: (), CleanupOp.JOB: (job,), CleanupOp.JOB_TREE: (job, tree),
            CleanupOp.DISCONNECT_JOB_TREE: (job, tree),
        }  # fmt: skip
        if values["op"] not in scopes:
            return values, MadStatus.BAD_FIELD
        self.node.cleanup(*scopes[values["op"]])
        return values, MadStatus.OK

    def get_performance_counters(self, values: Values, now: int) -> tuple[Values, MadStatus]:
        if self.node.config.children <= values["port"] < OTHER_PORT:
            return values, MadStatus.BAD_FIELD
        counters = self.node.ports.of(values["port"])
        chosen = values["select"] or (1 << len(COUNTERS)) - 1
        found = {name: counters[name] for bit, name in enumerate(COUNTERS) if chosen >> bit & 1}
        return {"mode": values["mode"], "port": values["port"], "select": values["select"], **found}, MadStatus.OK

    def get_an_active_jobs(self, values: Values, now: int) -> tuple[Values, MadStatus]:
        words: Values = {}
        for job, _ in self.node.quotas:
            word, bit = divmod(job % _JOBS, 32)
            words[f"jobs{word}"] = words.get(f"jobs{word}", 0) | 1 << 31 - bit
        return words, MadStatus.OK


_QUOTA_FIELDS = ("job_id", "tree_id", "osts", "buffers", "groups", "qps", "user_data", "ud_qpn", "job_key")

_A = AmAttribute
SERVED: dict[tuple[int, int], Callable[[SharpAgent, Values, int], tuple[Values, MadStatus]]] = {
    (AmMethod.GET, _A.AN_INFO): SharpAgent.get_an_info,
    (AmMethod.SET, _A.QP_ALLOCATION): SharpAgent.set_qp_allocation,
    (AmMethod.SET, _A.QPC_CONFIG): SharpAgent.set_qpc_config,
    (AmMethod.GET, _A.TREE_CONFIG): SharpAgent.get_tree_config,
    (AmMethod.SET, _A.TREE_CONFIG): SharpAgent.set_tree_config,
    (AmMethod.GET, _A.QUOTA_CONFIG): SharpAgent.get_quota_config,
    (AmMethod.SET, _A.QUOTA_CONFIG): SharpAgent.set_quota_config,
    (AmMethod.SET, _A.RESOURCE_CLEANUP): SharpAgent.set_resource_cleanup,
    (AmMethod.GET, _A.PERFORMANCE_COUNTERS): SharpAgent.get_performance_counters,
    (AmMethod.GET, _A.AN_ACTIVE_JOBS): SharpAgent.get_an_active_jobs,
}
"""Maps the method and the attribute of a MAD to the Python method that serves them."""
