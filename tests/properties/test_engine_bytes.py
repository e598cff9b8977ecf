# SPDX-License-Identifier: GPL-2.0-only
"""Bytes from outside never raise, and change state only if they pass pds.md §6.3 (§18 items 35–37, 48)."""

import itertools
import json
import os
import random
import runpy
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.support import paths
from tests.support.effort import effort, examples
from tests.support.ladders.ladder import IPDCID, TPDCID, A, B, Ladder
from tests.support.pds.headers import build_ack_cc, build_nack
from uetproto.check.bytes_fuzz import (
    BytesFinding,
    Captures,
    Decoder,
    EngineConversation,
    Engines,
    Features,
    FuzzTarget,
    Parcel,
    Search,
    attempt,
    shrink,
)
from uetproto.engine import Datagram, Fep, Mode, Pds, Region, Trim, Write
from uetproto.engine.pds.nacks import FATAL_CODES, NACKS
from uetproto.engine.tss.keys import KeyRing
from uetproto.engine.tss.opener import Opened, Opener
from uetproto.wire.capture.pcap import open_capture
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.mutate.havoc import mutate_transport

KEY = 7


def endpoints() -> tuple[Fep, Fep]:
    a, b = Fep(A, random.Random(1)), Fep(B, random.Random(2))
    b.attach(101).register(Region(KEY, bytearray(100_000)))
    a.submit(Write(peer=B, data=bytes(100_000), key=KEY, job_id=101, mode=Mode.RUD), 0)
    for packet in a.poll(0)[:10]:
        b.receive(packet, 0)
    for packet in b.poll(0):
        a.receive(packet, 0)
    a.poll(0)
    return a, b


SEEN = [bytes(p.header) + bytes(p.payload) for p in endpoints()[0].poll(10**9)]


@given(data=st.binary(max_size=80), trimmed=st.sampled_from(Trim), from_peer=st.booleans())
@examples(300)
def test_arbitrary_bytes(data: bytes, trimmed: Trim, from_peer: bool) -> None:
    for fep, peer in zip(endpoints_once(), (B, A), strict=True):
        fep.receive(Datagram(peer if from_peer else 99, fep.address, data, trimmed=trimmed), 0)
        fep.poll(0)


_ENDS: list[tuple[Fep, Fep]] = []


def endpoints_once() -> tuple[Fep, Fep]:
    """The same two endpoints again and again: garbage piles up as it would."""
    if not _ENDS:
        _ENDS.append(endpoints())
    return _ENDS[0]


@given(which=st.integers(0, 50), changes=st.lists(st.tuples(st.integers(0, 63), st.integers(1, 255)), max_size=4),
       cut=st.integers(0, 70))  # fmt: skip
@examples(200)
def test_real_packets_with_bytes_changed(which: int, changes: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(SEEN[which % len(SEEN)])
    for at, value in changes:
        if at < len(data):
            data[at] ^= value
    if cut < 60:
        del data[len(data) - min(cut, len(data)) :]
    for fep in endpoints_once():
        fep.receive(Datagram(A if fep.address == B else B, fep.address, bytes(data)), 0)
        fep.poll(0)


def flight() -> Ladder:
    x = Ladder()
    x.a.send(12)
    x.a.outbox.clear()
    return x


ACKS = st.builds(
    lambda cack, off, base, bits: build_ack_cc(NextHdr.NONE, 0, 0, 0, off, cack, TPDCID, IPDCID, 8, base, bits),
    st.integers(332, 344), st.integers(0, 12), st.integers(0, 8), st.integers(0, 0xFFF),
)  # fmt: skip


def numbers(x: Ladder) -> tuple[object, ...]:
    tx = x.a.pdc.tx
    return tx.una, tx.peer_cack, sorted(tx.records), sorted(p for p, r in tx.records.items() if r.dst_rcvd)


@given(acks=st.lists(ACKS, min_size=1, max_size=4))
def test_confluence_of_acks(acks: list[bytes]) -> None:
    """Item 37: any order of the same ACKs gives the same acked set, una, CLEAR, peer_cack."""
    outcomes = []
    for order in itertools.islice(itertools.permutations(acks), 6):
        x = flight()
        for ack in order:
            x.a.rx_bytes(B, ack)
        outcomes.append(numbers(x))
    assert all(outcome == outcomes[0] for outcome in outcomes)


@given(ack=ACKS)
def test_an_ack_twice_is_an_ack_once(ack: bytes) -> None:
    """Item 36."""
    x = flight()
    x.a.rx_bytes(B, ack)
    once, answered = numbers(x), list(x.a.ses.responses)
    x.a.rx_bytes(B, ack)
    assert numbers(x) == once
    assert x.a.ses.responses == answered


@given(code=st.sampled_from(sorted(NACKS)), psn=st.sampled_from([0, 331, 332, 345, 346, 2**31 + 400]))
def test_a_nack_outside_the_flight_changes_nothing(code: int, psn: int) -> None:
    """Item 35; a fatal code for a PSN that was sent, though acknowledged since, is believed."""
    x = flight()
    before = numbers(x)
    x.a.rx_bytes(B, build_nack(code, 0, 0, psn, TPDCID, IPDCID))
    if psn != 332 or code not in FATAL_CODES:
        assert numbers(x) == before
        x.a.silent()
    assert not [s for s in x.a.outbox if s.kind == "NACK"]


# The byte fuzzer ------------------------------------------------------------------------------------------------------

ROOT = paths.ROOT
CAPTURES = sorted(path for path in (ROOT / "pcaps").glob("gradient*.pcapng") if path.stem != "gradient-roce")


def frames_of(path: Path) -> list[bytes]:
    """Sealed ones are opened with the keys that lie beside their capture."""
    with open_capture(path) as reader:
        frames = [record.data for record in reader]
    keys = path.with_suffix(".keys.toml")
    if not keys.exists():
        return frames
    opener = Opener(KeyRing.read(keys))
    opened = [opener.open(frame) for frame in frames]
    assert all(isinstance(one, Opened) for one in opened)
    return [one.plain_frame for one in opened if isinstance(one, Opened)]


@cache
def conversations() -> list[EngineConversation]:
    return [EngineConversation(frames_of(path)) for path in CAPTURES]


@cache
def targets() -> list[FuzzTarget]:
    frames = [frame for path in CAPTURES for frame in frames_of(path)]
    return [Decoder(frames), Captures([path.read_bytes() for path in CAPTURES]), Engines(conversations())]


@pytest.mark.parametrize("number", range(3), ids=["decode", "capture", "engine"])
def test_a_short_search_finds_nothing(number: int) -> None:
    """The golden captures, and what hundreds of mutations make of them."""
    search, steps = Search(targets()[number], random.Random(1)), effort(400, 1000, 1000)
    for _ in range(steps):
        finding = search.step()
        assert finding is None, finding.text
    seeds = len(search.target.seeds())
    assert search.executions == steps > seeds
    assert len(search.corpus) > 20, "it finds what is new"


def test_a_search_is_seeded() -> None:
    runs = [Search(Engines(conversations()), random.Random(5)) for _ in range(2)]
    for search in runs:
        for _ in range(150):
            search.step()
    assert runs[0].corpus == runs[1].corpus
    assert runs[0].met == runs[1].met


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
def test_a_golden_conversation_goes_through_the_engines(capture: Path) -> None:
    """The endpoints are those of the capture: its packets are delivered, acknowledged, and close the PDC."""
    target = Engines([EngineConversation(frames_of(capture))])
    met = set(target.run(target.seeds()[0]))
    names = {feature[1] for feature in met if isinstance(feature, tuple) and isinstance(feature[1], str)}
    assert {"data_rx", "ack_tx"} <= names
    assert not names & {"undecodable", "no_pdc", "bad_ack", "bad_nack", "unexpected"}


@given(data=st.binary(max_size=200))
@examples(100)
def test_inputs_of_any_bytes(data: bytes) -> None:
    for target in targets():
        assert not isinstance(attempt(target, data), BytesFinding)


def test_parcels_survive_packing() -> None:
    parcels = [Parcel(flags, wait, bytes(size)) for flags, wait, size in ((1, 0, 0), (0x7F, 255, 40), (4, 3, 9))]
    again = Parcel.unpack(b"xx" + b"".join(parcel.pack() for parcel in parcels))
    assert [(p.flags, p.wait, p.data) for p in again] == [(p.flags, p.wait, p.data) for p in parcels]


def break_at(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """A planted fault: the engine stumbles over control packets with syn = 1 and this byte in their header."""
    good = Pds.receive

    def receive(self: Pds, packet: Datagram, now: int) -> None:
        header = bytes(packet.header)
        if header[:1] and header[0] >> 3 == 11 and header[1] & 0x04 and code in header:
            raise ZeroDivisionError("planted")
        good(self, packet, now)

    monkeypatch.setattr(Pds, "receive", receive)


def test_a_planted_fault_is_found_shrunk_and_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    break_at(monkeypatch, 0x7F)
    search = Search(Engines(conversations()), random.Random(2))
    found = (search.step() for _ in range(20_000))
    finding = next(one for one in found if one is not None and "ZeroDivisionError" in one.kind)
    assert len(Parcel.unpack(finding.data)) == 1
    again = attempt(search.target, finding.data)
    assert isinstance(again, BytesFinding)
    assert again.kind == finding.kind
    assert "planted" in again.text


class Stumbles:
    """A target that cannot take an input with both 7 and 9 in it."""

    name = "stumbles"

    def seeds(self) -> list[bytes]:
        return [bytes(range(64))]

    def mutate(self, data: bytes, rng: random.Random, other: bytes) -> bytes:
        return mutate_transport(data, rng, other)

    def run(self, data: bytes) -> Features:
        if 7 in data and 9 in data:
            raise KeyError(len(data))
        return [len(data)]

    def pieces(self, data: bytes) -> list[bytes]:
        return [bytes((byte,)) for byte in data]


def test_shrinking_leaves_what_is_needed() -> None:
    found = attempt(Stumbles(), bytes(range(64)))
    assert isinstance(found, BytesFinding)
    assert shrink(Stumbles(), found).data == bytes((7, 9))


def test_the_same_finding_is_told_once() -> None:
    search = Search(Stumbles(), random.Random(1))
    assert sum(search.step() is not None for _ in range(300)) == 1


def tool(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "fuzz"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)


def test_the_command(tmp_path: Path) -> None:
    done = tool("--seconds", "1", "--seed", "3", "--jobs", "2", "-o", str(tmp_path / "found"), str(CAPTURES[0]))
    assert (done.returncode, done.stderr) == (0, "")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert {"executions", "executions_per_second", "findings", "corpus"} <= told.keys()
    assert (told["findings"], told["jobs"], list(told["targets"])) == (0, 2, ["decode", "roce", "capture", "engine"])
    assert told["executions"] > 100 < told["corpus"] * 100
    assert not (tmp_path / "found").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--jobs", "0"], f"legal: a number 1 … {4 * len(os.sched_getaffinity(0))}"),
        (["--jobs", "1000", "--seconds", "0.1"], f"legal: a number 1 … {4 * len(os.sched_getaffinity(0))}"),
        (["-o", "pyproject.toml", "--seconds", "0.1"], "-o pyproject.toml: is not a folder; legal: a folder"),
        (["-o", "/proc/findings", "--seconds", "0.1"], "-o /proc/findings: "),
        (["--seconds", "x"], "legal: a number from 0.1 on"),
        (["no-such.pcapng"], "no-such.pcapng"),
        (["pyproject.toml"], "not a capture"),
        (["--replay", "pcaps/manifest.toml"], "tools/fuzz: "),
        (["--target", "nothing"], "invalid choice"),
    ],
)
def test_misuse_of_the_command(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process: the other tests of the command start it."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["tools/fuzz", *arguments])
    with pytest.raises(SystemExit) as ended:
        sys.exit(runpy.run_path("tools/fuzz")["main"]())
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_finding_is_replayed_by_the_command(tmp_path: Path) -> None:
    """One that does not fail any more, and how it says so."""
    path = tmp_path / "finding.json"
    content = {"target": "decode", "kind": "", "captures": [str(CAPTURES[0])], "text": [], "data": "00ff"}
    path.write_text(json.dumps(content))
    done = tool("--replay", str(path))
    assert (done.returncode, done.stdout) == (0, f"{path}: passes now\n")


def test_ctrl_c_ends_the_command_cleanly() -> None:
    command = [sys.executable, str(ROOT / "tools" / "fuzz"), "--seconds", "100", "--jobs", "2", str(CAPTURES[0])]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
    )
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    while len(children.read_text().split()) < 2:
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGINT)
    out, said = running.communicate(timeout=60)
    assert (running.returncode, said) == (130, "")
    assert json.loads(out.splitlines()[-1])["findings"] == 0
