# SPDX-License-Identifier: GPL-2.0-only
"""This module simulates two UET endpoints with congestion control, and checks the invariants of cms.md §10 beside those
of pds.md §18.

A run is a function of its settings and its steps (`steps.UetStep`). Both endpoints have the same parameters.
"""

from typing import Any

from uetproto.check.cc.invariants import Transmissions, cms_1_inflight
from uetproto.check.cc.watch import WatchedContexts
from uetproto.check.uet.simulator import UetSimulator
from uetproto.check.wire import ADDRESSES, DatagramWire
from uetproto.engine.cc.config import CcConfig
from uetproto.engine.contract import CongestionManager, Datagram, Rng, Trim
from uetproto.engine.pds.congestion import PacedRecord
from uetproto.engine.pds.messages import Ack, Request, parse
from uetproto.engine.pds.pdc import Pdc
from uetproto.errors import RemoteError
from uetproto.steps.uet import ACTIONS
from uetproto.wire.headers.uet_pds import CcType
from uetproto.wire.serial import diff32
from uetproto.wire.tuples import PdsCcStateNsccHeader

OVERHEAD = 200
"""Bytes of the nominal size of a packet beyond its headers of PDS and SES and its payload."""
SIZE = 300
"""Nominal size of a full packet at most, which is the MTU."""
_SERVICE_UNIT = 128_000


class CountingWire(DatagramWire):
    """This wire counts how often each request was sent. Copies of the network do not count."""

    __slots__ = ("_copies", "transmissions")

    def __init__(self) -> None:
        super().__init__()
        self.transmissions: dict[tuple[int, int, int], Transmissions] = {}
        """Maps {source, PDCID, PSN} to the transmissions of the request."""
        self._copies = False

    def send(self, packets: list[Datagram], now: int) -> None:
        super().send(packets, now)
        for packet in () if self._copies else packets:
            message = packet.message or parse(bytes(packet.header))
            if isinstance(message, Request):
                key = packet.src, message.spdcid, message.psn
                before = self.transmissions.get(key) if message.retx else None
                self.transmissions[key] = Transmissions(1 if before is None else before.times + 1, now)

    def copy(self, number: int) -> int | None:
        self._copies = True
        try:
            return super().copy(number)
        finally:
            self._copies = False


class CcSimulator(UetSimulator, actions=ACTIONS):
    """This simulator has the endpoints 0 and 1 with congestion control, the wire between them, and the virtual time."""

    __slots__ = ("_counting", "_known", "_received", "cc", "managers")

    def __init__(
        self, draws: int = 0, knobs: tuple[dict[str, Any], dict[str, Any]] = ({}, {}), cc: dict[str, Any] | None = None,
        received: int = 0, *, objects: bool = False, mtu: int | None = None,
    ) -> None:  # fmt: skip
        """`cc` has fields of `CcConfig`, and `received` is the rcvd_bytes with which every PDC begins, in units of 256
        bytes, so that it may wrap. The other arguments are those of `UetSimulator`.

        Raises `LocalError` for settings that exclude each other.
        """
        self.cc = CcConfig(**{"mtu": SIZE, "mss": SIZE - OVERHEAD // 2} | (cc or {}))
        self._received = received
        self.managers: dict[int, WatchedContexts] = {}
        self._known: set[Pdc] = set()
        """PDCs whose rcvd_bytes was set."""
        self._counting = CountingWire()
        super().__init__(draws, knobs, objects=objects, mtu=mtu, wire=self._counting)

    def congestion(self, node: int, rng: Rng) -> CongestionManager:
        manager = WatchedContexts(self.cc, rng, ADDRESSES[node], OVERHEAD, SIZE, self._received)
        other = self.managers.get(1 - node)
        if other is not None:
            manager.other, other.other = other, manager
        self.managers[node] = manager
        return manager

    def settle(self, node: int) -> None:
        super().settle(node)
        pdcs = self.monitors[node].pds.pdcs.values()
        for pdc in pdcs:
            if pdc not in self._known:
                self._known.add(pdc)
                pdc.rcvd_bytes = self._received
        for context in self.managers[node].watched():
            if context.nscc is None:
                continue
            ours = [pdc for pdc in pdcs if pdc.cc is context]
            records = [one for pdc in ours for one in pdc.tx.records.values()]
            # What an ACK has reported since the last look is in `landed`.
            records += [one for pdc in ours for one in pdc.tx.landed or () if one.psn not in pdc.tx.records]
            paced = [one for one in records if isinstance(one, PacedRecord)]
            flying = sum(one.size for one in paced if one.flying and not one.reported)
            unanswered = sum(one.size for one in paced if one.dst_rcvd and not one.flying)
            gap = any(diff32(pdc.highest_acked, pdc.tx.peer_cack) > 0 for pdc in ours)
            cms_1_inflight(context, flying, unanswered, len(ours), gap)

    def _receive(self, node: int, packet: Datagram) -> None:
        context = self._named(node, packet)
        super()._receive(node, packet)
        if context is not None:
            context.named = None

    def _named(self, node: int, packet: Datagram) -> Any:
        """Tell the context of an ACK what the wire has seen of the packet that the ACK names; return the context."""
        if packet.trimmed is not Trim.NO:
            return None
        try:
            message = packet.message or parse(bytes(packet.header), packet.trimmed)
        except RemoteError:
            return None
        pdc = self.monitors[node].pds.pdcs.get(message.dpdcid) if isinstance(message, Ack) else None
        if pdc is None or not isinstance(message, Ack):
            return None
        context = self.managers[node].contexts.get((pdc.peer, pdc.mode))
        if context is not None:
            context.named = self._counting.transmissions.get((ADDRESSES[node], pdc.local_id, message.ack_psn))
            context.retx = message.retx
            context.service = 0
            if message.cc_state and message.cc_type == CcType.NSCC:
                context.service = PdsCcStateNsccHeader.read(message.cc_state).service_time * _SERVICE_UNIT
        return context
