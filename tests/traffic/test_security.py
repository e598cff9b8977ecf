# SPDX-License-Identifier: GPL-2.0-only
"""Sealed traffic: what opens, what is inside, what is refused, and what is told of it (tss.md §3–11, §14)."""

import json
import random
import stat
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support.effort import effort
from tests.support.traffic.generate import frames
from uetproto import LocalError, decode
from uetproto.cli.main import cli
from uetproto.engine.tss.cipher import Refused
from uetproto.engine.tss.keys import DomainConfig, DomainKey, KeyRing
from uetproto.engine.tss.ledger import GrowingLedger, NonceLedger
from uetproto.engine.tss.opener import Opened, Opener
from uetproto.traffic import keys_file
from uetproto.traffic.generate import TrafficResult, generate
from uetproto.traffic.mutations import SUFFIX
from uetproto.traffic.mutations_sealed import OUTSIDE
from uetproto.traffic.profile import comment_of, load
from uetproto.wire.forms import FORMS
from uetproto.wire.mutate.mutation import NAMES

KEY, OTHER = "07e9724958d9e1f7" * 4, "d4c3a2cfb3c1067f" * 4
BOTH = f'security.keys=[{{an=0,key="{KEY}"}},{{an=1,key="{OTHER}"}}]'
SEALED = (f"security.key={KEY}",)
PACKETS = effort(600, 2_500, 2_500)
SECURITY_HEADER = 38
"""Where it stands over native IPv4: its 12 bytes are not in the packet that comes out."""


def made(path: Path, name: str, *settings: str, packets: int = PACKETS, **more: Any) -> TrafficResult:
    outcome = generate(load(name, settings), str(path), packets=packets, **more)
    assert outcome.packets == packets
    assert outcome.failure is None
    return outcome


def tried(path: Path) -> list[Opened | Refused]:
    """All packets of a capture, with the keys that lie beside it."""
    opener = Opener(KeyRing.read(f"{path}{keys_file.SUFFIX}"))
    return [opener.open(frame) for frame in frames(path)]


def opened(path: Path) -> list[Opened]:
    found = tried(path)
    for one in found:
        assert isinstance(one, Opened), one
    return [one for one in found if isinstance(one, Opened)]


def endpoint(frame: bytes) -> int:
    """Who has sent it."""
    source: int = decode(frame).layers[1].values["src"]
    return source


def status(*arguments: str) -> int:
    return cli.status(["generate", *arguments])  # type: ignore[attr-defined, no-any-return]


# What is in it


@pytest.mark.parametrize(
    "settings",
    [
        SEALED,
        (*SEALED, "security.ssi=0x64"),
        (*SEALED, "ip=6", "security.ssi=1", "encapsulation=native"),
        (*SEALED, "security.mode=cluster", "security.rekey_mask=0xFF00", "security.rekey_shift=8", "crc=off"),
        (*SEALED, "security.mode=cluster", "ip=6", "encapsulation=native"),
        (*SEALED, "security.mode=client-server"),
        (*SEALED, "security.mode=client-server", "endpoints=2", "ip=6", "security.ssi=7"),
        (*SEALED, "security.crypto_offset=40", "encapsulation=native", "security.sdi=0x123456"),
        (BOTH, "security.rotate_at=300", "security.epoch=65530", "security.start=random", "tap=wire"),
        (*SEALED, "security.mode=cluster", "security.epoch_at=5 us", "tap=target"),
    ],
)
def test_every_packet_opens_with_the_keys_beside_the_capture(settings: tuple[str, ...], tmp_path: Path) -> None:
    """§2–7: what comes out is a plain packet with all lengths and its CRC32C right."""
    path = tmp_path / "s.pcapng"
    outcome = made(path, "mixed", *settings)
    for one in opened(path):
        packet = decode(one.plain_frame, crc="on")
        assert packet.error is None
        assert packet.trailer is not None
        assert packet.trailer.ok
    domain = load("mixed", settings).security
    assert domain is not None
    assert {one.sdi for one in opened(path)} == {domain.domain.sdi}
    assert sum(told["opened"] for told in outcome.security.values()) > PACKETS / 2
    assert not any(told["refused"] for told in outcome.security.values())


def test_the_shipped_profile_rotates_in_mid_traffic(tmp_path: Path) -> None:
    """§10: all change over to AN 1 and begin with counter 0; who still has the old key opens what is on its way."""
    path = tmp_path / "s.pcapng"
    outcome = made(path, "sealed", packets=effort(5000, 6000, 6000))
    found = opened(path)
    assert {one.an for one in found} == {0, 1}
    assert {told["an"] for told in outcome.security.values()} == {1}
    assert not any(told["refused"] for told in outcome.security.values())
    for source in {endpoint(one.plain_frame) for one in found}:
        sent = [one for one in found if endpoint(one.plain_frame) == source]
        assert [one.tsc for one in sent if one.an == 0] == list(range(500))
        assert [one.tsc for one in sent if one.an == 1] == list(range(len(sent) - 500))


@pytest.mark.parametrize("name", ["bench", "mixed", "atomics"])
def test_inside_the_seal_is_what_goes_in_clear(name: str, tmp_path: Path) -> None:
    """The same headers of SES with the same payload, in the order in which each endpoint sent them."""
    plain, path = tmp_path / "p.pcapng", tmp_path / "s.pcapng"
    made(plain, name, "endpoints=2")
    made(path, name, "endpoints=2", *SEALED, "security.start=off")
    in_clear = contents(frames(plain))
    assert in_clear == contents(one.plain_frame for one in opened(path))
    assert len(in_clear) == 2


def contents(found: Iterable[bytes]) -> dict[int, list[Any]]:
    """What SES says and carries, by sender; of the first packets only, for ends depend on when frames leave."""
    said: dict[int, list[Any]] = {}
    for frame in found:
        packet = decode(frame, crc="on")
        ses = [(form, values) for form, values, _ in packet.layers if form.startswith("ses.")]
        said.setdefault(endpoint(frame), []).append((ses, packet.payload))
    return {source: rows[:40] for source, rows in said.items()}


def test_a_lossy_network(tmp_path: Path) -> None:
    """§8, §7.2: retransmissions are sealed anew; trimmed packets stay sealed, and are refused where they arrive."""
    path = tmp_path / "s.pcapng"
    lasts = effort(1_100, 2_000, 2_000) * 10**6  # with a number of packets, some would arrive when none is written
    outcome = generate(load("lossy", [*SEALED, "tap=target"]), str(path), duration=lasts)
    assert set(outcome.completions) == {"OK"}
    assert min(outcome.happened[what] for what in ("lost", "reordered", "trimmed")) > 20
    found = tried(path)
    closed = [one for one in found if isinstance(one, Refused)]
    assert {one.reason for one in closed} == {"trimmed: not all of it is there"}
    refused = Counter[str]()
    for told in outcome.security.values():
        refused.update(told["refused"])
    assert set(refused) == {"trimmed: its ICV is gone"}
    assert refused.total() == len(closed)
    retransmitted = Counter(
        (packet.layers[3].values["spdcid"], packet.layers[3].values["psn"])
        for one in found
        if isinstance(one, Opened)
        for packet in (decode(one.plain_frame, crc="on"),)
        if packet.payload and endpoint(one.plain_frame) == 0x0A000001
    )
    assert max(retransmitted.values()) > 1


def test_jobs_and_endpoints_share_the_domain(tmp_path: Path) -> None:
    """§4: each endpoint has the next SSI; that of a client goes both ways in mode client-server."""
    path = tmp_path / "s.pcapng"
    made(path, "sends", "jobs=3", "endpoints=6", *SEALED, "security.ssi=0x64")
    assert {one.ssi for one in opened(path)} == set(range(0x64, 0x6A))
    made(path, "bench", *SEALED, "security.mode=client-server", "security.ssi=0x64")
    found = opened(path)
    assert {one.ssi for one in found} == {0x64}
    assert {(endpoint(one.plain_frame), one.tsc >> 47) for one in found} == {(0x0A000001, 0), (0x0A000101, 1)}


def test_coverage_is_that_of_what_is_inside(tmp_path: Path) -> None:
    plain = made(tmp_path / "p.pcap", "atomics", coverage=True).coverage
    sealed = made(tmp_path / "s.pcap", "atomics", *SEALED, "security.start=off", coverage=True).coverage
    assert plain is not None
    assert sealed is not None
    assert sealed["forms"]["tss"] == PACKETS
    assert set(sealed["forms"]) - {"tss"} == set(plain["forms"])
    assert sealed["atomics"] == plain["atomics"]


# Keys and nonces


def test_only_the_owner_may_read_the_keys_and_nobody_else_sees_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, beside = tmp_path / "s.pcapng", tmp_path / "s.pcapng.keys.toml"
    beside.write_text("something else")
    beside.chmod(0o644)
    arguments = ("bench", "-o", str(path), "--packets", "100", "--set", SEALED[0], "--mutate", "key-change=0.5")
    assert status(*arguments) == 0
    assert f"  capture {path}, mutations {path}{SUFFIX}, keys {beside}\n" in capsys.readouterr().out
    assert status(*arguments, "--json") == 0
    said = capsys.readouterr()
    assert stat.S_IMODE(beside.stat().st_mode) == 0o600
    assert KeyRing.read(beside)[1].keys == ((DomainKey(bytes.fromhex(KEY)),), ())
    for text in (said.out, said.err, path.read_bytes().decode("latin-1"), repr(load("bench", SEALED))):
        assert KEY[:16] not in text
        assert bytes.fromhex(KEY).decode("latin-1") not in text
    assert json.loads(said.out)["keys_file"] == str(beside)
    assert comment_of(load("bench", SEALED)).endswith("; crc on; sealed, SDI 1, mode direct")


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to], ids=["symbolic", "hard"])
def test_keys_do_not_go_through_links(link: Callable[[Path, Path], None], tmp_path: Path) -> None:
    """Nor to whoever has the old file open."""
    elsewhere, beside = tmp_path / "elsewhere", tmp_path / "s.pcapng.keys.toml"
    elsewhere.write_text("precious")
    elsewhere.chmod(0o644)
    link(beside, elsewhere)
    generate(load("bench", SEALED), str(tmp_path / "s.pcapng"), packets=10)
    assert (elsewhere.read_text(), stat.S_IMODE(elsewhere.stat().st_mode)) == ("precious", 0o644)
    assert not beside.is_symlink()
    assert stat.S_IMODE(beside.stat().st_mode) == 0o600
    assert 1 in KeyRing.read(beside)


def test_a_key_of_epoch_0_alone_stays_one(tmp_path: Path) -> None:
    path = tmp_path / "k.toml"
    keys = ((DomainKey(bytes.fromhex(KEY), 0), DomainKey(bytes.fromhex(KEY))), (DomainKey(bytes.fromhex(OTHER), 3),))
    keys_file.write(str(path), KeyRing({1: DomainConfig(sdi=1, mode="direct", keys=keys)}), "x.pcap")
    assert KeyRing.read(path)[1].keys == keys


def test_the_file_of_keys_says_all_that_opening_needs(tmp_path: Path) -> None:
    settings = ("security.mode=cluster", BOTH, "security.rekey_mask=0xFF00", "security.rekey_shift=8",
                "security.crypto_offset=24", "security.ipv6_ssi_context=small", "security.sdi=77")  # fmt: skip
    for extra in (settings, (*SEALED, "security.mode=client-server", "endpoints=6", "ip=4")):
        security = load("bench", extra).security
        assert security is not None
        path = tmp_path / "k.toml"
        keys_file.write(str(path), security.ring(), "x.pcap")
        read, written = KeyRing.read(path), security.ring()
        assert list(read) == list(written)
        for name in (
            "sdi",
            "mode",
            "keys",
            "rekey_mask",
            "rekey_shift",
            "crypto_offset",
            "ipv6_ssi_context",
            "servers",
        ):
            assert getattr(read[security.domain.sdi], name) == getattr(security.domain, name)


def test_one_seed_gives_one_file_and_one_list(tmp_path: Path) -> None:
    """Capture, mutations and keys."""
    found = []
    for seed in (1, 1, 2):
        path = tmp_path / "s.pcapng"
        made(path, "sealed", f"seed={seed}", "loss=0.01", mutations={"key-change": 0.05, "cut": 0.01})
        found.append([Path(f"{path}{suffix}").read_bytes() for suffix in ("", SUFFIX, keys_file.SUFFIX)])
    assert found[0] == found[1]
    assert found[0][0] != found[2][0]
    assert found[0][2] == found[2][2]


@pytest.mark.parametrize("mode", ["direct", "cluster", "client-server"])
def test_no_nonce_twice_in_a_capture(mode: str, tmp_path: Path) -> None:
    """§14 property 4, counted by one who reads along, with retransmissions, an epoch and a rotation."""
    path = tmp_path / "s.pcapng"
    made(
        path,
        "sealed",
        f"security.mode={mode}",
        "loss=0.02",
        "security.epoch_at=300",
        "tap=wire",
        packets=effort(2500, 4000, 4000),
    )
    seen = Counter(
        (endpoint(one.plain_frame), one.sdi, one.an, one.epoch, one.tsc, one.ssi) for one in opened(path)
    )  # fmt: skip
    assert len({one[3] for one in seen}) == 2
    assert max(seen.values()) == 1


def test_a_nonce_that_comes_twice_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """§4: both ends of mode client-server with one SSI, from counter 0, as some do."""
    settings = (*SEALED, "security.mode=client-server", "security.ssi=1", "security.strict_tsc_halves=false")
    arguments = [part for setting in settings for part in ("--set", setting)]
    assert status("bench", "-o", str(tmp_path / "s.pcap"), "--packets", "1000", *arguments) == 1
    assert "packets were sealed with a nonce that was used before" in capsys.readouterr().out


@pytest.mark.parametrize("mask", [0, 0x0123456789ABCDEF01234567])
def test_a_growing_ledger_misses_nothing_that_an_exact_one_finds(mask: int) -> None:
    """Senders of one key take counters by chance, as a rule the next, sometimes one from before."""
    rng = random.Random(mask)
    for _ in range(200):
        exact, growing = NonceLedger(), GrowingLedger()
        following = {(sender, half): half << 47 for sender in (1, 2) for half in (0, 1)}
        for _ in range(30):
            sender, half = place = (1 + rng.getrandbits(1), rng.getrandbits(1))
            again = rng.random() < 0.03
            tsc64 = rng.randrange(half << 47, following[place] + 1) if again else following[place]
            following[place] = max(following[place], tsc64 + 1)
            iv = ((sender << 64 | tsc64) ^ mask).to_bytes(12, "big")
            for ledger in (exact, growing):
                ledger.of(b"key", mask).note(iv)
        assert (growing.repeated > 0) is (exact.repeated > 0)
        assert len(growing) == len(exact) + exact.repeated


def test_a_growing_ledger_stays_small() -> None:
    ledger = GrowingLedger()
    for key in range(70_000):
        ledger.of(key.to_bytes(4, "big")).note(bytes(12))
    assert len(ledger) == 1 << 16
    assert ledger.repeated == 0


# Mutations


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    path = tmp_path_factory.mktemp("originals") / "s.pcap"
    made(path, "mixed", *SEALED, "endpoints=2", "encapsulation=native")
    return frames(path)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "bad-crc"])
def test_mutations_are_made_inside_the_seal(name: str, originals: list[bytes], tmp_path: Path) -> None:
    """The copy opens, and is what the side file tells; but for where it ends, which no seal covers."""
    path = tmp_path / "s.pcap"
    settings = (*SEALED, "endpoints=2", "encapsulation=native")
    outcome = made(path, "mixed", *settings, mutations={name: 0.3})
    listed = {row["index"]: row for row in map(json.loads, Path(f"{path}{SUFFIX}").read_text().splitlines())}
    assert outcome.mutations == {name: len(listed)}
    assert len(listed) >= 3
    opener = Opener(KeyRing.read(f"{path}{keys_file.SUFFIX}"))
    for index, (before, after) in enumerate(zip(originals, frames(path), strict=True)):
        row = listed.get(index)
        if row is None:
            assert before == after
            continue
        assert (row["rule"] is None) == (name == "payload-flip-crc-fixed")
        if name in OUTSIDE:
            assert after != before
            assert isinstance(opener.open(after), Refused)
            continue
        was, now = opener.open(before), opener.open(after)
        assert isinstance(was, Opened)
        assert isinstance(now, Opened), now
        assert was[1:] == now[1:], "SDI, AN, epoch, TSC and SSI are those of the original"
        changed = [at for at in range(len(was.plain_frame) - 4) if was.plain_frame[at] != now.plain_frame[at]]
        assert changed
        below = next((layer for layer in decode(before).layers if layer.form == row["form"]), None)
        assert below is None or below.offset <= row["offset"] < below.offset + below.size
        if row["field"] not in ("payload", "frame"):
            size = FORMS[row["form"]].size if row["form"] else 1
            inside = row["offset"] - (12 if row["offset"] >= SECURITY_HEADER else 0)
            assert all(inside - size < at < inside + size for at in changed)
        if name == "extra-bytes":
            assert len(now.plain_frame) - len(was.plain_frame) == row["after"] - row["before"]


def test_there_is_no_crc_to_be_wrong(tmp_path: Path) -> None:
    outcome = made(tmp_path / "s.pcap", "bench", *SEALED, mutations={"bad-crc": 1.0})
    assert outcome.mutations == {"bad-crc": 0}
    opened(tmp_path / "s.pcap")


# What is refused


def test_standard_output_has_no_place_for_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("sealed", "-o", "-") == 2
    said = capsys.readouterr()
    assert said.out == ""
    told = "-o -: sealed packets need a file, beside which their keys are written [stdout-not-possible]"
    assert said.err == f"uetproto: {told}\n"


def test_a_key_without_counters_ends_the_traffic(tmp_path: Path) -> None:
    """§8: nothing leaves any more, and that is told, not waited for."""
    settings = (*SEALED, "security.invoke_fatal_threshold=100", "pds.rto_init_time=20 us", "sizes=64")
    path = tmp_path / "s.pcapng"
    with pytest.raises(LocalError, match=r"^bench: no counter is left under the key after \d+ packets \(security\.inv"):
        generate(load("bench", settings), str(path), packets=10_000)
    found = opened(path)
    assert {one.tsc for one in found if endpoint(one.plain_frame) == 0x0A000001} == set(range(100))


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("bench", ("security=1",), "settings security: is a value; legal: the table [security]"),
        ("bench", ("security.mode=cluster",), "settings security.mode: SDI 1 has no key for node 0; legal: key = "),
        ("bench", ("security.key=07e9",), "settings security.key: 2 bytes; legal: 32, or a client's 44"),
        ("bench", (f"security.key={KEY}0",), "settings security.key: 65 digits; legal: 64 hexadecimal digits, or"),
        (
            "bench",
            (f"security.key={'1' * 64}", "security.mode=x"),
            "settings security.mode: 'x' is not legal; legal: dire",
        ),
        (
            "bench",
            (f'security.keys=[{{an=0,key="{KEY}{KEY}"}}]',),
            "settings security.keys: security.keys.0.key: 64 bytes",
        ),
        ("bench", (f"security.{KEY}=1",), "settings security.…: unknown key; legal: sdi, mode, key, "),
        ("bench", (f"security.mode={KEY}",), "settings security.mode: '…' is not legal"),
        ("bench", (*SEALED, "security.server=1"), "settings security.server: unknown key; legal: sdi, "),
        ("bench", (*SEALED, "security.rotate_at=5"), "settings security.rotate_at: node 0 needs two different keys"),
        ("bench", (*SEALED, "security.rekey_mask=1"), "settings security.rekey_mask: mode direct has no rekey"),
        (
            "bench",
            (*SEALED, "security.ssi=0xFFFFFFFF"),
            "settings security.ssi: 4294967295 is not legal; legal: a",
        ),
        (
            "bench",
            (*SEALED, "security.start=off", "pds.secure_start=random"),
            "settings security.start: does not go",
        ),
        ("bench", (*SEALED, "ip=6"), "settings ip: security.ssi: is missing, mode direct over IPv6 needs it; legal: "),
        (
            "mixed",
            (*SEALED, "security.mode=client-server", "security.ssi=1"),
            "settings security.mode: the targets are the servers: 2, with one prefix of nonces; legal: one, with SSI",
        ),
        ("roce-rc", SEALED, "settings security.key: unknown key with transport rc; legal: "),
    ],
)
def test_bad_settings(name: str, settings: tuple[str, ...], message: str) -> None:
    """Each names its key, and none shows the value of one."""
    with pytest.raises(LocalError) as caught:
        load(name, settings)
    assert str(caught.value).startswith(message)
    assert KEY[:16] not in str(caught.value)


def test_bad_files(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    text = 'operations = "write"\nmodes = "rud"\nsizes = 64\n[security]\n'
    for line, message in (
        (f'key = "{KEY}{KEY}"', "security.key: 64 bytes; legal: 32, or a client's 44"),
        (f'sdi = "{KEY}"', "security.sdi: '…' is not legal; legal: a whole number, 0 … 0xffffff"),
        ("sdi = 1", "security: SDI 1 has no key for node 0; legal: key = "),
    ):
        path.write_text(f"{text}{line}\n", encoding="utf-8")
        with pytest.raises(LocalError) as caught:
            load(str(path))
        told = str(caught.value).removeprefix(f"{path}:").lstrip("45").removeprefix(": ")
        assert told.startswith(message)
        assert KEY[:16] not in told
