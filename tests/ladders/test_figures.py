# SPDX-License-Identifier: GPL-2.0-only
"""Ladders L1 to L11 of pds.md §19: the figures of the specification (UE 1.0.1 Fig 3-39, 3-75 to 3-84)."""

from tests.support.ladders.play import ladder


def test_l01_terms() -> None:
    """UE 1.0.1 Fig 3-39: the terms. No CLEAR_CMD when the response needs no clearing."""
    ladder("ladder-L01", """
        A REQ 7>3 psn 6290 clear 6289 coff -1 retx 0 ar 1 syn 0 | SEND mid 1
        B rx REQ 6290
        B ACK 3>7 ack 6290 cack 6290 off +0 req NONE retx 0 m 0 | DEFAULT OK mid 1
        B: cack 6290
        A rx ACK 6290
        A: answered 1 una 6291 clear 6290
        at 10 ms
    """)  # fmt: skip


def test_l02_single_packet() -> None:
    """UE 1.0.1 Fig 3-75: one packet, its response not guaranteed."""
    ladder("ladder-L02", """
        A REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 1 syn 0 | SEND mid 1
        B rx REQ 333
        B ACK 3>7 ack 333 cack 333 off +0 req NONE retx 0 m 0 | DEFAULT OK mid 1
        B: delivered 1 cack 333 stored 0
        A rx ACK 333
        A: answered 1 una 334 clear 333
    """)  # fmt: skip


def test_l03_single_packet_guaranteed() -> None:
    """UE 1.0.1 Fig 3-76: one packet, its response guaranteed."""
    ladder("ladder-L03", """
        A REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 1 syn 0 | SEND mid 1
        B rx REQ 333
        B ACK_CC 3>7 ack 333 cack 332 off +1 req CLEAR retx 0 m 0 mpr 8 soff +0 sack 0x3 | RESPONSE OK mid 1
        B: delivered 1 cack 332 stored 1
        A rx ACK_CC 333
        A: answered 1 una 334 clear 333
        at 1 ms
        A CLEAR_CMD 7>3 psn 0 payload 333 retx 0 ar 0 isrod 0 syn 0
        B rx CLEAR_CMD 333
        B: cack 333 stored 0
    """)  # fmt: skip


def test_l04_two_messages() -> None:
    """UE 1.0.1 Fig 3-77: two messages, no response guaranteed, one ACK per two packets."""
    ladder("ladder-L04", """
        A REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 334 clear 332 coff -2 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 335 clear 332 coff -3 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 336 clear 332 coff -4 retx 0 ar 0 syn 0 | SEND mid 1
        B rx REQ 334
        B ACK_CC 3>7 ack 334 cack 332 off +2 req NONE retx 0 m 0 mpr 8 soff +0 sack 0x5 | DEFAULT OK mid 1
        B: cack 332
        B rx REQ 333
        B: cack 334
        A rx ACK_CC 334
        A: answered 1 una 333 clear 332
        B rx REQ 336
        B ACK_CC 3>7 ack 336 cack 334 off +2 req NONE retx 0 m 0 mpr 8 soff +0 sack 0x5 | DEFAULT OK mid 1
        B: cack 334
        B rx REQ 335
        B: cack 336
        A REQ 7>3 psn 337 clear 332 coff -5 retx 0 ar 0 syn 0 | SEND mid 2
        A rx ACK_CC 336
        A: answered 3 una 335 clear 334
        A REQ 7>3 psn 338 clear 334 coff -4 retx 0 ar 0 syn 0 | SEND mid 2
        B rx REQ 337
        B ACK 3>7 ack 337 cack 337 off +0 req NONE retx 0 m 0 | DEFAULT OK mid 2
        B: cack 337
        A rx ACK 337
        A: answered 5 una 338 clear 337
        B rx REQ 338
        B: delivered 6 cack 338
    """)  # fmt: skip


def test_l05_guaranteed_then_not() -> None:
    """UE 1.0.1 Fig 3-78: a message whose responses are guaranteed, then one whose are not."""
    ladder("ladder-L05", """
        A REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 334 clear 332 coff -2 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 335 clear 332 coff -3 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 336 clear 332 coff -4 retx 0 ar 0 syn 0 | SEND mid 1
        B rx REQ 334
        B ACK_CC 3>7 ack 334 cack 332 off +2 req CLEAR retx 0 m 0 mpr 8 soff +0 sack 0x5 | RESPONSE OK mid 1
        B: stored 1 cack 332
        B rx REQ 333
        B ACK_CC 3>7 ack 333 cack 332 off +1 req CLEAR retx 0 m 0 mpr 8 soff +0 sack 0x7 | RESPONSE OK mid 1
        B: stored 2 cack 332
        B rx REQ 336
        B ACK_CC 3>7 ack 336 cack 332 off +4 req CLEAR retx 0 m 0 mpr 8 soff +0 sack 0x17 | RESPONSE OK mid 1
        B rx REQ 335
        B ACK_CC 3>7 ack 335 cack 332 off +3 req CLEAR retx 0 m 0 mpr 8 soff +0 sack 0x1f | RESPONSE OK mid 1
        B: stored 4 cack 332
        A rx ACK_CC 334
        A rx ACK_CC 333
        A: una 335 clear 334 peer_cack 332
        A REQ 7>3 psn 337 clear 334 coff -3 retx 0 ar 0 syn 0 | SEND mid 2
        A rx ACK_CC 336
        A rx ACK_CC 335
        A: answered 4 una 337 clear 336
        A REQ 7>3 psn 338 clear 336 coff -2 retx 0 ar 0 syn 0 | SEND mid 2
        B rx REQ 337
        B: delivered 5 stored 2 cack 334 max_clear 334
        B rx REQ 338
        B ACK 3>7 ack 338 cack 338 off +0 req NONE retx 0 m 0 | DEFAULT OK mid 2
        B: delivered 6 stored 0 cack 338 max_clear 336
        A rx ACK 338
        A: answered 6 clear 338
    """)  # fmt: skip


def test_l06_read_of_one_packet() -> None:
    """UE 1.0.1 Fig 3-79: a read of one packet, data in the return direction, standard header."""
    ladder("ladder-L06", """
        A REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 1 syn 0 | READ mid 1
        B rx REQ 333
        B ACK 3>7 ack 333 cack 333 off +0 req NONE retx 0 m 0 | DEFAULT OK mid 1
        B REQ 3>7 psn 48 clear 47 coff -1 retx 0 ar 1 syn 0 | W_DATA OK mid 1 read 1
        B: delivered 1 cack 333 stored 0
        A rx ACK 333
        A: answered 1 clear 333
        A rx REQ 48
        A ACK 7>3 ack 48 cack 48 off +0 req NONE retx 0 m 0 | DEFAULT OK mid 0
        A: delivered 1 cack 48 stored 0
        B rx ACK 48
        B: answered 1 una 49 clear 48
    """)  # fmt: skip


def test_l07_read_of_one_packet_small_header() -> None:
    """UE 1.0.1 Fig 3-80: a read of one packet, data in the return direction, small header."""
    ladder("ladder-L07", """
        A REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 1 syn 0 | READ
        B rx REQ 333
        B ACK 3>7 ack 333 cack 333 off +0 req NONE retx 0 m 0 | DEFAULT OK mid 0
        B REQ 3>7 psn 48 clear 47 coff -1 retx 0 ar 1 syn 0 | W_DATA OK psn 333
        B: cack 333 stored 0
        A rx ACK 333
        A: answered 1 clear 333
        A rx REQ 48
        A ACK 7>3 ack 48 cack 48 off +0 req NONE retx 0 m 0 | DEFAULT OK mid 0
        A: delivered 1 cack 48 stored 0
        B rx ACK 48
        B: answered 1 una 49 clear 48
    """)  # fmt: skip


def test_l08_read_of_three_packets() -> None:
    """UE 1.0.1 Fig 3-81: a read of three packets, and a write meanwhile."""
    ladder("ladder-L08", """
        A REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 0 syn 0 | READ mid 88
        A REQ 7>3 psn 334 clear 332 coff -2 retx 0 ar 0 syn 0 | READ mid 88
        A REQ 7>3 psn 335 clear 332 coff -3 retx 0 ar 1 syn 0 | READ mid 88
        B rx REQ 333
        B rx REQ 334
        B ACK 3>7 ack 334 cack 334 off +0 req NONE retx 0 m 0 | DEFAULT OK mid 88
        B: cack 334
        B rx REQ 335
        B ACK 3>7 ack 335 cack 335 off +0 req NONE retx 0 m 0 | DEFAULT OK mid 88
        B: cack 335 stored 0
        A rx ACK 334
        A rx ACK 335
        A: answered 3 una 336 clear 335
        A REQ 7>3 psn 336 clear 335 coff -1 retx 0 ar 1 syn 0 | WRITE mid 879
        B REQ 3>7 psn 48 clear 47 coff -1 retx 0 ar 0 syn 0 | W_DATA OK mid 1 read 88
        B REQ 3>7 psn 49 clear 47 coff -2 retx 0 ar 0 syn 0 | W_DATA OK mid 1 read 88
        B rx REQ 336
        B ACK 3>7 ack 336 cack 336 off +0 req NONE retx 0 m 0 | DEFAULT OK mid 879
        B: cack 336
        A rx REQ 48
        A: cack 48
        A rx REQ 49
        A ACK 7>3 ack 49 cack 49 off +0 req NONE retx 0 m 0 | DEFAULT OK mid 0
        A: cack 49
        B REQ 3>7 psn 50 clear 47 coff -3 retx 0 ar 1 syn 0 | W_DATA OK mid 1 read 88
        A rx REQ 50
        A ACK 7>3 ack 50 cack 50 off +0 req NONE retx 0 m 0 | DEFAULT OK mid 0
        A: delivered 3 cack 50
        B rx ACK 49
        B: answered 2 clear 49
        B rx ACK 50
        B: answered 3 una 51 clear 50
        A rx ACK 336
        A: answered 4 clear 336
    """)  # fmt: skip


def test_l09_nack() -> None:
    """UE 1.0.1 Fig 3-82: no packet buffer, PDS NACK."""
    ladder("ladder-L09", """
        A REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 1 syn 0 | SEND mid 14
        B rx REQ 333
        B NACK 3>7 NO_PKT_BUFFER psn 333 payload 0 retx 0 m 0
        B: delivered 0 cack 332
        A rx NACK 333
        A: una 333 clear 332
        at 1 ms
        A REQ 7>3 psn 333 clear 332 coff -1 retx 1 ar 1 syn 0 | SEND mid 14
        B rx REQ 333
        B ACK 3>7 ack 333 cack 333 off +0 req NONE retx 1 m 0 | DEFAULT OK mid 14
        B: delivered 1 cack 333
        A rx ACK 333
        A: answered 1 clear 333 retx_nack 1 retx_rto 0
    """)  # fmt: skip


def test_l09b_nack_lost() -> None:
    """UE 1.0.1 Fig 3-82: the NACK is lost, the RTO repeats the request."""
    ladder("ladder-L09b", """
        A REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 1 syn 0 | SEND mid 14
        B rx REQ 333
        B NACK 3>7 NO_PKT_BUFFER psn 333 payload 0 retx 0 m 0
        lost NACK 333
        at 1 ms
        A REQ 7>3 psn 333 clear 332 coff -1 retx 1 ar 1 syn 0 | SEND mid 14
        B rx REQ 333
        B ACK 3>7 ack 333 cack 333 off +0 req NONE retx 1 m 0 | DEFAULT OK mid 14
        B: delivered 1 cack 333
        A rx ACK 333
        A: answered 1 clear 333 retx_nack 0 retx_rto 1
    """)  # fmt: skip


def test_l09c_more_nacks_than_allowed() -> None:
    """UE 1.0.1 Fig 3-82: more NACKs than Max_NACK_Retx_Cnt, an error for SES."""
    ladder("ladder-L09c", """
        A REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 1 syn 0 | SEND mid 14
        B rx REQ 333
        B NACK 3>7 NO_PKT_BUFFER psn 333 payload 0 retx 0 m 0
        A rx NACK 333
        A: state CLOSED failed 1 errors NACK_EXHAUSTED pdc_close_in_err 1
        at 10 ms
    """)  # fmt: skip


def test_l10_request_lost() -> None:
    """UE 1.0.1 Fig 3-83: the request is lost."""
    ladder("ladder-L10", """
        A REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 1 syn 0 | SEND mid 24
        lost REQ 333
        at 1 ms
        A REQ 7>3 psn 333 clear 332 coff -1 retx 1 ar 1 syn 0 | SEND mid 24
        B rx REQ 333
        B ACK 3>7 ack 333 cack 333 off +0 req NONE retx 1 m 0 | DEFAULT OK mid 24
        B: delivered 1 cack 333
        A rx ACK 333
        A: answered 1 clear 333 retx_rto 1
    """)  # fmt: skip


def test_l11_ack_lost() -> None:
    """UE 1.0.1 Fig 3-84: the ACK is lost."""
    ladder("ladder-L11", """
        A REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 1 syn 0 | SEND mid 85
        B rx REQ 333
        B ACK 3>7 ack 333 cack 333 off +0 req NONE retx 0 m 0 | DEFAULT OK mid 85
        B: delivered 1 cack 333
        lost ACK 333
        at 1 ms
        A REQ 7>3 psn 333 clear 332 coff -1 retx 1 ar 1 syn 0 | SEND mid 85
        B rx REQ 333
        B ACK 3>7 ack 333 cack 333 off +0 req NONE retx 1 m 0 | DEFAULT NULL mid 85
        B: delivered 1 dup_rx 1 cack 333
        A rx ACK 333
        A: answered 1 clear 333
    """)  # fmt: skip
