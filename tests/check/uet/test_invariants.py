# SPDX-License-Identifier: GPL-2.0-only
"""Each of the 53 invariants can fail: a state, packet or trace is doctored, and the one with that number says so."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from uetproto.check.registry import Disruption, InvariantViolation
from uetproto.check.uet.invariants import INVARIANTS, plan
from uetproto.check.uet.invariants_protocol import marks_of
from uetproto.check.uet.registry import PdsScope
from uetproto.check.uet.shadow_state import ANSWERED, OPEN, PdcShadow, SentPacket, TrackedMessage
from uetproto.check.uet.simulator import UetSimulator
from uetproto.check.wire import ADDRESSES, ALL
from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import MILLISECOND, Datagram, Mode
from uetproto.engine.pds.messages import Ack, Control, Nack, Request, Rudi, Uud
from uetproto.engine.pds.psn_window import DONE
from uetproto.engine.pds.service import Response
from uetproto.engine.pds.states import State
from uetproto.steps.uet import MessageSpec, UetStep
from uetproto.wire.headers.uet_pds import AckReq, CtlType, NackCode, NextHdr, PdsType

OTHER = Response(b"another one", gtd=True)


class Scene:
    """A PDC from node 0 to node 1 in mid-life: 4 guaranteed requests answered, not cleared; 3 requests on the wire."""

    def __init__(self, mode: Mode = Mode.RUD) -> None:
        self.simulator = UetSimulator(7, objects=True)
        self.simulator.apply(UetStep("submit", message=MessageSpec(4, mode, answer="gtd")))
        self.simulator.apply(UetStep("deliver", number=ALL))
        self.simulator.apply(UetStep("deliver", number=ALL))
        self.simulator.apply(UetStep("submit", message=MessageSpec(3, mode, message_id=2)))
        self.source = self._ledger(0)
        self.target = self._ledger(1)
        self.first, self.second, self.third = self.source.sent
        """PSNs on the wire."""
        self.datagrams = {p.message.psn: p for p in self.simulator.flight.values()}
        self.sent = self.source.sent[self.first]
        assert self.sent.track is not None
        self.track: TrackedMessage = self.sent.track
        self.request: Request = self.datagrams[self.first].message
        self.stored = self.first - 1
        """The last one that was answered, with a guaranteed response."""

    def _ledger(self, node: int) -> PdcShadow:
        (shadow,) = self.simulator.monitors[node].shadows.values()
        return shadow

    @property
    def tx(self) -> Any:
        return self.source.pdc.tx

    @property
    def rx(self) -> Any:
        return self.target.pdc.rx

    def delivery(self) -> tuple[Any, ...]:
        return self.target, self.first, self.sent.header, self.sent.payload

    def leaving(self, **changes: Any) -> tuple[Any, ...]:
        """The first of the requests on the wire, as if it left now."""
        self.sent.copies = 0
        self.source.expected, self.source.message = self.first, None
        packet = replace(self.request, **changes)
        return self.source, packet, self.datagrams[self.first], self.sent

    def copy(self, **changes: Any) -> tuple[Any, ...]:
        """The same, as a retransmission."""
        return self.source, replace(self.request, retx=1, **changes), self.datagrams[self.first], self.sent

    def ack(self, psn: int | None = None, **changes: Any) -> tuple[Any, ...]:
        """An ACK of the target, by default of the last one answered."""
        ack_psn = self.stored if psn is None else psn
        cack = self.rx.cack
        packet = Ack(
            PdsType.ACK_CC, NextHdr.RESPONSE, 0, 0, AckReq.CLEAR, ack_psn, None, cack, self.target.pdc.local_id,
            self.source.pdc.local_id, 8, cack, 1, 0,
        )  # fmt: skip
        answer = self.target.gtd.get(ack_psn, OTHER)
        datagram = Datagram(ADDRESSES[1], ADDRESSES[0], answer.header, message=packet)
        return self.target, replace(packet, **changes), datagram, None

    def nack(self, code: NackCode, psn: int) -> Nack:
        return Nack(code, 0, 0, 0, psn, self.target.pdc.local_id, self.source.pdc.local_id, 0)

    def control(self, ctl_type: CtlType, shadow: PdcShadow) -> tuple[Any, ...]:
        """A control packet leaves that end."""
        psn = shadow.next
        packet = Control(ctl_type, 0, 0, 1, 0, psn, shadow.pdc.local_id, shadow.pdc.peer_id, 0, 0)
        return shadow, packet, None, SentPacket(psn, None, 0, b"", b"", ctl_type)

    def outcome(self, response: Any = b"") -> tuple[Any, ...]:
        """SES of the source gets a response for the first one on the wire."""
        return self.source, self.track, 0, None, response

    def closing(self) -> None:
        """Everything arrives, is answered, cleared and closed."""
        self.simulator.apply(UetStep("deliver", number=ALL))
        self.simulator.apply(UetStep("close"))
        self.simulator.finish()
        assert self.source.pdc.state is State.CLOSED


Asked = Iterator[tuple[Any, ...]]
CASES: dict[int, Callable[[Scene], Asked]] = {}
MODES: dict[int, Mode] = {2: Mode.ROD}


def case(number: int) -> Callable[[Callable[[Scene], Asked]], Callable[[Scene], Asked]]:
    """A case yields arguments with which nothing is wrong, doctors the scene, and yields those that are a violation."""

    def register(function: Callable[[Scene], Asked]) -> Callable[[Scene], Asked]:
        assert number not in CASES
        CASES[number] = function
        return function

    return register


# Delivery -------------------------------------------------------------------------------------------------------------


@case(1)
def delivered_twice(s: Scene) -> Asked:
    yield s.delivery()
    s.target.got[s.first] = None
    yield s.delivery()


@case(2)
def out_of_order(s: Scene) -> Asked:
    yield s.delivery()
    yield s.target, s.second, s.sent.header, s.sent.payload


@case(3)
def other_bytes(s: Scene) -> Asked:
    yield s.delivery()
    yield s.target, s.first, s.sent.header, b"else"


@case(4)
def from_a_trimmed_packet(s: Scene) -> Asked:
    yield s.delivery()
    s.target.end.trimmed, s.target.end.cause = True, s.request
    yield s.delivery()


@case(5)
def beyond_the_edge(s: Scene) -> Asked:
    yield s.target, s.target.edge, b"", b""
    yield s.target, s.target.edge + 1, b"", b""


@case(6)
def two_outcomes(s: Scene) -> Asked:
    yield s.outcome()
    s.track.marks[0] = ANSWERED
    yield s.outcome()


@case(7)
def answered_before_delivery(s: Scene) -> Asked:
    s.target.got[s.first] = None
    yield s.outcome()
    del s.target.got[s.first]
    yield s.outcome()


@case(8)
def default_in_place_of_guaranteed(s: Scene) -> Asked:
    s.target.gtd[s.first] = OTHER
    yield s.outcome(OTHER.header)
    yield s.outcome(None)


@case(9)
def cleared_before_the_source_knew(s: Scene) -> Asked:
    s.target.gtd[s.first] = OTHER
    yield s.target, False
    s.rx.max_clear = s.first
    yield s.target, False


# Numbers --------------------------------------------------------------------------------------------------------------


@case(10)
def cack_decreases(s: Scene) -> Asked:
    yield s.target, False
    s.rx.cack -= 1
    yield s.target, False


@case(11)
def clear_decreases(s: Scene) -> Asked:
    yield s.source, False
    s.tx.una -= 1
    yield s.source, False


@case(12)
def peer_cack_beyond_clear(s: Scene) -> Asked:
    yield s.source, False
    s.tx.peer_cack = s.first
    yield s.source, False


@case(13)
def max_clear_beyond_cack(s: Scene) -> Asked:
    yield s.target, False
    s.rx.max_clear = s.first
    yield s.target, False


@case(14)
def cack_covers_what_is_stored(s: Scene) -> Asked:
    yield s.target, False
    s.rx.cack += 1
    yield s.target, False


@case(15)
def cack_could_advance(s: Scene) -> Asked:
    yield s.target, False
    s.rx.slots[s.rx.cack + 1] = DONE
    yield s.target, False


@case(16)
def clear_of_another_moment(s: Scene) -> Asked:
    yield s.leaving()
    yield s.leaving(clear_psn=s.request.clear_psn - 1)


@case(17)
def ack_of_what_did_not_come(s: Scene) -> Asked:
    yield s.ack()
    yield s.ack(s.first)


@case(18)
def sack_of_what_did_not_come(s: Scene) -> Asked:
    s.rx.slots[s.third] = DONE
    yield s.ack(sack_base=s.first, sack_bitmap=0b100)
    yield s.ack(sack_base=s.first, sack_bitmap=0b110)


@case(19)
def offset_of_17_bits(s: Scene) -> Asked:
    yield s.leaving(clear_psn=s.first - 0x8000)
    yield s.leaving(clear_psn=s.first - 0x8001)


@case(20)
def psn_left_out(s: Scene) -> Asked:
    yield s.leaving()
    yield s.leaving(psn=s.second)


@case(21)
def outside_the_window(s: Scene) -> Asked:
    yield s.leaving()
    s.tx.mp_range = 0
    yield s.leaving()


@case(22)
def request_moves_una(s: Scene) -> Asked:
    s.target.end.cause = s.request
    yield s.target, False
    s.target.pdc.tx.una += 1
    yield s.target, False


@case(23)
def shifted_by_less(s: Scene) -> Asked:
    one = [(0, 1, replace(s.request, psn=0xFFFFFFFE, clear_psn=0xFFFFFFFD))]
    yield one, [(0, 1, replace(s.request, psn=3, clear_psn=2))], 5
    yield one, [(0, 1, replace(s.request, psn=3, clear_psn=1))], 5


# Protocol -------------------------------------------------------------------------------------------------------------


@case(24)
def retx_on_the_first(s: Scene) -> Asked:
    yield s.leaving()
    yield s.leaving(retx=1)


@case(25)
def syn_when_established(s: Scene) -> Asked:
    yield s.leaving()
    yield s.leaving(syn=1)


@case(26)
def pdcid_zero(s: Scene) -> Asked:
    yield s.leaving()
    yield s.leaving(spdcid=0)


@case(27)
def second_target(s: Scene) -> Asked:
    s.target.pdc.rx.start -= 1
    yield s.target, False
    s.target.pdc.rx.start += 1
    yield s.target, False


@case(28)
def rod_on_a_pdc_of_rud(s: Scene) -> Asked:
    yield s.leaving()
    yield s.leaving(mode=Mode.ROD)


@case(29)
def message_begins_in_the_middle(s: Scene) -> Asked:
    yield s.leaving()
    s.sent.index = 1
    yield s.leaving()


@case(30)
def message_begins_while_closing(s: Scene) -> Asked:
    yield s.leaving()
    s.source.state = State.QUIESCE
    yield s.leaving()


@case(31)
def initiator_asks_for_the_close(s: Scene) -> Asked:
    yield s.control(CtlType.CLOSE_REQ, s.target)
    yield s.control(CtlType.CLOSE_REQ, s.source)


@case(32)
def closed_before_it_drained(s: Scene) -> Asked:
    s.target.pdc.close_psn = s.stored
    yield s.ack()
    s.target.pdc.tx.next += 1
    yield s.ack()


@case(33)
def ack_answers_a_nack(s: Scene) -> Asked:
    s.target.end.cause = s.request
    yield s.ack()
    s.target.end.cause = s.nack(NackCode.TRIMMED, s.first)
    yield s.ack()


@case(34)
def refused_and_received(s: Scene) -> Asked:
    s.target.end.cause, s.target.refused = s.request, True
    yield s.target, False
    s.rx.max_rcvd = s.first
    yield s.target, False


@case(35)
def nack_of_the_unsent_moves_una(s: Scene) -> Asked:
    s.source.end.cause = s.nack(NackCode.TRIMMED, s.third + 1)
    yield s.source, False
    s.tx.una = s.second
    yield s.source, False


@case(36)
def second_ack_changes_more(s: Scene) -> Asked:
    once = marks_of(s.source.pdc)
    yield once, marks_of(s.source.pdc)
    s.tx.records[s.first].dst_rcvd = True
    yield once, marks_of(s.source.pdc)


@case(37)
def order_of_acks_matters(s: Scene) -> Asked:
    other = Scene().source.pdc
    yield s.source.pdc, other
    del other.tx.records[s.second]
    yield s.source.pdc, other


@case(38)
def resent_though_received(s: Scene) -> Asked:
    yield s.copy()
    s.tx.records[s.first].dst_rcvd = True
    yield s.copy()


@case(39)
def count_of_stored_responses(s: Scene) -> Asked:
    yield s.target, True
    del s.target.gtd[s.stored]
    yield s.target, True


@case(40)
def guaranteed_without_clear(s: Scene) -> Asked:
    yield s.ack()
    yield s.ack(req=AckReq.NONE)


@case(41)
def ack_is_late(s: Scene) -> Asked:
    pdc = s.target.pdc
    pdc.ack_gen_count = pdc.config.ack_gen_trigger - 1
    yield s.target, False
    pdc.ack_gen_count += 1
    yield s.target, False


@case(42)
def rto_before_its_time(s: Scene) -> Asked:
    s.tx.records[s.first].rto_cnt = 1
    s.source.end.now = s.sent.at + s.source.pdc.config.rto_init_time
    yield s.copy()
    s.source.end.now -= 1
    yield s.copy()


@case(43)
def one_copy_too_many(s: Scene) -> Asked:
    s.sent.copies = 10
    yield s.copy()
    s.sent.copies = 11
    yield s.copy()


@case(44)
def closed_with_an_open_handle(s: Scene) -> Asked:
    s.closing()
    yield s.source, True
    s.track.marks[0] = OPEN
    s.source.sent[s.first] = s.sent
    yield s.source, True


@case(45)
def rudi_answer_without_delivery(s: Scene) -> Asked:
    response = Rudi(True, NextHdr.RESPONSE, 0, 0, 9, 0)
    s.target.end.rudi_taken[9] = None
    yield s.target.end, response, None, None
    yield s.target.end, replace(response, pkt_id=10), None, None


@case(46)
def uud_packet_too_many(s: Scene) -> Asked:
    s.source.end.uud_asked = 1
    yield s.source.end, Uud(NextHdr.REQUEST_STD, 0), None, None
    s.source.end.uud_sent = 1
    yield s.source.end, Uud(NextHdr.REQUEST_STD, 0), None, None


@case(47)
def start_near_the_last_psn(s: Scene) -> Asked:
    s.source.end.last_psn[s.source.pdc.local_id] = s.tx.start - 0x10000
    yield s.source, False
    s.source.end.last_psn[s.source.pdc.local_id] += 1
    yield s.source, False


@case(48)
def exception(s: Scene) -> Asked:
    yield s.target.end, False
    s.target.end.raised = ValueError("bytes")
    yield s.target.end, False


# Liveness -------------------------------------------------------------------------------------------------------------


@case(49)
def never_answered(s: Scene) -> Asked:
    s.simulator.finish()
    yield (s.simulator,)
    s.track.marks[0] = OPEN
    yield (s.simulator,)


@case(50)
def never_closed(s: Scene) -> Asked:
    s.simulator.finish()
    yield (s.simulator,)
    s.target.pdc.state = State.QUIESCE
    yield (s.simulator,)


@case(51)
def never_quiet(s: Scene) -> Asked:
    s.simulator.finish()
    yield (s.simulator,)
    s.rx.stored = 1
    yield (s.simulator,)


@case(52)
def silence(s: Scene) -> Asked:
    """63 ms, an RTO of 32 ms that was begun before, and NACK_Retx_Time."""
    s.source.end.now = s.source.heard_at + 96 * MILLISECOND
    yield s.source, False
    s.source.end.now += 1
    yield s.source, False


@case(53)
def closed_gap_that_nobody_is_told_of(s: Scene) -> Asked:
    s.target.answered = True
    s.target.early.add(s.rx.cack + 2)
    yield s.target, False
    s.target.early.add(s.rx.cack + 1)
    yield s.target, False


@pytest.mark.parametrize("number", range(1, 54))
def test_it_can_fail(number: int) -> None:
    check = INVARIANTS[number].check
    asked = CASES[number](Scene(MODES.get(number, Mode.RUD)))
    check(*next(asked))
    arguments = next(asked)
    with pytest.raises(InvariantViolation, match=rf"^pds {number}: ") as caught:
        check(*arguments)
    assert caught.value.number == f"pds {number}"


def test_the_register_is_the_section() -> None:
    """One function a number, each with its statement."""
    assert sorted(INVARIANTS) == sorted(CASES) == list(range(1, 54))
    for number, entry in INVARIANTS.items():
        assert entry.number == number
        assert entry.name.startswith(f"pds_{number:02}_")
        assert len(entry.statement) > 20
        assert isinstance(entry.scope, PdsScope)


@pytest.mark.parametrize(
    ("number", "mode", "knobs", "holds"),
    [
        (2, Mode.ROD, {}, True),
        (2, Mode.RUD, {}, False),
        (6, Mode.RUDI, {}, True),
        (6, Mode.UUD, {}, False),
        (42, Mode.RUD, {}, True),
        (42, Mode.RUD, {"inferred_loss": "sack"}, False),
        (42, Mode.ROD, {}, False),
        (43, Mode.RUD, {"max_nack_retx_cnt": 31}, False),
        (45, Mode.RUDI, {}, True),
        (46, Mode.UUD, {}, True),
        (49, Mode.RUD, {}, False),
        (49, Mode.RUD, {"max_rto_retx_cnt": 15, "max_nack_retx_cnt": 31}, True),
        (52, Mode.RUD, {}, True),
        (52, Mode.RUD, {"max_rto_retx_cnt": 15}, False),
        (53, Mode.RUD, {}, True),
        (53, Mode.ROD, {}, False),
        (53, Mode.RUD, {"ack_on_gap_close": False}, False),
    ],
)  # fmt: skip
def test_where_it_holds(number: int, mode: Mode, knobs: dict[str, Any], holds: bool) -> None:
    assert INVARIANTS[number].when(PdsConfig(**knobs), mode) is holds


def test_a_knob_moves_the_window() -> None:
    """21 with `window_base` = cack: from the CACK of the peer on, not from CLEAR."""
    s = Scene()
    s.tx.mp_range = 2
    INVARIANTS[21].check(*s.leaving())
    s.tx.window_at_cack = True
    with pytest.raises(InvariantViolation, match="pds 21"):
        INVARIANTS[21].check(*s.leaving())


def test_disruptions_void_what_two_ends_say_about_each_other() -> None:
    whole, forged = plan(PdsConfig(), Mode.RUD), plan(PdsConfig(), Mode.RUD, Disruption.FORGED)
    lost = {check.__name__ for check in whole.delivery} - {check.__name__ for check in forged.delivery}
    assert lost == {"pds_03_same_bytes"}
