# SPDX-License-Identifier: GPL-2.0-only
"""This module has the parameters of congestion control, and what follows from them (cms.md §3.1, §5, §9)."""

from dataclasses import dataclass
from functools import cached_property

from uetproto.engine.contract import MICROSECOND, SECOND
from uetproto.knobs import BOOL, RATE, TIME, KeyType, check_knobs, default_text, keys_of, knob

FORMS = ("notes", "htsim")
PATHS = ("oblivious", "bitmap", "reps", "mixed")
MPR_UNIT, MOST_MPR = 128, 32640
"""Unit and largest value of MPR in PSNs (pds.md §8.6)."""
_TOLD = (
    "algorithm", "form", "rate", "base_rtt", "mtu", "mss", "trimming", "quick_adapt", "base_rtt_probe",
    "probe_allowance",
)  # fmt: skip
LEAST_REROUTE = 10
"""Least number of base RTTs after which a ROD PDC in use changes its entropy value again (cms.md §5)."""


@dataclass(frozen=True, kw_only=True)
class CcConfig:
    """This class holds the parameters of congestion control. Raises `LocalError` for an illegal value."""

    # fmt: off
    algorithm: str = knob("nscc", KeyType(str, "names of `registry.ALGORITHMS`, joined by +"), "",
        "The congestion control algorithm: a window at the sender (nscc), credits of the receiver (rccc), or both"
        " (nscc+rccc).", "cms.md §3, §4")
    form: str = knob("notes", FORMS, "",
        "How the algorithms are read: as the public notes say, or as the UEC simulator does it.", "cms.md §3.6")
    lb: str = knob("mixed", PATHS, "", "How the entropy values of RUD requests are chosen.", "cms.md §5")
    entropy_values: int = knob(64, tuple(1 << bits for bits in range(17)), "",
        "The entropy values over which the requests of a context are spread.", "cms.md §5")
    rate: int = knob(100 * 10**9, range(1, 10**15 + 1), RATE, "The rate of the slower link of both ends.",
        "cms.md §3.1")
    base_rtt: int = knob(14_022_720, range(1, SECOND + 1), TIME,
        "config_base_rtt: the RTT of a full packet on the longest path of an idle network.", "cms.md §3.1")
    mtu: int = knob(4150, range(256, 2**16), "bytes", "The nominal size of a full packet.", "cms.md §3.1")
    mss: int = knob(4086, range(64, 2**16), "bytes",
        "The payload of a full packet, which the form htsim has in place of the MTU in alpha, fi and eta.",
        "cms.md §3.6")
    trimming: bool = knob(True, BOOL, "", "Whether the switches trim, on which target_qdelay depends.", "cms.md §3.1")
    ack_gen_trigger: int = knob(16384, range(2**20 + 1), "bytes",
        "Below a window of so many bytes every packet asks for an ACK.", "cms.md §3.4")
    quick_adapt: bool = knob(True, BOOL, "", "Whether NSCC may set its window to what was delivered.", "cms.md §3.4")
    reroute_time: int = knob(0, range(10 * SECOND + 1), TIME,
        "t_reroute: a ROD PDC changes its entropy value at most so often, after a mark or a loss, and at most every 10"
        " base RTTs.", "cms.md §5")
    base_rtt_probe: bool = knob(False, BOOL, "",
        "After its first ACK or NACK, a context with NSCC sends a PROBE, whose round-trip time may lower the base RTT.",
        "cms.md §3.5")
    probe_allowance: int = knob(0, range(SECOND + 1), TIME,
        "How much longer a full packet takes than a PROBE on the longest path of an idle network; it is added to the"
        " round-trip time of the PROBE.", "cms.md §3.5")
    sleek: str = knob("auto", ("auto", "on", "off"), "",
        "Whether packets are taken for lost by ooo_count, and asked for by PROBE, where `inferred_loss` is off. auto:"
        " yes, but not in the form htsim with trimming, where the simulator does not.", "cms.md §6")
    rto: str = knob("fixed", ("fixed", "rtt"), "",
        "The time-out of a packet: RTO_Init_Time (fixed), or what the round-trip times of the ACKs suggest (rtt).",
        "cms.md §6")
    host_rate: int = knob(0, range(10**15 + 1), RATE,
        "How fast the host takes data from its NIC, for destination flow control. 0: as fast as it arrives.",
        "cms.md §3.4")
    host_backlog: int = knob(1 << 20, range(1, 2**40), "bytes",
        "So many bytes may wait for the host before ACKs carry a penalty, which is greatest at twice as many.",
        "cms.md §3.4")
    # fmt: on

    def __post_init__(self) -> None:
        check_knobs(self)

    @property
    def window(self) -> bool:
        """Return whether NSCC is on."""
        return "nscc" in self.algorithm.split("+")

    @property
    def credits(self) -> bool:
        """Return whether RCCC is on."""
        return "rccc" in self.algorithm.split("+")

    @property
    def searches(self) -> bool:
        """Return whether packets are taken for lost by ooo_count."""
        return self.sleek == "on" or (self.sleek == "auto" and not (self.form == "htsim" and self.trimming))

    @property
    def told(self) -> str:
        """Return the parameters that windows depend on, as `uetproto audit --cc` and the comments of captures have
        them."""
        units = {name: unit if (unit := keys_of(CcConfig)[name].unit) in (RATE, TIME) else "" for name in _TOLD}
        return ",".join(f"{name}={default_text(getattr(self, name), unit)}" for name, unit in units.items())

    @cached_property
    def measures_rto(self) -> bool:
        """Return whether the time-out of a packet follows from round-trip times."""
        return self.rto == "rtt"

    @cached_property
    def bdp(self) -> int:
        """Return the bandwidth-delay product in bytes."""
        return self.rate * self.base_rtt // (8 * SECOND)

    @cached_property
    def max_wnd(self) -> int:
        """Return MaxWnd in bytes."""
        return self.bdp * 3 // 2

    @property
    def mpr(self) -> int:
        """Return the least MPR, in PSNs and a multiple of 128, that does not mask a window of MaxWnd, up to the largest
        one that there is."""
        return min(-(-self.max_wnd // (self.mtu * MPR_UNIT)) * MPR_UNIT, MOST_MPR)

    def masked_by(self, mp_range: int) -> str | None:
        """Return a warning if a receiver that advertises `mp_range` PSNs masks a window of MaxWnd, else None."""
        if mp_range >= self.mpr:
            return None
        return f"mp_range {mp_range} masks MaxWnd, {self.max_wnd // self.mtu} packets; legal: {self.mpr} and more"

    @cached_property
    def target_qdelay(self) -> int:
        """Return target_qdelay in picoseconds."""
        return self.base_rtt * 3 // 4 if self.trimming else self.base_rtt

    @cached_property
    def scaling_a(self) -> float:
        """Return scaling_a, relative to a network of 100 Gb/s and 12 µs."""
        return self.bdp / 150_000

    @cached_property
    def scaling_b(self) -> float:
        """Return scaling_b."""
        return self.target_qdelay / (12 * MICROSECOND)

    @cached_property
    def packet(self) -> int:
        """Return the size in bytes that alpha, fi and eta count with."""
        return self.mss if self.form == "htsim" else self.mtu

    @cached_property
    def alpha(self) -> float:
        """Return alpha in bytes a picosecond."""
        return 4.0 * self.scaling_a * self.scaling_b * self.packet / self.target_qdelay

    @cached_property
    def fi(self) -> float:
        """Return fi in bytes."""
        return 5.0 * self.packet * self.scaling_a

    @cached_property
    def fi_scale(self) -> float:
        """Return fi_scale."""
        return 0.25 * self.scaling_a

    @cached_property
    def eta(self) -> float:
        """Return eta in bytes."""
        return 0.15 * self.packet * self.scaling_a

    @cached_property
    def qa_threshold(self) -> int | None:
        """Return qa_threshold in picoseconds, for a drop threshold of 5 Plane_BDP; None, which is never, with
        trimming."""
        return None if self.trimming else 4 * self.target_qdelay
