# SPDX-License-Identifier: GPL-2.0-only
"""An ACK leaves when a gap closes below an earlier packet with ar = 1 (pds.md §8.3, §20 row 38)."""

from itertools import permutations

import pytest

from tests.support.ladders.ladder import MS, B, Ladder, Sent, answer
from uetproto.engine import Mode
from uetproto.engine.contract import Noop
from uetproto.wire.headers.uet_pds import AckReq, CtlType, PdsType

PSNS = range(333, 337)


def sent(x: Ladder, packets: int = 4, first: int = 333, message_id: int = 1) -> dict[int, Sent]:
    """A message on the wire, by PSN; the last packet has ar = 1."""
    x.a.send(packets, message_id)
    return {psn: x.a.sent("REQ", psn=psn, ar=int(psn == first + packets - 1)) for psn in range(first, first + packets)}


def waits(order: tuple[int, ...], **knobs: bool) -> bool:
    """Whether the source resends something, though all packets and all ACKs arrive, in this order."""
    x = Ladder(**knobs)
    reqs = sent(x)
    for psn in order:
        x.b.rx(reqs[psn])
        while x.b.outbox:
            x.a.rx(x.b.outbox.pop(0))
    x.wait(MS)
    if not x.a.outbox:
        assert sorted(index for index, _ in x.a.ses.responses) == [0, 1, 2, 3]
    return bool(x.a.outbox)


def test_no_order_of_arrival_makes_the_source_wait() -> None:
    assert not any(waits(order) for order in permutations(PSNS))


def test_without_the_knob_it_waits_whenever_the_last_packet_overtakes() -> None:
    for order in permutations(PSNS):
        assert waits(order, ack_on_gap_close=False) is (order[-1] != 336), order


def test_it_carries_the_answer_to_the_packet_that_closed_the_gap() -> None:
    x = Ladder()
    x.b.ses.script = {334: "later"}
    reqs = sent(x)
    x.b.rx(reqs[336])
    x.b.sent("ACK", ack=336, cack=332, off=4)
    for psn in (334, 335, 333):
        x.b.rx(reqs[psn])
    x.b.silent()  # 334 is not answered: the gap is still there
    x.b.respond(334, "ok")
    x.b.sent("ACK", type=PdsType.ACK, ack=334, cack=336, off=-2, retx=0, response=answer("ok").header)
    x.b.silent()


def test_below_a_guaranteed_response() -> None:
    """CACK cannot pass 336 before it is cleared, and has reached all below."""
    x = Ladder()
    x.b.ses.script = {336: "gtd"}
    reqs = sent(x)
    x.b.rx(reqs[336])
    x.a.rx(x.b.sent("ACK", ack=336, cack=332, req=AckReq.CLEAR))
    for psn in (333, 335):
        x.b.rx(reqs[psn])
    x.b.silent()
    x.b.rx(reqs[334])
    x.a.rx(x.b.sent("ACK", ack=334, cack=335, req=AckReq.NONE))
    assert len(x.a.ses.responses) == 4


def test_each_gap_has_its_own() -> None:
    """Two messages, each with its last packet first, and 338 as the last to come."""
    x = Ladder()
    reqs = sent(x) | sent(x, 3, 337, 2)
    for psn in (339, 336):
        x.b.rx(reqs[psn])
        x.b.sent("ACK", ack=psn, cack=332)
    for psn in (337, 334, 335):
        x.b.rx(reqs[psn])
    x.b.silent()
    x.b.rx(reqs[333])
    x.b.sent("ACK", ack=333, cack=337, off=-4)
    x.b.rx(reqs[338])
    x.b.sent("ACK", ack=338, cack=339, off=-1)
    x.b.silent()


def test_one_ack_is_enough() -> None:
    """What else asks for an ACK tells of the gap, too: a mark, retx, ACK_Gen_Trigger."""
    x = Ladder(ack_gen_trigger=4096)
    reqs = sent(x)
    for psn in (336, 333):
        x.b.rx(reqs[psn])
    x.b.sent("ACK", ack=336)
    x.b.rx(reqs[334], retx=True)
    x.b.sent("ACK", ack=334, cack=334)
    x.b.rx(reqs[335], marked=True)
    x.b.sent("ACK", ack=335, cack=336, marked=1)
    reqs = sent(x, 4, 337, 2)
    for psn in (340, 337, 338, 339):
        x.b.rx(reqs[psn])
    x.b.sent("ACK", ack=340)
    x.b.sent("ACK", ack=339, cack=340)
    reqs = sent(x, 3, 341, 3)
    for psn in (341, 342, 343):
        x.b.rx(reqs[psn])
    x.b.sent("ACK", ack=343, cack=343)
    x.b.silent()


def test_a_clear_cmd_that_lets_cack_pass_gets_no_answer_but_the_next_packet_does() -> None:
    """pds.md §18 item 33: CLEAR_CMD has no ACK."""
    x = Ladder(clear_cmd="immediate")
    x.b.ses.script = {333: "gtd"}
    reqs = sent(x, 3)
    for psn in (333, 334, 335):
        x.b.rx(reqs[psn])
    x.a.rx(x.b.sent("ACK", ack=333, cack=332))
    x.b.sent("ACK", ack=335, cack=332, off=3)
    x.b.rx(x.a.sent("CLEAR_CMD", payload=333))
    assert x.b.pdc.rx.cack == 335
    x.b.silent()
    reqs = sent(x, 2, 336, 2)
    x.b.rx(reqs[336])
    x.b.sent("ACK", ack=336, cack=336)
    x.b.rx(reqs[337])
    x.b.sent("ACK", ack=337, cack=337)
    x.b.silent()


def test_below_a_control_packet() -> None:
    x = Ladder(ar_on_eom=False)
    x.a.send(2)
    reqs = [x.a.sent("REQ", psn=333 + at, ar=0) for at in range(2)]
    x.a.submit(Noop(peer=B, mode=Mode.RUD))
    x.b.rx(x.a.sent(CtlType.NOOP.name, psn=335))
    x.b.sent("ACK", ack=335, cack=332)
    x.b.rx(reqs[1])
    x.b.silent()
    x.b.rx(reqs[0])
    x.b.sent("ACK", ack=333, cack=335)


@pytest.mark.parametrize("knobs", [{}, {"rod_gap": "reorder"}])
def test_rod_has_no_ack_above_a_gap(knobs: dict[str, str]) -> None:
    """On ROD the ACK of 336 waits for the answers below it, and says enough."""
    x = Ladder(Mode.ROD, **knobs)
    x.b.ses.script = {334: "later"}
    reqs = sent(x)
    for psn in PSNS:
        x.b.rx(reqs[psn])
    x.b.silent()
    x.b.respond(334, "ok")
    x.b.sent("ACK", ack=336, cack=336)
    x.b.silent()
