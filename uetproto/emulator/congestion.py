"""This module fits congestion control to a network: window, time-outs, and queues of switches (cms.md §7, §8)."""

import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property

from uetproto.emulator.network.layouts import Layout
from uetproto.emulator.network.queue import QueueRules
from uetproto.emulator.network.red import Red
from uetproto.engine.cc.config import CcConfig
from uetproto.engine.cc.registry import CongestionContexts
from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import MICROSECOND, SECOND, Rng
from uetproto.framing.sizes import ETHERNET_SIZE, UET_REQUEST, below_uet, ip_size
from uetproto.framing.uet import Encapsulation
from uetproto.wire.headers import uet_pds
from uetproto.wire.headers.uet_ses import RESPONSE

OFF = "off"
"""Name of no congestion control."""
PROFILES = ("recommended", "htsim")
"""How congestion control and switches behave: by the notes on UE, or as the UEC simulator does."""
NOMINAL = 40
"""Number of bytes that the nominal size of a packet has beyond its UDP length (cms.md §1)."""
DEEP = 5
"""Number of bandwidth-delay products that a queue holds without trimming (cms.md §7)."""
_ACK = uet_pds.ACK_CC.size + uet_pds.CC_STATE_NSCC.size + RESPONSE.size


@dataclass(frozen=True, kw_only=True)
class NetworkPlane:
    """A plane is a network as congestion control sees it: equal links, and the number of links on the longest path."""

    rate: int
    """Bits a second."""
    delay: int
    """Delay of a link in picoseconds."""
    hops: int
    payload_mtu: int = 4096
    how: Encapsulation = field(default_factory=Encapsulation)
    ip_version: int = 4
    trimming: bool = True
    algorithm: str = OFF
    """`OFF`, or `CcConfig.algorithm`."""
    lb: str = "mixed"
    profile: str = PROFILES[0]
    capacity: int | None = None
    """Number of bytes of data that a queue holds. None: a bandwidth-delay product in whole packets, or `DEEP` of them
    without trimming."""

    @cached_property
    def around(self) -> int:
        """Return the bytes of a frame that are neither headers of PDS and SES nor payload."""
        return ETHERNET_SIZE + below_uet(self.ip_version, udp=self.how.udp) + self.how.trailer_size

    @cached_property
    def frame(self) -> int:
        """Return the size of the frame of a full packet in bytes."""
        return self.around + UET_REQUEST + self.payload_mtu

    def duration(self, size: int) -> int:
        """Return for how many picoseconds `size` bytes occupy a link."""
        return 8 * SECOND * size // self.rate

    @cached_property
    def config(self) -> CcConfig:
        """Return the parameters of congestion control. Without any, they say what the bandwidth-delay product is."""
        rtt = self.hops * (2 * self.delay + self.duration(self.frame) + self.duration(self.around + _ACK))
        below = ETHERNET_SIZE + ip_size(self.ip_version)
        return CcConfig(
            algorithm="nscc" if self.algorithm == OFF else self.algorithm,
            form="htsim" if self.profile == "htsim" else "notes", lb=self.lb, rate=self.rate, base_rtt=rtt,
            mtu=self.frame - below + NOMINAL, mss=self.payload_mtu, trimming=self.trimming,
            probe_allowance=self.hops * self.duration(self.frame - self.around - uet_pds.CP.size),
        )  # fmt: skip

    @cached_property
    def packets(self) -> int:
        """Return the bandwidth-delay product in whole packets."""
        return -(-self.config.bdp // self.frame)

    @cached_property
    def queue(self) -> int:
        """Return the number of bytes of data that a queue of a switch holds."""
        whole = self.packets * self.frame * (1 if self.trimming else DEEP)
        return whole if self.capacity is None else self.capacity

    @property
    def red(self) -> Red:
        """Return at which lengths queues mark: none below 0.2, and all above 0.8 bandwidth-delay products."""
        packets = self.queue // self.frame // (1 if self.trimming else DEEP) or 1
        return Red(kmin=-(-packets // 5) * self.frame, kmax=-(-4 * packets // 5) * self.frame, pmax=1.0)

    @property
    def rules(self) -> QueueRules:
        """Return the rules of the queues."""
        htsim = self.profile == "htsim"
        return QueueRules(
            control_capacity=2 * self.queue if htsim else self.queue, coin=htsim,
            again_capacity=self.queue if htsim else self.queue * 3 // 2,
        )  # fmt: skip

    @property
    def rto(self) -> int:
        """Return the time-out of a packet in picoseconds, as the simulator has it (cms.md §6)."""
        return 15 * MICROSECOND + 6 * self.duration(self.queue)

    def tuned(self, pds: PdsConfig) -> PdsConfig:
        """Return the parameters of PDS with the time-out of this plane, with an MPR of MaxWnd at least, and without
        trimming with the search for losses that fits it. What is not the default stays; an MPR that masks the window
        is warned of."""
        usual = PdsConfig()
        if pds.mp_range == usual.mp_range:
            pds = replace(pds, mp_range=max(pds.mp_range, self.config.mpr))
        elif (text := self.config.masked_by(pds.mp_range)) is not None:
            warnings.warn(text, stacklevel=2)
        if pds.rto_init_time == usual.rto_init_time:
            pds = replace(pds, rto_init_time=self.rto)
        if self.trimming or pds.inferred_loss != usual.inferred_loss:
            return pds
        return replace(pds, inferred_loss="ooo", tail_loss_time=3 * self.config.base_rtt, max_tail_loss_retx=15)

    def contexts(self, rng: Rng) -> CongestionContexts:
        """Return the contexts of one endpoint."""
        overhead = self.around - ETHERNET_SIZE - ip_size(self.ip_version) + NOMINAL
        return CongestionContexts(self.config, rng, overhead=overhead, largest=self.config.mtu)


def hops_of(layout: Layout | None, topology: str) -> int:
    """Return the number of links on the longest path between two hosts."""
    if layout is None:
        return 1 if topology == "pair" else 2
    return max(layout.hops(0, host) for host in range(layout.size))
