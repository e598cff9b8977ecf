# SPDX-License-Identifier: GPL-2.0-only
"""This module has invariants 49–52 of pds.md §18, which concern liveness.

Invariant 52 is checked when time passes; the others are checked when no packet and no timer is left.
"""

from typing import Any

from uetproto.check.registry import Disruption
from uetproto.check.uet.registry import Occasion, PdsScope, broken, invariant
from uetproto.check.uet.shadow_state import PdcShadow
from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import PDC_MODES, Mode
from uetproto.engine.pds.retransmit import NACK_INFINITE, RTO_CAP, RTO_INFINITE
from uetproto.engine.pds.states import State

_HARM = Disruption.FORGED | Disruption.RESTARTED | Disruption.LOST


def endless(config: PdsConfig) -> bool:
    """Return whether the number of retransmissions is unlimited, both after time-outs and after NACKs."""
    return config.max_rto_retx_cnt == RTO_INFINITE and config.max_nack_retx_cnt == NACK_INFINITE


def lives(config: PdsConfig) -> bool:
    """Return whether every request must succeed, because the number of retransmissions is unlimited and nothing else
    may end a PDC early.

    Three settings can end a PDC early. This function returns False if one of them is set. `close_drain` = error: the
    target may close before it has sent the data of all reads. `secure_start` = expected: after NEW_START_PSN has
    changed the Start_PSN, a delayed SYN packet with the old PSNs may open a second PDC at the target, which then
    answers packets of the first PDC with INVALID_SYN (pds.md §6.2, §6.6). `pdcid_quarantine` = 0: the initiator may
    reuse a PDCID while the target still has the earlier PDC of that PDCID, and that PDC answers INVALID_SYN (pds.md §20
    row 23).
    """
    harmless = config.close_drain == "drain" and config.secure_start != "expected"
    return endless(config) and harmless and config.pdcid_quarantine == "MSL"


def _endless(config: PdsConfig, mode: Mode) -> bool:
    return lives(config)


@invariant(49, PdsScope.END, when=_endless, void_after=_HARM)
def pds_49_everything_answered(simulator: Any) -> None:
    """Every submitted request is delivered and answered, and every guaranteed response (gtd_del) is finally cleared."""
    for monitor in simulator.monitors:
        for track in monitor.tracks.values():
            if track.failed or not all(track.marks):
                raise broken(49, f"message {track.message.message_id} is not answered: {bytes(track.marks).hex()}")
        for shadow in monitor.shadows.values():
            if shadow.gtd and shadow.pdc.state is not State.CLOSED:
                raise broken(49, "never cleared:", *sorted(shadow.gtd))


@invariant(50, PdsScope.END, when=_endless, void_after=_HARM)
def pds_50_closed_at_both_ends(simulator: Any) -> None:
    """A PDC that was asked to close reaches CLOSED at both ends."""
    for monitor in simulator.monitors:
        for pdc in monitor.pds.pdcs.values():
            if pdc.close_req or pdc.state > State.ESTABLISHED:
                raise broken(50, f"{pdc.role.name} of PDC {pdc.local_id} still in {pdc.state.name}")


@invariant(51, PdsScope.END, when=_endless, void_after=_HARM)
def pds_51_quiescence(simulator: Any) -> None:
    """When SES is idle and all clears have arrived, una = next at the source, and CACK at the destination is next − 1
    of its peer. No response is stored, and no timer except the idle timer is armed.
    """
    for monitor in simulator.monitors:
        for pdc in monitor.pds.pdcs.values():
            if pdc.state is not State.ESTABLISHED:
                continue
            shadow = monitor.shadows[pdc.local_id]
            if pdc.tx.una != pdc.tx.next:
                raise broken(51, "una is not next", pdc.tx.una, pdc.tx.next)
            if pdc.rx.stored:
                raise broken(51, f"{pdc.rx.stored} responses still stored, the lowest above", pdc.rx.cack)
            peer = shadow.peer
            if peer is not None and peer.pdc.state is State.ESTABLISHED and pdc.rx.cack != peer.pdc.tx.last:
                raise broken(51, "CACK is not next − 1 of the peer", pdc.rx.cack, peer.pdc.tx.last)
            if pdc.deadline() < pdc.idle_wake:
                raise broken(51, "a timer besides idle is armed for", pdc.deadline())


def patience(config: PdsConfig, init: int) -> int:
    """Return the time in picoseconds from the first transmission of an unanswered packet to the error. It is the sum
    of all RTOs (Σ RTO), of which `init` is the first: 63 ms with the defaults."""
    return sum(min(init << count, RTO_CAP) for count in range(config.max_rto_retx_cnt + 1))


def _ends(config: PdsConfig, mode: Mode) -> bool:
    return config.max_rto_retx_cnt != RTO_INFINITE and mode in PDC_MODES and config.inferred_loss == "off"


@invariant(52, PdsScope.STEP, Occasion.TIME_PASSED, when=_ends)
def pds_52_dead_network(shadow: PdcShadow, full: bool) -> None:
    """With limited retransmissions and a dead network, every PDC with un-ACKed packets reaches CLOSED within Σ RTO
    after the latest first transmission of a packet (63 ms with the defaults).

    This is checked whenever time has passed. The time begins again at every packet from the peer. The limit grows by
    the pause after a NACK and by one more RTO, as that packet may have reset the retransmission count (pds.md §11.2).
    """
    pdc = shadow.pdc
    if pdc.tx.records and pdc.state is not State.CLOSED:
        config = pdc.config
        since = max(shadow.sent_at, shadow.heard_at)
        init = max(config.rto_init_time, pdc.tx.rto or 0)
        longest = min(init << config.max_rto_retx_cnt, RTO_CAP)
        limit = patience(config, init) + config.nack_retx_time + longest
        if shadow.end.now - since > limit:
            raise broken(52, f"{pdc.role.name} still in {pdc.state.name} after {shadow.end.now - since} ps of silence")
