# SPDX-License-Identifier: GPL-2.0-only
"""This module has the flags, orders, modes and formats of libfabric, without the prefix FI_ (rdma/fabric.h,
fi_domain.h).

`FI_DELIVERY_COMPLETE` is `Flag.DELIVERY_COMPLETE`, `FI_ORDER_SAS` is `Order.SAS`, and `FI_MR_LOCAL` is `MrMode.LOCAL`.
"""

from enum import IntEnum, IntFlag

ADDR_UNSPEC = (1 << 64) - 1
"""FI_ADDR_UNSPEC, which stands for any source, or for an unknown one."""


class Flag(IntFlag):
    """This enumeration has the flags of operations, of completions and of counters, and the rights to access a region,
    as in libfabric."""

    NONE = 0
    MSG = 1 << 1
    RMA = 1 << 2
    TAGGED = 1 << 3
    ATOMIC = 1 << 4
    READ = 1 << 8
    WRITE = 1 << 9
    RECV = 1 << 10
    SEND = 1 << 11
    TRANSMIT = SEND
    REMOTE_READ = 1 << 12
    REMOTE_WRITE = 1 << 13
    MULTI_RECV = 1 << 16
    REMOTE_CQ_DATA = 1 << 17
    MORE = 1 << 18
    """This flag has no effect, because no packet waits for later operations."""
    FENCE = 1 << 21
    """This flag makes this operation and all later operations to the peer wait until the earlier operations to the peer
    are done."""
    COMPLETION = 1 << 24
    """This flag asks for an entry in the completion queue, even if the queue is bound with SELECTIVE_COMPLETION."""
    INJECT = 1 << 25
    """This flag makes the call copy the bytes, so that the buffer may change when the call returns."""
    INJECT_COMPLETE = 1 << 26
    """This flag makes the operation complete when the program may change the buffer. In this emulator that is the same
    time as with TRANSMIT_COMPLETE."""
    TRANSMIT_COMPLETE = 1 << 27
    """This flag makes the operation complete when every packet is acknowledged and the semantic response is known. This
    is the default (ses.md §13.1)."""
    DELIVERY_COMPLETE = 1 << 28
    """This flag makes the operation complete when its effect can be seen at the target; the request carries dc = 1
    (ses.md §13.2)."""
    MATCH_COMPLETE = 1 << 31
    """This flag makes a send complete when a receive has matched the message. In this emulator every reliable send does
    so, with or without the flag."""
    RMA_EVENT = 1 << 56
    """This flag makes `mr_reg` leave the region disabled, so that a counter can be bound before the region is
    enabled."""
    SELECTIVE_COMPLETION = 1 << 59


class Order(IntFlag):
    """This enumeration names the bits of msg_order, any of which selects ordered delivery, ROD (ses.md §13.4)."""

    NONE = 0
    RAR = 1 << 0
    RAW = 1 << 1
    RAS = 1 << 2
    WAR = 1 << 3
    WAW = 1 << 4
    WAS = 1 << 5
    SAR = 1 << 6
    SAW = 1 << 7
    SAS = 1 << 8
    STRICT = 0x1FF
    RMA_RAR = 1 << 32
    RMA_RAW = 1 << 33
    RMA_WAR = 1 << 34
    RMA_WAW = 1 << 35
    ATOMIC_RAR = 1 << 36
    ATOMIC_RAW = 1 << 37
    ATOMIC_WAR = 1 << 38
    ATOMIC_WAW = 1 << 39


class EpType(IntEnum):
    """This enumeration names the types of endpoints."""

    DGRAM = 2
    """Type of endpoints that send unreliable datagrams, with the delivery mode UUD."""
    RDM = 3
    """Type of endpoints that send reliably and without connections, with the delivery modes RUD, ROD and RUDI."""


class MrMode(IntFlag):
    """This enumeration names the modes of memory registration, which are the mr_mode of a domain."""

    NONE = 0
    LOCAL = 1 << 2
    """This flag requires that the local buffers of operations are registered, too."""
    VIRT_ADDR = 1 << 4
    """With this flag, peers address the first byte of a region by the region's base address; without this flag, by
    0."""
    PROV_KEY = 1 << 6
    """This flag makes `mr_reg` ignore the requested key and assign one itself."""
    ENDPOINT = 1 << 9
    """This flag requires that a region is bound to an endpoint and then enabled before peers can reach it."""


class CqFormat(IntEnum):
    """This enumeration names the formats of completion queue entries; each format has the fields of the format before
    it, and further ones."""

    CONTEXT = 1
    MSG = 2
    DATA = 3
    TAGGED = 4


class FepCap(IntFlag):
    """This enumeration names the capabilities of a fabric endpoint, which are the bits of fep_cap (ses.md §2.3)."""

    AI_BASE = 1 << 0
    AI_FULL = 1 << 1
    HPC = 1 << 2
    REORDER = 1 << 6
    OPTIMIZED = 1 << 7
    """This flag says that the endpoint accepts optimized non-matching headers."""
