# SPDX-License-Identifier: GPL-2.0-only
"""Rows of observed.md, "With our engines on the other end of a wire": the packets that the reference provider sent then
are played against our engine, which does what the row needs now.

Rows 5 and 7: what is judged of the first is in `tests/audit/test_interop.py`, and no capture shows the second
(`tests/engine/pds/test_foreign_peers.py`). These tests are skipped where the captures are absent.
"""

import pytest

from tests.support.interop.refprov_script import INTEROP, JOB, Script
from uetproto.engine import Mode, Preset
from uetproto.engine.contract import MILLISECOND, Datagram, Read, Receive, Received, Send
from uetproto.framing.uet import Encapsulation, UetFramer
from uetproto.wire.headers.uet_pds import AckReq, CtlType, NackCode, NextHdr, PdsType
from uetproto.wire.headers.uet_ses import Opcode, ReturnCode
from uetproto.wire.tuples import PdsAckHeader

pytestmark = pytest.mark.skipif(
    not INTEROP.is_dir(), reason=f"no captures of our engines and the provider in {INTEROP}"
)

KEY = 0x1000000000077
MS = MILLISECOND


def receive(size: int) -> Receive:
    return Receive(into=bytearray(size), job_id=JOB)


def data_of(script: Script) -> list[int]:
    return [one.ses["response_message_id"] for one in script.sent if one.pds["next_hdr"] == NextHdr.RESPONSE_DATA]


# Row 1: response_message_id ------------------------------------------------------------------------------------------


def reading_provider(**ses: str) -> Script:
    """The provider reads 4096 bytes of us, in four packets."""
    script = Script("server_default_rod_rma", "server", regions={KEY: bytearray(range(256)) * 16},
                    presets=[Preset(pdcid=1)], ses=ses)  # fmt: skip
    script.submit(receive(16))
    script.play(0, 4, 7, 10, 13)
    return script


def test_the_provider_finds_its_read() -> None:
    script = reading_provider()
    assert data_of(script) == [1, 1, 1, 1], "message_id of the READ, packet 4"
    assert b"".join(one.payload for one in script.sent if one.payload) == bytes(range(256)) * 16


def test_the_provider_did_not_find_it() -> None:
    """What it was sent in packets 6 to 15, and what it answered then: 16 to 19, UNDELIVERABLE. That ends nothing."""
    script = reading_provider(response_message_id="zero")
    assert data_of(script) == [0, 0, 0, 0]
    script.play(16, 17, 18, 19)
    script.wait(10_000 * MS)
    assert {one.pds["ctl_type"] for one in script.sent if one.type is PdsType.CP} == {CtlType.CLEAR_CMD}
    assert script.fep.quiescent


# Row 2: generations --------------------------------------------------------------------------------------------------


def before_the_read(**ses: object) -> Script:
    """A SEND without a buffer, which moves the provider's generation to 1, until it is accepted; then a READ."""
    script = Script("c_gen_refprov_rod", "client", presets=[Preset(pdcid=1, start_psn=0xC65307F5), Preset(pdcid=2)],
                    ses={"backoff_least": 80 * MS, "backoff_most": 80 * MS, **ses})  # fmt: skip
    script.submit(receive(16))
    script.submit(Send(peer=script.peer, data=bytes(16), mode=Mode.ROD, job_id=JOB, initiator=16))
    script.expect(psn=0xC65307F5)
    script.play(1)
    script.expect(psn=0xC65307F6)
    script.play(4)
    assert script.expect(psn=0xC65307F7).ses["ri_generation"] == 1
    script.play(6, 7)
    script.submit(Read(peer=script.peer, into=bytearray(4096), key=KEY, mode=Mode.ROD, job_id=JOB, initiator=16))
    return script


def test_a_read_has_the_generation_of_untagged_sends() -> None:
    script = before_the_read()
    reads = [one for one in script.sent if one.ses.get("opcode") == Opcode.READ]
    assert [one.ses["ri_generation"] for one in reads] == [1, 1, 1, 1]
    assert [event.ok for event in script.completions()] == [True]


def test_a_read_that_is_refused_for_its_generation_fails_at_once() -> None:
    """The READ of packets 9 to 14 and the answers to it: it is not sent again as it was."""
    script = before_the_read(rma_generation="zero")
    script.play(11, 13, 15, 16)
    script.wait(10_000 * MS)
    assert [one.ses["ri_generation"] for one in script.sent if one.ses.get("opcode") == Opcode.READ] == [0, 0, 0, 0]
    assert [(event.ok, event.return_code) for event in script.completions()][1:] == [(False, ReturnCode.BAD_GENERATION)]


# Row 3: packets after a gap on ROD -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("capture", "prologue", "psns", "late"), [
    # packets before the message, the message in its order, the one that comes last
    ("server_first_lost", (), (0, 1, 2, 3), 0),
    ("server_third_lost_ooo", (0, 1, 2, 3, 16, 18, 20, 22), (29, 30, 31, 32), 29),
    ("server_third_lost_ooo", (0, 1, 2, 3, 16, 18, 20, 22), (29, 30, 31, 32), 31),
])  # fmt: skip
def test_a_lost_packet_of_the_provider(
    capture: str, prologue: tuple[int, ...], psns: tuple[int, ...], late: int
) -> None:
    """Its target sends no ROD_OOO, waits for what is missing, and then has the message whole."""
    script = Script(capture, "server", presets=[Preset(pdcid=1)])
    count = len(prologue) // 4 + 1
    for _ in range(count):
        script.submit(receive(4096))
    script.play(*prologue)
    script.sent.clear()
    script.play(*(number for number in psns if number != late))
    assert not [one for one in script.sent if one.type is PdsType.NACK]
    script.play(late)
    assert not [one for one in script.sent if one.type is PdsType.NACK]
    newest = script.expect(cack_psn=decoded_psn(script, psns[-1]))
    assert newest.type is PdsType.ACK
    assert [event.length for event in script.events if isinstance(event, Received)] == [4096] * count


def decoded_psn(script: Script, number: int) -> int:
    return int.from_bytes(script.frames[number][14 + 20 + 4 + 4 :][:4], "big")


def test_a_target_that_discards_has_lost_the_provider() -> None:
    """The recorded run: `rod_gap` and `rod_recovery` of the default personality."""
    script = Script("server_first_lost", "server", "default")
    script.play(1, 2, 3)
    assert [one.pds["nack_code"] for one in script.sent] == [NackCode.ROD_OOO] * 3


# Row 4: an ACK_REQ without an answer ---------------------------------------------------------------------------------


def test_data_goes_again_after_a_dropped_ack_req() -> None:
    """Packets 212 to 217: the provider has PSNs 9210 to 9212, says that it works on them, and drops ACK_REQs for them,
    as its window is ahead. It answers copies of the packets."""
    script = Script("client_lossdef_rud_untag", "client", pds={"rto_init_time": 100 * MS},
                    ses={"backoff_least": 5_000 * MS, "backoff_most": 5_000 * MS})  # fmt: skip
    first = 0x85BD920F
    numbers = Preset(pdcid=1, peer_pdcid=1, forward_next=first, return_next=0x1000)
    script.fep.pds.adopt(script.peer, Mode.RUD, True, numbers)
    script.fep.initiator._next_id = 15
    for size in (1024, 4096):
        script.submit(Send(peer=script.peer, data=bytes(size), mode=Mode.RUD, job_id=JOB, initiator=16))
    script.play(201)
    for psn in range(first, first + 4):
        script.expect(psn=psn, retx=1)
    script.play(212, 213, 215, 217)
    script.expect(ctl_type=CtlType.CLEAR_CMD, ctl_payload=first)
    for psn in (first + 1, first + 2, first + 3):
        script.expect(ctl_type=CtlType.ACK_REQ, psn=psn)
    again = script.expect(psn=first + 1, retx=1)
    assert again.type is PdsType.RUD_REQ
    script.receive(provider_ack(script, first + 1, first + 4))
    assert [(event.message_id, event.ok) for event in script.completions()] == [(16, True)]


def provider_ack(script: Script, psn: int, cack: int) -> bytes:
    """Return the frame with which the provider answers a copy of a packet below its window (pds.md §8.1)."""
    header = PdsAckHeader.pack(NextHdr.NONE, 0, 0, AckReq.NONE, psn - cack, cack, 1, 1)
    packet = Datagram(script.peer, script.address, header)
    return UetFramer(script.peer, 4, Encapsulation(udp=False)).frame(packet)


# Row 6: sync groups --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("personality", "code"), [("refprov", ReturnCode.OK), ("default", ReturnCode.UNSUPPORTED_OP)])
def test_a_sync_write_of_the_provider(personality: str, code: ReturnCode) -> None:
    memory = bytearray(4096)
    script = Script("server_syncoff_rod", "server", personality, {KEY: memory}, presets=[Preset(pdcid=1)],
                    pds={"cp_mode_check": False})  # fmt: skip
    script.submit(receive(16))
    script.play(0, 4, 7, 10, 13)
    script.sent.clear()
    script.play(20, 21)
    assert {one.ses["return_code"] for one in script.sent if one.type in (PdsType.ACK, PdsType.ACK_CC)} == {code}
    assert any(memory[:1365]) == (code is ReturnCode.OK)


# Row 8: how many reads -----------------------------------------------------------------------------------------------


def reading_much(**ses: int) -> Script:
    script = Script("client_big_rod_rma", "client", presets=[Preset(pdcid=1, start_psn=0xA52C1BDD), Preset(pdcid=2)],
                    ses=ses)  # fmt: skip
    script.submit(receive(16))
    script.submit(Send(peer=script.peer, data=bytes(16), mode=Mode.ROD, job_id=JOB, initiator=16))
    script.play(1, 2)
    script.sent.clear()
    script.submit(Read(peer=script.peer, into=bytearray(1_000_000), key=KEY, mode=Mode.ROD, job_id=JOB, initiator=16))
    return script


def test_a_large_read_asks_for_what_the_provider_can_answer() -> None:
    """Each packet of data that it sends is answered with an ACK, and makes room for one request."""
    script = reading_much()
    asked = sum(one.ses.get("opcode") == Opcode.READ for one in script.sent)
    assert asked == 8
    for number in (number for number in range(5, 44) if script.theirs[number]):
        script.sent.clear()
        script.play(number)
        more = sum(one.ses.get("opcode") == Opcode.READ for one in script.sent)
        assert more == carries_data(script, number)
        if more:
            assert script.sent[0].type is PdsType.ACK, "the data is acknowledged first"


def carries_data(script: Script, number: int) -> bool:
    return int.from_bytes(script.frames[number][38:40], "big") >> 7 & 15 == NextHdr.RESPONSE_DATA


def test_waits_grow_while_the_provider_has_no_room() -> None:
    """Packet 44, NO_SES_MSG_AVAIL for the ninth packet, and again as often as that packet comes."""
    script = reading_much(max_reads=0)
    at = []
    for _ in range(8):
        script.play(44)
        script.expect(psn=0xA52C1BE6, retx=1)
        at.append(script.now)
    waits = [later - earlier for earlier, later in zip([0, *at], at, strict=False)]
    assert waits == [MS << step for step in range(8)]
    assert len(script.completions()) == 1, "the SEND: the READ goes on"
