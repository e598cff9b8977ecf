"""This module has flags, orders, modes and formats of libfabric, without the prefix FI_ (rdma/fabric.h, fi_domain.h).

`FI_DELIVERY_COMPLETE` is `Flag.DELIVERY_COMPLETE`, `FI_ORDER_SAS` is `Order.SAS`, `FI_MR_LOCAL` is `MrMode.LOCAL`.
"""

from enum import IntEnum, IntFlag

ADDR_UNSPEC = (1 << 64) - 1
"""FI_ADDR_UNSPEC: any source."""


class Flag(IntFlag):
    """Flags of operations, flags of completions and counters, and the rights to access a region have one enum, as in
    libfabric."""

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
    """This flag has no effect: no packet waits for later operations."""
    FENCE = 1 << 21
    """This operation and all later operations wait until all earlier operations to the peer are done."""
    COMPLETION = 1 << 24
    """Asks for an entry, even if the queue is bound with SELECTIVE_COMPLETION."""
    INJECT = 1 << 25
    """Copies the bytes: the buffer may change when the call returns."""
    INJECT_COMPLETE = 1 << 26
    """Completes when the program may change the buffer; here this is not earlier than with TRANSMIT_COMPLETE."""
    TRANSMIT_COMPLETE = 1 << 27
    """Completes when every packet is acknowledged and the semantic answer is known; the default (ses.md §13.1)."""
    DELIVERY_COMPLETE = 1 << 28
    """Completes when the effect can be seen at the target: dc = 1 (ses.md §13.2)."""
    MATCH_COMPLETE = 1 << 31
    """Completes a send when a receive has matched the message; here this holds for every send."""
    RMA_EVENT = 1 << 56
    """Registers a region that is enabled later, after a counter was bound."""
    SELECTIVE_COMPLETION = 1 << 59


class Order(IntFlag):
    """These are the bits of msg_order: any of them selects ordered delivery, ROD (ses.md §13.4)."""

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
    """Names types of endpoints."""

    DGRAM = 2
    """Sends unreliable datagrams: UUD."""
    RDM = 3
    """Sends reliably, without connections: RUD, ROD, RUDI."""


class MrMode(IntFlag):
    """Names modes of memory registration, mr_mode of a domain."""

    NONE = 0
    LOCAL = 1 << 2
    """Requires that local buffers of operations are registered, too."""
    VIRT_ADDR = 1 << 4
    """Peers address a region from its base address on; without the flag, from 0 on."""
    PROV_KEY = 1 << 6
    """Ignores requested keys: all keys are assigned here."""
    ENDPOINT = 1 << 9
    """Requires that a region is bound to an endpoint and enabled."""


class CqFormat(IntEnum):
    """These are the formats of the entries of a completion queue; each has the fields of the format before it, and
    more."""

    CONTEXT = 1
    MSG = 2
    DATA = 3
    TAGGED = 4


class FepCap(IntFlag):
    """These are the bits of fep_cap, the capabilities of a fabric endpoint (ses.md §2.3)."""

    AI_BASE = 1 << 0
    AI_FULL = 1 << 1
    HPC = 1 << 2
    REORDER = 1 << 6
    OPTIMIZED = 1 << 7
    """Accepts optimized non-matching headers."""
