# SPDX-License-Identifier: GPL-2.0-only
"""This module fits congestion control to a network: window, time-outs, and queues of switches (cms.md §7, §8)."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil
from typing import Any

from uetproto.emulator.network.layouts import Layout
from uetproto.engine.cc.config import CcConfig
from uetproto.engine.cc.registry import ALGORITHMS, CongestionContexts, check_algorithm
from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import MICROSECOND, SECOND, Rng
from uetproto.errors import LocalError
from uetproto.framing.sizes import ETHERNET_SIZE, UET_REQUEST, below_uet, ip_size
from uetproto.framing.uet import Encapsulation
from uetproto.impair.queue import QueueRules
from uetproto.impair.red import Red
from uetproto.knobs import (
    SIZE,
    SIZE_LEGAL,
    SIZES,
    KeyType,
    check_knobs,
    keys_of,
    knob,
    with_unit,
)
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


def limit(value: Any) -> float:
    """Return a number of bandwidth-delay products as it stands in a TOML file. Raises `ValueError`."""
    if type(value) not in (int, float) or not 0 <= value <= 1000:
        raise ValueError(value)
    return float(value)


def share(value: Any) -> float:
    """Return a share as it stands in a TOML file. Raises `ValueError`."""
    if type(value) not in (int, float) or not 0 <= value <= 1:
        raise ValueError(value)
    return float(value)


_ACK = uet_pds.ACK_CC.size + uet_pds.CC_STATE_NSCC.size + RESPONSE.size


def profile(value: Any) -> str:
    """Return the name of a profile as it stands in a TOML file. Raises `ValueError`."""
    if value not in PROFILES:
        raise ValueError(value)
    return str(value)


def memory(value: Any) -> int:
    """Return a number of bytes as it stands in a TOML file. Raises `ValueError`."""
    size = with_unit(value, SIZES)
    if not 1 <= size < 1 << 40:
        raise ValueError(value)
    return int(size)


_LIMIT = KeyType(limit, "a number of Plane_BDP, 0 … 1000")
_TIMES = KeyType(limit, "a number, 0 … 1000")


@dataclass(frozen=True, kw_only=True)
class SwitchConfig:
    """This class holds the parameters of switches with queues by the rules of UET. What is None has the value of the
    profile. Raises `LocalError` for an illegal value, and for values that do not go together."""

    # fmt: off
    profile: str | None = knob(None, KeyType(profile, ", ".join(PROFILES), names=PROFILES), "",
        "recommended: as the public notes have it; htsim: the composite queue of the UEC simulator. By default that of"
        " [cc].", "cms.md §7")
    ecn: str = knob("probabilistic", ("probabilistic", "deterministic", "off"), "",
        "How data is marked when it leaves a queue, by the bytes that it leaves behind.", "cms.md §7")
    ecn_min: float = knob(0.2, _LIMIT, "Plane_BDP", "A queue up to this length marks nothing.", "cms.md §7")
    ecn_max: float = knob(0.8, _LIMIT, "Plane_BDP",
        "A queue above this length marks everything; below it the share grows from ecn_min on.", "cms.md §7")
    ecn_at: float = knob(0.5, _LIMIT, "Plane_BDP", "With ecn deterministic, a longer queue marks everything.",
        "cms.md §7")
    trim_limit: float | None = knob(None, _LIMIT, "Plane_BDP",
        "Data that would make a queue longer is trimmed, or dropped without trimming; by default 1 with trimming, and 5"
        " without. The key queue_capacity gives it in bytes.", "cms.md §7")
    rtx_limit: float | None = knob(None, _TIMES, "",
        "Retransmitted data is trimmed from this multiple of trim_limit on; by default 1.5, with htsim 1.", "cms.md §7")
    control_limit: float | None = knob(None, _TIMES, "",
        "What control packets and trimmed packets may occupy each, as a multiple of trim_limit; by default 1, with"
        " htsim 2.", "cms.md §7")
    medium_weight: float | None = knob(None, KeyType(share, "a share, 0 … 1"), "",
        "The share of the rate that trimmed packets have while data waits, too; 1: they go first. By default 0.75, with"
        " htsim 1.", "cms.md §7")
    shared_buffer: int | None = knob(None, KeyType(memory, SIZE_LEGAL, unit=SIZE), "",
        "The bytes that all queues of a switch hold together; by default each queue has memory of its own.")
    buffer_share: float | None = knob(None, _TIMES, "",
        "One class of one queue holds at most so many times the bytes that the shared buffer has free; by default there"
        " is no limit.")
    hash_salt: int = knob(0, range(2**32), "",
        "The salt with which all switches choose among equal paths, beside their names.", "cms.md §7")
    # fmt: on

    def __post_init__(self) -> None:
        check_knobs(self)
        if self.ecn_min > self.ecn_max:
            raise LocalError(
                "ecn_min", f"{self.ecn_min:g} is above ecn_max", f"0 … {self.ecn_max:g}, the ecn_max",
                id="inconsistent-values"
            )  # fmt: skip
        if self.rtx_limit is not None and self.rtx_limit < 1:
            raise LocalError(
                "rtx_limit", f"{self.rtx_limit:g} is below trim_limit", "1 and more, times trim_limit",
                id="inconsistent-values"
            )  # fmt: skip
        if self.buffer_share is not None and self.shared_buffer is None:
            raise LocalError(
                "buffer_share", "has no effect without shared_buffer", "with shared_buffer", id="no-effect"
            )


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
    switch: SwitchConfig = field(default_factory=SwitchConfig)
    given: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of congestion control (`CcConfig`) that are given, and not those that fit the network."""

    def check(self) -> None:
        """Raise `LocalError` for parameters that are not legal, or cannot be in this network."""
        check_algorithm(self.config.algorithm)
        room, switch = self.switch.shared_buffer, self.switch
        if room is not None and room < self.queue:
            legal = f"{self.queue} bytes and more, the limit of one queue"
            raise LocalError(
                "shared_buffer", f"{room} bytes are less than one queue holds", legal, id="inconsistent-values"
            )
        if self.capacity is not None and switch.trim_limit is not None:
            raise LocalError("trim_limit", "does not go with queue_capacity", "one of them", id="conflicting-arguments")

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
        plain = {name: value for name, value in self.given.items() if name != "algorithm"}
        fitting: dict[str, Any] = {
            "algorithm": "nscc" if self.algorithm == OFF else self.algorithm,
            "form": "htsim" if self.profile == "htsim" else "notes", "lb": self.lb, "rate": self.rate, "base_rtt": rtt,
            "mtu": self.frame - below + NOMINAL, "mss": self.payload_mtu, "trimming": self.trimming,
            "probe_allowance": self.hops * self.duration(self.frame - self.around - uet_pds.CP.size),
        }  # fmt: skip
        return CcConfig(**fitting | plain)

    @cached_property
    def packets(self) -> int:
        """Return the bandwidth-delay product in whole packets."""
        return -(-self.config.bdp // self.frame)

    @cached_property
    def queue(self) -> int:
        """Return the number of bytes of data that a queue of a switch holds."""
        if self.capacity is not None:
            return self.capacity
        limit = self.switch.trim_limit
        if limit is None:
            return self.packets * self.frame * (1 if self.trimming else DEEP)
        return max(1, round(self.packets * limit)) * self.frame

    @property
    def _composite(self) -> bool:
        """Return whether queues are those of the UEC simulator."""
        return (self.switch.profile or self.profile) == "htsim"

    @property
    def red(self) -> Red | None:
        """Return at which lengths queues mark, in whole packets; None: they do not mark."""
        switch = self.switch
        if switch.ecn == "off":
            return None
        packets = self.packets
        if switch.trim_limit is None:
            packets = self.queue // self.frame // (1 if self.trimming else DEEP) or 1
        certain = switch.ecn == "deterministic"
        low, high = (switch.ecn_at, switch.ecn_at) if certain else (switch.ecn_min, switch.ecn_max)
        kmin, kmax = (ceil(round(packets * one, 6)) * self.frame for one in (low, high))
        return Red(kmin=kmin, kmax=kmax, pmax=1.0)

    @property
    def rules(self) -> QueueRules:
        """Return the rules of the queues."""
        switch, htsim = self.switch, self._composite
        rtx, control = switch.rtx_limit or (1 if htsim else 1.5), switch.control_limit or (2 if htsim else 1)
        weight = switch.medium_weight
        return QueueRules(
            control_capacity=int(self.queue * control), again_capacity=int(self.queue * rtx), coin=htsim,
            medium_weight=(1.0 if htsim else 0.75) if weight is None else weight,
            one_header_queue=htsim and weight is None, shared_buffer=switch.shared_buffer,
            buffer_share=switch.buffer_share,
        )  # fmt: skip

    @property
    def controls(self) -> bool:
        """Return whether there is congestion control."""
        return self.algorithm != OFF

    @property
    def state_size(self) -> int:
        """Return the number of bytes of congestion control state in a request: with credits it has a demand."""
        return uet_pds.REQ_CC_STATE.size if self.controls and self.config.credits else 0

    @property
    def host_marks(self) -> bool:
        """Return whether queues towards hosts mark data: not with credits of the receiver (cms.md §4)."""
        return not (self.controls and self.config.credits)

    @property
    def rto(self) -> int:
        """Return the time-out of a packet in picoseconds, as the simulator has it (cms.md §6)."""
        return 15 * MICROSECOND + 6 * self.duration(self.queue)

    def tuned(self, pds: PdsConfig) -> PdsConfig:
        """Return the parameters of PDS with the time-out of this plane, with an MPR of MaxWnd at least, and with the
        search for losses by ooo_count if `CcConfig.searches`. What is not the default stays; an MPR that masks the
        window is warned of."""
        usual = PdsConfig()
        if pds.mp_range == usual.mp_range:
            pds = replace(pds, mp_range=max(pds.mp_range, self.config.mpr))
        elif (text := self.config.masked_by(pds.mp_range)) is not None:
            warnings.warn(text, stacklevel=2)
        if pds.rto_init_time == usual.rto_init_time:
            pds = replace(pds, rto_init_time=self.rto)
        if not self.config.searches or pds.inferred_loss != usual.inferred_loss:
            return pds
        return replace(pds, inferred_loss="ooo", tail_loss_time=3 * self.config.base_rtt, max_tail_loss_retx=15)

    @property
    def told(self) -> str | None:
        """Return what the comment of an interface says of a host in this network, so that an audit can recompute its
        windows; None: it has none."""
        return f"cc {self.config.told}" if self.controls and self.config.window else None

    def contexts(self, rng: Rng) -> CongestionContexts:
        """Return the contexts of one endpoint."""
        overhead = self.around - ETHERNET_SIZE - ip_size(self.ip_version) + NOMINAL
        return CongestionContexts(self.config, rng, overhead=overhead, largest=self.config.mtu)


_BY_NETWORK = ("rate", "base_rtt", "mtu", "mss", "trimming", "probe_allowance")
CC_KEYS: dict[str, KeyType] = {
    name: replace(key, default="what fits the network") if name in _BY_NETWORK
    else replace(key, default=OFF, legal=f"{OFF}, {', '.join(ALGORITHMS)}, or several joined by +")
    if name == "algorithm" else key
    for name, key in keys_of(CcConfig).items()
}  # fmt: skip
"""Parameters of congestion control of a whole network: those of `CcConfig`, of which some follow from the network."""
SWITCH_KEYS: dict[str, KeyType] = keys_of(SwitchConfig)


def hops_of(layout: Layout | None, topology: str) -> int:
    """Return the number of links on the longest path between two hosts."""
    if layout is None:
        return 1 if topology == "pair" else 2
    return max(layout.hops(0, host) for host in range(layout.size))
