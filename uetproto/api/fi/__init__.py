# SPDX-License-Identifier: GPL-2.0-only
"""This package has the libfabric-shaped API over an emulated fabric: `from uetproto.api import fi`.

A program can open each object as with libfabric: a `Fabric`, a `Domain` at a node of the fabric, an address vector,
completion queues, and an endpoint, which is bound to the vector and the queues and then enabled::

    with fi.Fabric(capture="demo.pcapng") as fabric:
        domain = fabric.domain("a")
        av, cq = domain.av_open(), domain.cq_open()
        ep = domain.endpoint(msg_order=fi.Order.SAW)
        ep.bind(av)
        ep.bind(cq, fi.Flag.TRANSMIT | fi.Flag.RECV)
        ep.enable()

`fabric.endpoint` does all of this in one call, and inserts the addresses of all endpoints into each other's vectors::

    with fi.Fabric(capture="demo.pcapng") as fabric:
        a, b = fabric.endpoint("a"), fabric.endpoint("b")
        mr = b.domain.mr_reg(bytearray(4096))
        a.write(b"gradient", b.address, 0, mr.key, context="w")
        for entry in a.cq.sread(4):
            print(entry)

Nothing runs beside the program: virtual time advances only in `cq.sread`, `counter.wait` and `fabric.run`, and at the
end of the `with`, where packets in flight arrive. These calls also return when the only open operations are sends for
which no receive is posted; the program then posts the receive and calls again. A time is an integer, in picoseconds, or
a text such as "10 us".
"""

from uetproto.api.fi.address import Address, AddressFlag
from uetproto.api.fi.av import AddressVector
from uetproto.api.fi.cq import CompletionQueue, Counter, CqDataEntry, CqEntry, CqErrEntry, CqMsgEntry, CqTaggedEntry
from uetproto.api.fi.domain import Domain, Job
from uetproto.api.fi.endpoint import Endpoint, EpState
from uetproto.api.fi.errors import Errno, FiError, RetryClass
from uetproto.api.fi.fabric import Datatype, Fabric, Info, Op
from uetproto.api.fi.flags import ADDR_UNSPEC, CqFormat, EpType, FepCap, Flag, MrMode, Order
from uetproto.api.fi.memory import MemoryRegion, MrState
from uetproto.api.fi.node import NodeSpec
from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.engine.memory import FileMemory
from uetproto.framing.uet import Encapsulation
from uetproto.impair.faults import Faults
from uetproto.wire.headers.uet_ses import ReturnCode

__all__ = [
    "ADDR_UNSPEC", "Address", "AddressFlag", "AddressVector", "CompletionQueue", "Counter", "CqDataEntry", "CqEntry",
    "CqErrEntry", "CqFormat", "CqMsgEntry", "CqTaggedEntry", "Datatype", "Domain", "Encapsulation", "Endpoint",
    "EpState", "EpType", "Errno", "Fabric", "Faults", "FepCap", "FiError", "FileMemory", "Flag", "Info", "Job",
    "MemoryRegion", "MrMode", "MrState", "NodeSpec", "Op", "Order", "PdsConfig", "RetryClass", "ReturnCode",
    "SesConfig",
]  # fmt: skip
