# SPDX-License-Identifier: GPL-2.0-only
"""This module has work requests, `ibv_send_wr` and `ibv_recv_wr`, and the records of those that are posted (roce.md
§10)."""

from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, TypeAlias

from uetproto.api.verbs.errors import VerbsObject, instance, integer, invalid, member
from uetproto.api.verbs.memory import MR, Slice, sge_list
from uetproto.engine.contract import Buffer
from uetproto.engine.roce.contract import AddressVector, Opcode, PostSend, SendFlags, Sge

if TYPE_CHECKING:
    from uetproto.api.verbs.device import PD
    from uetproto.api.verbs.qp import QP

Gather: TypeAlias = MR | Sge | list[MR | Sge] | tuple[MR | Sge, ...]
"""Type of a scatter or gather list: a region, a slice of a region or an `Sge`, or a list of these."""


class AH(VerbsObject):
    """This class represents an address handle of a peer or a multicast group (`ibv_ah`). `pd.create_ah(...)` makes
    one."""

    def __init__(self, pd: "PD", av: AddressVector) -> None:
        self.pd = pd
        self.av = av

    def __repr__(self) -> str:
        return f"<AH to {ip_address(self.av.dst)}>"

    def destroy(self) -> None:
        """`ibv_destroy_ah` destroys the handle."""
        self.check("ah")
        self.destroyed = True
        self.pd.users.remove(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendWr:
    """This record represents a send work request (`ibv_send_wr`)."""

    opcode: Opcode = Opcode.SEND
    sg_list: Gather | Buffer = ()
    """Local memory with the bytes of the message, or for the result of a READ or atomic. A `bytes` object is sent
    INLINE."""
    wr_id: int = 0
    """64-bit number that the program chooses, and that the completion returns."""
    send_flags: SendFlags = SendFlags.SIGNALED
    imm_data: int = 0
    """Immediate data of 32 bits, most significant byte first on the wire."""
    invalidate_rkey: int = 0
    remote_addr: int = 0
    """Virtual address at the peer, for WRITE, READ and atomics; the first byte of the peer's region has the address
    `mr.addr`."""
    rkey: int = 0
    compare_add: int = 0
    """Value with which a compare-and-swap compares, or which a fetch-and-add adds."""
    swap: int = 0
    ah: AH | None = None
    """Address handle of the destination of a datagram (UD)."""
    remote_qpn: int = 0
    remote_qkey: int = 0
    """Q_Key of a datagram (UD). If bit 31 is set, the Q_Key of the sending queue pair is sent instead (roce.md §11)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecvWr:
    """This record represents a receive work request (`ibv_recv_wr`)."""

    sg_list: Gather = ()
    wr_id: int = 0


@dataclass(slots=True)
class PostedRequest:
    """This record represents a work request that was posted and has not completed."""

    token: int
    """Number of the request in the adapter. It is always unique, whereas the `wr_id` that the program chooses need not
    be."""
    wr_id: int
    sg_list: tuple[Sge, ...]
    work: PostSend | None = None
    """Send request in the form that the adapter got; it is None if the posted request is a receive."""

    @property
    def length(self) -> int:
        """Return the length in bytes of the message to be sent, or of the buffers of a receive."""
        inline = None if self.work is None else self.work.inline
        return sum(part.length for part in self.sg_list) if inline is None else len(inline)


def post_of(qp: "QP", wr: SendWr, token: int) -> PostSend:
    """Return the send work request in the form that the adapter takes; `token` becomes its wr_id. Raises EINVAL for an
    illegal field; the adapter checks further fields later."""
    integer("wr_id", wr.wr_id, 0, (1 << 64) - 1)
    opcode, flags = member("opcode", wr.opcode, Opcode), member("send_flags", wr.send_flags, SendFlags)
    if qp.sq_sig_all:
        flags |= SendFlags.SIGNALED
    inline: bytes | None = None
    sg_list: tuple[Sge, ...] = ()
    if isinstance(wr.sg_list, bytes | bytearray | memoryview):
        flags |= SendFlags.INLINE
        _check_inline(qp, memoryview(wr.sg_list).nbytes)
        inline = bytes(wr.sg_list)
    else:
        sg_list = sge_list("sg_list", wr.sg_list, qp.pd)
        if flags & SendFlags.INLINE:
            _check_inline(qp, sum(part.length for part in sg_list))
            inline, sg_list = b"".join(_now(qp, part) for part in sg_list), ()
    if wr.ah is not None:
        instance("ah", wr.ah, AH, "pd.create_ah(...)")
        wr.ah.check("ah")
        if wr.ah.pd is not qp.pd:
            raise invalid(
                "ah", "of another protection domain", "one of the domain of the queue pair", id="foreign-object"
            )
    return PostSend(
        qp_num=qp.qp_num, wr_id=token, opcode=opcode, sg_list=sg_list, send_flags=flags, imm_data=wr.imm_data,
        invalidate_rkey=wr.invalidate_rkey, remote_addr=wr.remote_addr, rkey=wr.rkey, compare_add=wr.compare_add,
        swap=wr.swap, ah=None if wr.ah is None else wr.ah.av, remote_qpn=wr.remote_qpn, remote_qkey=wr.remote_qkey,
        inline=inline,
    )  # fmt: skip


def _check_inline(qp: "QP", length: int) -> None:
    if length > qp.max_inline_data:
        raise invalid(
            "sg_list", f"{length} bytes INLINE", f"at most {qp.max_inline_data} (max_inline_data)", id="wrong-length"
        )


def _now(qp: "QP", part: Sge) -> bytes:
    """Return the bytes of a piece now."""
    region = qp.device.mrs.get(part.lkey)
    if region is None or not region.region.allows(part.addr, part.length, 0):
        raise invalid("sg_list", part, "pieces of registered regions, as INLINE is copied at once", id="not-registered")
    return bytes(Slice(part.addr, part.length, part.lkey, region))
