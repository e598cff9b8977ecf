# SPDX-License-Identifier: GPL-2.0-only
"""Every state, every input: the matrix of STATES.md, pair by pair (architecture.md rule 2; pds.md §6.3–§6.5)."""

import random
import re
from typing import Any

import pytest

from tests.support.each import each
from tests.support.ladders.ladder import A, B, ScriptedMessage, ScriptedSes, answer
from tests.support.pds.headers import build_ack as plain_ack
from tests.support.pds.headers import build_control, build_nack, build_request, build_syn_control, build_syn_request
from uetproto.engine import Datagram, Mode, PdcErrorReason, Pds, PdsConfig, Preset, Trim
from uetproto.engine.pds.messages import Ack, Control, Nack, Request, parse
from uetproto.engine.pds.pdc import Pdc
from uetproto.engine.pds.retransmit import SendRecord
from uetproto.engine.pds.source import send
from uetproto.engine.pds.states import DEFAULTS, LOCAL, STATES, TABLES, Input, Role, State, row
from uetproto.engine.states_text import states_markdown
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_pds import CtlType, NackCode, NextHdr, PdsType

FORWARD, BACK = 333, 48
PAIRS = [(role, state, event) for role in (Role.INITIATOR, Role.TARGET) for state in STATES[role] for event in Input]
SES = bytes(44)


def make(role: Role, state: State) -> tuple[Pds, ScriptedSes, Pdc]:
    """A PDC in this state with one packet of its own in flight, and one delivered that SES has not answered."""
    ses = ScriptedSes()
    config = PdsConfig(secure_start="expected" if state is State.PENDING else "off")
    pds = Pds(A if role is Role.INITIATOR else B, config, random.Random(1), ses)
    preset = Preset(pdcid=7, peer_pdcid=3, forward_next=FORWARD, return_next=BACK)
    pdc = pds.adopt(B if role is Role.INITIATOR else A, Mode.RUD, role is Role.INITIATOR, preset)
    ses.otherwise = "later"
    first = pdc.rx.expected
    pdc.step(Input.REQUEST, parse(request(first)), datagram(pdc, request(first)), 0)
    ses.otherwise = "ok"
    if role is Role.INITIATOR:
        pdc.queue.append(ScriptedMessage(3, peer=B))
        send(pdc, 0)  # the message stays open
    else:
        pdc.queue.append(ScriptedMessage(3, peer=A))
        send(pdc, 0)
    pds.poll(0, 0)
    if state is State.CREATING:
        pdc.peer_id = 0
    if role is Role.TARGET and state is State.ACK_WAIT:
        pdc.close_psn = pdc.rx.max_rcvd + 5
    pdc.enter(state)
    return pds, ses, pdc


def request(psn: int) -> bytes:
    return build_request(Mode.RUD, NextHdr.REQUEST_STD, 0, 0, -1, psn, 3, 7) + SES


def datagram(pdc: Pdc, data: bytes, trimmed: Trim = Trim.NO) -> Datagram:
    return Datagram(pdc.peer, pdc.owner.address, data, trimmed=trimmed)


def arguments(pdc: Pdc, event: Input) -> tuple[Any, ...]:
    """What the input needs to be accepted where its row accepts it."""
    sent = next(iter(pdc.tx.records.values()))
    psn = (pdc.rx.max_rcvd + 1) & 0xFFFFFFFF
    cps = {
        Input.NOOP: (CtlType.NOOP, psn), Input.ACK_REQ: (CtlType.ACK_REQ, pdc.rx.max_rcvd),
        Input.CLEAR_CMD: (CtlType.CLEAR_CMD, 0), Input.CLEAR_REQ: (CtlType.CLEAR_REQ, 0),
        Input.CLOSE_CMD: (CtlType.CLOSE_CMD, psn), Input.CLOSE_REQ: (CtlType.CLOSE_REQ, psn),
        Input.PROBE: (CtlType.PROBE, psn), Input.NEGOTIATION: (CtlType.NEGOTIATION, psn),
        Input.CREDIT: (CtlType.CREDIT, 0), Input.CREDIT_REQ: (CtlType.CREDIT_REQ, 0), Input.OTHER_CP: (15, psn),
    }  # fmt: skip
    if event in (Input.CONFIRM, Input.OTHER_START, Input.SYN_GAP):
        data = build_syn_request(pdc.mode, NextHdr.REQUEST_STD, 0, 0, -1, psn, 3, 0) + SES
        return parse(data), datagram(pdc, data), 0
    if event in (Input.REQUEST, Input.TRIMMED):
        data = request(psn)
        trimmed = Trim.TRIMMED if event is Input.TRIMMED else Trim.NO
        return parse(data), datagram(pdc, data, trimmed), 0
    if event in cps:
        data = build_control(cps[event][0], 0, 0, 1, cps[event][1], 3, 7, pdc.rx.cack)
        return parse(data), datagram(pdc, data), 0
    if event is Input.ACK:
        data = plain_ack(NextHdr.NONE, 0, 0, 0, 0, sent.psn, 3, 7)
        return parse(data), datagram(pdc, data), 0
    nacks = {
        Input.NACK: NackCode.NO_PKT_BUFFER, Input.NACK_FATAL: NackCode.INV_DPDCID,
        Input.NEW_START: NackCode.NEW_START_PSN,
    }  # fmt: skip
    if event in nacks:
        data = build_nack(nacks[event], 0, 0, sent.psn, 3, 7, 9000)
        return parse(data), datagram(pdc, data), 0
    local = {
        Input.RETURN: (ScriptedMessage(1, peer=pdc.peer),), Input.SEND_CP: (CtlType.NOOP, 0),
        Input.SEND_CREDIT: (CtlType.CREDIT, 5),
    }  # fmt: skip
    if event in local:
        return *local[event], 0
    if event is Input.RESPOND:
        return pdc.rx.max_rcvd, answer("ok"), 0
    if event is Input.EXHAUSTED:
        return PdcErrorReason.RTO_EXHAUSTED, 0
    if event in (Input.RTO, Input.RETX_TIME):
        sent.cause = "NO_PKT_BUFFER"  # of the NACK that scheduled the retransmission
        return sent, 0
    return (0,)


@each("role, state, event", PAIRS)
def test_every_pair(role: Role, state: State, event: Input) -> None:
    pds, _, pdc = make(role, state)
    if event is Input.SEND:
        pdc.open_message = None
        pdc.queue.append(ScriptedMessage(1, peer=pdc.peer))
    handed = arguments(pdc, event)
    unexpected = pds.counters.unexpected
    found = row(role, state, event)
    if found is None:
        if event in LOCAL:
            with pytest.raises(LocalError, match=state.name):
                pdc.step(event, *handed)
        else:
            pdc.step(event, *handed)
        assert pdc.state is state
        assert not pds.out
        return
    pdc.step(event, *handed)
    assert pdc.state is found[1]
    if (state, event) not in TABLES[role]:
        assert pds.counters.unexpected == unexpected + 1
        sent = [parse(bytes(packet.header)) for packet in pds.out]
        refused = [m for m in sent if isinstance(m, Nack) and m.code == NackCode.UNEXP_EVENT]
        assert len(refused) == len(sent) == (DEFAULTS[event] == "refuse_unexpected")
    if found[1] is State.CLOSED:
        assert 7 not in pds.pdcs
        assert pdc.deadline() == 1 << 127


CLOSED_PACKETS: dict[Input, tuple[bytes, Trim]] = {
    Input.REQUEST: (request(333), Trim.NO),
    Input.TRIMMED: (request(333)[:12], Trim.TRIMMED),
    Input.ACK: (plain_ack(NextHdr.NONE, 0, 0, 0, 0, 333, 3, 7), Trim.NO),
    Input.NACK: (build_nack(NackCode.NO_RESOURCE, 0, 0, 333, 3, 7), Trim.NO),
    Input.NACK_FATAL: (build_nack(NackCode.INV_DPDCID, 0, 0, 333, 3, 7), Trim.NO),
    Input.NEW_START: (build_nack(NackCode.NEW_START_PSN, 0, 0, 333, 3, 7, 9000), Trim.NO),
    **{
        event: (build_control(ctl, 0, 0, 1, 333, 3, 7), Trim.NO)
        for event, ctl in ((Input.NOOP, CtlType.NOOP), (Input.ACK_REQ, CtlType.ACK_REQ),
                           (Input.CLEAR_CMD, CtlType.CLEAR_CMD), (Input.CLEAR_REQ, CtlType.CLEAR_REQ),
                           (Input.CLOSE_CMD, CtlType.CLOSE_CMD), (Input.CLOSE_REQ, CtlType.CLOSE_REQ),
                           (Input.PROBE, CtlType.PROBE), (Input.CREDIT, CtlType.CREDIT),
                           (Input.CREDIT_REQ, CtlType.CREDIT_REQ), (Input.NEGOTIATION, CtlType.NEGOTIATION),
                           (Input.OTHER_CP, 15))
    },
    Input.SYN: (build_syn_request(Mode.RUD, NextHdr.REQUEST_STD, 0, 0, -1, 335, 3, 2) + SES, Trim.NO),
    Input.SYN_GAP: (build_syn_request(Mode.ROD, NextHdr.REQUEST_STD, 0, 0, -1, 335, 3, 2) + SES, Trim.NO),
    **{
        event: (build_syn_request(Mode.RUD, NextHdr.REQUEST_STD, 0, 0, -1, 335, 3, 2) + SES, Trim.NO)
        for event in (Input.SYN_NO_PDC, Input.SYN_NO_CCC, Input.SYN_NO_BITMAP, Input.SYN_INSECURE, Input.SYN_OLD)
    },
    Input.SYN_CP: (build_syn_control(CtlType.CLOSE_CMD, 0, 0, 1, 335, 3, 2), Trim.NO),
    Input.OLD_CLOSE_CMD: (build_control(CtlType.CLOSE_CMD, 0, 1, 1, 336, 3, 7), Trim.NO),
}  # fmt: skip
TIGHT: dict[Input, dict[str, Any]] = {
    Input.SYN_NO_PDC: {"max_pdcs": 1},
    Input.SYN_NO_CCC: {"max_cccs": 1},
    Input.SYN_NO_BITMAP: {"max_bitmaps": 1},
    Input.SYN_INSECURE: {"secure_start": "expected"},
}
"""The resources that a row needs to be short of."""
ANSWERS: dict[str, NackCode | PdsType | None] = {
    "drop": None,
    "refuse_unknown": NackCode.INV_DPDCID,
    "refuse_unknown_cp": NackCode.INV_DPDCID,
    "refuse_gap": NackCode.ROD_OOO,
    "refuse_no_pdc": NackCode.NO_PDC_AVAIL,
    "refuse_no_ccc": NackCode.NO_CCC_AVAIL,
    "refuse_no_bitmap": NackCode.NO_BITMAP,
    "open_pending": NackCode.NEW_START_PSN,
    "repeat_closing_ack": PdsType.ACK,
    "open_target": PdsType.ACK,
}


@pytest.mark.parametrize("event", [event for state, event in TABLES[Role.CLOSED] if event not in LOCAL],
                         ids=lambda event: event.name)  # fmt: skip
def test_every_packet_without_a_pdc(event: Input) -> None:
    """pds.md §6.3 rows 5–8 and 11; a packet that opens a PDC is acknowledged at once."""
    pds = Pds(B, PdsConfig(**TIGHT.get(event, {})), random.Random(1), ScriptedSes())
    if event in (Input.SYN_NO_PDC, Input.SYN_NO_CCC):
        pds.open_initiator(99, Mode.RUD, 0)
    if event is Input.SYN_NO_BITMAP:
        other = build_syn_request(Mode.RUD, NextHdr.REQUEST_STD, 0, 0, -1, 1, 9, 0) + SES
        pds.receive(Datagram(99, B, other), 0)
        pds.poll(0)
    if event is Input.SYN_INSECURE:
        pds.preset(Preset(expected_psn=9000))
    if event in (Input.SYN_OLD, Input.OLD_CLOSE_CMD):
        pds.preset(Preset(pdcid=7))
        first = build_syn_request(Mode.RUD, NextHdr.REQUEST_STD, 0, 0, -1, 333, 3, 0) + SES
        close = build_control(CtlType.CLOSE_CMD, 0, 0, 1, 336, 3, 7)
        for psn in (334, 335):
            pds.receive(Datagram(A, B, first), 0)
            pds.receive(Datagram(A, B, request(psn)), 0)
        pds.receive(Datagram(A, B, close), 0)
        assert not pds.pdcs
        pds.poll(0)
    before = len(pds.pdcs)
    data, trimmed = CLOSED_PACKETS[event]
    pds.receive(Datagram(A, B, data, trimmed=trimmed), 0)
    sent = [parse(bytes(packet.header)) for packet in pds.poll(0)]
    action = row(Role.CLOSED, State.CLOSED, event)
    assert action is not None
    expected = ANSWERS[action[0]]
    assert len(pds.pdcs) == before + (action[1] is not State.CLOSED)
    assert all(pdc.state is action[1] for pdc in pds.pdcs.values() if pdc.peer == A)
    if expected is None:
        assert not sent
    elif isinstance(expected, NackCode):
        known = next((pdc.local_id for pdc in pds.pdcs.values() if pdc.peer == A), 0)
        assert [(m.code, m.spdcid, m.dpdcid) for m in sent if isinstance(m, Nack)] == [(expected, known, 3)]
    else:
        assert [type(m) for m in sent] == [Ack]


def test_markdown_names_every_state_and_action() -> None:
    text = states_markdown()
    for role in Role:
        for state in STATES[role]:
            assert state.name in text
        for action, _ in TABLES[role].values():
            assert f"| {action} |" in text
    assert text == states_markdown()


@each("event", Input)
def test_every_input_is_explained(event: Input) -> None:
    """One line in the glossary of STATES.md, with a section of pds.md."""
    _, heading, glossary = states_markdown().partition("## Inputs of a PDC\n")
    assert heading
    (line,) = re.findall(rf"^\| {event.name} \| (.+) \|$", glossary.partition("\n## ")[0], re.MULTILINE)
    assert re.fullmatch(r"[^|]{10,} \| pds\.md §\d+(\.\d+)?(, §\d+\.\d+)*", line)


def test_arguments_fit() -> None:
    """The harness hands over what it says."""
    _, _, pdc = make(Role.INITIATOR, State.ESTABLISHED)
    assert isinstance(arguments(pdc, Input.REQUEST)[0], Request)
    assert isinstance(arguments(pdc, Input.CLOSE_REQ)[0], Control)
    assert isinstance(arguments(pdc, Input.RTO)[0], SendRecord)
