# SPDX-License-Identifier: GPL-2.0-only
"""Ladders of congestion control, of cms.md §13: what each packet carries, and what becomes of windows and credit."""

from tests.support.ladders.play import ladder


def test_c1_a_ce_mark_is_echoed() -> None:
    """cms.md §13: a CE mark is echoed."""
    ladder("ladder-C1", """
        A REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 334 clear 332 coff -2 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 335 clear 332 coff -3 retx 0 ar 1 syn 0 | SEND mid 1
        A: inflight 3396
        at 0.002 ms
        B rx REQ 333
        B rx REQ 334 CE
        B ACK_CC 3>7 ack 334 cack 334 off +0 req NONE retx 0 m 1 mpr 8 soff +0 sack 0x1
        | rcvd 9 service 0 ooo 0 | DEFAULT OK mid 1
        B rx REQ 335
        B ACK_CC 3>7 ack 335 cack 335 off +0 req NONE retx 0 m 0 mpr 8 soff +0 sack 0x1
        | rcvd 14 service 0 ooo 0 | DEFAULT OK mid 1
        at 0.004 ms
        A rx ACK_CC 334
        A: inflight 1092
        A rx ACK_CC 335
        A: inflight -188
    """)  # fmt: skip


def test_c2_service_time_and_ooo_count() -> None:
    """cms.md §13: service time and ooo_count."""
    ladder("ladder-C2", """
        A REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 334 clear 332 coff -2 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 335 clear 332 coff -3 retx 0 ar 1 syn 0 | SEND mid 1
        A: base_rtt 5000 cwnd 93750
        at 0.002 ms
        B rx REQ 335
        B rx REQ 334
        at 0.007 ms
        B ACK_CC 3>7 ack 335 cack 332 off +3 req NONE retx 0 m 0 mpr 8 soff +0 sack 0xd
        | rcvd 9 service 39 ooo 2 | DEFAULT OK mid 1
        B rx REQ 333
        B ACK_CC 3>7 ack 334 cack 335 off -1 req NONE retx 0 m 0 mpr 8 soff +0 sack 0x1
        | rcvd 14 service 39 ooo 0 | DEFAULT OK mid 1
        at 0.009 ms
        A rx ACK_CC 335
        A rx ACK_CC 334
        A: base_rtt 4008 cwnd 75150
    """)  # fmt: skip


def test_c3_credit_demand_and_grants() -> None:
    """cms.md §13: a first window, demand and grants."""
    ladder("ladder-C3", """
        A CC_REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 0 syn 0 | ccc 0 target 5 | SEND mid 1
        A CC_REQ 7>3 psn 334 clear 332 coff -2 retx 0 ar 0 syn 0 | ccc 0 target 9 | SEND mid 1
        A CC_REQ 7>3 psn 335 clear 332 coff -3 retx 0 ar 0 syn 0 | ccc 0 target 14 | SEND mid 1
        A CC_REQ 7>3 psn 336 clear 332 coff -4 retx 0 ar 1 syn 0 | ccc 0 target 18 | SEND mid 1
        A: credit -794 granted 0
        at 0.001 ms
        B rx CC_REQ 333
        B CREDIT 3>7 psn 0 payload 5 retx 0 ar 0 isrod 0 syn 0
        B rx CC_REQ 334
        B rx CC_REQ 335
        B rx CC_REQ 336
        B ACK_CC 3>7 ack 336 cack 336 off +0 req NONE retx 0 m 0 mpr 8 soff +0 sack 0x1
        | credit 5 ooo 0 | DEFAULT OK mid 1
        at 0.001413738 ms
        B CREDIT 3>7 psn 0 payload 18 retx 0 ar 0 isrod 0 syn 0
        at 0.002489456 ms
        B CREDIT 3>7 psn 0 payload 82 retx 0 ar 0 isrod 0 syn 0
        at 0.003 ms
        A rx CREDIT 5
        A CC_REQ 7>3 psn 337 clear 332 coff -5 retx 0 ar 1 syn 0 | ccc 0 target 21 | SEND mid 1
        A rx ACK_CC 336
        A rx CREDIT 18
        A CC_REQ 7>3 psn 338 clear 336 coff -2 retx 0 ar 0 syn 0 | ccc 0 target 21 | SEND mid 1
        A CC_REQ 7>3 psn 339 clear 336 coff -3 retx 0 ar 0 syn 0 | ccc 0 target 21 | SEND mid 1
        A CC_REQ 7>3 psn 340 clear 336 coff -4 retx 0 ar 1 syn 0 | ccc 0 target 21 | SEND mid 1
        A rx CREDIT 82
        A: credit 3750 granted 82
        at 0.004 ms
        B rx CC_REQ 337
        B ACK_CC 3>7 ack 337 cack 337 off +0 req NONE retx 0 m 0 mpr 8 soff +0 sack 0x1
        | credit 82 ooo 0 | DEFAULT OK mid 1
        B rx CC_REQ 338
        B rx CC_REQ 339
        B rx CC_REQ 340
        B ACK_CC 3>7 ack 340 cack 340 off +0 req NONE retx 0 m 0 mpr 8 soff +0 sack 0x1
        | credit 82 ooo 0 | DEFAULT OK mid 1
        at 0.005 ms
        A rx ACK_CC 337
        A rx ACK_CC 340
    """)  # fmt: skip


def test_c4_nack_trimmed_lasthop_with_credits() -> None:
    """cms.md §13: NACK TRIMMED_LASTHOP with credits."""
    ladder("ladder-C4", """
        A CC_REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 1 syn 0 | ccc 0 target 5 | SEND mid 1
        A CC_REQ 7>3 psn 334 clear 332 coff -2 retx 0 ar 1 syn 0 | ccc 0 target 5 | SEND mid 1
        A CC_REQ 7>3 psn 335 clear 332 coff -3 retx 0 ar 1 syn 0 | ccc 0 target 0 | SEND mid 1
        A: cwnd 3750 inflight 3408 credit 342
        at 0.0005 ms
        B rx CC_REQ 333
        B ACK_CC 3>7 ack 333 cack 333 off +0 req NONE retx 0 m 0 mpr 8 soff +0 sack 0x1
        | rcvd 5 service 0 ooo 0 | DEFAULT OK mid 1
        B CREDIT 3>7 psn 0 payload 5 retx 0 ar 0 isrod 0 syn 0
        B rx CC_REQ 334 trimmed
        B NACK 3>7 TRIMMED_LASTHOP psn 334 payload 0 retx 0 m 0
        at 0.0008 ms
        A rx CREDIT 5
        A: cwnd 3750 inflight 3408 credit 1280
        A rx NACK 334
        A CC_REQ 7>3 psn 334 clear 332 coff -2 retx 1 ar 1 syn 0 | ccc 0 target 5 | SEND mid 1
        A: cwnd 3750 inflight 3408 credit 144
        at 0.000913738 ms
        B CREDIT 3>7 psn 0 payload 69 retx 0 ar 0 isrod 0 syn 0
        at 0.0018 ms
        B rx CC_REQ 335
        B ACK_CC 3>7 ack 335 cack 333 off +2 req NONE retx 0 m 0 mpr 8 soff +0 sack 0x5
        | rcvd 9 service 0 ooo 1 | DEFAULT OK mid 1
        A rx ACK_CC 333
        B rx CC_REQ 334
        B ACK_CC 3>7 ack 334 cack 335 off -1 req NONE retx 1 m 0 mpr 8 soff +0 sack 0x1
        | rcvd 14 service 0 ooo 0 | DEFAULT OK mid 1
        A rx CREDIT 69
        A: cwnd 3750 inflight 2128 credit 3750
        at 0.0028 ms
        A rx ACK_CC 335
        A rx ACK_CC 334
        A: cwnd 3750 inflight -176 credit 3750
    """)  # fmt: skip


def test_c4b_nack_trimmed_with_credits() -> None:
    """cms.md §13: NACK TRIMMED with credits."""
    ladder("ladder-C4b", """
        A CC_REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 1 syn 0 | ccc 0 target 5 | SEND mid 1
        A CC_REQ 7>3 psn 334 clear 332 coff -2 retx 0 ar 1 syn 0 | ccc 0 target 5 | SEND mid 1
        A CC_REQ 7>3 psn 335 clear 332 coff -3 retx 0 ar 1 syn 0 | ccc 0 target 0 | SEND mid 1
        A: cwnd 3750 inflight 3408 credit 342
        at 0.0005 ms
        B rx CC_REQ 333
        B ACK_CC 3>7 ack 333 cack 333 off +0 req NONE retx 0 m 0 mpr 8 soff +0 sack 0x1
        | rcvd 5 service 0 ooo 0 | DEFAULT OK mid 1
        B CREDIT 3>7 psn 0 payload 5 retx 0 ar 0 isrod 0 syn 0
        B rx CC_REQ 334 trimmed
        B NACK 3>7 TRIMMED psn 334 payload 0 retx 0 m 0
        at 0.0008 ms
        A rx CREDIT 5
        A: cwnd 3750 inflight 3408 credit 1280
        A rx NACK 334
        A: cwnd 2614 inflight 2272 credit 1280
        at 0.000913738 ms
        B CREDIT 3>7 psn 0 payload 69 retx 0 ar 0 isrod 0 syn 0
        at 0.0018 ms
        B rx CC_REQ 335
        B ACK_CC 3>7 ack 335 cack 333 off +2 req NONE retx 0 m 0 mpr 8 soff +0 sack 0x5
        | rcvd 9 service 0 ooo 1 | DEFAULT OK mid 1
        A rx ACK_CC 333
        A CC_REQ 7>3 psn 334 clear 333 coff -1 retx 1 ar 1 syn 0 | ccc 0 target 5 | SEND mid 1
        A rx CREDIT 69
        A: cwnd 2663 inflight 2128 credit 3750
        at 0.0028 ms
        A rx ACK_CC 335
        B rx CC_REQ 334
        B ACK_CC 3>7 ack 334 cack 335 off -1 req NONE retx 1 m 0 mpr 8 soff +0 sack 0x1
        | rcvd 14 service 0 ooo 0 | DEFAULT OK mid 1
        A: cwnd 2702 inflight 1104 credit 3750
        at 0.0038 ms
        A rx ACK_CC 334
        A: cwnd 2749 inflight -176 credit 3750
    """)  # fmt: skip


def test_c5_a_penalty_halves_the_window_within_an_rtt() -> None:
    """cms.md §13: a penalty of 64 halves the window within an RTT."""
    ladder("ladder-C5", """
        A REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 334 clear 332 coff -2 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 335 clear 332 coff -3 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 336 clear 332 coff -4 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 337 clear 332 coff -5 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 338 clear 332 coff -6 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 339 clear 332 coff -7 retx 0 ar 0 syn 0 | SEND mid 1
        A REQ 7>3 psn 340 clear 332 coff -8 retx 0 ar 1 syn 0 | SEND mid 1
        A: cwnd 93750 inflight 9056
        at 0.005 ms
        B rx REQ 333
        B rx REQ 334
        B rx REQ 335
        B rx REQ 336
        B rx REQ 337
        B rx REQ 338
        B rx REQ 339
        B rx REQ 340
        B ACK_CC 3>7 ack 340 cack 340 off +0 req NONE retx 0 m 0 mpr 8 soff +0 sack 0x1
        | rcvd 36 service 0 ooo 0 | DEFAULT OK mid 1
        lost ACK_CC 340
        A rx ACK_CC 333
        A: cwnd 8486 inflight 7776
        A rx ACK_CC 334
        A: cwnd 7974 inflight 6752
        A rx ACK_CC 335
        A: cwnd 7334 inflight 5472
        A rx ACK_CC 336
        A: cwnd 6822 inflight 4448
        A rx ACK_CC 337
        A: cwnd 6182 inflight 3168
        A rx ACK_CC 338
        A: cwnd 5670 inflight 2144
        A rx ACK_CC 339
        A: cwnd 5158 inflight 1120
        A rx ACK_CC 340
        A: cwnd 4518 inflight -160
        A REQ 7>3 psn 341 clear 340 coff -1 retx 0 ar 1 syn 0 | SEND mid 2
        A: cwnd 4518 inflight 972
        at 0.01 ms
        B rx REQ 341
        B ACK_CC 3>7 ack 341 cack 341 off +0 req NONE retx 0 m 0 mpr 8 soff +0 sack 0x1
        | rcvd 40 service 0 ooo 0 | DEFAULT OK mid 2
        lost ACK_CC 341
        A rx ACK_CC 341
        A: cwnd 93750 inflight -52
    """)  # fmt: skip
