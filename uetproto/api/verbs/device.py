# SPDX-License-Identifier: GPL-2.0-only
"""This module has devices and protection domains, and the asynchronous events of devices (roce.md §6, §10)."""

from collections import deque
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import ip_address
from itertools import count
from typing import Any

from uetproto.api.verbs.cq import CQ
from uetproto.api.verbs.errors import Errno, VerbsError, duration, instance, integer, invalid
from uetproto.api.verbs.memory import ALL, MR
from uetproto.api.verbs.node import VerbsNode
from uetproto.api.verbs.qp import QP, SRQ
from uetproto.api.verbs.report import NETWORK_PATHS, DataPaths
from uetproto.api.verbs.work import AH
from uetproto.engine.contract import EndpointDriver, Rng
from uetproto.engine.data_path import Path, PathConfig
from uetproto.engine.roce.contract import (
    Access,
    AddressVector,
    AsyncNotice,
    AsyncType,
    QpType,
    RoceEvent,
    WorkCompletion,
)
from uetproto.engine.roce.memory import MemoryKind
from uetproto.engine.roce.ud import group_of

_PAGE = 4096
_FIRST_ADDRESS = 0x2000_0000
"""Address of the first region of a device; each region begins on a page of its own."""


class EventType(IntEnum):
    """This enumeration names the types of asynchronous events (`ibv_event_type`)."""

    CQ_ERR = 0
    """A completion queue was full and lost a completion."""
    QP_FATAL = 1
    """The queue pair went to ERR after it sent a NAK Invalid Request or Remote Operational Error (0x61, 0x63)."""
    QP_ACCESS_ERR = 3
    """The queue pair went to ERR after it sent a NAK Remote Access Error (0x62)."""
    COMM_EST = 4
    """The first request arrived on a queue pair in the state RTR."""
    SQ_DRAINED = 5
    """All sends that began before the queue pair entered SQD are complete."""
    SRQ_LIMIT_REACHED = 15
    """A shared receive queue has fewer receives left than its limit."""


@dataclass(frozen=True, slots=True)
class AsyncEvent:
    """This record represents an asynchronous event (`ibv_async_event`)."""

    event_type: EventType
    element: QP | SRQ | CQ
    """Queue pair, shared receive queue or completion queue that the event concerns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAttr:
    """This record represents those attributes of a device and its port that have a meaning in this emulator
    (`ibv_device_attr`, `ibv_port_attr`)."""

    name: str
    gid: str
    """GID of the port, which is ::ffff:a.b.c.d over IPv4 (roce.md §1)."""
    active_mtu: int
    """Largest payload in bytes of a packet that the cable can carry."""
    active_speed: int
    """Rate of the cable in bits per second."""
    max_msg_sz: int
    max_qp_rd_atom: int
    max_qp_init_rd_atom: int
    pkeys: tuple[int, ...]


class Device:
    """This class represents the opened adapter of a node (`ibv_context`). `net.device(...)` returns one."""

    def __init__(
        self, driver: EndpointDriver, node: VerbsNode, data_paths: DataPaths, peers: dict[int, "Device"], psns: Rng
    ) -> None:
        self.driver = driver
        self.psns = psns
        """Generator of first PSNs."""
        self.node = node
        self.name = node.name
        self.hca = node.hca
        self.config = node.config
        self.peers = peers
        """Devices of the network, by address."""
        self.qps: dict[int, QP] = {}
        self.srqs: dict[int, SRQ] = {}
        self.mrs: dict[int, MR] = {}
        """Regions by lkey."""
        self.cqs: list[CQ] = []
        self.events: deque[AsyncEvent] = deque()
        """Asynchronous events that the program has not taken yet."""
        self.data_paths = data_paths
        self.nvlink = False
        """Whether the GPU reaches the NIC through another GPU, in the data path model."""
        self._data_path: Path | None = None
        self._path_config = PathConfig()
        self._tokens = count(1)
        self.next_address = _FIRST_ADDRESS
        """Address of the next region for which the program gives none."""
        node.listeners.append(self._handle)

    @property
    def gid(self) -> str:
        """Return the node's IP address as a GID."""
        text = str(ip_address(self.node.address))
        return f"::ffff:{text}" if self.node.ip_version == 4 else text

    @property
    def counters(self) -> dict[str, int]:
        """Return how many packets the adapter has dropped or retransmitted, by reason."""
        return dict(self.hca.counters)

    @property
    def data_path(self) -> Path | None:
        """Return the path that bytes take between GPU memory and the wire, or None if no path is modelled.
        `net.data_path_report()` returns the costs of the path."""
        return self._data_path

    @data_path.setter
    def data_path(self, path: Path | None) -> None:
        if path is not None and not (isinstance(path, Path) and path in NETWORK_PATHS):
            legal = ", ".join(f"Path.{one.name}" for one in NETWORK_PATHS)
            raise invalid("data_path", path, f"{legal}, None; `cost` reckons the paths of storage", id="unknown-name")
        self._data_path = path

    @property
    def path_config(self) -> PathConfig:
        """Return the latencies and bandwidths of the hops in the data path model."""
        return self._path_config

    @path_config.setter
    def path_config(self, config: PathConfig) -> None:
        instance("path_config", config, PathConfig, "PathConfig(...)")
        self._path_config = config

    def query(self) -> DeviceAttr:
        """`ibv_query_device` and `ibv_query_port` return the attributes of the device and its port."""
        config = self.config
        return DeviceAttr(
            name=self.name, gid=self.gid, active_mtu=self.node.max_path_mtu, active_speed=self.node.rate,
            max_msg_sz=config.max_message, max_qp_rd_atom=config.max_dest_rd_atomic,
            max_qp_init_rd_atom=config.max_rd_atomic, pkeys=self.hca.pkeys,
        )  # fmt: skip

    def alloc_pd(self) -> "PD":
        """`ibv_alloc_pd` returns a new protection domain."""
        self.check()
        return PD(self)

    def create_cq(self, depth: int = 4096, *, cq_context: Any = None) -> CQ:
        """`ibv_create_cq` returns a new completion queue for `depth` completions. Raises EINVAL for an illegal
        depth."""
        self.check()
        cq = CQ(self, depth, cq_context)
        self.cqs.append(cq)
        return cq

    def get_async_event(self, timeout: int | str | None = None) -> AsyncEvent | None:
        """`ibv_get_async_event` lets time pass until an event is there, and returns the oldest event, or None if no
        event comes.

        `timeout` is a number of picoseconds, or a text such as "1 ms"; with None the call waits until an event is there
        or nothing more can happen.
        """
        limit = None if timeout is None else duration("timeout", timeout)
        self.driver.wait(lambda: bool(self.events), limit)
        return self.events.popleft() if self.events else None

    # Calls of objects of the device

    def token(self) -> int:
        """Return a number for a work request. No other work request of this device gets this number."""
        return next(self._tokens)

    def check(self) -> None:
        """Raise EINVAL if the network is closed."""
        if self.driver.closed:
            raise invalid("network", "closed", "one that is open", id="closed")

    def address_of(self, name: str, given: Any) -> int:
        """Return the IP address of `given` as a number. `given` is a device, or an IPv4 address, IPv6 address or GID as
        text or number.

        Raises EINVAL for anything else; `name` is the argument's name in the error.
        """
        if isinstance(given, Device):
            return given.node.address
        version = self.node.ip_version
        try:
            if isinstance(given, bool | bytes):
                raise ValueError(given)
            found = ip_address(given)
        except ValueError:
            raise invalid(name, given, f"an address of IPv{version}, or a GID", id="wrong-address") from None
        address = group_of(int(found))
        is_ipv6 = found.version == 6 and address == int(found)  # a text says it, also of ::1
        if is_ipv6 != (version == 6):
            raise invalid(name, given, f"an address of IPv{version}, or its GID", id="wrong-address")
        return address

    def overran(self, cq: CQ) -> None:
        """Report by an asynchronous event that a completion queue is overrun, and change its queue pairs to ERR."""
        self._happened(EventType.CQ_ERR, cq)
        for qp in dict.fromkeys(cq.users):
            self.driver.call_soon(qp.fail)

    def _happened(self, kind: EventType, element: QP | SRQ | CQ) -> None:
        self.events.append(AsyncEvent(kind, element))
        self.driver.wake()

    def _handle(self, event: RoceEvent) -> None:
        match event:
            case WorkCompletion():
                self.qps[event.qp_num].completed(event)
            case AsyncNotice(type=AsyncType.SRQ_LIMIT_REACHED):
                self._happened(EventType.SRQ_LIMIT_REACHED, self.srqs[event.number])
            case AsyncNotice():
                self._happened(EventType[event.type.name], self.qps[event.number])


class PD:
    """This class represents a protection domain (`ibv_pd`). `device.alloc_pd()` makes one."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.handle = device.hca.alloc_pd()
        self.users: list[MR | QP | SRQ | AH] = []
        self.deallocated = False

    def reg_mr(
        self, memory: Any, access: Access = ALL, *, addr: int | None = None, kind: MemoryKind = MemoryKind.HOST,
        rkey: int | None = None,
    ) -> MR:  # fmt: skip
        """`ibv_reg_mr` registers a buffer, a `FileMemory` or any `Memory`, whose bytes are not copied.

        `access` are the rights of the region; by default it has all. `addr` is the virtual address of the first byte;
        with None the region begins on a page of its own. `kind` says for the data path model whether the memory is host
        or GPU memory. `rkey` is a key that the peer expects; with None the device chooses one. Raises EINVAL for an
        object that is no memory, for rights that read-only memory cannot give, for REMOTE_WRITE or REMOTE_ATOMIC
        without LOCAL_WRITE, and for a key that another region has.
        """
        self.check("pd")
        mr = MR(self, memory, access, self.device.next_address if addr is None else addr, kind, rkey)
        if addr is None:
            self.device.next_address += -(-max(mr.length, 1) // _PAGE) * _PAGE
        self.device.mrs[mr.lkey] = mr
        self.users.append(mr)
        return mr

    def create_srq(self, limit: int = 0, *, max_wr: int = 1 << 16) -> SRQ:
        """`ibv_create_srq` returns a new shared receive queue.

        The event SRQ_LIMIT_REACHED comes once, when fewer receives than `limit` are left; with 0 it never comes.
        """
        self.check("pd")
        srq = SRQ(self, limit, max_wr)
        self.users.append(srq)
        return srq

    def create_qp(
        self, qp_type: QpType, send_cq: CQ, recv_cq: CQ | None = None, srq: SRQ | None = None, *,
        max_send_wr: int = 1 << 16, max_recv_wr: int = 1 << 16, max_inline_data: int = 256, sq_sig_all: bool = False,
        qp_context: Any = None, qp_num: int | None = None,
    ) -> QP:  # fmt: skip
        """`ibv_create_qp` returns a new queue pair in RESET. `recv_cq` is `send_cq` by default. `qp_num` is a number
        that the peer expects; with None the device chooses one. Raises EINVAL for an illegal argument."""
        self.check("pd")
        return QP(
            self, qp_type, send_cq, send_cq if recv_cq is None else recv_cq, srq, max_send_wr=max_send_wr,
            max_recv_wr=max_recv_wr, max_inline_data=max_inline_data, sq_sig_all=sq_sig_all, qp_context=qp_context,
            qp_num=qp_num,
        )  # fmt: skip

    def create_ah(self, dst: "str | int | Device", *, flow_label: int = 0, hop_limit: int | None = None) -> AH:
        """`ibv_create_ah` returns a handle for a destination, which is an address, a GID, a device or a multicast
        group.

        `flow_label` is a number of 20 bits. The UDP source port is computed from it or, if it is 0, from the numbers of
        the queue pairs (roce.md §1).
        """
        self.check("pd")
        integer("flow_label", flow_label, 0, (1 << 20) - 1)
        if hop_limit is not None:
            integer("hop_limit", hop_limit, 1, 255)
        ah = AH(self, AddressVector(self.device.address_of("dst", dst), flow_label, hop_limit))
        self.users.append(ah)
        return ah

    def dealloc(self) -> None:
        """`ibv_dealloc_pd` deallocates the domain. Raises EBUSY while an object of the domain exists."""
        self.check("pd")
        if self.users:
            kinds = ", ".join(sorted({type(user).__name__ for user in self.users}))
            raise VerbsError(
                Errno.EBUSY, "pd", f"{len(self.users)} of {kinds} are in it", "destroy them first", id="in-use"
            )
        self.deallocated = True

    def check(self, name: str) -> None:
        """Raise EINVAL if the domain is deallocated or the network is closed."""
        if self.deallocated:
            raise invalid(name, "deallocated", "one that is not", id="closed")
        self.device.check()
