# SPDX-License-Identifier: GPL-2.0-only
"""PEER.toml of RoCE: queue pairs by hand that serve the whole suite, what is asked at a rendezvous, and what is
refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.conform.faulty_roce_initiators import InitiatorFault
from tests.conform.faulty_roce_peers import ROCE_FAULTS, drops, roce_peer_with
from tests.conform.test_faulty_roce_initiators import with_fault
from tests.support.conform_roce import PATH_MTU, RoceLink, RocePeer
from uetproto.conform.catalogue import INITIATOR, ROCE, load, of_role
from uetproto.conform.player import ConformanceVerdict, Patience
from uetproto.conform.roce.hand import needed
from uetproto.conform.roce.pairs import PeerMemory
from uetproto.conform.roce.peer_file import (
    RocePeerFile,
    asked_toml,
    hand_toml,
    with_numbers,
)
from uetproto.conform.roce.play import gentle_first, play
from uetproto.conform.roce.questions import roce_ask, roce_askable
from uetproto.errors import LocalError
from uetproto.wire.headers.roce import Operation

TESTS = of_role(load(shipped=ROCE), INITIATOR)
MEMORY = PeerMemory(0x1234, 0x10000, 1 << 16)
LINK = {"udp_port": 4791, "path_mtu": PATH_MTU, "rto_ms": 200}
TEXT = hand_toml("10.0.0.2", "rc", LINK, MEMORY, TESTS, "1")
OTHERS = "".join(
    f"[{name}]\nkey = {0x2000 + at}\naddress = {0x100000 * at}\nlength = 4096\n\n"
    for at, name in enumerate(("read_only", "write_only", "other_domain"), 1)
)
WHOLE = (
    TEXT.replace('# file = "received.jsonl"', f'file = "received.jsonl"\n\n{OTHERS}')
    .replace("cnp = false", "cnp = true")
    .replace("own_memory = false", "own_memory = true")
)


def filled(folder: Path, peer: RocePeer) -> RocePeerFile:
    """PEER.toml with the numbers of the queue pairs that a peer made for it."""
    path = folder / "PEER.toml"
    path.write_text(WHOLE, encoding="utf-8")
    known = RocePeerFile(path).known(filled=False)
    assert known.hand is not None
    region = peer.pd.reg_mr(bytearray(MEMORY.length), addr=MEMORY.address, rkey=MEMORY.key)
    path.write_text(with_numbers(WHOLE, peer.tested.open_by_hand(known.hand, known.names)), encoding="utf-8")
    assert region.rkey == MEMORY.key
    return RocePeerFile(path)


def test_queue_pairs_by_hand_serve_the_whole_suite(tmp_path: Path) -> None:
    peer = RocePeer()
    known = filled(tmp_path, peer).known()
    assert known.hand is not None
    assert (known.transport, known.address, known.told["payload_mtu"]) == ("rc", "10.0.0.2", PATH_MTU)
    facts, link = replace(peer.facts, pairs=known.hand), RoceLink(peer)
    reasons = {test.id: play(test, link, facts, "1", Patience()).reason for test in gentle_first(TESTS)}
    lacking = {test.id for test in TESTS if {"posts", "own_key"} & {*test.needs}}
    assert {name for name, reason in reasons.items() if reason} == lacking, reasons
    assert len(TESTS) - len(lacking) > 110
    peer.tested.close()


@pytest.mark.parametrize("name", [
    "a gap gets an ACK in place of NAK", "NAK PSN sequence error has a PSN one too high", "a CNP is acknowledged",
])  # fmt: skip
def test_a_failure_leaves_the_tests_behind_it_alone(tmp_path: Path, name: str) -> None:
    """A queue pair on which a test failed serves no other: what it expects is not known."""
    fault = ROCE_FAULTS[name]
    peer = roce_peer_with(fault)
    known = filled(tmp_path, peer).known()
    assert known.hand is not None
    facts, link = replace(peer.facts, pairs=known.hand), RoceLink(peer)
    outcomes = [play(test, link, facts, "1", Patience()) for test in gentle_first(TESTS)]
    assert {one.test.id for one in outcomes if one.verdict is ConformanceVerdict.FAIL} == {*fault.failing}


def test_what_is_needed_is_made_once() -> None:
    tests = [test for test in TESTS if test.id in ("ROCE-RC-001", "ROCE-RC-090", "ROCE-UC-001", "ROCE-UD-001")]
    assert needed(tests) == [
        {"kind": "rc"}, {"kind": "uc"}, {"kind": "ud"}, {"kind": "rc", "receives": 0, "min_rnr_timer": 5}
    ]  # fmt: skip


NUMBERED = TEXT.replace("peer_qpn = 0,", "peer_qpn = 0x5000,", 1)
ONE = '[pairs]\na = { kind = "rc", qpn = 5, peer_qpn = 6 }\n[memory]\nkey = 1\n'


@pytest.mark.parametrize(("text", "told"), [
    (TEXT, r"pairs.rc1.peer_qpn: is missing; legal: Number of the peer's queue pair"),
    (NUMBERED, "pairs.rc2.peer_qpn: is missing"),
    ('[peer]\naddress = "10.0.0.2"\n', r"peer.rendezvous: is missing: nobody makes queue pairs"),
    ('[peer]\nrendezvous = "4793"\n' + ONE, "goes without pairs"),
    (ONE.replace("[memory]\nkey = 1\n", ""), "memory.key: is missing"),
    (ONE.replace("qpn = 5", "qpn = 1"), "pairs.a.qpn: 1 is not legal"),
    (ONE.replace('"rc"', '"rd"'), "pairs.a.kind"),
    (ONE.replace('"rc"', '"ud"'), "pairs.a.q_key: is missing"),
    (ONE.replace("qpn = 5", "qpm = 5"), "pairs.a.qpm: is not legal"),
    (ONE.replace("[memory]", 'b = { kind = "rc", qpn = 5, peer_qpn = 7 }\n[memory]'), "b.qpn: is that of pairs.a"),
    (ONE.replace("[memory]", 'b = { kind = "rc", qpn = 9, peer_qpn = 6 }\n[memory]'), "peer_qpn: is that of pairs.a"),
    ("pairs = 7\n", "pairs: has no queue pair"),
    ("[pairs]\na = 7\n", r"pairs.a: 7; legal: a table \[pairs.a\]"),
    (ONE + "[capabilities]\nreed = true\n", "did you mean read"),
    (ONE + '[peer]\naddress = "nobody"\n', "peer.address: 'nobody' is not legal"),
    (ONE + "[link]\npath_mtu = 1500\n", "link.path_mtu: 1500 is not legal; legal: 256"),
    (ONE + "[read_only]\naddress = 7\n", "read_only.key: is missing"),
    (ONE + "[other]\n", "other: is not legal"),
])  # fmt: skip
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "PEER.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(LocalError, match=rf"PEER.toml:\d+: .*{told}"):
        RocePeerFile(path).known()


def test_reports_of_a_peer_that_make_no_sense_are_told_with_their_line(tmp_path: Path) -> None:
    peer = RocePeer()
    known = filled(tmp_path, peer).known()
    hand = known.hand
    assert hand is not None
    pair = hand.pairs[0]
    file = tmp_path / "received.jsonl"
    line = f'{{"qp_num": {pair.theirs}, "data": "00ff", "length": 2, "srcqp": 257}}\n'
    file.write_text(line + line[:9], encoding="utf-8")
    assert [message.data for message in hand.messages(pair)] == [b"\0\xff"]
    for wrong in ("[]", "7", "{", '{"qp_num": 1}', f'{{"qp_num": {pair.theirs}, "data": "xy", "length": 2}}', "\xff"):
        file.write_text(line, encoding="utf-8")
        with file.open("a", encoding="latin-1") as out:
            out.write(f"{wrong}\n")
        with pytest.raises(LocalError, match=r"received.jsonl:\d+"):
            replace(hand, _at=0, _line=0).messages(pair)
    peer.tested.close()


def asked(peer: RocePeer) -> dict[str, bool | None]:
    return {name: roce_ask(name, RoceLink(peer), peer.facts, "1", Patience()).has for name in roce_askable()}


def test_a_peer_says_what_it_has(tmp_path: Path) -> None:
    assert asked(RocePeer()) == dict.fromkeys(("uc", "ud", "read", "atomic", "invalidate", "cnp"), True)
    deaf, _ = with_fault(InitiatorFault((), drops(lambda packet, bth: bth["opcode"] == Operation.FETCH_ADD)))
    answers = [roce_ask(name, RoceLink(deaf), deaf.facts, "1", Patience()) for name in roce_askable()]
    assert {answer.name for answer in answers if answer.has is False} == {"atomic"}
    path = tmp_path / "PEER.toml"
    path.write_text(asked_toml("10.0.0.2", "rc", "4793", 5_000_000, 200, answers), encoding="utf-8")
    known = RocePeerFile(path).known()
    assert (known.rendezvous, known.hand, known.lacking) == ("4793", None, {"atomic"})
    assert {*known.claims} == {*roce_askable()} - {"atomic"}
