# SPDX-License-Identifier: GPL-2.0-only
"""This module has the node of a fabric on a live link: one fabric endpoint of this host, driven by real time."""

import random
from dataclasses import replace
from typing import Any

from uetproto.api.fi.node import FiNode
from uetproto.api.node import NodePlace
from uetproto.engine.cc.config import CcConfig
from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.engine.contract import Close
from uetproto.engine.fep import Fep
from uetproto.engine.pds.states import Role
from uetproto.errors import LocalError
from uetproto.framing.sizes import UET_EXTENSION, ip_size
from uetproto.framing.tss import sealing_framer
from uetproto.framing.uet import Encapsulation, UetFramer
from uetproto.live.interface import Interface
from uetproto.live.path import PathSetup
from uetproto.live.rate import PeerRate, PeerRates, live_pds, live_ses, rto_for
from uetproto.live.time import counter_now
from uetproto.live.world import LiveWorld

_NOMINAL = 40
"""Number of bytes that the nominal size of a packet has beyond its UDP length (cms.md §1)."""


class LiveFabric(LiveWorld):
    """This class drives the fabric endpoint of a live link."""

    def __init__(
        self, name: str, interface: Interface, *, how: Encapsulation, pds: PdsConfig | None, ses: SesConfig, cc: str
    ) -> None:
        """Open the interface. `cc` is a congestion control algorithm or "off". Raises `LocalError` or `OSError` if a
        port, an address or a file is not to be had."""
        security = interface.security
        if interface.faults is not None and interface.faults.corrupt and not how.crc and security is None:
            raise LocalError(
                "faults.corrupt", "does not go without a CRC: nobody would notice", "crc = True", id="no-effect"
            )
        address = interface.address
        seed = random.SystemRandom().getrandbits(64) if interface.seed is None else interface.seed
        rng, version = random.Random(seed), address.version
        sealing = None if security is None else security.domain.overhead
        around = how.around(version, sealing=sealing)
        self._rates: PeerRates | None = None
        if cc != "off":
            overhead = around - ip_size(version) + _NOMINAL
            self._rates = PeerRates(rng, overhead=overhead, payload_mtu=ses.payload_mtu, algorithm=cc)
        self._asked = pds
        config, ses = live_pds(cc=cc != "off", base=pds), live_ses(ses)
        self.fep = Fep(int(address), rng, pds=config, ses=ses, ip_version=version, congestion=self._rates)
        # A peer may still hold PDCs of a program that had this address before; their PDCIDs would be refused.
        self.fep.pds.pool.next_id = 1 + rng.getrandbits(15)
        framer: UetFramer
        if security is None:
            framer = UetFramer(
                int(address), version, how, ecn_capable=config.ecn_capable, local_port=interface.local_port
            )  # fmt: skip
        else:
            framer = sealing_framer(
                security, next(iter(security.members)), int(address), version, how, now=lambda: self.clock.now,
                ecn_capable=config.ecn_capable, local_port=interface.local_port, counter=counter_now(),
            )  # fmt: skip
        setup = PathSetup(
            interface=interface, transport="uet", peer_port=how.udp_port if how.udp else None,
            ip_protocol=how.ip_protocol, lower_headers=framer.lower_headers,
        )  # fmt: skip
        node = FiNode(NodePlace(name, int(address), version), self.fep, config, ses)
        node.shares_address = interface.local_port not in (None, how.udp_port)
        self.fi_node = node
        longest = how.around(version, extension=UET_EXTENSION, sealing=sealing) + ses.payload_mtu
        super().__init__(node, setup, framer, needed=longest, finish=self._closes, dscp=how.dscp)
        if self._rates is not None:
            self._rates.made = self._state_window

    def learn(self, peer: int, rate: PeerRate) -> None:
        """Fit window and RTO of conversations that begin from now on to what was measured of a peer. Parameters that
        the program gave stay."""
        if self._rates is not None:
            self._rates.learn(peer, rate)
        if self._asked is None or self._asked.rto_init_time == PdsConfig().rto_init_time:
            pds = self.fep.pds
            pds.config = replace(pds.config, rto_init_time=rto_for(rate.rtt))

    def _state_window(self, peer: int, config: CcConfig) -> None:
        """State the parameters of the windows towards a peer in the capture, so that an audit can recompute them."""
        if self.recorder is not None:
            local = self.interface.address
            self.recorder.state(f"cc at={local},to={type(local)(peer)},{config.told}")

    @property
    def not_closed(self) -> int:
        """Return how many PDCs that this endpoint opened did not close in order: those that ended in an error, and, of
        a world that was closed, those that nobody acknowledged in time."""
        pds = self.fep.pds
        return pds.counters.pdc_close_in_err + sum(pdc.role is Role.INITIATOR for pdc in pds.pdcs.values())

    def _closes(self) -> list[Any]:
        """Return the work that closes the PDCs that this endpoint opened."""
        peers = {pdc.peer: None for pdc in self.fep.pds.pdcs.values() if pdc.role is Role.INITIATOR}
        return [Close(peer=peer) for peer in peers]
