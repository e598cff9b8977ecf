# SPDX-License-Identifier: GPL-2.0-only
"""Ladders L12 to L30 of pds.md §19, which follow from the rules of its other sections."""

from tests.support.ladders.play import ladder


def test_l12_establishment() -> None:
    """pds.md §19: establishment, RUD, the second packet is the first to arrive."""
    ladder("ladder-L12", """
        A REQ 7>? psn 100000 clear 99999 coff -1 retx 0 ar 0 syn 1 poff 0 | SEND mid 1
        A REQ 7>? psn 100001 clear 99999 coff -2 retx 0 ar 0 syn 1 poff 1 | SEND mid 1
        A REQ 7>? psn 100002 clear 99999 coff -3 retx 0 ar 1 syn 1 poff 2 | SEND mid 1
        A: state CREATING
        B rx REQ 100001
        B ACK_CC 3>7 ack 100001 cack 99999 off +2 req NONE retx 0 m 0 mpr 8 soff +0 sack 0x5 | DEFAULT OK mid 1
        B: state ESTABLISHED start 100000 cack 99999
        B rx REQ 100000
        B: cack 100001
        A rx ACK_CC 100001
        A: state ESTABLISHED una 100000 clear 99999
        A REQ 7>3 psn 100003 clear 99999 coff -4 retx 0 ar 1 syn 0 | SEND mid 2
        copy of REQ 100000
        B rx REQ 100000
        B: dup_no_retx 1 pdcs 1
        B rx REQ 100003
        B ACK_CC 3>7 ack 100003 cack 100001 off +2 req NONE retx 0 m 0 mpr 8 soff +0 sack 0x5 | DEFAULT OK mid 2
        B: cack 100001
        B rx REQ 100002
        B ACK 3>7 ack 100002 cack 100003 off -1 req NONE retx 0 m 0 | DEFAULT OK mid 1
        B: delivered 4 cack 100003
        A rx ACK_CC 100003
        A rx ACK 100002
        A: answered 4 una 100004 clear 100003
    """)  # fmt: skip


def test_l13_no_pdc_is_free() -> None:
    """pds.md §19: no PDC is free when the first SYN packet arrives."""
    ladder("ladder-L13", """
        A REQ 7>? psn 100000 clear 99999 coff -1 retx 0 ar 1 syn 1 poff 0 | SEND mid 1
        A: state CREATING
        B REQ 1>? psn 1419473697 clear 1419473696 coff -1 retx 0 ar 1 syn 1 poff 0 | SEND mid 2
        B ROD_REQ 2>? psn 1342200649 clear 1342200648 coff -1 retx 0 ar 1 syn 1 poff 0 | SEND mid 3
        A rx REQ 1419473697
        A ACK 1>1 ack 1419473697 cack 1419473697 off +0 req NONE retx 0 m 0 | DEFAULT OK mid 2
        A rx ROD_REQ 1342200649
        A ACK 2>2 ack 1342200649 cack 1342200649 off +0 req NONE retx 0 m 0 | DEFAULT OK mid 3
        B rx ACK 1419473697
        B rx ACK 1342200649
        B rx REQ 100000
        B NACK 0>7 NO_PDC_AVAIL psn 100000 payload 0 retx 0 m 0
        B: pdcs 2 delivered 0
        A rx NACK 100000
        A: state CREATING una 100000
        B CLOSE_CMD 1>1 psn 1419473698 payload 0 retx 0 ar 1 isrod 0 syn 0
        B CLOSE_CMD 2>2 psn 1342200650 payload 0 retx 0 ar 1 isrod 1 syn 0
        A rx CLOSE_CMD 1419473698
        A ACK 1>1 ack 1419473698 cack 1419473698 off +0 req NONE retx 0 m 0
        A rx CLOSE_CMD 1342200650
        A ACK 2>2 ack 1342200650 cack 1342200650 off +0 req NONE retx 0 m 0
        B rx ACK 1419473698
        B rx ACK 1342200650
        at 1 ms
        A REQ 7>? psn 100000 clear 99999 coff -1 retx 1 ar 1 syn 1 poff 0 | SEND mid 1
        B rx REQ 100000
        B ACK 3>7 ack 100000 cack 100000 off +0 req NONE retx 1 m 0 | DEFAULT OK mid 1
        B: pdcs 1 delivered 1
        A rx ACK 100000
        A: state ESTABLISHED answered 1 clear 100000
    """)  # fmt: skip


def test_l14_secure_start() -> None:
    """pds.md §19: secure start, A uses 5000, B demands 9000."""
    ladder("ladder-L14", """
        A REQ 7>? psn 5000 clear 4999 coff -1 retx 0 ar 0 syn 1 poff 0 | SEND mid 1
        A REQ 7>? psn 5001 clear 4999 coff -2 retx 0 ar 1 syn 1 poff 1 | SEND mid 1
        A: state CREATING
        B rx REQ 5000
        B NACK 3>7 NEW_START_PSN psn 5000 payload 9000 retx 0 m 0
        B: state PENDING delivered 0
        B rx REQ 5001
        B NACK 3>7 NEW_START_PSN psn 5001 payload 9000 retx 0 m 0
        B: state PENDING delivered 0
        A rx NACK 5000
        A REQ 7>? psn 9000 clear 8999 coff -1 retx 0 ar 0 syn 1 poff 0 | SEND mid 1
        A REQ 7>? psn 9001 clear 8999 coff -2 retx 0 ar 1 syn 1 poff 1 | SEND mid 1
        A: state CREATING una 9000 next 9002 clear 8999 peer_cack 8999
        A rx NACK 5001
        A: una 9000 next 9002
        B rx REQ 9000
        B ACK 3>7 ack 9000 cack 9000 off +0 req NONE retx 0 m 0 | DEFAULT OK mid 1
        B: state ESTABLISHED delivered 1 cack 9000
        B rx REQ 9001
        B ACK 3>7 ack 9001 cack 9001 off +0 req NONE retx 0 m 0 | DEFAULT OK mid 1
        B: delivered 2 cack 9001 new_pdc_timeout_cnt 0
        A rx ACK 9000
        A rx ACK 9001
        A: state ESTABLISHED answered 2 clear 9001
    """)  # fmt: skip


def test_l15_read_data_in_the_ack() -> None:
    """pds.md §19: read data in the ACK."""
    ladder("ladder-L15", """
        A REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 1 syn 0 | READ mid 1
        B rx REQ 333
        B ACK_CC 3>7 ack 333 cack 332 off +1 req CLEAR retx 0 m 0 mpr 8 soff +0 sack 0x3 | W_DATA OK mid 0 read 1
        B: cack 332 stored 1
        A rx ACK_CC 333
        A: answered 1 clear 333
        at 1 ms
        A CLEAR_CMD 7>3 psn 0 payload 333 retx 0 ar 0 isrod 0 syn 0
        B rx CLEAR_CMD 333
        B: cack 333 stored 0
    """)  # fmt: skip


def test_l15b_read_data_in_the_ack_lost() -> None:
    """pds.md §19: the ACK with the read data is lost."""
    ladder("ladder-L15b", """
        A REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 1 syn 0 | READ mid 1
        B rx REQ 333
        B ACK_CC 3>7 ack 333 cack 332 off +1 req CLEAR retx 0 m 0 mpr 8 soff +0 sack 0x3 | W_DATA OK mid 0 read 1
        B: delivered 1 cack 332 stored 1
        lost ACK_CC 333
        at 1 ms
        A REQ 7>3 psn 333 clear 332 coff -1 retx 1 ar 1 syn 0 | READ mid 1
        B rx REQ 333
        B ACK_CC 3>7 ack 333 cack 332 off +1 req CLEAR retx 1 m 0 mpr 8 soff +0 sack 0x3 | W_DATA OK mid 0 read 1
        B: delivered 1 cack 332 stored 1
        A rx ACK_CC 333
        A: answered 1 clear 333
        at 2 ms
        A CLEAR_CMD 7>3 psn 0 payload 333 retx 0 ar 0 isrod 0 syn 0
        B rx CLEAR_CMD 333
        B: cack 333 stored 0
    """)  # fmt: skip


def test_l16_clear_cmd_lost() -> None:
    """pds.md §19: the CLEAR_CMD is lost."""
    ladder("ladder-L16", """
        A REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 1 syn 0 | SEND mid 1
        B rx REQ 333
        B ACK_CC 3>7 ack 333 cack 332 off +1 req CLEAR retx 0 m 0 mpr 8 soff +0 sack 0x3 | RESPONSE OK mid 1
        B: cack 332 stored 1
        A rx ACK_CC 333
        A: clear 333
        at 1 ms
        A CLEAR_CMD 7>3 psn 0 payload 333 retx 0 ar 0 isrod 0 syn 0
        A: clear 333
        lost CLEAR_CMD 333
        at 4 ms
        B CLEAR_REQ 3>7 psn 0 payload 333 retx 0 ar 0 isrod 0 syn 0
        A rx CLEAR_REQ 333
        A CLEAR_CMD 7>3 psn 0 payload 333 retx 0 ar 0 isrod 0 syn 0
        B rx CLEAR_CMD 333
        B: cack 333 stored 0
    """)  # fmt: skip


def test_l16b_clear_cmd_lost_and_a_request() -> None:
    """pds.md §19: the CLEAR_CMD is lost, a request carries the CLEAR."""
    ladder("ladder-L16b", """
        A REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 1 syn 0 | SEND mid 1
        B rx REQ 333
        B ACK_CC 3>7 ack 333 cack 332 off +1 req CLEAR retx 0 m 0 mpr 8 soff +0 sack 0x3 | RESPONSE OK mid 1
        B: cack 332 stored 1
        A rx ACK_CC 333
        A: clear 333
        at 1 ms
        A CLEAR_CMD 7>3 psn 0 payload 333 retx 0 ar 0 isrod 0 syn 0
        lost CLEAR_CMD 333
        A REQ 7>3 psn 334 clear 333 coff -1 retx 0 ar 1 syn 0 | SEND mid 2
        B rx REQ 334
        B ACK 3>7 ack 334 cack 334 off +0 req NONE retx 0 m 0 | DEFAULT OK mid 2
        B: delivered 2 cack 334 stored 0
        A rx ACK 334
        A: answered 2 clear 334
        at 11 ms
    """)  # fmt: skip


def test_l17_guaranteed_ack_lost() -> None:
    """pds.md §19: guaranteed response, ACK lost."""
    ladder("ladder-L17", """
        A REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 1 syn 0 | SEND mid 1
        B rx REQ 333
        B ACK_CC 3>7 ack 333 cack 332 off +1 req CLEAR retx 0 m 0 mpr 8 soff +0 sack 0x3 | RESPONSE OK mid 1
        B: cack 332 stored 1
        lost ACK_CC 333
        at 1 ms
        A REQ 7>3 psn 333 clear 332 coff -1 retx 1 ar 1 syn 0 | SEND mid 1
        B rx REQ 333
        B ACK_CC 3>7 ack 333 cack 332 off +1 req CLEAR retx 1 m 0 mpr 8 soff +0 sack 0x3 | RESPONSE OK mid 1
        B: delivered 1 cack 332 stored 1 dup_rx 1
        A rx ACK_CC 333
        A: answered 1 clear 333
        at 2 ms
        A CLEAR_CMD 7>3 psn 0 payload 333 retx 0 ar 0 isrod 0 syn 0
        B rx CLEAR_CMD 333
        B: cack 333 stored 0
    """)  # fmt: skip


def test_l18_rod_go_back_n() -> None:
    """pds.md §19: rOD, go-back-N."""
    ladder("ladder-L18", """
        A ROD_REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 1 syn 0 | SEND mid 1
        A ROD_REQ 7>3 psn 334 clear 332 coff -2 retx 0 ar 1 syn 0 | SEND mid 1
        A ROD_REQ 7>3 psn 335 clear 332 coff -3 retx 0 ar 1 syn 0 | SEND mid 1
        A ROD_REQ 7>3 psn 336 clear 332 coff -4 retx 0 ar 1 syn 0 | SEND mid 1
        lost ROD_REQ 334
        B rx ROD_REQ 333
        B ACK 3>7 ack 333 cack 333 off +0 req NONE retx 0 m 0 | DEFAULT OK mid 1
        B: cack 333
        B rx ROD_REQ 335
        B NACK 3>7 ROD_OOO psn 335 payload 334 retx 0 m 0
        B: delivered 1 cack 333
        B rx ROD_REQ 336
        B NACK 3>7 ROD_OOO psn 336 payload 334 retx 0 m 0
        B: delivered 1 cack 333
        A rx ACK 333
        A: una 334 clear 333
        A rx NACK 335
        A ROD_REQ 7>3 psn 334 clear 333 coff -1 retx 1 ar 1 syn 0 | SEND mid 1
        A ROD_REQ 7>3 psn 335 clear 333 coff -2 retx 1 ar 1 syn 0 | SEND mid 1
        A ROD_REQ 7>3 psn 336 clear 333 coff -3 retx 1 ar 1 syn 0 | SEND mid 1
        A rx NACK 336
        A: una 334 clear 333
        B rx ROD_REQ 334
        B ACK 3>7 ack 334 cack 334 off +0 req NONE retx 1 m 0 | DEFAULT OK mid 1
        B: delivered 2 cack 334
        B rx ROD_REQ 335
        B ACK 3>7 ack 335 cack 335 off +0 req NONE retx 1 m 0 | DEFAULT OK mid 1
        B rx ROD_REQ 336
        B ACK 3>7 ack 336 cack 336 off +0 req NONE retx 1 m 0 | DEFAULT OK mid 1
        B: delivered 4 cack 336
        A rx ACK 334
        A rx ACK 335
        A rx ACK 336
        A: answered 4 una 337 clear 336
    """)  # fmt: skip


def test_l19_sack_and_ack_req() -> None:
    """pds.md §19: sACK and ACK_REQ."""
    ladder("ladder-L19", """
        A REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 334 clear 332 coff -2 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 335 clear 332 coff -3 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 336 clear 332 coff -4 retx 0 ar 1 syn 0 | SEND mid 1
        B rx REQ 334
        B ACK_CC 3>7 ack 334 cack 332 off +2 req CLEAR retx 0 m 0 mpr 8 soff +0 sack 0x5 | RESPONSE OK mid 1
        B: cack 332 stored 1
        lost ACK_CC 334
        B rx REQ 335
        B rx REQ 336
        B ACK_CC 3>7 ack 336 cack 332 off +4 req NONE retx 0 m 0 mpr 8 soff +0 sack 0x1d | DEFAULT OK mid 1
        A rx ACK_CC 336
        A: answered 1 dst_rcvd 334,335 una 333 clear 332
        lost REQ 333
        at 1 ms
        A REQ 7>3 psn 333 clear 332 coff -1 retx 1 ar 1 syn 0 | SEND mid 1
        A ACK_REQ 7>3 psn 334 payload 1 retx 0 ar 1 isrod 0 syn 0
        A ACK_REQ 7>3 psn 335 payload 1 retx 0 ar 1 isrod 0 syn 0
        B rx REQ 333
        B ACK_CC 3>7 ack 333 cack 333 off +0 req NONE retx 1 m 0 mpr 8 soff +0 sack 0xf | DEFAULT OK mid 1
        B: cack 333 stored 1
        B rx ACK_REQ 334
        B ACK_CC 3>7 ack 334 cack 333 off +1 req CLEAR retx 0 m 0 mpr 8 soff +0 sack 0xf | RESPONSE OK mid 1
        B rx ACK_REQ 335
        B ACK_CC 3>7 ack 335 cack 333 off +2 req NONE retx 0 m 0 mpr 8 soff +0 sack 0xf | DEFAULT NULL mid 1
        A rx ACK_CC 333
        A rx ACK_CC 334
        A rx ACK_CC 335
        A: answered 4 una 337 clear 336 peer_cack 333
        at 2 ms
        A CLEAR_CMD 7>3 psn 0 payload 336 retx 0 ar 0 isrod 0 syn 0
        B rx CLEAR_CMD 336
        B: cack 336 stored 0 delivered 4
    """)  # fmt: skip


def test_l20_psn_wrap() -> None:
    """pds.md §19: the PSN wraps."""
    ladder("ladder-L20", """
        A REQ 7>3 psn 0xFFFFFFFE clear 0xFFFFFFFD coff -1 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 0xFFFFFFFF clear 0xFFFFFFFD coff -2 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 0 clear 0xFFFFFFFD coff -3 retx 0 ar 1 syn 0 | SEND mid 1
        A REQ 7>3 psn 1 clear 0xFFFFFFFD coff -4 retx 0 ar 1 syn 0 | SEND mid 2
        B rx REQ 0
        B ACK_CC 3>7 ack 0 cack 0xFFFFFFFD off +3 req NONE retx 0 m 0 mpr 8 soff +0 sack 0x9 | DEFAULT OK mid 1
        B: cack 0xFFFFFFFD
        B rx REQ 0xFFFFFFFE
        B rx REQ 0xFFFFFFFF
        B ACK 3>7 ack 0xFFFFFFFF cack 0 off -1 req NONE retx 0 m 0 | DEFAULT OK mid 1
        B: cack 0
        B rx REQ 1
        B ACK 3>7 ack 1 cack 1 off +0 req NONE retx 0 m 0 | DEFAULT OK mid 2
        B: cack 1
        A rx ACK_CC 0
        A rx ACK 0xFFFFFFFF
        A rx ACK 1
        A: answered 4 clear 1
        A REQ 7>3 psn 2 clear 1 coff -1 retx 0 ar 1 syn 0 | SEND mid 3
        B rx REQ 2
        B ACK 3>7 ack 2 cack 2 off +0 req NONE retx 0 m 0 | DEFAULT OK mid 3
        A rx ACK 2
        A: answered 5 una 3 clear 2
    """)  # fmt: skip


def test_l21_late_retransmission() -> None:
    """pds.md §19: a late retransmission."""
    ladder("ladder-L21", """
        A REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 334 clear 332 coff -2 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 335 clear 332 coff -3 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 336 clear 332 coff -4 retx 0 ar 1 syn 0 | SEND mid 1
        B rx REQ 333
        B rx REQ 334
        B rx REQ 335
        B rx REQ 336
        B ACK 3>7 ack 336 cack 336 off +0 req NONE retx 0 m 0 | DEFAULT OK mid 1
        B: delivered 4 cack 336
        at 1 ms
        A REQ 7>3 psn 333 clear 332 coff -1 retx 1 ar 1 syn 0 | SEND mid 1
        A REQ 7>3 psn 334 clear 332 coff -2 retx 1 ar 1 syn 0 | SEND mid 1
        A REQ 7>3 psn 335 clear 332 coff -3 retx 1 ar 1 syn 0 | SEND mid 1
        A REQ 7>3 psn 336 clear 332 coff -4 retx 1 ar 1 syn 0 | SEND mid 1
        A rx ACK 336
        A: answered 4 una 337 clear 336
        B rx REQ 334
        B ACK 3>7 ack 334 cack 336 off -2 req NONE retx 1 m 0 | DEFAULT NULL mid 1
        B: delivered 4 dup_rx 1 cack 336
        lost REQ 333
        lost REQ 335
        lost REQ 336
        A rx ACK 334
        A: answered 4 peer_cack 336 bad_ack 0
    """)  # fmt: skip


def test_l22_trimming() -> None:
    """pds.md §19: trimming."""
    ladder("ladder-L22", """
        A REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 1 syn 0 | SEND mid 1
        A REQ 7>3 psn 334 clear 332 coff -2 retx 0 ar 1 syn 0 | SEND mid 1
        B rx REQ 333
        B ACK 3>7 ack 333 cack 333 off +0 req NONE retx 0 m 0 | DEFAULT OK mid 1
        B: cack 333
        B rx REQ 334 trimmed
        B NACK 3>7 TRIMMED psn 334 payload 0 retx 0 m 0
        B: delivered 1 cack 333 trimmed_rx 1
        A rx ACK 333
        A: clear 333
        A rx NACK 334
        A REQ 7>3 psn 334 clear 333 coff -1 retx 1 ar 1 syn 0 | SEND mid 1
        B rx REQ 334
        B ACK 3>7 ack 334 cack 334 off +0 req NONE retx 1 m 0 | DEFAULT OK mid 1
        B: delivered 2 cack 334
        A rx ACK 334
        A: answered 2 clear 334
    """)  # fmt: skip


def test_l23_rto_exhaustion() -> None:
    """pds.md §19: nothing arrives, the RTO is exhausted."""
    ladder("ladder-L23", """
        A REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 334 clear 332 coff -2 retx 0 ar 1 syn 0 | SEND mid 1
        lost REQ 333
        lost REQ 334
        at 1 ms
        A REQ 7>3 psn 333 clear 332 coff -1 retx 1 ar 1 syn 0 | SEND mid 1
        A REQ 7>3 psn 334 clear 332 coff -2 retx 1 ar 1 syn 0 | SEND mid 1
        lost REQ 333
        lost REQ 334
        at 3 ms
        A REQ 7>3 psn 333 clear 332 coff -1 retx 1 ar 1 syn 0 | SEND mid 1
        A REQ 7>3 psn 334 clear 332 coff -2 retx 1 ar 1 syn 0 | SEND mid 1
        lost REQ 333
        lost REQ 334
        at 7 ms
        A REQ 7>3 psn 333 clear 332 coff -1 retx 1 ar 1 syn 0 | SEND mid 1
        A REQ 7>3 psn 334 clear 332 coff -2 retx 1 ar 1 syn 0 | SEND mid 1
        lost REQ 333
        lost REQ 334
        at 15 ms
        A REQ 7>3 psn 333 clear 332 coff -1 retx 1 ar 1 syn 0 | SEND mid 1
        A REQ 7>3 psn 334 clear 332 coff -2 retx 1 ar 1 syn 0 | SEND mid 1
        lost REQ 333
        lost REQ 334
        at 31 ms
        A REQ 7>3 psn 333 clear 332 coff -1 retx 1 ar 1 syn 0 | SEND mid 1
        A REQ 7>3 psn 334 clear 332 coff -2 retx 1 ar 1 syn 0 | SEND mid 1
        lost REQ 333
        lost REQ 334
        at 62.999999999 ms
        A: state ESTABLISHED failed 0 pdc_close_in_err 0
        at 63 ms
        A: state CLOSED failed 2 errors RTO_EXHAUSTED pdc_close_in_err 1 retx_rto 10
        at 1063 ms
    """)  # fmt: skip


def test_l25_normal_close() -> None:
    """pds.md §19: a normal close."""
    ladder("ladder-L25", """
        A CLOSE_CMD 7>3 psn 339 payload 0 retx 0 ar 1 isrod 0 syn 0
        A: state CLOSE_ACK_WAIT
        B rx CLOSE_CMD 339
        B ACK 3>7 ack 339 cack 339 off +0 req NONE retx 0 m 0
        B: state CLOSED
        A rx ACK 339
        A: state CLOSED errors - pdc_close_in_err 0
    """)  # fmt: skip


def test_l25b_close_clears() -> None:
    """pds.md §19: the close clears a guaranteed response."""
    ladder("ladder-L25b", """
        A REQ 7>3 psn 338 clear 337 coff -1 retx 0 ar 1 syn 0 | SEND mid 1
        B rx REQ 338
        B ACK_CC 3>7 ack 338 cack 337 off +1 req CLEAR retx 0 m 0 mpr 8 soff +0 sack 0x3 | RESPONSE OK mid 1
        B: cack 337 stored 1
        A rx ACK_CC 338
        A CLOSE_CMD 7>3 psn 339 payload 0 retx 0 ar 1 isrod 0 syn 0
        A: state CLOSE_ACK_WAIT
        B rx CLOSE_CMD 339
        B ACK 3>7 ack 339 cack 339 off +0 req NONE retx 0 m 0
        B: state CLOSED stored 0
        A rx ACK 339
        A: state CLOSED errors - pdc_close_in_err 0
    """)  # fmt: skip


def test_l26_target_requested_close() -> None:
    """pds.md §19: the target asks for the close, one message is open."""
    ladder("ladder-L26", """
        A REQ 7>3 psn 338 clear 337 coff -1 retx 0 ar 0 syn 0 | SEND mid 1
        B rx REQ 338
        B CLOSE_REQ 3>7 psn 51 payload 0 retx 0 ar 1 isrod 0 syn 0
        B: state QUIESCE
        A rx CLOSE_REQ 51
        A ACK 7>3 ack 51 cack 51 off +0 req NONE retx 0 m 0
        A: state QUIESCE
        B rx ACK 51
        B: state QUIESCE
        A REQ 7>3 psn 339 clear 337 coff -2 retx 0 ar 1 syn 0 | SEND mid 1
        A: state ACK_WAIT
        B rx REQ 339
        B ACK 3>7 ack 339 cack 339 off +0 req CLOSE retx 0 m 0 | DEFAULT OK mid 1
        A rx ACK 339
        A CLOSE_CMD 7>3 psn 340 payload 0 retx 0 ar 1 isrod 0 syn 0
        A: state CLOSE_ACK_WAIT
        B rx CLOSE_CMD 340
        B ACK 3>7 ack 340 cack 340 off +0 req NONE retx 0 m 0
        B: state CLOSED
        A rx ACK 340
        A: state CLOSED errors - pdc_close_in_err 0
    """)  # fmt: skip


def test_l27_closing_ack_lost() -> None:
    """pds.md §19: the closing ACK is lost, a tombstone repeats it."""
    ladder("ladder-L27", """
        A CLOSE_CMD 7>3 psn 339 payload 0 retx 0 ar 1 isrod 0 syn 0
        B rx CLOSE_CMD 339
        B ACK 3>7 ack 339 cack 339 off +0 req NONE retx 0 m 0
        B: state CLOSED pdcs 0
        lost ACK 339
        at 1 ms
        A CLOSE_CMD 7>3 psn 339 payload 0 retx 1 ar 1 isrod 0 syn 0
        B rx CLOSE_CMD 339
        B ACK 3>7 ack 339 cack 339 off +0 req NONE retx 1 m 0
        A rx ACK 339
        A: state CLOSED errors - pdc_close_in_err 0
    """)  # fmt: skip


def test_l27b_closing_ack_lost_no_tombstone() -> None:
    """pds.md §19: the closing ACK is lost, and the target has forgotten the PDC."""
    ladder("ladder-L27b", """
        A CLOSE_CMD 7>3 psn 339 payload 0 retx 0 ar 1 isrod 0 syn 0
        B rx CLOSE_CMD 339
        B ACK 3>7 ack 339 cack 339 off +0 req NONE retx 0 m 0
        B: state CLOSED pdcs 0
        lost ACK 339
        at 1 ms
        A CLOSE_CMD 7>3 psn 339 payload 0 retx 1 ar 1 isrod 0 syn 0
        B rx CLOSE_CMD 339
        B NACK 0>7 INV_DPDCID psn 339 payload 0 retx 1 m 0
        A rx NACK 339
        A: state CLOSED errors - pdc_close_in_err 0
    """)  # fmt: skip


def test_l28_fatal_nack() -> None:
    """pds.md §19: a fatal NACK, the target was restarted."""
    ladder("ladder-L28", """
        A REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 334 clear 332 coff -2 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 335 clear 332 coff -3 retx 0 ar 1 syn 0 | SEND mid 1
        lost REQ 333
        B rx REQ 334
        B rx REQ 335
        B ACK_CC 3>7 ack 335 cack 332 off +3 req NONE retx 0 m 0 mpr 8 soff +0 sack 0xd | DEFAULT OK mid 1
        B: cack 332
        A rx ACK_CC 335
        A: answered 1 dst_rcvd 334 una 333 clear 332
        B restarts
        A REQ 7>3 psn 336 clear 332 coff -4 retx 0 ar 1 syn 0 | SEND mid 2
        B rx REQ 336
        B NACK 0>7 INV_DPDCID psn 336 payload 0 retx 0 m 0
        B: pdcs 0
        A rx NACK 336
        A: state CLOSED answered 1 failed 3 errors NACK_FATAL
    """)  # fmt: skip


def test_l29_rudi_request_lost() -> None:
    """pds.md §19: rUDI, the request is lost."""
    ladder("ladder-L29", """
        A RUDI_REQ pkt_id 0xdead0001 retx 0 m 0 | WRITE mid 1
        lost RUDI_REQ 0xdead0001
        at 1 ms
        A RUDI_REQ pkt_id 0xdead0001 retx 1 m 0 | WRITE mid 1
        B rx RUDI_REQ 0xdead0001
        B RUDI_RESP pkt_id 0xdead0001 retx 1 m 0 | DEFAULT OK mid 1
        B: delivered 1 pdcs 0
        copy of RUDI_RESP 0xdead0001
        A rx RUDI_RESP 0xdead0001
        A: answered 1 rudi_late 0
        A rx RUDI_RESP 0xdead0001
        A: answered 1 rudi_late 1
    """)  # fmt: skip


def test_l29b_rudi_response_lost() -> None:
    """pds.md §19: rUDI, the response is lost."""
    ladder("ladder-L29b", """
        A RUDI_REQ pkt_id 0xdead0001 retx 0 m 0 | WRITE mid 1
        B rx RUDI_REQ 0xdead0001
        B RUDI_RESP pkt_id 0xdead0001 retx 0 m 0 | DEFAULT OK mid 1
        B: delivered 1
        lost RUDI_RESP 0xdead0001
        at 1 ms
        A RUDI_REQ pkt_id 0xdead0001 retx 1 m 0 | WRITE mid 1
        B rx RUDI_REQ 0xdead0001
        B RUDI_RESP pkt_id 0xdead0001 retx 1 m 0 | DEFAULT OK mid 1
        B: delivered 2
        A rx RUDI_RESP 0xdead0001
        A: answered 1 failed 0
    """)  # fmt: skip


def test_l24_mpr_moves_the_window() -> None:
    """pds.md §19: mpr moves the window of A, and B refuses what is ahead of its own."""

    def request(psn: int, clear: int) -> str:
        ar = int(psn == 2078)  # the last of the message
        return f"A REQ 7>3 psn {psn} clear {clear} coff {clear - psn} retx 0 ar {ar} syn 0 | SEND mid 1"

    def arrivals(first: int, last: int) -> list[str]:
        """One ACK for 50 packets."""
        rows = []
        for psn in range(first, last + 1):
            rows.append(f"B rx REQ {psn}")
            if psn % 50 == 0:
                sack = "0x10000001" if psn == 2050 else "0x1"  # 2078 is there already
                rows.append(
                    f"B ACK_CC 3>7 ack {psn} cack {psn} off +0 req NONE retx 0 m 0 mpr 1 soff +0 sack {sack}"
                    " | DEFAULT OK mid 1"
                )
        return rows

    ladder("ladder-L24", "\n".join((
        *(request(psn, 999) for psn in range(1000, 2024)),
        "A: una 1000 next 2024",
        *arrivals(1000, 1500),
        "B: cack 1500",
        "A rx ACK_CC 1500",
        "A: clear 1500 next 2024",  # up to 1628
        *arrivals(1501, 1950),
        "A rx ACK_CC 1950",
        *(request(psn, 1950) for psn in range(2024, 2079)),
        "A: clear 1950 next 2079",
        "A rx ACK_CC 1400",
        "A: clear 1950 next 2079",  # no change
        "B rx REQ 2078",
        "B ACK_CC 3>7 ack 2078 cack 1950 off +128 req NONE retx 0 m 0 mpr 1 soff +0 sack 0x1 | DEFAULT OK mid 1",
        "B: delivered 952 cack 1950",
        "B rx REQ 2079",
        "B NACK 3>7 PSN_OOR_WINDOW psn 2079 payload 0 retx 0 m 0",
        "B: delivered 952 cack 1950 oor_ahead 1",
        *arrivals(1951, 2023),
        *arrivals(2024, 2077),  # the gap below 2078, which had ar = 1, is closed
        "B ACK_CC 3>7 ack 2077 cack 2078 off -1 req NONE retx 0 m 0 mpr 1 soff +0 sack 0x1 | DEFAULT OK mid 1",
        "B: delivered 1079 cack 2078",
        *(f"lost ACK_CC {psn}" for psn in range(1000, 1500, 50)),
        *(f"lost ACK_CC {psn}" for psn in range(1550, 1950, 50)),
        "A rx ACK_CC 2078", "A rx NACK 2079", "A rx ACK_CC 2000", "A rx ACK_CC 2050", "A rx ACK_CC 2077",
        "A: una 2079 clear 2078 bad_nack 1",
    )))  # fmt: skip


REQUESTS_333_TO_460 = [
    f"A REQ 7>3 psn {psn} clear 332 coff {332 - psn} retx 0 ar {int(psn == 460)} syn 0 | SEND mid 1"
    for psn in range(333, 461)
]


def guaranteed(psn: int) -> list[str]:
    """The bitmap starts at CACK, and 64 PSNs higher after an ACK that did not reach `max_rcvd` (§8.5)."""
    base = 332 if psn <= 396 else 396
    sack = (1 << min(psn - base + 1, 64)) - 1
    columns = f"ack {psn} cack 332 off +{psn - 332} req CLEAR retx 0 m 0 mpr 1 soff +{base - 332} sack {sack:#x}"
    return [f"B rx REQ {psn}", f"B ACK_CC 3>7 {columns} | RESPONSE OK mid 1"]


def test_l30_a_full_window() -> None:
    """pds.md §19: guaranteed responses and a full window; a request carries the CLEAR."""
    ladder("ladder-L30", "\n".join((
        *REQUESTS_333_TO_460,
        *(row for psn in range(333, 461) for row in guaranteed(psn)),
        "B: stored 128 cack 332",
        *(f"A rx ACK_CC {psn}" for psn in range(333, 461)),
        "A: answered 128 una 461 clear 460 peer_cack 332 next 461",
        "A REQ 7>3 psn 461 clear 460 coff -1 retx 0 ar 1 syn 0 | SEND mid 2",
        "B rx REQ 461",
        "B ACK_CC 3>7 ack 461 cack 461 off +0 req NONE retx 0 m 0 mpr 1 soff +0 sack 0x1 | DEFAULT OK mid 2",
        "B: delivered 129 stored 0 cack 461 max_clear 460",
        "A rx ACK_CC 461",
        "A: answered 129 clear 461",
    )))  # fmt: skip


def test_l30b_a_full_window_and_no_request() -> None:
    """pds.md §19: with no request CLEAR_CMD."""
    ladder("ladder-L30b", "\n".join((
        *REQUESTS_333_TO_460,
        *(row for psn in range(333, 461) for row in guaranteed(psn)),
        *(f"A rx ACK_CC {psn}" for psn in range(333, 461)),
        "A: answered 128 una 461 clear 460 peer_cack 332",
        "at 1 ms",
        "A CLEAR_CMD 7>3 psn 0 payload 460 retx 0 ar 0 isrod 0 syn 0",
        "B rx CLEAR_CMD 460",
        "B: stored 0 cack 460 max_clear 460",
    )))  # fmt: skip
