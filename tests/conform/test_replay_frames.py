# SPDX-License-Identifier: GPL-2.0-only
"""The packets of one side of a capture, sent to another peer: what that peer answers otherwise is told."""

import random
from collections.abc import Iterable, Iterator
from functools import partial
from ipaddress import ip_address

import pytest

from tests.conform.faulty_peers import FAULTS, peer_with
from tests.support.conform import FACTS, US, AdapterLink, facts
from tests.support.effort import effort
from tests.support.paths import PCAPS, SHARED
from uetproto import Packet, decode
from uetproto.conform.packets import answer_of
from uetproto.conform.player import Patience
from uetproto.conform.replay.differences import AnswerDifference
from uetproto.conform.replay.messages import MessageBegan, MessageReader
from uetproto.conform.replay.side import NO_KEY, of_side, survey
from uetproto.conform.replay.uet_frames import UetFrameReplay
from uetproto.errors import LocalError
from uetproto.wire.capture.base import Record
from uetproto.wire.capture.pcap import ETHERNET, open_capture
from uetproto.wire.flow_crc import decoded

Packets = Iterable[tuple[Record, Packet]]
CAPTURES = ("ses-write", "ses-fetching-atomic", "ses-fail-bad-mkey", "ladder-L06", "gradient-lossy", "ladder-L16",
            "gradient-native-v6", "ses-rudi-write", "ladder-L24")  # fmt: skip
PROVIDER = ["client_sync_rod", "client_refprov_rud_atomic", "client_refprov_rod_rma"]

uet_side = partial(of_side, read=answer_of)
"""Yields the UET packets of a side."""


def read(name: str) -> Packets:
    with open_capture(PCAPS / f"{name}.pcapng") as reader:
        yield from decoded(reader, lambda record, crc: decode(record.data, crc=crc, length=record.length), pipe=False)


def sender(packets: Packets) -> tuple[int, int]:
    """Return IP version and address of who sent the first packet."""
    for _, packet in packets:
        if "ipv4" in packet:
            return 4, packet["ipv4"]["src"]
        if "ipv6" in packet:
            return 6, packet["ipv6"]["src"]
    raise AssertionError("no packet")


class Played:
    """A replay in virtual time, with the frames that it sent and received."""

    def __init__(self, packets: Packets, version: int, address: int, link: AdapterLink, **more: bool) -> None:
        self.records: list[Record] = []
        self.replay = UetFrameReplay(link, FACTS, Patience(), "1", recorded=self._record, **more)
        self.found: list[AnswerDifference] = [*self.replay.play(uet_side(packets, version, address))]

    def _record(self, time: int, frame: bytes) -> None:
        self.records.append(Record(0, time // 1000, frame, len(frame), 0, ETHERNET, 0, None))

    def packets(self) -> Iterator[tuple[Record, Packet]]:
        return ((record, decode(record.data, crc="on")) for record in self.records)


@pytest.mark.parametrize("name", CAPTURES[:: effort(2, 1, 1)])
def test_a_replay_played_again_has_no_difference(name: str) -> None:
    version, address = sender(read(name))
    first = Played(read(name), version, address, AdapterLink())
    alignment = first.replay.alignment
    assert first.replay.sent
    assert alignment.counts == {one: sum(two.what == one for two in first.found) for one in alignment.counts}
    again = Played(first.packets(), 4, int(ip_address(US)), AdapterLink())
    assert again.found == []
    assert again.replay.alignment.same
    assert again.replay.sent >= first.replay.sent
    assert [frame.data[:42] for frame in again.records][:1] == [frame.data[:42] for frame in first.records][:1]


def test_what_is_sent_has_other_pdcids_and_psns_and_is_the_same_otherwise() -> None:
    version, address = sender(read("gradient-lossy"))
    before = [one.answer for one in uet_side(read("gradient-lossy"), version, address) if one.sent]
    played = Played(read("gradient-lossy"), version, address, AdapterLink(), addresses=False)
    now = [one.answer for one in uet_side(played.packets(), 4, int(ip_address(US))) if one.sent]
    assert len(before) == len(now) > 5
    shifts = {(new.values["psn"] - old.values["psn"]) & 0xFFFFFFFF for old, new in zip(before, now, strict=True)}
    assert len(shifts) == 1
    assert 0 not in shifts
    for old, new in zip(before, now, strict=True):
        others = {name for name, value in old.values.items() if new.values[name] != value}
        assert others <= {"psn", "spdcid", "dpdcid", "clear_psn"}
        assert (old.payload, new.fault) == (new.payload, "")


def recorded() -> Played:
    """Return a replay with a retransmission of an error, a read and a close, whose peer is right."""
    version, address = sender(read("ses-fail-bad-mkey"))
    return Played(read("ses-fail-bad-mkey"), version, address, AdapterLink(), addresses=False)


def test_a_fault_of_the_peer_is_told_by_its_field() -> None:
    right = recorded()
    faults = {
        "CACK is one too high behind the wrap": None,
        "a reserved bit of ACKs is 1": "rsvd2",
        "an error of the initiator is executed": None,
    }
    for name, field in faults.items():
        link = AdapterLink(peer_with(FAULTS[name]))
        found = Played(right.packets(), 4, int(ip_address(US)), link, addresses=False).found
        assert {one for difference in found for one in difference.fields} == ({field} if field else set())


def test_a_peer_that_answers_nothing_misses_all_and_takes_little_time() -> None:
    class Silent(AdapterLink):
        def send(self, frame: bytes) -> None:
            pass

    version, address = sender(read("gradient-lossy"))
    link = Silent()
    played = Played(read("gradient-lossy"), version, address, link)
    assert {one.what for one in played.found} == {"missing"}
    assert link.now < 3 * 10**12


def test_fields_that_are_ignored_are_not_compared() -> None:
    version, address = sender(read("ses-fetching-atomic"))
    side = [*uet_side(read("ses-fetching-atomic"), version, address)]
    every = UetFrameReplay(AdapterLink(), FACTS, Patience(), "1")
    told = {name for one in every.play(side) for name in one.fields}
    assert "payload" in told
    fewer = UetFrameReplay(AdapterLink(), FACTS, Patience(), "1", ignored=frozenset({*told} - {"type"}))
    assert {name for one in fewer.play(side) for name in one.fields} == told & {"type"}


@pytest.mark.parametrize(("name", "address", "told"), [
    ("ses-write", "10.9.9.9", "10.9.9.9 sends no UET packet .*10.0.0.11, 10.0.1.11"),
    ("roce-write", "10.0.0.11", "10.0.0.11 sends no UET packet in .*; legal: rc"),
    ("gradient-sealed-cluster", "10.0.0.11", "#1 is sealed.*--captured-keys"),
])  # fmt: skip
def test_a_side_that_cannot_be_sent_is_refused(name: str, address: str, told: str) -> None:
    with pytest.raises(LocalError, match=told):
        survey(read(name), 4, int(ip_address(address)), name)


def test_a_capture_with_cut_frames_is_refused() -> None:
    cut = [(record._replace(data=record.data[:96]), decode(record.data[:96], length=record.length))
           for record, _ in read("ses-write")]  # fmt: skip
    with pytest.raises(LocalError, match=r"#1 has 96 of its \d+ bytes"):
        survey(cut, 4, int(ip_address("10.0.0.11")), "cut")
    assert survey(cut, 4, int(ip_address("10.0.1.11")), "cut").senders


@pytest.mark.skipif(not (SHARED / "captures" / "interop").exists(), reason="captures of others are not at hand")
@pytest.mark.parametrize(
    "name", ["client_sync_rod", "client_refprov_rud_atomic", "client_refprov_rod_rma"][: effort(2, 3, 3)]
)
def test_the_provider_is_answered_as_it_was(name: str) -> None:
    """Our engine with the personality of the provider answers the packets that the provider sent as it did then."""
    from uetproto.engine.config import PERSONALITIES

    refprov = PERSONALITIES["refprov"]
    link = AdapterLink(
        payload_mtu=1024, knobs={n: v for n, v in (refprov["pds"] | refprov["ses"]).items() if n != "payload_mtu"}
    )
    with open_capture(SHARED / "captures" / "interop" / f"{name}.pcap") as reader:
        packets = [(record, decode(record.data, crc="on", ip_protocol=253)) for record in reader]
    replay = UetFrameReplay(link, facts(payload_mtu=1024), Patience(), "1")
    found = [*replay.play(uet_side(packets, 4, int(ip_address("10.1.0.2"))))]
    assert replay.alignment.same > 40
    assert {name for one in found for name in one.fields} <= {"payload"}  # of memory that the provider had
    assert {one.what for one in found} <= {"differs"}


def test_a_pdc_that_the_peer_closes_is_told_once() -> None:
    """The peer forgets its PDCs after some packets, and refuses those that follow."""

    class Forgetful(AdapterLink):
        sent = 0

        def send(self, frame: bytes) -> None:
            self.sent += 1
            if self.sent == 2:
                self.adapter.reset(self.config)
            super().send(frame)

    version, address = sender(read("ses-fetching-atomic"))
    played = Played(read("ses-fetching-atomic"), version, address, Forgetful())
    assert played.replay.left_out == {"of PDCs that the peer closed although the capture goes on": 1}
    assert 0 < sum(played.replay.alignment.counts.values()) < 4


def test_the_first_good_key_is_that_of_the_peer() -> None:
    def key(name: str) -> int:
        return survey(read(name), 4, int(ip_address("10.0.0.11")), name).key

    [used] = {one.answer.values["memory_key"] for one in uet_side(read("ses-write"), 4, int(ip_address("10.0.0.11")))
              if "memory_key" in one.answer.values}  # fmt: skip
    assert key("ses-write") == used
    assert key("ses-msg-error") == NO_KEY  # the only key is refused
    assert key("ses-send") == NO_KEY


def test_a_damaged_capture_is_no_error() -> None:
    """Bits, lengths, order and copies of the frames are wrong at random."""
    rng = random.Random(3)
    names = sorted(path.stem for path in PCAPS.glob("*.pcapng") if path.stem.startswith(("ses-", "ladder", "uet-")))
    for _ in range(effort(30, 300, 3000)):
        frames = [(record, bytearray(record.data)) for record, _ in read(rng.choice(names))][:40]
        damaged = []
        for record, data in frames:
            for _ in range(rng.choice((0, 0, 1, 3))):
                data[rng.randrange(34, len(data))] = rng.randrange(256)
            damaged.append(record._replace(data=bytes(data)))
        if rng.random() < 0.5:
            rng.shuffle(damaged)
        packets = [(record, decode(record.data, crc="off", length=record.length)) for record in damaged]
        version, address = sender(packets)
        side = [*uet_side(packets, version, address)]
        replay = UetFrameReplay(AdapterLink(), FACTS, Patience(), "1")
        told = [*replay.play(side)]
        assert replay.sent + replay.left_out.total() == sum(one.sent for one in side)
        assert len(told) == sum(replay.alignment.counts.values())
        began = set()
        for event in MessageReader("damaged").read(side):
            if isinstance(event, MessageBegan):
                began.add(id(event.message))
            assert id(event.message) in began


def test_a_peer_that_floods_ends_the_replay() -> None:
    class Flood(AdapterLink):
        def receive(self, until: int) -> bytes | None:
            return self.last

        def send(self, frame: bytes) -> None:
            self.last = frame

    link = Flood()
    link.last = bytes(60)
    version, address = sender(read("gradient-lossy"))
    replay = UetFrameReplay(link, FACTS, Patience(), "1")
    told = [*replay.play(uet_side(read("gradient-lossy"), version, address))]
    assert (replay.floods, replay.received < 10_000) == (True, True)
    assert len(told) < 10_000
