# SPDX-License-Identifier: GPL-2.0-only
"""This module fits rate and time-outs to a live link: a window that the receive buffer of the peer holds, NSCC, and an
RTO from the measured round-trip time.

The kernel counts what a packet takes in memory against the receive buffer, which is up to twice its payload, and drops
what comes beyond it without a word. So much of the network of a live link is known; what is not, NSCC finds out.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from uetproto.engine.cc.config import CcConfig
from uetproto.engine.cc.receiver import NsccReceiver
from uetproto.engine.cc.registry import CongestionContexts
from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.engine.contract import (
    MICROSECOND,
    MILLISECOND,
    NEVER,
    SECOND,
    CongestionContext,
    CongestionReceiver,
    Mode,
    Rng,
)
from uetproto.engine.roce.config import RoceConfig

USUAL_BUFFER = 212_992
"""Number of bytes of the receive buffer of a socket under Linux, unless somebody asks for another."""
_USUAL_RTT = 100 * MICROSECOND
"""Round-trip time of a peer of which none was measured. Two programs of one host have more."""
_SHARE = 5, 2
"""The window is two fifths of the receive buffer."""
_RTO_LEAST, _RTO_MOST, _RTO_TIMES = 100 * MILLISECOND, 2 * SECOND, 8
_READS = 64
"""Number of packets of reads whose data may be on its way."""
_AROUND = 100
"""Number of bytes that headers and trailers of a packet take, roughly."""
_MOST_PEERS = 4096
"""Number of peers whose rates are kept."""


def rto_for(rtt: int | None) -> int:
    """Return the RTO for a measured round-trip time, in picoseconds; 200 ms if none was measured.

    It is eight times as long and at least 100 ms, since the program at the other end may have to wait for a processor.
    """
    if rtt is None:
        return 2 * _RTO_LEAST
    return min(max(_RTO_TIMES * rtt, _RTO_LEAST), _RTO_MOST)


def live_pds(rtt: int | None = None, *, cc: bool = True, base: PdsConfig | None = None) -> PdsConfig:
    """Return the parameters of packet delivery for a live link: `base` with time-outs of programs in place of those of
    hardware. Parameters that are not the default stay.

    With `cc`, a loss is inferred from packets out of order, so that it is repaired before the RTO expires.
    """
    usual, base = PdsConfig(), base or PdsConfig()
    profile: dict[str, Any] = {
        "rto_init_time": rto_for(rtt), "nack_retx_time": 10 * MILLISECOND, "pds_clear_time": 5 * MILLISECOND,
        "new_pdc_time": SECOND, "pend_timeout": 10 * SECOND,
    }  # fmt: skip
    if cc:
        profile |= {"inferred_loss": "ooo", "tail_loss_time": 10 * MILLISECOND}
    return replace(base, **{name: to for name, to in profile.items() if getattr(base, name) == getattr(usual, name)})


def live_ses(base: SesConfig) -> SesConfig:
    """Return the parameters of semantics for a live link: `base` with a limit of the packets of reads that wait for
    data, if it has none.

    What acknowledges such a packet comes with its data, which has to be here before the RTO.
    """
    return base if base.max_reads else replace(base, max_reads=_READS)


def roce_window(buffer: int, path_mtu: int) -> int:
    """Return how many packets of a queue pair may be unacknowledged, for a peer with this receive buffer."""
    return max(buffer * _SHARE[1] // _SHARE[0] // (path_mtu + _AROUND), 2)


def live_roce(*, base: RoceConfig | None = None) -> RoceConfig:
    """Return the parameters of an adapter for a live link: `base` with a time-out of 0.27 s, and with a window that the
    usual receive buffer holds. Parameters that are not the default stay."""
    usual, base = RoceConfig(), base or RoceConfig()
    window = roce_window(USUAL_BUFFER, base.path_mtu)
    profile: dict[str, Any] = {"timeout": 16, "max_unacked_psns": window, "ack_req_interval": max(window // 4, 1)}
    return replace(base, **{name: to for name, to in profile.items() if getattr(base, name) == getattr(usual, name)})


LIVE_CC = "nscc", "off"
"""Congestion control of live links."""


def why_not(algorithm: object) -> str:
    """Return what is legal in place of an algorithm that is not for live links."""
    legal = f"{', '.join(LIVE_CC)} on a real link"
    if algorithm == "rccc":
        legal += ": RCCC grants credit at the rate of the receiver's port, which no program of a host has"
    return legal


class PeerRate(NamedTuple):
    """This tuple has what is known of the way to a peer."""

    buffer: int = USUAL_BUFFER
    """Number of bytes of its receive buffer."""
    rtt: int = _USUAL_RTT
    """Round-trip time in picoseconds."""


class PeerRates:
    """This class makes the congestion control contexts of one endpoint, each with the window that its peer can take
    (`CongestionManager`)."""

    paces = False

    def __init__(self, rng: Rng, *, overhead: int, payload_mtu: int, algorithm: str = "nscc") -> None:
        """`overhead` is the one of `engine.contract.CongestionManager`."""
        self.overhead = overhead
        self.largest = min(payload_mtu + overhead + 100, 0xFFFF)
        self._rng = rng
        self._mss, self._algorithm = payload_mtu, algorithm
        self.made: Callable[[int, CcConfig], None] | None = None
        """Function that is told of each peer whose contexts are made, with their parameters."""
        self._known: dict[int, PeerRate] = {}
        self._contexts: dict[int, CongestionContexts] = {}

    def learn(self, peer: int, rate: PeerRate) -> None:
        """Use what was measured for the contexts of a peer that are made from now on."""
        if len(self._known) >= _MOST_PEERS:
            self._known.clear()
        self._known[peer] = rate
        self._contexts.pop(peer, None)

    def window(self, peer: int) -> int:
        """Return how many bytes may be in flight to a peer."""
        buffer = self._known.get(peer, PeerRate()).buffer
        return max(buffer * _SHARE[1] // _SHARE[0], 2 * self.largest)

    def context(self, peer: int, mode: Mode) -> CongestionContext:
        found = self._contexts.get(peer)
        if found is None:
            if len(self._contexts) >= _MOST_PEERS:
                self._contexts.clear()
            config = self._config(peer)
            found = self._contexts[peer] = CongestionContexts(
                config, self._rng, overhead=self.overhead, largest=self.largest
            )
            if self.made is not None:
                self.made(peer, config)
        return found.context(peer, mode)

    def _config(self, peer: int) -> CcConfig:
        """Return the parameters with which the largest window is that of the peer."""
        rtt = max(self._known.get(peer, PeerRate()).rtt, MICROSECOND)
        rate = self.window(peer) * 8 * SECOND * 2 // (3 * rtt)
        return CcConfig(
            algorithm=self._algorithm, lb="oblivious", rate=max(rate, 1), base_rtt=rtt, mtu=self.largest, mss=self._mss,
        )  # fmt: skip

    def receiver(self, peer: int, mode: Mode, pdcid: int) -> CongestionReceiver:
        return NsccReceiver()

    def closed(self, pdcid: int) -> None:
        """A receiver of NSCC leaves nothing behind."""

    def deadline(self) -> int:
        return NEVER

    def grants(self, now: int) -> list[tuple[int, int]]:
        return []
