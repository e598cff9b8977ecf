# SPDX-License-Identifier: GPL-2.0-only
"""This module holds the two layouts of `imm` in multicast broadcast and all-gather (collectives.md §3.10.1).

No field says that an `imm` has one of these layouts. `decode` therefore uses the layouts only on request
(`mcast=True`).
"""

from enum import IntEnum

from uetproto.wire.fields import Field as F
from uetproto.wire.fields import Header

FIN_OWNER = 0xDEAD


class RingType(IntEnum):
    """This code names the message that a rank sends to a neighbour on the recovery ring."""

    NEED_FETCH = 0
    FIN = 1


MCAST = Header("mcast", "Multicast chunk", "collectives.md §3.10.1", 4, (
    F(24, "chunk_id",                             doc="owner times chunks of a block, and the chunk in it"),
    F( 8, "task_id",                              doc="operation, modulo 256"),
))  # fmt: skip

RING = Header("mcast.ring", "Multicast recovery ring", "collectives.md §3.10.1", 4, (
    F(29, "owner",                                doc="rank whose block is missing; FIN: 0xdead"),
    F( 3, "type",                 RingType),
))  # fmt: skip

HEADERS = (MCAST, RING)
