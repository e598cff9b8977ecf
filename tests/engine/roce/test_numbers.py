# SPDX-License-Identifier: GPL-2.0-only
"""Numbers are those of libibverbs, so that traces of both can be laid side by side (roce.md §10)."""

from enum import IntEnum

import pytest

from uetproto.engine.roce.contract import Access, Opcode, SendFlags, Status, WcOpcode

PAGE: dict[type[IntEnum] | type[Access] | type[SendFlags], str] = {
    Status: """
        0 SUCCESS, 1 LOC_LEN_ERR, 2 LOC_QP_OP_ERR, 4 LOC_PROT_ERR, 5 WR_FLUSH_ERR, 7 BAD_RESP_ERR, 8 LOC_ACCESS_ERR,
        9 REM_INV_REQ_ERR, 10 REM_ACCESS_ERR, 11 REM_OP_ERR, 12 RETRY_EXC_ERR, 13 RNR_RETRY_EXC_ERR, 19 FATAL_ERR,
        21 GENERAL_ERR
    """,
    Opcode: """
        0 RDMA_WRITE, 1 RDMA_WRITE_WITH_IMM, 2 SEND, 3 SEND_WITH_IMM, 4 RDMA_READ, 5 ATOMIC_CMP_AND_SWP,
        6 ATOMIC_FETCH_AND_ADD, 9 SEND_WITH_INV, 15 ATOMIC_WRITE
    """,
    WcOpcode: "0 SEND, 1 RDMA_WRITE, 2 RDMA_READ, 3 COMP_SWAP, 4 FETCH_ADD, 128 RECV, 129 RECV_RDMA_WITH_IMM",
    Access: "1 LOCAL_WRITE, 2 REMOTE_WRITE, 4 REMOTE_READ, 8 REMOTE_ATOMIC",
    SendFlags: "1 FENCE, 2 SIGNALED, 4 SOLICITED, 8 INLINE",
}


@pytest.mark.parametrize("kind", PAGE, ids=lambda kind: kind.__name__)
def test_numbers_are_those_of_the_page(kind: type[IntEnum]) -> None:
    assert [f"{int(member)} {member.name}" for member in kind] == [text.strip() for text in PAGE[kind].split(",")]
