# SPDX-License-Identifier: GPL-2.0-only
"""Traffic of RoCE: every packet whole, every opcode and syndrome met, errors that are answered and outlived."""

import json
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.cli.generate import status
from tests.support.effort import effort
from tests.support.interop.tshark import folder, needs_tshark, run, write_pcap
from tests.support.traffic.generate import MADE, Nowhere, frames, made, records
from uetproto import LocalError, Packet, decode
from uetproto.engine.roce.contract import QpType
from uetproto.engine.roce.segments import KINDS
from uetproto.traffic.generate import TrafficRun, generate
from uetproto.traffic.profile import load, names
from uetproto.traffic.roce_errors import PROTOCOL_ERRORS, ErrorKind
from uetproto.wire.capture.pcap import open_capture
from uetproto.wire.headers.roce import MULTICAST_QP

ROCE = [name for name in names() if load(name).transport != "uet"]
OPCODES = {"rc": {*range(0x15), 0x16, 0x17}, "uc": {*range(0x20, 0x2C)}, "ud": {0x64, 0x65}}
"""roce.md §3, without what 1.5 has added."""
PEACE = ("loss=0", "reorder=0", "protocol_errors=0", "unexpected=0")


TO_TSHARK = effort(700, 1_500, 1_500)
FINISHED = effort(1_200, 3_000, 3_000)


def finished(name: str, *settings: str, packets: int = FINISHED) -> TrafficRun:
    world = TrafficRun(load(name, settings), Nowhere(), packets=packets)
    while world.run(1000):
        pass
    assert world.tap.packets == packets
    return world


def bths(found: list[tuple[int, Packet]]) -> list[dict[str, int]]:
    return [packet["bth"] for _, packet in found]


# What is in it


@pytest.mark.parametrize("name", ROCE)
@pytest.mark.parametrize("how", ["ip=4", "ip=6", "tap=target", "tap=wire"])
def test_every_packet_is_whole_and_in_order(name: str, how: str, tmp_path: Path) -> None:
    found = records(made(tmp_path, name, how))
    assert len(found) == MADE
    times = [time for time, _ in found]
    assert times == sorted(times)
    for _, packet in found:
        assert packet.error is None
        assert packet.notes == ()
        assert packet.trailer is not None
        assert (packet.trailer.kind, packet.trailer.ok) == ("icrc", True)
        assert packet.layers[1].form == ("ipv6" if how == "ip=6" else "ipv4")


@pytest.mark.parametrize("name", ROCE)
def test_without_icrc_all_else_is_the_same(name: str, tmp_path: Path) -> None:
    """It is there, but 0."""
    with_it = frames(made(tmp_path, name))
    without = frames(made(tmp_path, name, "crc=off"))
    assert without == [frame[:-4] + bytes(4) for frame in with_it]
    assert all(decode(frame, crc="off").error is None for frame in without)


@pytest.mark.parametrize("transport", ["rc", "uc", "ud"])
def test_every_opcode_is_met(transport: str, tmp_path: Path) -> None:
    path = tmp_path / "all.pcap"
    outcome = generate(load(f"roce-{transport}"), str(path), packets=effort(2_000, 20_000, 20_000), coverage=True)
    met = Counter(bth["opcode"] for bth in bths(records(path)))
    assert set(met) == OPCODES[transport]
    assert outcome.coverage is not None
    assert outcome.possible is not None
    assert sorted(outcome.coverage["opcodes"].values()) == sorted(met.values())
    assert outcome.possible["opcodes"] == len(met)
    assert outcome.possible["forms"] == len(outcome.coverage["forms"])
    assert outcome.coverage["sends"] == outcome.completions


def test_every_refusal_and_every_status_is_met(tmp_path: Path) -> None:
    """Of RC, with one wrong operation in ten.

    NAK 0x64 is of RD alone, BAD_RESP_ERR and the fatal ones are not of peers that behave.
    """
    path = tmp_path / "rc.pcap"
    profile = load("roce-rc", ["protocol_errors=0.1"])
    outcome = generate(profile, str(path), packets=effort(8_000, 30_000, 30_000), coverage=True)
    syndromes = {packet["aeth"]["syndrome"] for _, packet in records(path) if packet.layers[-1].form == "aeth"}
    assert {s for s in syndromes if s >= 0x60} == {0x60, 0x61, 0x62, 0x63}
    assert {s for s in syndromes if 0x20 <= s < 0x40} == {0x20 + 12}
    assert outcome.coverage is not None
    assert set(outcome.coverage["syndromes"]) == {
        "ACK", "RNR NAK", "PSN_SEQUENCE_ERROR", "INVALID_REQUEST", "REMOTE_ACCESS_ERROR", "REMOTE_OPERATIONAL_ERROR",
    }  # fmt: skip
    assert set(outcome.coverage["sends"]) == {
        "SUCCESS", "LOC_PROT_ERR", "WR_FLUSH_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR", "RETRY_EXC_ERR",
        "RNR_RETRY_EXC_ERR",
    }  # fmt: skip
    assert set(outcome.coverage["receives"]) == {"SUCCESS", "LOC_LEN_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR"}
    assert set(outcome.nacks) == set(outcome.coverage["syndromes"]) - {"ACK"}


def test_they_really_talk(tmp_path: Path) -> None:
    """PSNs of requests follow one another, each answer is to a request that has asked for it."""
    sent: dict[int, int] = {}
    asked: set[int] = set()
    answers = 0
    for bth in bths(
        records(made(tmp_path, "roce-bench", "operations=write,send", "pdcs=3", packets=effort(2500, 5000, 5000)))
    ):
        if bth["opcode"] == 0x11:
            answers += 1
            assert bth["psn"] in asked
        else:
            last = sent.get(bth["destqp"])
            assert last is None or bth["psn"] == (last + 1) % 2**24
            sent[bth["destqp"]] = bth["psn"]
            asked |= {bth["psn"]} if bth["a"] else set()
    assert len(sent) == 3
    assert answers > 30


def test_a_mix_of_transports(tmp_path: Path) -> None:
    found = bths(records(made(tmp_path, "roce-mixed", "transport={rc = 1, ud = 1}")))
    assert {bth["opcode"] >> 5 for bth in found} == {QpType.RC, QpType.UD}
    found = bths(records(made(tmp_path, "roce-mixed", "transport=uc", "operations=write,send", "multicast=0")))
    assert {bth["opcode"] >> 5 for bth in found} == {QpType.UC}


def test_groups(tmp_path: Path) -> None:
    """One copy on the wire; each target receives one (roce.md §11)."""
    for ip, mac in ((4, 0x01005E010000), (6, 0x333300000000)):
        found = records(made(tmp_path, "roce-ud", f"ip={ip}", "multicast=0.5"))
        groups = [packet for _, packet in found if packet["bth"]["destqp"] == MULTICAST_QP]
        assert 0.4 * MADE < len(groups) < 0.6 * MADE
        assert {packet["ethernet"]["dst"] for packet in groups} == {mac, mac + 1}
    world = finished("roce-ud", *PEACE, "multicast=1", "pdcs=1", "endpoints=8")
    targets = world.workload.stations[world.profile.initiators :]
    assert len(targets) == 4
    assert world.workload.received["SUCCESS"] > 4 * FINISHED * 2 / 3
    assert world.workload.received["SUCCESS"] % 4 == 0
    assert set(world.workload.received) == {"SUCCESS"}


def test_a_datagram_is_received_behind_its_ip_header() -> None:
    for ip, first in ((4, 20), (6, 0)):
        world = finished("roce-ud", *PEACE, f"ip={ip}", "multicast=0")
        for target in world.workload.stations[world.profile.initiators :]:
            start = bytes(target.scratch.memory.read(0, 40))
            assert start[:first] == bytes(first)
            assert start[first] >> 4 == ip


def test_connections_are_those_of_the_profile(tmp_path: Path) -> None:
    settings = (*PEACE, "endpoints=5", "pdcs=3", "sizes=100", "operations_per_pdc=0")
    pairs = defaultdict(set)
    for _, packet in records(made(tmp_path, "roce-rc", *settings)):
        ends = frozenset((packet["ipv4"]["src"], packet["ipv4"]["dst"]))
        pairs[ends].add((packet["ipv4"]["dst"], packet["bth"]["destqp"]))
    assert len(pairs) == 2 * 3
    assert {len(qps) for qps in pairs.values()} == {2 * 3}


def test_connections_are_closed_and_others_take_their_place(tmp_path: Path) -> None:
    for name in ("roce-rc", "roce-uc"):
        profile = load(name, [*PEACE, "endpoints=2", "pdcs=1", "operations_per_pdc=10", "sizes=100"])
        path = tmp_path / "c.pcap"
        outcome = generate(profile, str(path), packets=effort(1000, 3000, 3000))
        requests = {bth["destqp"] for bth in bths(records(path)) if not 0x0D <= bth["opcode"] <= 0x12}
        assert len(requests) >= sum(outcome.operations.values()) // 10 - 1
        assert set(outcome.completions) == {"SUCCESS"}


# What goes wrong


def outcome_of(way: ErrorKind, kind: QpType) -> tuple[set[str], set[str], set[str]]:
    """Statuses of sends and receives, and NAKs, if all operations go this way; each may go wrong before it is met."""
    code = next(code for code in KINDS if code in way.opcodes and kind in KINDS[code].services)
    profile = load("roce-mixed", ["depth=1", "protocol_errors=1", "multicast=0", "sizes=40", "roce.rnr_retry=1"])
    profile = replace(profile, operations=type(profile.operations)({code: 1.0}), transports={kind: 1.0})
    world = TrafficRun(profile, Nowhere(), packets=effort(120, 300, 300))
    world.workload._ways = {(kind, code): (way,)}
    rounds = 0
    while world.run(500) and rounds < effort(3, 20, 20):
        rounds += 1
    return set(world.workload.ended), set(world.workload.received), set(world.workload.naks())


RC_OUTCOMES = (
    # sends                  receives            NAKs                               what is wrong
    ({"LOC_PROT_ERR"},       set(),              set()),                          # the own key
    ({"REM_ACCESS_ERR"},     set(),              {"REMOTE_ACCESS_ERROR"}),        # no such r_key
    ({"REM_ACCESS_ERR"},     set(),              {"REMOTE_ACCESS_ERROR"}),        # no remote right
    ({"REM_ACCESS_ERR"},     set(),              {"REMOTE_ACCESS_ERROR"}),        # another protection domain
    ({"REM_ACCESS_ERR"},     set(),              {"REMOTE_ACCESS_ERROR"}),        # outside the region
    ({"REM_ACCESS_ERR"},     {"WR_FLUSH_ERR"},   {"REMOTE_ACCESS_ERROR"}),        # no such key to invalidate
    ({"REM_INV_REQ_ERR"},    set(),              {"INVALID_REQUEST"}),            # misaligned
    ({"REM_INV_REQ_ERR"},    {"LOC_LEN_ERR"},    {"INVALID_REQUEST"}),            # longer than the receive
    ({"REM_OP_ERR"},         {"LOC_PROT_ERR"},   {"REMOTE_OPERATIONAL_ERROR"}),   # a receive in no region
    ({"RNR_RETRY_EXC_ERR"},  set(),              {"RNR NAK"}),                    # no receive
    ({"RETRY_EXC_ERR"},      set(),              set()),                          # no peer
)  # fmt: skip
"""Outcomes of the errors that RC can have, in their order (roce.md §8, §10)."""


ON_RC = [way for way in PROTOCOL_ERRORS if QpType.RC in way.kinds]


@pytest.mark.parametrize(("way", "outcome"), list(zip(ON_RC, RC_OUTCOMES, strict=True)))
def test_every_way_ends_as_it_should_on_rc(way: ErrorKind, outcome: tuple[set[str], set[str], set[str]]) -> None:
    assert outcome_of(way, QpType.RC) == outcome


@pytest.mark.parametrize(
    ("way", "kind"), [(way, kind) for kind in (QpType.UC, QpType.UD) for way in PROTOCOL_ERRORS if kind in way.kinds]
)
def test_every_way_is_silent_on_uc_and_ud(way: ErrorKind, kind: QpType) -> None:
    """Only what the sender itself sees is told (roce.md §10, §11)."""
    own = way.change.__name__ == "_own_key"
    assert outcome_of(way, kind) == ({"LOC_PROT_ERR"} if own else {"SUCCESS"}, set(), set())


@pytest.mark.parametrize("name", ROCE)
@pytest.mark.parametrize("settings", [("protocol_errors=1",), ("loss=1",), ("loss=0.2", "reorder=0.2")])
def test_traffic_goes_on(name: str, settings: tuple[str, ...]) -> None:
    world = finished(name, *settings, "sizes=2 KiB", packets=effort(1_500, 12_000, 12_000))
    assert sum(world.workload.ended.values()) >= 16


def test_queue_pairs_that_have_failed_are_destroyed() -> None:
    world = finished("roce-rc", "protocol_errors=1", packets=effort(4000, 6000, 6000))
    failed = sum(count for status, count in world.workload.ended.items() if status not in ("SUCCESS", "WR_FLUSH_ERR"))
    assert failed > 200
    for station in world.workload.stations:
        assert set(station.ends) == set(station.hca.qps)
        assert len(station.ends) < 40
    highest = max(number for station in world.workload.stations for number in station.ends)
    assert highest > 100, "they were fresh ones"


def test_a_message_before_its_receive() -> None:
    """RC waits for it; UC and UD have lost it."""
    rc = finished("roce-rc", *PEACE, "unexpected=1", "operations=send")
    assert rc.workload.naks().keys() == {"RNR NAK"}
    assert set(rc.workload.ended) == {"SUCCESS"}
    for name in ("roce-uc", "roce-ud"):
        world = finished(name, *PEACE, "unexpected=1", "operations=send")
        assert world.workload.received["SUCCESS"] < 0.8 * world.workload.ended["SUCCESS"]


def test_receives_of_lost_messages_do_not_heap_up() -> None:
    for name in ("roce-uc", "roce-ud"):
        world = finished(name, "loss=0.5", "operations=send", "unexpected=0.5")
        for station in world.workload.stations:
            for end in station.ends.values():
                qp = station.hca.qps[end.number]
                assert len(qp.receives.items) <= end.most
                assert end.posted == len(qp.receives.items) + (qp.held is not None)


@pytest.mark.parametrize("settings", [("sizes=0",), ("roce.timeout=0", "loss=0", "reorder=0"), ("depth=300", "pdcs=3")])
def test_extremes(settings: tuple[str, ...]) -> None:
    for name in ROCE:
        finished(name, *settings)


# Refusals


SHARES = "one of these, a list, or a table of shares"


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        # operations and transports
        (
            "roce-uc",
            ["operations=read"],
            "operations: operations.read: transport uc does not have it; legal: send",
        ),
        ("roce-ud", ["operations.write=1"], "operations.write: transport ud does not have it; legal: send, send_imm"),
        (
            "roce-rc",
            ["transport=ud"],
            "transport: operations.send_inv: transport ud does not have it; legal: send",
        ),
        (
            "roce-rc",
            ["operations=tagged_send"],
            f"operations: 'tagged_send' is not legal; legal: {SHARES}: send",
        ),
        (
            "roce-mixed",
            ["operations=read"],
            "operations: transport: none of the operations is one of uc; it has send",
        ),
        ("roce-rc", ["transport=rd"], f"transport: 'rd' is not legal; legal: uet; or {SHARES}: rc, uc, ud"),
        ("roce-rc", ["transport=rc,uet"], "transport: 'rc,uet' is not legal; legal: uet; or one"),
        ("roce-rc", ["multicast=0.1"], "multicast: transport rc has no groups; legal: 0, or ud among the transports"),
        # keys of another transport
        ("roce-rc", ["encapsulation=native"], "encapsulation: 'native' is not legal; legal: udp"),
        (
            "roce-rc",
            ["trim=0.1"],
            "trim: unknown key with transport rc; legal: description, transport, operations",
        ),
        ("roce-mixed", ["jobs=2"], "jobs: unknown key with transport rc, uc, ud; legal: "),
        (
            "roce-rc",
            ["ses.payload_mtu=1024"],
            "ses.payload_mtu: unknown key with transport rc (did you mean sizes?); legal: ",
        ),
        ("bench", ["roce.path_mtu=1024"], "roce.path_mtu: unknown key; legal: description, transport"),
        ("bench", ["multicast=0.1"], "multicast: unknown key; legal: description, transport"),
        ("bench", ["transport=rc"], "transport: modes: unknown key with transport rc; legal: "),
        # values
        ("roce-rc", ["path_mtu=1000"], "roce.path_mtu: 1000 is not legal; legal: 256, 512, 1024, 2048, 4096"),
        ("roce-rc", ["roce.mtu=1000"], "roce.mtu: unknown key with transport rc (did you mean path_mtu?); legal: "),
        ("roce-rc", ["roce.timeout=32"], "roce.timeout: 32 is not legal; legal: 0 … 31"),
        ("roce-rc", ["roce.max_rd_atomic=0"], "roce.max_rd_atomic: 0 is not legal with read; legal: 1 … 255"),
        (
            "roce-rc",
            ["sizes=4 GiB"],
            "sizes: 4294967296 bytes do not go into one message; legal: up to 2147483648",
        ),
        (
            "roce-rc",
            ["roce.max_message=64"],
            "roce.max_message: sizes: 32768 bytes do not go into one message",
        ),
        ("roce-rc", ["pdcs=40000"], "pdcs: an endpoint would need 80,000 queue pairs; legal: at most 60,000"),
    ],
)
def test_refusals(name: str, settings: list[str], message: str) -> None:
    with pytest.raises(LocalError) as caught:
        load(name, settings)
    assert str(caught.value).startswith(f"settings {message}")


def test_what_is_missing_or_wrong_has_a_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    sends = 'sizes = 1\noperations = "send"\n'
    for text, message in (
        ('transport = "rc"\nsizes = 1\n', "mine.toml:1: operations: is missing; legal: one of these"),
        (f"{sends}transport = {{ rc = 1, rd = 1 }}\n", "mine.toml:3: transport.rd: 'rd' is not legal"),
        (f'{sends}transport = "rc"\n[roce]\nicrc = 5\n', "mine.toml:5: roce.icrc: 5 is not legal; legal: True, False"),
        (f'{sends}transport = "rc"\nmodes = "rod"\n', "mine.toml:4: modes: unknown key with transport rc; legal: "),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(LocalError) as caught:
            load(str(path))
        assert str(caught.value).startswith(f"{tmp_path}/{message}")


# What others say, and the command


@needs_tshark
def test_tshark_finds_nothing_malformed() -> None:
    """All profiles are in one capture.

    tshark calls some short payloads malformed protocols of others, which are switched off (roce.md §16).
    """
    others = ("rpcordma", "infiniband.eoib", "smb_direct")
    disabled = [word for other in others for word in ("--disable-protocol", other)]
    with folder() as home:
        path = home / "all.pcap"
        write_pcap(path, [frame for name in ROCE for frame in frames(made(home, name, packets=TO_TSHARK))])
        path.chmod(0o644)
        whole = ("-Y", "infiniband && !_ws.malformed", "-T", "fields", "-e", "infiniband.bth.psn")
        out, _ = run(["-r", path, *whole, *disabled], home)
        assert [int(psn) for psn in out.split()] == [bth["psn"] for bth in bths(records(path))]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.pcapng"
    arguments = ("roce-mixed", "-o", str(path), "--packets", "4000", "--report", "coverage", "--mutate", "bad-crc=0.05")
    assert status(*arguments, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["operations"]) == {code.name for code in KINDS}
    assert set(found["completions"]) == {"SUCCESS"}
    wrong = [json.loads(line)["index"] for line in Path(found["side_file"]).read_text(encoding="utf-8").splitlines()]
    assert [i for i, (_, packet) in enumerate(records(path)) if packet.trailer and not packet.trailer.ok] == wrong
    assert 100 < len(wrong) < 300
    assert status(*arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("  opcodes 37 of 37 ") for line in lines)
    assert any(line.startswith("  syndromes 1 of 7 ") for line in lines)


def test_the_comment_says_how_it_was_made(tmp_path: Path) -> None:
    path = made(tmp_path, "roce-rc", "roce.udp_port=4000", packets=10)
    with open_capture(path) as capture:
        assert list(capture)
        assert capture.comments == ["uetproto generate roce-rc, seed 0; encapsulation udp, port 4000; crc on"]
    outcome = generate(load("roce-rc", ["roce.udp_port=4000"]), str(path), packets=200, coverage=True)
    assert outcome.coverage is not None
    assert sum(outcome.coverage["opcodes"].values()) == 200
