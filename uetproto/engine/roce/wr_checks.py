# SPDX-License-Identifier: GPL-2.0-only
"""These functions check posted work requests, and raise `LocalError` that names the argument (roce.md §6)."""

from uetproto.engine.roce.contract import PostSend, QpType, SendFlags, Sge
from uetproto.engine.roce.psn import MASK
from uetproto.engine.roce.qp import Qp
from uetproto.engine.roce.segments import ATOMIC_SIZE, ATOMICS, KINDS
from uetproto.errors import LocalError, shown
from uetproto.wire.headers.roce import MULTICAST_QP

_BITS = {
    "imm_data": 32, "invalidate_rkey": 32, "remote_addr": 64, "rkey": 32, "compare_add": 64, "swap": 64,
    "remote_qpn": 24, "remote_qkey": 32,
}  # fmt: skip

assert MULTICAST_QP == MASK


def check_list(sg_list: tuple[Sge, ...]) -> int:
    """Return the number of bytes of a scatter or gather list. Raises `LocalError` for a part that is no legal `Sge`."""
    length = 0
    for part in sg_list:
        if not isinstance(part, Sge) or part.length < 0 or not 0 <= part.addr < 1 << 64:
            legal = "Sge of at least 0 bytes at 64 bits of address"
            raise LocalError("sg_list", f"{shown(part)} is not legal", legal, id="wrong-type")
        length += part.length
    return length


def check_send(qp: Qp, work: PostSend) -> None:
    """Check that the service and the attributes of the queue pair permit a send. Raises `LocalError` if they do not."""
    kind = KINDS.get(work.opcode)
    name = getattr(work.opcode, "name", work.opcode)
    if kind is None or qp.kind not in kind.services:
        has = ", ".join(service.name for service in kind.services) if kind else "none"
        raise LocalError(
            "opcode", f"{name} is not legal on {qp.kind.name}; services that have it: {has}", id="not-with-mode"
        )
    for field, bits in _BITS.items():
        value = getattr(work, field)
        if not isinstance(value, int) or not 0 <= value < 1 << bits:
            raise LocalError(field, f"{shown(value)} is not legal", f"{bits} bits", id="out-of-range")
    inline = bool(work.send_flags & SendFlags.INLINE)
    if inline != (work.inline is not None):
        raise LocalError("inline", "bytes are legal with the flag INLINE, and needed then", id="conflicting-arguments")
    if inline and (kind.answered or work.sg_list):
        raise LocalError("inline", f"not legal with {name if kind.answered else 'sg_list'}", id="not-with-operation")
    length = len(work.inline) if work.inline is not None else check_list(work.sg_list)
    limit = qp.attributes.path_mtu if qp.kind is QpType.UD else qp.hca.config.max_message
    if length > limit:
        raise LocalError(
            "sg_list", f"a message of {length} bytes is not legal on {qp.kind.name}", f"0 … {limit}", id="wrong-length"
        )
    if work.opcode in ATOMICS and length != ATOMIC_SIZE:
        raise LocalError("sg_list", f"{length} bytes for {name}", ATOMIC_SIZE, id="wrong-length")
    if kind.answered and not qp.attributes.max_rd_atomic:
        raise LocalError("opcode", f"{name} is not legal with max_rd_atomic 0", id="inconsistent-values")
    if qp.kind is QpType.UD and work.ah is None:
        raise LocalError("ah", "needed on UD", id="missing-argument")
    if qp.requester is not None and qp.requester.posted_now >= qp.max_send_wr:
        raise LocalError(
            "qp_num", f"{qp.max_send_wr} sends are posted on {qp.number:#x} (max_send_wr)", id="queue-full"
        )
