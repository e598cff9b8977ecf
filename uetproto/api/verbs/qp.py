# SPDX-License-Identifier: GPL-2.0-only
"""This module has queue pairs and shared receive queues, with the calls `ibv_modify_qp`, `ibv_post_send` and others
(roce.md §6)."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from uetproto.api.verbs.cq import CQ
from uetproto.api.verbs.errors import Errno, VerbsError, VerbsObject, instance, integer, invalid, member, refusals
from uetproto.api.verbs.memory import sge_list
from uetproto.api.verbs.work import AH, Gather, PostedRequest, RecvWr, SendWr, post_of
from uetproto.engine.contract import Buffer
from uetproto.engine.roce.contract import (
    Access,
    ModifyQp,
    Opcode,
    PostRecv,
    PostSrqRecv,
    QpState,
    QpType,
    WorkCompletion,
)
from uetproto.engine.roce.qp import Attributes, Qp
from uetproto.wire.headers.roce import MULTICAST_QP

if TYPE_CHECKING:
    from uetproto.api.verbs.device import PD, Device

MAX_WR = 1 << 20
"""Largest legal size of a send or receive queue, in work requests."""


class SRQ(VerbsObject):
    """This class represents a shared receive queue (`ibv_srq`). `pd.create_srq(...)` makes one."""

    def __init__(self, pd: "PD", limit: int, max_wr: int) -> None:
        self.pd = pd
        self.device = pd.device
        self.max_wr = integer("max_wr", max_wr, 1, MAX_WR)
        self.srq_num = self.device.hca.create_srq(pd.handle, integer("limit", limit, 0, max_wr))
        self.users: list[QP] = []
        self.posted: dict[int, PostedRequest] = {}
        """Receives that have not completed, by token."""
        self.device.srqs[self.srq_num] = self

    def post_recv(self, wr: RecvWr | list[RecvWr] | Gather = (), *, wr_id: int = 0) -> None:
        """`ibv_post_srq_recv` posts receives as `QP.post_recv` does."""
        self.check("srq")
        for place, one in enumerate(_receives(wr, wr_id)):
            with _number(place):
                if len(self) >= self.max_wr:
                    raise VerbsError(
                        Errno.ENOMEM, "srq", f"{self.max_wr} receives are posted", "a larger max_wr", id="queue-full"
                    )
                posted = _received(self.device.token(), one, self.pd)
                self.posted[posted.token] = posted
                work = PostSrqRecv(srq_num=self.srq_num, wr_id=posted.token, sg_list=posted.sg_list)
                self.device.node.submit(work)

    def __len__(self) -> int:
        """Return the number of receives posted and not yet used. Raises EINVAL once the queue is destroyed."""
        super().check("srq")
        return len(self.device.hca.srqs[self.srq_num].items)

    def modify(self, *, limit: int) -> None:
        """`ibv_modify_srq` sets the limit: the event SRQ_LIMIT_REACHED comes once, when fewer receives than `limit` are
        left."""
        self.check("srq")
        self.device.hca.modify_srq(self.srq_num, integer("limit", limit, 0, self.max_wr))

    def __repr__(self) -> str:
        return f"<SRQ {self.srq_num} of {self.device.name}>"

    def query(self) -> dict[str, int]:
        """`ibv_query_srq` returns the attributes of the queue; the limit is 0 after it was reached."""
        self.check("srq")
        return {"max_wr": self.max_wr, "srq_limit": self.device.hca.srqs[self.srq_num].limit}

    def destroy(self) -> None:
        """`ibv_destroy_srq` destroys the queue. Raises EBUSY while a queue pair uses the queue."""
        self.check("srq")
        if self.users:
            raise VerbsError(
                Errno.EBUSY, "srq", f"{len(self.users)} queue pairs use it", "destroy them first", id="in-use"
            )
        self.destroyed = True
        self.pd.users.remove(self)
        del self.device.srqs[self.srq_num], self.device.hca.srqs[self.srq_num]

    def check(self, name: str) -> None:
        """Raise EINVAL if the queue is destroyed or the network is closed."""
        super().check(name)
        self.device.check()


class QP(VerbsObject):
    """This class represents a queue pair (`ibv_qp`). `pd.create_qp(...)` makes one in RESET, and `verbs.connect` brings
    two queue pairs to RTS."""

    def __init__(
        self, pd: "PD", qp_type: QpType, send_cq: CQ, recv_cq: CQ, srq: SRQ | None, *, max_send_wr: int,
        max_recv_wr: int, max_inline_data: int, sq_sig_all: bool, qp_context: Any, qp_num: int | None,
    ) -> None:  # fmt: skip
        self.qp_type = member("qp_type", qp_type, QpType)
        queues: list[tuple[str, Any, type]] = [("send_cq", send_cq, CQ), ("recv_cq", recv_cq, CQ), ("srq", srq, SRQ)]
        for name, queue, kind in queues if srq is not None else queues[:2]:
            instance(name, queue, kind)
            queue.check(name)
            if queue.device is not pd.device:
                raise invalid(
                    name, f"one of device {queue.device.name}", f"one of device {pd.device.name}", id="foreign-object"
                )
        self.pd = pd
        self.device = pd.device
        self.send_cq = send_cq
        self.recv_cq = recv_cq
        self.srq = srq
        self.max_send_wr = integer("max_send_wr", max_send_wr, 1, MAX_WR)
        self.max_recv_wr = integer("max_recv_wr", max_recv_wr, 1, MAX_WR)
        self.max_inline_data = integer("max_inline_data", max_inline_data, 0, 1 << 16)
        self.sq_sig_all = sq_sig_all
        """Whether every send is signalled."""
        self.qp_context = qp_context
        """`qp_context`: any object of the program."""
        self.groups: set[int] = set()
        """Multicast groups that the queue pair is attached to."""
        if qp_num is not None:
            integer("qp_num", qp_num, 2, MULTICAST_QP - 1)  # 0 and 1 are for management
        with refusals():
            self.qp_num = self.device.hca.create_qp(
                self.qp_type, pd.handle, srq=None if srq is None else srq.srq_num, max_send_wr=max_send_wr,
                max_recv_wr=max_recv_wr, number=qp_num,
            )  # fmt: skip
        self._sends: deque[PostedRequest] = deque()
        self._receives: dict[int, PostedRequest] = {}
        self.device.qps[self.qp_num] = self
        for user in self._used:
            user.users.append(self)

    @property
    def _used(self) -> list[Any]:
        """Return the objects that the queue pair uses; a completion queue for both directions is in the list twice."""
        return [self.pd, self.send_cq, self.recv_cq, *([] if self.srq is None else [self.srq])]

    @property
    def _qp(self) -> Qp:
        return self.device.hca.qps[self.qp_num]

    @property
    def peer(self) -> "Device | None":
        """Return the device to which the queue pair is connected. The result is None for UD, for a destroyed queue
        pair, and if no device has the peer's address."""
        if self.destroyed or self.qp_type is QpType.UD:
            return None
        return self.device.peers.get(self._qp.attributes.av.dst)

    def __repr__(self) -> str:
        state = "destroyed" if self.destroyed else self.state.name
        return f"<QP {self.qp_num} of {self.device.name}, {self.qp_type.name}, {state}>"

    # States

    @property
    def state(self) -> QpState:
        """Return the state of the queue pair. Raises EINVAL once the queue pair is destroyed."""
        super().check("qp")
        return self._qp.state

    def modify(self, state: QpState, **attributes: Any) -> None:
        """`ibv_modify_qp` changes the queue pair to `state`; roce.md §6 gives the names of the attributes.

        Raises EINVAL for a transition that the state machine of roce.md §6 does not have, and for missing, unknown or
        illegal attributes.
        """
        self.check("qp")
        state = member("state", state, QpState)
        if isinstance(av := attributes.get("av"), AH):
            av.check("av")
            attributes["av"] = av.av
        for name, value in attributes.items():
            if name != "av" and not isinstance(value, int):
                raise invalid(name, value, "a whole number", id="out-of-range")
        if "access_flags" in attributes:
            attributes["access_flags"] = member("access_flags", attributes["access_flags"], Access)
        room = self.device.node.max_path_mtu
        if type(mtu := attributes.get("path_mtu")) is int and mtu > room:
            raise invalid(
                "path_mtu", mtu, f"at most {room}, which the mtu of the network carries", id="inconsistent-values"
            )
        with refusals():
            self.device.node.submit(ModifyQp(qp_num=self.qp_num, state=state, attributes=attributes))
        if state is QpState.RESET:
            self._sends.clear()
            self._receives.clear()

    def query(self) -> dict[str, Any]:
        """`ibv_query_qp` returns the state as `qp_state`, and all attributes under their names."""
        state, attributes = self.state, self._qp.attributes
        return {"qp_state": state} | {name: getattr(attributes, name) for name in Attributes.__slots__}

    # Work

    def post_send(
        self, wr: SendWr | list[SendWr] | Opcode, sg_list: Gather | Buffer | None = None, **fields: Any
    ) -> None:
        """`ibv_post_send` posts a `SendWr` or a list of `SendWr`. The call `post_send(Opcode.SEND, mr[:64])` gives the
        fields of a `SendWr` instead.

        Raises EINVAL for an operation that the transport does not have and for a state in which nothing may be posted,
        and ENOMEM for a full queue. If a request in a list is refused, `error.bad_wr` is its index, and the requests
        before it are posted.
        """
        self.check("qp")
        if isinstance(wr, int):
            for name in fields:
                if name not in SendWr.__dataclass_fields__:
                    raise invalid("post_send", name, SendWr.__dataclass_fields__, id="unknown-argument")
            wr = SendWr(opcode=wr, sg_list=() if sg_list is None else sg_list, **fields)
        elif fields or sg_list is not None:
            raise invalid("post_send", "a SendWr and fields beside it", "either of them", id="conflicting-arguments")
        for place, one in enumerate(wr if isinstance(wr, list | tuple) else (wr,)):
            with _number(place):
                instance("wr", one, SendWr, "SendWr(...), a list of them, or an Opcode and the other fields")
                self._post_send(one)

    def _post_send(self, wr: SendWr) -> None:
        work = post_of(self, wr, self.device.token())
        qp = self._qp
        if qp.requester is not None and qp.requester.posted_now >= self.max_send_wr:
            raise VerbsError(
                Errno.ENOMEM, "qp", f"{self.max_send_wr} sends are posted", "a larger max_send_wr", id="queue-full"
            )
        posted = PostedRequest(work.wr_id, wr.wr_id, work.sg_list, work)
        self._sends.append(posted)  # the work may be complete before `submit` returns
        try:
            with refusals():
                self.device.node.submit(work)
        except VerbsError:
            self._sends.pop()
            raise
        self._settle()

    def _settle(self) -> None:
        """Remove the sends that succeeded without a completion, as they were not signalled."""
        requester = self._qp.requester
        left = requester.posted_now if requester is not None else 0
        while len(self._sends) > left:
            self.device.data_paths.note(self, self._sends.popleft(), None)

    def post_recv(self, wr: RecvWr | list[RecvWr] | Gather = (), *, wr_id: int = 0) -> None:
        """`ibv_post_recv` posts a `RecvWr` or a list of `RecvWr`. The call `post_recv(mr[:64], wr_id=7)` gives the
        slices of a `RecvWr` instead.

        On UD the GRH takes the first 40 bytes (roce.md §11). Raises EINVAL for a state in which nothing may be posted
        and for a queue pair with a shared receive queue, and ENOMEM for a full queue.
        """
        self.check("qp")
        if self.srq is not None:
            raise invalid("qp", "one with a shared receive queue", "srq.post_recv(...)", id="not-with-mode")
        for place, one in enumerate(_receives(wr, wr_id)):
            with _number(place):
                if len(self._qp.receives.items) >= self.max_recv_wr:
                    text = f"{self.max_recv_wr} receives are posted"
                    raise VerbsError(Errno.ENOMEM, "qp", text, "a larger max_recv_wr", id="queue-full")
                posted = _received(self.device.token(), one, self.pd)
                self._receives[posted.token] = posted
                work = PostRecv(qp_num=self.qp_num, wr_id=posted.token, sg_list=posted.sg_list)
                try:
                    with refusals():
                        self.device.node.submit(work)
                except VerbsError:
                    del self._receives[posted.token]
                    raise

    # Multicast

    def attach_mcast(self, gid: str | int) -> None:
        """`ibv_attach_mcast` lets the queue pair receive the datagrams to a multicast group, in addition to those to
        the queue pair itself. Raises EINVAL unless the queue pair is of type UD."""
        self.check("qp")
        group = self.device.address_of("gid", gid)
        with refusals():
            self.device.hca.attach_mcast(self.qp_num, group)
        self.groups.add(group)

    def detach_mcast(self, gid: str | int) -> None:
        """`ibv_detach_mcast` undoes an `attach_mcast`. Raises EINVAL for a group to which the queue pair is not
        attached."""
        self.check("qp")
        group = self.device.address_of("gid", gid)
        with refusals():
            self.device.hca.detach_mcast(self.qp_num, group)
        self.groups.discard(group)

    # Destroying

    def destroy(self) -> None:
        """`ibv_destroy_qp` destroys the queue pair; its open work requests end without completions.

        Raises EBUSY while the queue pair is attached to a multicast group.
        """
        self.check("qp")
        if self.groups:
            raise VerbsError(
                Errno.EBUSY, "qp", f"attached to {len(self.groups)} groups", "detach it first", id="in-use"
            )
        self.device.hca.destroy_qp(self.qp_num)
        self.destroyed = True
        del self.device.qps[self.qp_num]
        for user in self._used:
            user.users.remove(self)

    def check(self, name: str) -> None:
        """Raise EINVAL if the queue pair is destroyed or the network is closed."""
        super().check(name)
        self.device.check()

    # Calls of the device

    def completed(self, entry: WorkCompletion) -> None:
        """Add the completion of a work request to the completion queue. If the work request has succeeded, report it to
        the data path model."""
        note = self.device.data_paths.note
        if entry.receive:
            posted = (self._receives if self.srq is None else self.srq.posted).pop(entry.wr_id)
        else:
            posted = self._sends.popleft()
            while posted.token != entry.wr_id:  # sends complete in order: `posted` was not signalled
                note(self, posted, None)
                posted = self._sends.popleft()
        if entry.ok:
            note(self, posted, entry)
        cq = self.recv_cq if entry.receive else self.send_cq
        cq.add(replace(entry, wr_id=posted.wr_id))

    def fail(self) -> None:
        """Change the queue pair to ERR, because a completion queue that it uses is overrun."""
        if not self.destroyed and self._qp.state not in (QpState.RESET, QpState.ERR):
            self.device.node.submit(ModifyQp(qp_num=self.qp_num, state=QpState.ERR))


@contextmanager
def _number(place: int) -> Iterator[None]:
    """Set the index of the refused work request in an error."""
    try:
        yield
    except VerbsError as error:
        error.bad_wr = place
        raise


def _receives(wr: Any, wr_id: int) -> Sequence[RecvWr]:
    if isinstance(wr, RecvWr):
        return (wr,)
    if isinstance(wr, list) and all(isinstance(one, RecvWr) for one in wr):
        return wr
    return (RecvWr(sg_list=wr, wr_id=wr_id),)


def _received(token: int, wr: RecvWr, pd: "PD") -> PostedRequest:
    integer("wr_id", wr.wr_id, 0, (1 << 64) - 1)
    return PostedRequest(token, wr.wr_id, sge_list("sg_list", wr.sg_list, pd))
