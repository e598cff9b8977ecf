# SPDX-License-Identifier: GPL-2.0-only
"""The RoCEv2 packets and messages of one side of a capture: sent to another peer, and read."""

import random
from collections.abc import Iterable
from ipaddress import ip_address

import pytest

from tests.conform.faulty_roce_peers import ROCE_FAULTS, roce_peer_with
from tests.conform.test_faulty_roce_peers import by_hand
from tests.support.conform_roce import US, RoceLink, RocePeer
from tests.support.effort import effort
from tests.support.paths import PCAPS, SHARED
from uetproto import Packet, decode
from uetproto.conform.player import Patience
from uetproto.conform.replay.differences import AnswerDifference
from uetproto.conform.replay.messages import MessageBegan
from uetproto.conform.replay.roce_frames import RoceFrameReplay, places_for
from uetproto.conform.replay.roce_messages import RoceMessage, RoceMessageReader
from uetproto.conform.replay.roce_side import RoceSurvey, roce_survey
from uetproto.conform.replay.side import of_side
from uetproto.conform.roce.packets import RoceFacts, answer_of
from uetproto.errors import LocalError
from uetproto.wire.capture.base import Record
from uetproto.wire.capture.pcap import ETHERNET, open_capture

Packets = list[tuple[Record, Packet]]
SIDE = int(ip_address("10.0.0.11"))
SAME = (
    "roce-write", "roce-psn-wrap", "roce-send-imm", "roce-srq", "roce-fail-key", "roce-send-inv", "roce-uc-write-imm",
    "roce-ud-send-imm", "roce-ack-coalesced", "roce-zero", "roce-fail-unaligned", "roce-fail-icrc",
)  # fmt: skip
"""Captures that our adapter answers as it did then: nobody reads memory that was there before."""
OTHERS = {"send": "172.17.242.47", "write": "172.17.242.47", "read2": "172.17.242.47", "nvme-discover": "2.2.2.1"}
"""Captures of adapters of others, and who asks there."""


def read(name: str) -> Packets:
    file = PCAPS / f"{name}.pcapng"
    with open_capture(file if file.exists() else SHARED / "captures" / "roce" / f"{name}.pcap") as reader:
        return [(record, decode(record.data, length=record.length)) for record in reader]


class RocePlayed:
    """A replay in virtual time, with the frames that it sent and received."""

    def __init__(
        self, packets: Packets, address: int, peer: RocePeer | None = None, facts: RoceFacts | None = None,
        **more: bool,
    ) -> None:  # fmt: skip
        self.records: list[Record] = []
        peer = RocePeer(path_mtu=1024) if peer is None else peer
        self.survey = roce_survey(packets, 4, address, "capture")
        facts = facts or peer.facts
        self.replay = RoceFrameReplay(
            RoceLink(peer), facts, Patience(), "1", self.survey, places_for(self.survey, facts, "1", **more),
            recorded=lambda time, frame: self.records.append(
                Record(0, time // 1000, frame, len(frame), 0, ETHERNET, 0, None)
            ),
        )  # fmt: skip
        self.found: list[AnswerDifference] = [*self.replay.play(of_side(packets, 4, address, answer_of))]

    def packets(self) -> Packets:
        return [(record, decode(record.data)) for record in self.records]


@pytest.mark.parametrize("name", SAME)
def test_our_adapter_answers_as_it_did_and_a_replay_of_the_replay_too(name: str) -> None:
    played = RocePlayed(read(name), SIDE)
    assert [line for one in played.found for line in one.lines()] == []
    assert played.replay.sent
    answers = [packet for _, packet in read(name) if packet["ipv4"]["dst"] == SIDE]
    assert played.replay.alignment.same == len(answers)
    again = RocePlayed(played.packets(), int(ip_address(US)))
    assert (again.found, again.replay.sent) == ([], played.replay.sent)
    first = [bytes(record.data) for record in played.records]
    assert first == [bytes(record.data) for record in RocePlayed(read(name), SIDE).records]


def test_what_is_sent_has_other_numbers_and_is_the_same_otherwise() -> None:
    packets = read("roce-write")
    before = [one.answer for one in of_side(packets, 4, SIDE, answer_of) if one.sent]
    played = RocePlayed(packets, SIDE, addresses=False)
    now = [one.answer for one in of_side(played.packets(), 4, int(ip_address(US)), answer_of) if one.sent]
    assert len(before) == len(now) == 4
    assert len({(new.values["psn"] - old.values["psn"]) % (1 << 24) for old, new in zip(before, now, strict=True)}) == 1
    for old, new in zip(before, now, strict=True):
        assert {name for name, value in old.values.items() if new.values[name] != value} == {"psn", "destqp"}
        assert (old.payload, new.fault) == (new.payload, "")
    assert {one.fields["nak"][1] for one in played.found if "nak" in one.fields} == set()
    assert {one.key[1] for one in played.found if one.what == "extra"} == {"nak"}  # nobody has these keys


@pytest.mark.parametrize(("name", "field"), [
    ("answers have a = 1", "a"), ("MSN counts packets", "msn"), ("all answers of a READ have one PSN", "missing"),
    ("NAK invalid request is NAK remote operational error", "nak"),
])  # fmt: skip
def test_a_fault_of_the_peer_is_told(name: str, field: str) -> None:
    capture = {"nak": "roce-fail-unaligned", "missing": "roce-read-several"}.get(field, "roce-write")
    packets = read(capture)
    ignored = frozenset(("payload",))

    def told(peer: RocePeer) -> set[str]:
        found = RocePlayed(packets, SIDE, peer).found
        words = {name for one in found for name in one.fields} | {one.what for one in found if one.what != "differs"}
        return words - ignored

    assert told(RocePeer()) == set()
    assert field in told(roce_peer_with(ROCE_FAULTS[name]))


@pytest.mark.skipif(not (SHARED / "captures" / "roce").exists(), reason="captures of others are not at hand")
@pytest.mark.parametrize("name", OTHERS)
def test_adapters_of_others_are_answered_as_they_were(name: str) -> None:
    side = int(ip_address(OTHERS[name]))
    played = RocePlayed(read(name), side)
    assert [line for one in played.found for line in one.lines()] == []
    assert played.replay.alignment.same
    assert {*played.replay.left_out} <= {"answers to requests of the other side"}
    assert {pair.kind for pair in played.survey.pairs.values()} == {"rc", "ud"}


def test_a_queue_pair_by_hand_plays_the_first_one_of_its_kind() -> None:
    for name, kind in (("roce-write", "rc"), ("roce-uc-send", "uc"), ("roce-ud-send", "ud")):
        peer = RocePeer(path_mtu=4096)
        facts = by_hand(peer)
        played = RocePlayed(read(name), SIDE, peer, facts)
        assert played.found == []
        assert played.replay.sent == len([1 for _, packet in read(name) if packet["ipv4"]["src"] == SIDE])
        [pair] = played.replay.pairs.values()
        assert (pair.now.kind, pair.now.theirs in peer.node.hca.qps) == (kind, True)
    peer = RocePeer()
    several = RocePlayed(read("roce-srq"), SIDE, peer, by_hand(peer))
    assert several.replay.left_out == {"to queue pairs that the peer does not have, or that --transport leaves out": 1}


def test_what_cannot_be_played_is_refused() -> None:
    for name, address, told in (
        ("roce-write", "10.0.1.11", "10.0.1.11 sends no request of RC, UC or UD in x; legal: 10.0.0.11"),
        ("roce-write", "10.9.9.9", "10.9.9.9 sends no RoCEv2 packet in x; legal: 10.0.0.11, 10.0.1.11"),
        ("ses-write", "10.0.0.11", "10.0.0.11 sends no RoCEv2 packet in x; legal: uet"),
    ):
        with pytest.raises(LocalError, match=told.replace(".", r"\.")):
            roce_survey(read(name), 4, int(ip_address(address)), "x")
    cut = [(record._replace(data=record.data[:80]), decode(record.data[:80], length=record.length))
           for record, _ in read("roce-write")]  # fmt: skip
    with pytest.raises(LocalError, match=r"#1 has 80 of its \d+ bytes"):
        roce_survey(cut, 4, SIDE, "x")
    survey = roce_survey(read("roce-write"), 4, SIDE, "x")
    assert survey.regions == [survey.ranges[key][1] - survey.ranges[key][0] for key in survey.ranges]


def test_a_damaged_capture_is_no_error() -> None:
    """Bits, lengths, order and copies of the frames are wrong at random."""
    rng = random.Random(4)
    names = sorted(path.stem for path in PCAPS.glob("roce-*.pcapng") if "v6" not in path.stem)
    for _ in range(effort(25, 300, 3000)):
        damaged = []
        for record, _ in read(rng.choice(names))[:40]:
            data = bytearray(record.data)
            for _ in range(rng.choice((0, 0, 1, 3))):
                data[rng.randrange(34, len(data))] = rng.randrange(256)
            damaged.append((record, decode(bytes(data))))
        if rng.random() < 0.5:
            rng.shuffle(damaged)
        try:
            played = RocePlayed(damaged, SIDE)
        except LocalError:  # nothing of the side is left
            continue
        replay = played.replay
        assert len(played.found) == sum(replay.alignment.counts.values())
        for message in messages(damaged, played.survey)[0]:
            assert message.status is not None or message.pair.kind == "rc"


def messages(packets: Packets, survey: RoceSurvey) -> tuple[list[RoceMessage], dict[str, int]]:
    reader = RoceMessageReader("capture", survey, survey.pairs.values())
    began: list[RoceMessage] = []
    for event in reader.read(of_side(packets, 4, SIDE, answer_of)):
        if isinstance(event, MessageBegan):
            began.append(event.message)
        assert event.message in began
    return began, dict(reader.left_out)


def words(names: Iterable[RoceMessage]) -> list[str]:
    return [f"{one.operation.name} {one.length} {one.status}" for one in names]


@pytest.mark.parametrize(("name", "told"), [
    ("roce-write", ["RDMA_WRITE_LAST 12288 SUCCESS", "RDMA_WRITE_ONLY 5 SUCCESS"]),
    ("roce-mtu-256", ["RDMA_WRITE_LAST 1000 SUCCESS", "SEND_LAST 600 SUCCESS", "RDMA_READ_REQUEST 600 SUCCESS"]),
    ("roce-compare-swap", ["COMPARE_SWAP 8 SUCCESS"] * 2),
    ("roce-fail-key", ["RDMA_WRITE_ONLY 1000 REM_ACCESS_ERR"]),
    ("roce-fail-reordered", ["RDMA_WRITE_LAST 12288 SUCCESS"]),
    ("roce-fail-rnr", ["SEND_LAST 12288 SUCCESS"]),
    ("roce-fail-retry", ["RDMA_WRITE_ONLY 1000 None"]),
    ("roce-uc-send-imm", ["SEND_ONLY_WITH_IMMEDIATE 1000 SUCCESS", "SEND_LAST_WITH_IMMEDIATE 5000 SUCCESS"]),
    ("roce-ud-send", ["SEND_ONLY 1000 SUCCESS"]),
])  # fmt: skip
def test_messages_are_read_once_and_whole(name: str, told: list[str]) -> None:
    packets = read(name)
    survey = roce_survey(packets, 4, SIDE, name)
    began, left_out = messages(packets, survey)
    assert (words(began), left_out) == (told, {})
    for one in began:
        assert not one.fetches or len(one.answer) == one.length
        assert one.fetches or len(one.data) == one.length


def test_messages_to_queue_pairs_that_are_not_played_are_counted_once() -> None:
    packets = read("roce-srq")
    survey = roce_survey(packets, 4, SIDE, "x")
    first, _ = survey.pairs.values()
    reader = RoceMessageReader("capture", survey, [first])
    assert len([*reader.read(of_side([*packets, *packets], 4, SIDE, answer_of))]) == 4  # two begin, and end
    assert [*reader.left_out.values()] == [1]
    facts = RocePeer().facts
    with pytest.raises(LocalError, match="this side sends nothing over UD; legal: rc"):
        places_for(survey, facts, "1", service="ud")
    assert len(places_for(survey, facts, "1", service="rc").pairs) == 2


def test_too_many_open_bytes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    packets = read("roce-write")
    survey = roce_survey(packets, 4, SIDE, "x")
    monkeypatch.setattr("uetproto.conform.replay.roce_messages.MOST_BYTES", 9000)
    with pytest.raises(LocalError, match="capture: at #3, 0 messages of 12,288 bytes are open"):
        messages(packets, survey)
    del packets[1]  # what waits for it counts, too
    monkeypatch.setattr("uetproto.conform.replay.roce_messages.MOST_BYTES", 8000)
    with pytest.raises(LocalError, match="at #2, 0 messages of 8,192 bytes"):
        messages(packets, survey)


def test_messages_are_counted_although_the_first_ones_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of a queue pair tell the right MSN behind so many messages."""
    monkeypatch.setattr("uetproto.conform.replay.roce_frames._REMEMBERED", 1)
    played = RocePlayed(read("roce-credits"), SIDE)
    assert (played.found, played.replay.alignment.same) == ([], 3)
    [pair] = played.replay.pairs.values()
    assert pair.before > 0
    assert pair.done(2, refused=False) == 3


def test_what_is_lost_in_a_capture_is_not_whole() -> None:
    packets = read("roce-write")
    survey = roce_survey(packets, 4, SIDE, "x")
    del packets[1]
    assert (messages(packets, survey)) == ([], {"not whole in the capture": 1})
    packets = read("roce-uc-send")
    survey = roce_survey(packets, 4, SIDE, "x")
    assert messages(packets[:1] + packets[2:] + read("roce-uc-send"), survey)[1] == {"not whole in the capture": 1}
