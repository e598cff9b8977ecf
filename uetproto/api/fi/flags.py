"""Flags, orders, modes and formats: names and numbers of libfabric without the prefix FI_ (rdma/fabric.h, fi_domain.h).

`FI_DELIVERY_COMPLETE` is `Flag.DELIVERY_COMPLETE`, `FI_ORDER_SAS` is `Order.SAS`, `FI_MR_LOCAL` is `MrMode.LOCAL`.
"""

from enum import IntEnum, IntFlag

ADDR_UNSPEC = (1 << 64) - 1
"""FI_ADDR_UNSPEC: any source."""


class Flag(IntFlag):
    """What an operation is, in completions and counters; how it is to be done; access to a region."""

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
    """Accepted; packets are not held back for it."""
    FENCE = 1 << 21
    """This operation, and those after it, wait until all before it to the peer are done."""
    COMPLETION = 1 << 24
    """An entry is wanted although the queue is bound with SELECTIVE_COMPLETION."""
    INJECT = 1 << 25
    """The bytes are copied: the buffer may change when the call returns."""
    INJECT_COMPLETE = 1 << 26
    """The buffer may change at the completion; here that is as late as with TRANSMIT_COMPLETE."""
    TRANSMIT_COMPLETE = 1 << 27
    """The default: every packet is acknowledged and the semantic answer is known (ses.md §13.1)."""
    DELIVERY_COMPLETE = 1 << 28
    """dc = 1: the answer comes when the effect can be seen (ses.md §13.2)."""
    MATCH_COMPLETE = 1 << 31
    """Of sends: a receive has matched; here a send that is held completes no earlier in any case."""
    RMA_EVENT = 1 << 56
    """Of a registration: it is enabled later, after a counter was bound."""
    SELECTIVE_COMPLETION = 1 << 59


class Order(IntFlag):
    """msg_order: any bit makes operations go in order, ROD (ses.md §13.4)."""

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
    """Endpoint types."""

    DGRAM = 2
    """Unreliable datagrams: UUD."""
    RDM = 3
    """Reliable, without connections: RUD, ROD, RUDI."""


class MrMode(IntFlag):
    """mr_mode of a domain."""

    NONE = 0
    LOCAL = 1 << 2
    """Local buffers of operations must be registered, too."""
    VIRT_ADDR = 1 << 4
    """Peers address a region by its base address; without it from 0."""
    PROV_KEY = 1 << 6
    """A requested key is ignored: all are assigned here."""
    ENDPOINT = 1 << 9
    """A region must be bound to an endpoint and enabled."""


class CqFormat(IntEnum):
    """What the entries of a completion queue tell: each format adds to the one before."""

    CONTEXT = 1
    MSG = 2
    DATA = 3
    TAGGED = 4


class FepCap(IntFlag):
    """fep_cap: what a fabric endpoint can (ses.md §2.3)."""

    AI_BASE = 1 << 0
    AI_FULL = 1 << 1
    HPC = 1 << 2
    REORDER = 1 << 6
    OPTIMIZED = 1 << 7
    """It accepts optimized non-matching headers."""
