# SPDX-License-Identifier: GPL-2.0-only
"""This module has the neighbours of an aggregation node: the hosts that are its children, its parent, which is an
aggregation node, and the other child of the parent, a host.

Each of them has an address, an adapter (HCA) and an engine of ours. Frames between two of them do not leave.
"""

from collections.abc import Callable, Mapping
from ipaddress import ip_address
from operator import itemgetter
from typing import Any, ClassVar

from uetproto.engine.contract import Engine
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.hca import Hca
from uetproto.engine.sharp.carriers.station import SharpStation
from uetproto.engine.sharp.contract import Element, OutgoingMessage
from uetproto.engine.sharp.host.endpoint import SharpHost
from uetproto.engine.sharp.host.work import (
    Aggregate,
    AggregateDone,
    AggregateFailed,
    Attachment,
    GroupFailed,
    GroupJoined,
    JoinGroup,
    LeaveGroup,
)
from uetproto.engine.sharp.management import Quota
from uetproto.engine.sharp.messages import FLAGS_AT
from uetproto.engine.sharp.node.aggregation_node import SharpNode
from uetproto.engine.sharp.options import SharpOptions
from uetproto.framing.framer import Framer
from uetproto.framing.roce import RoceFramer
from uetproto.testing.adapters.adapter import WorkRefused
from uetproto.testing.adapters.engines import Config, EngineAdapter, Work
from uetproto.testing.adapters.sharp_node import TREES, carrier_of, connect, settings_of
from uetproto.wire.headers.sharp import Coll, Dtype, Flag, Op, SharpOpcode

_TO = slice(30, 34)
"""Place of the destination address in a frame over IPv4."""
_MOST_ROUNDS = 1000
"""Number of rounds in which neighbours may send to each other before time passes."""


class _Host(SharpHost):
    """A host that can send its requests once more."""

    def __init__(self, rank: int, config: Any, options: SharpOptions) -> None:
        super().__init__(rank, config, options)
        self.requests: list[OutgoingMessage] = []

    def poll(self, now: int) -> list[OutgoingMessage]:
        out = super().poll(now)
        self.requests += [message for message in out if message.data[1] == SharpOpcode.AGG_REQ]
        return out

    def again(self, back: int) -> bool:
        """Send an older request once more, with the flag RETX; return False if there is none."""
        if not self.requests:
            return False
        message = self.requests[-1 - back % len(self.requests)]
        data = bytearray(message.data)
        data[FLAGS_AT] |= Flag.RETX >> 8
        data[FLAGS_AT + 1] |= Flag.RETX & 0xFF
        self._out.append(message._replace(data=bytes(data)))
        return True


class _Neighbour:
    """This class has the engine of one neighbour, and its frames."""

    def __init__(self, address: str, element: Element, roce: RoceConfig, qp: Mapping[str, int]) -> None:
        self.address = int(ip_address(address))
        self.element = element
        self.hca = Hca(self.address, config=roce, ip_version=4)
        self.carrier = carrier_of(self.hca, element, qp)
        self.station = SharpStation(self.hca, self.carrier)
        self.framer = RoceFramer(self.address, 4, roce)
        self.due: int | None = 0
        """Time at which something may leave; None: only after something has arrived."""

    def leaving(self, now: int) -> list[bytes]:
        """Return the frames that leave."""
        if self.due is None or self.due > now:
            return []
        frames = [self.framer.frame(packet) for packet in self.station.poll(now)]
        self.due = self.station.deadline()
        return frames


class SharpNeighbours(EngineAdapter):
    """This class drives all neighbours of an aggregation node. Members are numbered by rank."""

    def make(self, config: Config) -> Engine:
        told = config["node"]
        roce, sharp = settings_of(told, config["knobs"])
        options = SharpOptions.of(config["options"])
        self.group_size, self.job_id = len(config["hosts"]), told["job_id"]
        self.neighbours: dict[bytes, _Neighbour] = {}
        self.hosts: list[_Host] = []
        self.attachments: list[dict[str, Attachment]] = []
        for rank, host in enumerate(config["hosts"]):
            element = _Host(rank, sharp, options)
            here = self._add(host["address"], element, roce, told["qp"])
            self.hosts.append(element)
            self.attachments.append({
                edge["type"]: Attachment(edge["tree_id"], connect(here.carrier, edge)) for edge in host["edges"]
            })  # fmt: skip
        if config["parent"] is not None:
            self._add_parent(config["parent"], told, roce)
        return next(iter(self.neighbours.values())).station

    def _add(self, address: str, element: Element, roce: RoceConfig, qp: Mapping[str, int]) -> _Neighbour:
        made = _Neighbour(address, element, roce, qp)
        self.neighbours[made.address.to_bytes(4, "big")] = made
        return made

    def _add_parent(self, parent: Mapping[str, Any], told: Mapping[str, Any], roce: RoceConfig) -> None:
        node = SharpNode(parent["an_id"], self.hosts[0].config)
        here = self._add(parent["address"], node, roce, told["qp"])
        for tree in parent["trees"]:
            edges = sorted(tree["children"], key=itemgetter("qp_num"))  # the order in which they are made
            children = {edge["child_idx"]: connect(here.carrier, edge) for edge in edges}
            node.set_tree(
                tree["tree_id"], mode=TREES.index(tree["type"]), llt_tree_id=tree["llt_tree_id"], parent=None,
                children=children, depth=tree["level"],
            )  # fmt: skip
            node.set_quota(Quota(told["job_id"], tree["tree_id"], is_root=True, **told["quota"]))

    def make_framer(self, config: Config) -> Framer:
        return next(iter(self.neighbours.values())).framer

    # What the hosts do

    def _join(self, work: Work) -> None:
        at = self.attachments[work["member"]]
        self.hosts[work["member"]].submit(JoinGroup(
            group_id=work["group"], job_id=self.job_id, group_size=self.group_size, llt=at["llt"], sat=at.get("sat")
        ), self.now)  # fmt: skip

    def _aggregate(self, work: Work) -> None:
        self.hosts[work["member"]].submit(Aggregate(
            op_id=work["id"], group_id=work["group"], coll=Coll[work["coll"]], op=Op[work["operation"]],
            dtype=Dtype[work["dtype"]], tag_dtype=Dtype[work["tag_dtype"]], data=bytes.fromhex(work["data"]),
            count=work["count"], root=work["root"], little_endian=work["little_endian"],
        ), self.now)  # fmt: skip

    def _leave(self, work: Work) -> None:
        self.hosts[work["member"]].submit(LeaveGroup(work["group"]), self.now)

    def _again(self, work: Work) -> None:
        if not self.hosts[work["member"]].again(work["back"]):
            raise WorkRefused("no request was sent")

    works: ClassVar[dict[str, Callable[[Any, Work], None]]] = {
        "join": _join, "aggregate": _aggregate, "leave": _leave, "again": _again,
    }  # fmt: skip

    # The adapter

    def deliver(self, frame: bytes) -> None:
        here = self.neighbours.get(frame[_TO])
        if here is not None:
            packet = here.framer.packet(frame)
            if packet is not None:
                here.station.receive(packet, self.now)
                here.due = self.now
        else:
            self.strays += 1

    def submit(self, work: Work) -> None:
        super().submit(work)
        for here in self.neighbours.values():
            here.due = self.now

    def reset(self, config: Config) -> None:
        self.strays = 0
        super().reset(config)

    def poll(self) -> list[bytes]:
        leaving: list[bytes] = []
        for _ in range(_MOST_ROUNDS):
            frames = [frame for here in self.neighbours.values() for frame in here.leaving(self.now)]
            inside = [frame for frame in frames if frame[_TO] in self.neighbours]
            leaving += [frame for frame in frames if frame[_TO] not in self.neighbours]
            for frame in inside:
                self.deliver(frame)
            if not inside:
                break
        return leaving

    @property
    def refused(self) -> int:
        framers = [here.framer for here in self.neighbours.values()]
        return self.strays + sum(each.bad_crc + each.bad_header + each.foreign for each in framers)

    def observe(self) -> dict[str, Any]:
        found = []
        for member, host in enumerate(self.hosts):
            for event in host.events():
                told: dict[str, Any] = {"member": member}
                match event:
                    case AggregateDone():
                        told |= {"event": "done", "id": event.op_id, "data": bytes(event.data).hex()}
                    case AggregateFailed():
                        told |= {"event": "failed", "id": event.op_id, "status": event.status.name}
                    case GroupJoined():
                        told |= {"event": "joined", "group": event.group_id}
                    case GroupFailed():
                        told |= {"event": "group_failed", "group": event.group_id, "status": event.status.name}
                    case _:
                        told |= {"event": "left", "group": event.group_id}
                found.append(told)
        return {"events": found, "state": {}}
