# SPDX-License-Identifier: GPL-2.0-only
"""What the captures of the shipped RoCE scenarios must show, written by hand from roce.md; and packets in these words.

    > SEND_LAST 2 904 a            a request: operation, PSN, bytes of payload if there are any, flags of the BTH
    < ACKNOWLEDGE 2 aeth(00 1)     a response, with its headers and their fields in order: here syndrome and MSN

PSNs count from the first one of the requester, virtual addresses from the start of the region. A queue pair is named
where it is not 0x12, or of responses 0x11. `lost`: on the way; `damaged`: its ICRC is wrong.
"""

from collections.abc import Callable

from uetproto import Packet
from uetproto.wire.forms import ROCE_FORMS
from uetproto.wire.headers.roce import RESPONSES, Operation

BASE = 0x20000000

_MASK = (1 << 24) - 1
_ASKED, _ANSWERED = 0x12, 0x11  # numbers of the queue pairs at the target and at the initiator


def _hex(value: int) -> str:
    return f"{value:#x}"


_SHOWN: dict[str, Callable[[int], str]] = {
    "va": lambda value: f"+{value - BASE}",
    "r_key": _hex,
    "syndrome": lambda value: f"{value:02x}",
    "swapdt": _hex,
    "cmpdt": _hex,
    "origremdt": _hex,
    "immdt": _hex,
    "q_key": _hex,
    "srcqp": _hex,
}


def line(packet: Packet, first_psn: int, comment: str | None) -> str:
    """Return a packet in the words of `PACKETS`."""
    bth = packet["bth"]
    operation = Operation(bth["opcode"] & 0x1F)
    answers = operation in RESPONSES
    words = ["<" if answers else ">", operation.name, str(bth["psn"] - first_psn & _MASK)]
    if packet.payload:
        words.append(str(len(packet.payload)))
    words += [flag for flag in ("se", "a") if bth[flag]]
    if bth["destqp"] != (_ANSWERED if answers else _ASKED):
        words.append(f"qp={bth['destqp']:#x}")
    for form, values, _ in packet.layers:
        if form in ROCE_FORMS and form != "bth":
            fields = (_SHOWN.get(name, str)(value) for name, value in values.items() if name != "rsvd")
            words.append(f"{form}({' '.join(fields)})")
    if comment is not None:
        words.append(comment.removesuffix(" on the way"))
    elif packet.trailer is None or not packet.trailer.ok:
        words.append("damaged")
    return " ".join(words)


_WRITE = "reth(+0 0x1234 1000)"
_DATAGRAM = "deth(0x11111111 0x11)"

PACKETS = {
    # One per operation ----------------------------------------------------------------------------------------------
    "gradient-roce": """
        > RDMA_WRITE_FIRST 0 4096 reth(+0 0x1234 12288)
        > RDMA_WRITE_MIDDLE 1 4096
        > RDMA_WRITE_LAST 2 4096 a
        < ACKNOWLEDGE 2 aeth(00 1)
    """,
    "roce-send": """
        > SEND_FIRST 0 4096
        > SEND_MIDDLE 1 4096
        > SEND_LAST 2 4096 a
        < ACKNOWLEDGE 2 aeth(00 1)
    """,
    "roce-send-imm": """
        > SEND_ONLY_WITH_IMMEDIATE 0 1000 se a imm(0xcafe)
        < ACKNOWLEDGE 0 aeth(01 1)
        > SEND_FIRST 1 4096
        > SEND_LAST_WITH_IMMEDIATE 2 904 a imm(0x7)
        < ACKNOWLEDGE 2 aeth(00 2)
    """,
    "roce-send-inv": """
        > SEND_ONLY_WITH_INVALIDATE 0 1000 a ieth(0x1234)
        < ACKNOWLEDGE 0 aeth(01 1)
        > SEND_FIRST 1 4096
        > SEND_LAST_WITH_INVALIDATE 2 904 a ieth(0x1235)
        < ACKNOWLEDGE 2 aeth(00 2)
    """,
    "roce-inline": """
        > SEND_ONLY 0 64 a
        > RDMA_WRITE_ONLY 1 64 a reth(+0 0x1234 64)
        < ACKNOWLEDGE 0 aeth(00 1)
        < ACKNOWLEDGE 1 aeth(00 2)
    """,
    "roce-write": """
        > RDMA_WRITE_FIRST 0 4096 reth(+1024 0x1234 12288)
        > RDMA_WRITE_MIDDLE 1 4096
        > RDMA_WRITE_LAST 2 4096 a
        > RDMA_WRITE_ONLY 3 5 a reth(+0 0x1234 5)
        < ACKNOWLEDGE 2 aeth(00 1)
        < ACKNOWLEDGE 3 aeth(00 2)
    """,
    "roce-write-imm": """
        > RDMA_WRITE_ONLY_WITH_IMMEDIATE 0 1000 a reth(+0 0x1234 1000) imm(0xcafe)
        < ACKNOWLEDGE 0 aeth(01 1)
        > RDMA_WRITE_FIRST 1 4096 reth(+4096 0x1234 5000)
        > RDMA_WRITE_LAST_WITH_IMMEDIATE 2 904 a imm(0x7)
        < ACKNOWLEDGE 2 aeth(00 2)
    """,
    "roce-read": """
        > RDMA_READ_REQUEST 0 a reth(+24 0x1234 1000)
        < RDMA_READ_RESPONSE_ONLY 0 1000 aeth(00 1)
    """,
    "roce-read-several": """
        > RDMA_READ_REQUEST 0 a reth(+0 0x1234 12288)
        > RDMA_READ_REQUEST 3 a reth(+1024 0x1234 5000)
        < RDMA_READ_RESPONSE_FIRST 0 4096 aeth(00 1)
        < RDMA_READ_RESPONSE_MIDDLE 1 4096
        < RDMA_READ_RESPONSE_LAST 2 4096 aeth(00 1)
        < RDMA_READ_RESPONSE_FIRST 3 4096 aeth(00 2)
        < RDMA_READ_RESPONSE_LAST 4 904 aeth(00 2)
    """,
    "roce-read-limit": """
        > RDMA_READ_REQUEST 0 a reth(+0 0x1234 1000)
        < RDMA_READ_RESPONSE_ONLY 0 1000 aeth(00 1)
        > RDMA_READ_REQUEST 1 a reth(+1000 0x1234 1000)
        < RDMA_READ_RESPONSE_ONLY 1 1000 aeth(00 2)
        > FETCH_ADD 2 a atomic_eth(+0 0x1234 0x5 0x0)
        < ATOMIC_ACKNOWLEDGE 2 aeth(00 3) atomic_ack_eth(0x0)
    """,
    "roce-compare-swap": """
        > COMPARE_SWAP 0 a atomic_eth(+8 0x1234 0x1122334455667788 0x505050505050505)
        > COMPARE_SWAP 1 a atomic_eth(+8 0x1234 0x7 0x505050505050505)
        < ATOMIC_ACKNOWLEDGE 0 aeth(00 1) atomic_ack_eth(0x505050505050505)
        < ATOMIC_ACKNOWLEDGE 1 aeth(00 2) atomic_ack_eth(0x1122334455667788)
    """,
    "roce-fetch-add": """
        > FETCH_ADD 0 a atomic_eth(+16 0x1234 0x2 0x0)
        > FETCH_ADD 1 a atomic_eth(+16 0x1234 0x5 0x0)
        < ATOMIC_ACKNOWLEDGE 0 aeth(00 1) atomic_ack_eth(0xffffffffffffffff)
        < ATOMIC_ACKNOWLEDGE 1 aeth(00 2) atomic_ack_eth(0x1)
    """,
    "roce-srq": """
        > SEND_ONLY 0 1000 a
        > SEND_ONLY 0 600 a qp=0x22
        < ACKNOWLEDGE 0 aeth(1f 1)
        < ACKNOWLEDGE 0 qp=0x21 aeth(1f 1)
        > SEND_ONLY 1 800 a
        < ACKNOWLEDGE 1 aeth(1f 2)
    """,
    "roce-unsignaled": f"""
        > RDMA_WRITE_ONLY 0 1000 a {_WRITE}
        > RDMA_WRITE_ONLY 1 1000 a reth(+1000 0x1234 1000)
        > RDMA_WRITE_ONLY 2 1000 a reth(+2000 0x1234 1000)
        < ACKNOWLEDGE 0 aeth(00 1)
        < ACKNOWLEDGE 1 aeth(00 2)
        < ACKNOWLEDGE 2 aeth(00 3)
    """,
    "roce-fence": f"""
        > RDMA_READ_REQUEST 0 a reth(+0 0x1234 1000)
        < RDMA_READ_RESPONSE_ONLY 0 1000 aeth(00 1)
        > RDMA_WRITE_ONLY 1 1000 a {_WRITE}
        < ACKNOWLEDGE 1 aeth(00 2)
    """,
    "roce-drain": f"""
        > RDMA_WRITE_ONLY 0 1000 a {_WRITE}
        < ACKNOWLEDGE 0 aeth(00 1)
        > RDMA_WRITE_ONLY 1 1000 a reth(+1000 0x1234 1000)
        < ACKNOWLEDGE 1 aeth(00 2)
    """,
    "roce-zero": """
        > SEND_ONLY 0 a
        > RDMA_WRITE_ONLY 1 a reth(+0 0x0 0)
        > RDMA_READ_REQUEST 2 a reth(+0 0x0 0)
        < ACKNOWLEDGE 0 aeth(00 1)
        < ACKNOWLEDGE 1 aeth(00 2)
        < RDMA_READ_RESPONSE_ONLY 2 aeth(00 3)
    """,
    "roce-ack-coalesced": """
        > RDMA_WRITE_ONLY 0 512 a reth(+0 0x1234 512)
        > RDMA_WRITE_ONLY 1 512 a reth(+512 0x1234 512)
        > RDMA_WRITE_ONLY 2 512 a reth(+1024 0x1234 512)
        > RDMA_WRITE_ONLY 3 512 a reth(+1536 0x1234 512)
        > RDMA_WRITE_ONLY 4 512 a reth(+2048 0x1234 512)
        > RDMA_WRITE_ONLY 5 512 a reth(+2560 0x1234 512)
        < ACKNOWLEDGE 3 aeth(00 4)
        < ACKNOWLEDGE 5 aeth(00 6)
    """,
    "roce-ack-requested": """
        > RDMA_WRITE_FIRST 0 4096 reth(+0 0x1234 16384)
        > RDMA_WRITE_MIDDLE 1 4096 a
        > RDMA_WRITE_MIDDLE 2 4096
        > RDMA_WRITE_LAST 3 4096 a
        < ACKNOWLEDGE 1 aeth(00 0)
        < ACKNOWLEDGE 3 aeth(00 1)
    """,
    "roce-credits": """
        > SEND_ONLY 0 1000 a
        < ACKNOWLEDGE 0 aeth(02 1)
        > SEND_ONLY 1 1000 a
        > SEND_ONLY 2 1000 a
        < ACKNOWLEDGE 1 aeth(01 2)
        < ACKNOWLEDGE 2 aeth(00 3)
    """,
    "roce-mtu-256": """
        > RDMA_WRITE_FIRST 0 256 reth(+0 0x1234 1000)
        > RDMA_WRITE_MIDDLE 1 256
        > RDMA_WRITE_MIDDLE 2 256
        > RDMA_WRITE_LAST 3 232 a
        > SEND_FIRST 4 256
        > SEND_MIDDLE 5 256
        > SEND_LAST 6 88 a
        > RDMA_READ_REQUEST 7 a reth(+4096 0x1234 600)
        < ACKNOWLEDGE 3 aeth(01 1)
        < ACKNOWLEDGE 6 aeth(00 2)
        < RDMA_READ_RESPONSE_FIRST 7 256 aeth(00 3)
        < RDMA_READ_RESPONSE_MIDDLE 8 256
        < RDMA_READ_RESPONSE_LAST 9 88 aeth(00 3)
    """,
    "roce-psn-wrap": """
        > RDMA_WRITE_FIRST 0 4096 reth(+0 0x1234 16384)
        > RDMA_WRITE_MIDDLE 1 4096
        > RDMA_WRITE_MIDDLE 2 4096
        > RDMA_WRITE_LAST 3 4096 a
        < ACKNOWLEDGE 3 aeth(00 1)
        > RDMA_READ_REQUEST 4 a reth(+0 0x1234 5000)
        < RDMA_READ_RESPONSE_FIRST 4 4096 aeth(00 2)
        < RDMA_READ_RESPONSE_LAST 5 904 aeth(00 2)
    """,
    "roce-v6": """
        > SEND_ONLY 0 1000 a
        > RDMA_WRITE_FIRST 1 4096 reth(+64 0x1234 5000)
        > RDMA_WRITE_LAST 2 904 a
        < ACKNOWLEDGE 0 aeth(00 1)
        < ACKNOWLEDGE 2 aeth(00 2)
        > RDMA_READ_REQUEST 3 a reth(+64 0x1234 5000)
        > FETCH_ADD 5 a atomic_eth(+0 0x1234 0x5 0x0)
        < RDMA_READ_RESPONSE_FIRST 3 4096 aeth(00 3)
        < RDMA_READ_RESPONSE_LAST 4 904 aeth(00 3)
        < ATOMIC_ACKNOWLEDGE 5 aeth(00 4) atomic_ack_eth(0x0)
    """,
    "roce-uc-send": """
        > SEND_FIRST 0 4096
        > SEND_MIDDLE 1 4096
        > SEND_LAST 2 4096
    """,
    "roce-uc-send-imm": """
        > SEND_ONLY_WITH_IMMEDIATE 0 1000 imm(0xcafe)
        > SEND_FIRST 1 4096
        > SEND_LAST_WITH_IMMEDIATE 2 904 imm(0x7)
    """,
    "roce-uc-write": """
        > RDMA_WRITE_FIRST 0 4096 reth(+1024 0x1234 12288)
        > RDMA_WRITE_MIDDLE 1 4096
        > RDMA_WRITE_LAST 2 4096
    """,
    "roce-uc-write-imm": """
        > RDMA_WRITE_ONLY_WITH_IMMEDIATE 0 1000 reth(+0 0x1234 1000) imm(0xcafe)
        > RDMA_WRITE_FIRST 1 4096 reth(+4096 0x1234 5000)
        > RDMA_WRITE_LAST_WITH_IMMEDIATE 2 904 imm(0x7)
    """,
    "roce-ud-send": f"""
        > SEND_ONLY 0 1000 {_DATAGRAM}
    """,
    "roce-ud-send-imm": f"""
        > SEND_ONLY_WITH_IMMEDIATE 0 4096 {_DATAGRAM} imm(0xcafe)
    """,
    "roce-ud-v6": f"""
        > SEND_ONLY 0 1000 {_DATAGRAM}
    """,
    "roce-ud-own-qkey": """
        > SEND_ONLY 0 1000 deth(0x33333333 0x11)
    """,
    # As it leaves, and at the two others
    "roce-ud-multicast": f"""
        > SEND_ONLY_WITH_IMMEDIATE 0 1000 qp=0xffffff {_DATAGRAM} imm(0x407)
        > SEND_ONLY_WITH_IMMEDIATE 0 1000 qp=0xffffff {_DATAGRAM} imm(0x407)
        > SEND_ONLY_WITH_IMMEDIATE 0 1000 qp=0xffffff {_DATAGRAM} imm(0x407)
    """,
    "roce-ud-multicast-v6": f"""
        > SEND_ONLY_WITH_IMMEDIATE 0 1000 qp=0xffffff {_DATAGRAM} imm(0x407)
        > SEND_ONLY_WITH_IMMEDIATE 0 1000 qp=0xffffff {_DATAGRAM} imm(0x407)
        > SEND_ONLY_WITH_IMMEDIATE 0 1000 qp=0xffffff {_DATAGRAM} imm(0x407)
    """,
    # What is lost, or comes too early --------------------------------------------------------------------------------
    "roce-fail-rnr": """
        > SEND_FIRST 0 4096
        > SEND_MIDDLE 1 4096
        > SEND_LAST 2 4096 a
        < ACKNOWLEDGE 0 aeth(2c 0)
        > SEND_FIRST 0 4096
        > SEND_MIDDLE 1 4096
        > SEND_LAST 2 4096 a
        < ACKNOWLEDGE 2 aeth(00 1)
    """,
    "roce-fail-rnr-retry": f"""
        > SEND_ONLY 0 1000 a
        > RDMA_WRITE_ONLY 1 1000 a {_WRITE}
        < ACKNOWLEDGE 0 aeth(21 0)
        > SEND_ONLY 0 1000 a
        > RDMA_WRITE_ONLY 1 1000 a {_WRITE}
        < ACKNOWLEDGE 0 aeth(21 0)
        > SEND_ONLY 0 1000 a
        > RDMA_WRITE_ONLY 1 1000 a {_WRITE}
        < ACKNOWLEDGE 0 aeth(21 0)
    """,
    "roce-fail-write-imm-rnr": """
        > RDMA_WRITE_FIRST 0 4096 reth(+0 0x1234 12288)
        > RDMA_WRITE_MIDDLE 1 4096
        > RDMA_WRITE_LAST_WITH_IMMEDIATE 2 4096 a imm(0x7)
        < ACKNOWLEDGE 2 aeth(2c 0)
        > RDMA_WRITE_LAST_WITH_IMMEDIATE 2 4096 a imm(0x7)
        < ACKNOWLEDGE 2 aeth(00 1)
    """,
    "roce-fail-sequence": """
        > RDMA_WRITE_FIRST 0 4096 reth(+0 0x1234 20480)
        > RDMA_WRITE_MIDDLE 1 4096 lost
        > RDMA_WRITE_MIDDLE 2 4096
        > RDMA_WRITE_MIDDLE 3 4096
        > RDMA_WRITE_LAST 4 4096 a
        < ACKNOWLEDGE 1 aeth(60 0)
        > RDMA_WRITE_MIDDLE 1 4096
        > RDMA_WRITE_MIDDLE 2 4096
        > RDMA_WRITE_MIDDLE 3 4096
        > RDMA_WRITE_LAST 4 4096 a
        < ACKNOWLEDGE 4 aeth(00 1)
    """,
    "roce-fail-last-lost": """
        > RDMA_WRITE_FIRST 0 4096 reth(+0 0x1234 12288)
        > RDMA_WRITE_MIDDLE 1 4096
        > RDMA_WRITE_LAST 2 4096 a lost
        > RDMA_WRITE_FIRST 0 4096 reth(+0 0x1234 12288)
        > RDMA_WRITE_MIDDLE 1 4096
        > RDMA_WRITE_LAST 2 4096 a
        < ACKNOWLEDGE 1 aeth(00 0)
        < ACKNOWLEDGE 1 aeth(00 0)
        < ACKNOWLEDGE 2 aeth(00 1)
    """,
    "roce-fail-icrc": """
        > RDMA_WRITE_ONLY 0 4096 a reth(+0 0x1234 4096) damaged
        > RDMA_WRITE_ONLY 0 4096 a reth(+0 0x1234 4096)
        < ACKNOWLEDGE 0 aeth(00 1)
    """,
    "roce-fail-ack-lost": f"""
        > RDMA_WRITE_ONLY 0 1000 a {_WRITE}
        < ACKNOWLEDGE 0 aeth(00 1) lost
        > RDMA_WRITE_ONLY 0 1000 a {_WRITE}
        < ACKNOWLEDGE 0 aeth(00 1)
    """,
    "roce-fail-nak-lost": """
        > RDMA_WRITE_MIDDLE 1 4096
        < ACKNOWLEDGE 0 aeth(60 0) lost
        > RDMA_WRITE_LAST 2 4096 a
        > RDMA_WRITE_FIRST 0 4096 reth(+0 0x1234 12288)
        > RDMA_WRITE_MIDDLE 1 4096
        > RDMA_WRITE_LAST 2 4096 a
        < ACKNOWLEDGE 2 aeth(00 1)
    """,
    "roce-fail-read-lost": """
        > RDMA_READ_REQUEST 0 a reth(+0 0x1234 16384)
        < RDMA_READ_RESPONSE_FIRST 0 4096 aeth(00 1)
        < RDMA_READ_RESPONSE_MIDDLE 1 4096 lost
        < RDMA_READ_RESPONSE_MIDDLE 2 4096
        < RDMA_READ_RESPONSE_LAST 3 4096 aeth(00 1)
        > RDMA_READ_REQUEST 1 a reth(+4096 0x1234 12288)
        < RDMA_READ_RESPONSE_FIRST 1 4096 aeth(00 1)
        < RDMA_READ_RESPONSE_MIDDLE 2 4096
        < RDMA_READ_RESPONSE_LAST 3 4096 aeth(00 1)
    """,
    "roce-fail-response-lost": """
        > RDMA_READ_REQUEST 0 a reth(+0 0x1234 1000)
        < RDMA_READ_RESPONSE_ONLY 0 1000 aeth(00 1) lost
        > RDMA_READ_REQUEST 0 a reth(+0 0x1234 1000)
        < RDMA_READ_RESPONSE_ONLY 0 1000 aeth(00 1)
    """,
    "roce-fail-forgotten": """
        > RDMA_READ_REQUEST 0 a reth(+0 0x1234 1000)
        < RDMA_READ_RESPONSE_ONLY 0 1000 aeth(00 1) lost
        > RDMA_READ_REQUEST 1 a reth(+1000 0x1234 1000)
        < RDMA_READ_RESPONSE_ONLY 1 1000 aeth(00 2)
        > RDMA_READ_REQUEST 0 a reth(+0 0x1234 1000)
        > RDMA_READ_REQUEST 1 a reth(+1000 0x1234 1000)
        < RDMA_READ_RESPONSE_ONLY 1 1000 aeth(00 2)
    """,
    "roce-fail-reordered": """
        > RDMA_WRITE_FIRST 0 4096 reth(+0 0x1234 12288)
        > RDMA_WRITE_MIDDLE 1 4096
        > RDMA_WRITE_LAST 2 4096 a
        < ACKNOWLEDGE 0 aeth(60 0)
        > RDMA_WRITE_FIRST 0 4096 reth(+0 0x1234 12288)
        > RDMA_WRITE_MIDDLE 1 4096
        > RDMA_WRITE_LAST 2 4096 a
        < ACKNOWLEDGE 1 aeth(60 0)
        > RDMA_WRITE_MIDDLE 1 4096
        > RDMA_WRITE_LAST 2 4096 a
        < ACKNOWLEDGE 0 aeth(00 0)
        < ACKNOWLEDGE 2 aeth(00 1)
        < ACKNOWLEDGE 2 aeth(00 1)
        < ACKNOWLEDGE 2 aeth(00 1)
    """,
    "roce-fail-atomic-lost": """
        > FETCH_ADD 0 a atomic_eth(+8 0x1234 0x5 0x0)
        < ATOMIC_ACKNOWLEDGE 0 aeth(00 1) atomic_ack_eth(0x707070707070707) lost
        > FETCH_ADD 0 a atomic_eth(+8 0x1234 0x5 0x0)
        < ATOMIC_ACKNOWLEDGE 0 aeth(00 1) atomic_ack_eth(0x707070707070707)
    """,
    "roce-fail-implied": """
        > FETCH_ADD 0 a atomic_eth(+8 0x1234 0x5 0x0)
        < ATOMIC_ACKNOWLEDGE 0 aeth(00 1) atomic_ack_eth(0x707070707070707) lost
        > RDMA_WRITE_ONLY 1 1000 a reth(+64 0x1234 1000)
        < ACKNOWLEDGE 1 aeth(00 2)
        > FETCH_ADD 0 a atomic_eth(+8 0x1234 0x5 0x0)
        < ATOMIC_ACKNOWLEDGE 0 aeth(00 2) atomic_ack_eth(0x707070707070707)
        > RDMA_WRITE_ONLY 1 1000 a reth(+64 0x1234 1000)
        < ACKNOWLEDGE 1 aeth(00 2)
    """,
    "roce-fail-retry": f"""
        > RDMA_WRITE_ONLY 0 1000 a {_WRITE} lost
        > RDMA_WRITE_ONLY 0 1000 a {_WRITE} lost
        > RDMA_WRITE_ONLY 0 1000 a {_WRITE} lost
    """,
    # What is refused --------------------------------------------------------------------------------------------------
    "roce-fail-key": """
        > RDMA_WRITE_ONLY 0 1000 a reth(+0 0x9999 1000)
        < ACKNOWLEDGE 0 aeth(62 0)
    """,
    "roce-fail-range": """
        > RDMA_WRITE_FIRST 0 4096 reth(+11385 0x1234 5000)
        > RDMA_WRITE_LAST 1 904 a
        < ACKNOWLEDGE 0 aeth(62 0)
    """,
    "roce-fail-right": f"""
        > RDMA_READ_REQUEST 0 a reth(+0 0x1234 1000)
        > RDMA_WRITE_ONLY 1 1000 a {_WRITE}
        < RDMA_READ_RESPONSE_ONLY 0 1000 aeth(00 1)
        < ACKNOWLEDGE 1 aeth(62 1)
    """,
    "roce-fail-domain": f"""
        > RDMA_WRITE_ONLY 0 1000 a {_WRITE}
        < ACKNOWLEDGE 0 aeth(62 0)
    """,
    "roce-fail-invalidated": """
        > SEND_ONLY_WITH_INVALIDATE 0 64 a ieth(0x1234)
        > RDMA_READ_REQUEST 1 a reth(+0 0x1234 1000)
        < ACKNOWLEDGE 0 aeth(00 1)
        < ACKNOWLEDGE 1 aeth(62 1)
    """,
    "roce-fail-deregistered": """
        > RDMA_READ_REQUEST 0 a reth(+0 0x1234 1000)
        < RDMA_READ_RESPONSE_ONLY 0 1000 aeth(00 1)
        > RDMA_READ_REQUEST 1 a reth(+0 0x1234 1000)
        < ACKNOWLEDGE 1 aeth(62 1)
    """,
    "roce-fail-qp-right": f"""
        > RDMA_READ_REQUEST 0 a reth(+0 0x1234 1000)
        > RDMA_WRITE_ONLY 1 1000 a {_WRITE}
        < RDMA_READ_RESPONSE_ONLY 0 1000 aeth(00 1)
        < ACKNOWLEDGE 1 aeth(61 1)
    """,
    "roce-fail-resources": """
        > RDMA_READ_REQUEST 0 a reth(+0 0x1234 1000)
        < ACKNOWLEDGE 0 aeth(61 0)
    """,
    "roce-fail-unaligned": """
        > FETCH_ADD 0 a atomic_eth(+4 0x1234 0x5 0x0)
        < ACKNOWLEDGE 0 aeth(61 0)
    """,
    "roce-fail-too-long": """
        > SEND_FIRST 0 4096
        > SEND_MIDDLE 1 4096
        > SEND_LAST 2 4096 a
        < ACKNOWLEDGE 1 aeth(61 0)
    """,
    "roce-fail-receive-key": """
        > SEND_ONLY 0 1000 a
        < ACKNOWLEDGE 0 aeth(63 0)
    """,
    "roce-fail-gather-key": f"""
        > RDMA_WRITE_ONLY 0 1000 a {_WRITE}
        < ACKNOWLEDGE 0 aeth(01 1)
    """,
    "roce-fail-p-key": f"""
        > RDMA_WRITE_ONLY 0 1000 a {_WRITE}
        > RDMA_WRITE_ONLY 0 1000 a {_WRITE}
    """,
    "roce-fail-state": f"""
        > RDMA_WRITE_ONLY 0 1000 a {_WRITE}
        > RDMA_WRITE_ONLY 0 1000 a {_WRITE}
    """,
    "roce-fail-flush": f"""
        > RDMA_WRITE_ONLY 0 1000 a reth(+0 0x9999 1000)
        > RDMA_WRITE_ONLY 1 1000 a {_WRITE}
        > RDMA_READ_REQUEST 2 a reth(+0 0x1234 1000)
        > SEND_ONLY 3 1000 a
        < ACKNOWLEDGE 0 aeth(62 0)
    """,
    # What is dropped on UC and UD -------------------------------------------------------------------------------------
    "roce-fail-uc-lost": """
        > SEND_FIRST 0 4096
        > SEND_MIDDLE 1 4096 lost
        > SEND_LAST 2 4096
        > SEND_ONLY 3 1000
    """,
    "roce-fail-uc-write-lost": """
        > RDMA_WRITE_FIRST 0 4096 reth(+0 0x1234 12288)
        > RDMA_WRITE_MIDDLE 1 4096 lost
        > RDMA_WRITE_LAST 2 4096
        > RDMA_WRITE_ONLY 3 1000 reth(+16384 0x1234 1000)
    """,
    "roce-fail-uc-no-receive": """
        > SEND_FIRST 0 4096
        > SEND_LAST 1 904
        > SEND_ONLY 2 1000
    """,
    "roce-fail-uc-too-long": """
        > SEND_FIRST 0 4096
        > SEND_LAST 1 904
        > SEND_ONLY 2 1000
    """,
    "roce-fail-uc-key": """
        > RDMA_WRITE_FIRST 0 4096 reth(+0 0x9999 5000)
        > RDMA_WRITE_LAST 1 904
        > RDMA_WRITE_FIRST 2 4096 reth(+0 0x1234 5000)
        > RDMA_WRITE_LAST 3 904
    """,
    "roce-fail-ud-too-long": f"""
        > SEND_ONLY 0 961 {_DATAGRAM}
        > SEND_ONLY 1 960 {_DATAGRAM}
    """,
    "roce-fail-ud-qkey": f"""
        > SEND_ONLY 0 1000 deth(0x22222222 0x11)
        > SEND_ONLY 1 800 {_DATAGRAM}
    """,
    "roce-fail-ud-p-key": f"""
        > SEND_ONLY 0 1000 {_DATAGRAM}
    """,
    "roce-fail-ud-no-receive": f"""
        > SEND_ONLY 0 1000 {_DATAGRAM}
        > SEND_ONLY 1 800 {_DATAGRAM}
    """,
}
