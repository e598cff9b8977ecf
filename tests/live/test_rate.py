# SPDX-License-Identifier: GPL-2.0-only
"""Rate and time-outs of a live link, in virtual time: what the window is, and how a silent peer ends."""

import random

from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.engine.contract import MILLISECOND, SECOND, Completion, Mode, PdcErrorReason, Read, Write
from uetproto.engine.fep import Fep
from uetproto.engine.roce.config import RoceConfig
from uetproto.live.rate import USUAL_BUFFER, PeerRate, PeerRates, live_pds, live_roce, live_ses, rto_for

A, B = 0x0A000001, 0x0A000002


def endpoint(buffer: int) -> tuple[Fep, PeerRates]:
    rates = PeerRates(random.Random(1), overhead=52, payload_mtu=4096)
    rates.learn(B, PeerRate(buffer, 200 * 10**6))
    return Fep(A, random.Random(1), pds=live_pds(), ses=SesConfig(), congestion=rates), rates


def test_the_window_fits_the_buffer() -> None:
    """What is in flight without an answer is two fifths of the buffer of the peer."""
    for buffer in (USUAL_BUFFER, 4 << 20):
        fep, rates = endpoint(buffer)
        fep.submit(Write(peer=B, mode=Mode.RUD, data=bytes(4 << 20), key=1), 0)
        packets = fep.poll(1)
        size = sum(len(packet.header) + len(packet.payload) for packet in packets)
        assert buffer * 0.35 < size < buffer * 0.4 + 1
        assert rates.window(B) == buffer * 2 // 5


def test_a_silent_peer_ends_the_operation_in_bounded_time() -> None:
    """A window of many lost packets ends no later than one lost packet does: after the retransmissions of the first."""
    fep, _ = endpoint(4 << 20)
    fep.submit(Write(peer=B, mode=Mode.RUD, data=bytes(4 << 20), key=1), 0)
    now, ended = 1, []
    while not ended and now < 60 * SECOND:
        fep.poll(now)
        ended = [event for event in fep.events() if isinstance(event, Completion)]
        now = max(fep.deadline() or now + SECOND, now + 1)
    assert ended
    assert ended[0].error is not None
    assert ended[0].error.reason is PdcErrorReason.RTO_EXHAUSTED
    assert now < 15 * SECOND


def test_a_long_read_asks_for_no_more_than_comes_before_the_rto() -> None:
    """The data of so many packets comes in a few milliseconds; all 256 of this read would be asked for at once."""
    fep = Fep(A, random.Random(1), pds=live_pds(), ses=live_ses(SesConfig()))
    fep.submit(Read(peer=B, mode=Mode.RUD, into=bytearray(1 << 20), key=1), 0)
    assert len(fep.poll(1)) == live_ses(SesConfig()).max_reads == 64


def test_what_is_given_stays() -> None:
    assert live_ses(SesConfig(max_reads=9)).max_reads == 9
    assert live_pds(base=PdsConfig(rto_init_time=7)).rto_init_time == 7
    assert live_pds(cc=False).inferred_loss == "off"
    assert live_roce(base=RoceConfig(timeout=9)).timeout == 9
    assert [rto_for(rtt * MILLISECOND) // MILLISECOND for rtt in (1, 20, 10_000)] == [100, 160, 2000]
    assert rto_for(None) == 200 * MILLISECOND
