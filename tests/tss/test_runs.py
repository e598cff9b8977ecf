"""Sealed runs (tss.md §7–11): what they deliver, what an observer with the keys sees, and what is refused."""

from pathlib import Path

import pytest

from uetproto import decode
from uetproto.emulator.framer_tss import Secured
from uetproto.emulator.framer_uet import Encapsulation
from uetproto.emulator.result import Result
from uetproto.emulator.scenario import run
from uetproto.emulator.settings import load, names
from uetproto.engine.contract import Datagram
from uetproto.engine.tss_keys import KeyRing
from uetproto.engine.tss_opener import Opened, Opener
from uetproto.engine.uet_tss import Refused
from uetproto.wire.pcap import open_capture

PCAPS = Path(__file__).parents[2] / "pcaps"
GOLDEN = ("direct", "cluster", "client-server", "lossy", "rotation")
TWINS = ("direct", "cluster", "client-server")
"""They differ from the plain gradient by nothing but their seal."""
ANY = [name for name in names() if name.startswith(("ladder-", "ses-")) and not name.startswith("ses-fail-")]
ANY.remove("ladder-L14")  # it is about secure start
ANY.remove("ladder-L22")  # and this one about trimming, which sealed packets do not survive
OTHER_KEY = f"{7:064d}"


def play(name: str, *settings: str) -> Result:
    return run(load(name, settings), check=True)


def opened(path: Path, keys: Path) -> list[Opened]:
    opener = Opener(KeyRing.read(keys))
    found = []
    with open_capture(path) as reader:
        for record in reader:
            one = opener.open(record.data)
            assert isinstance(one, Opened), one
            found.append(one)
    return found


def golden(name: str) -> list[Opened]:
    return opened(PCAPS / f"gradient-sealed-{name}.pcapng", PCAPS / f"gradient-sealed-{name}.keys.toml")


def transport(frame: bytes) -> bytes:
    """PDS, SES and payload, and the CRC32C over all from the source address on."""
    packet = decode(frame, crc="on")
    assert packet.error is None
    assert packet.trailer is not None
    assert packet.trailer.ok
    return frame[42:]


@pytest.mark.parametrize("name", GOLDEN)
def test_each_packet_of_a_golden_capture_opens_with_its_keys(name: str) -> None:
    frames = golden(name)
    assert len(frames) >= 7
    assert len({one.plain_frame for one in frames}) > 1
    for one in frames:
        transport(one.plain_frame)


@pytest.mark.parametrize("name", TWINS)
def test_inside_the_seal_is_the_plain_gradient(name: str) -> None:
    with open_capture(PCAPS / "gradient.pcapng") as reader:
        plain = [transport(record.data) for record in reader]
    assert [transport(one.plain_frame) for one in golden(name)] == plain


def test_client_server_names_the_client_both_ways() -> None:
    """§4: the SSI is that of the client, the counters of the server have bit 47."""
    frames = golden("client-server")
    assert {one.ssi for one in frames} == {0x64}
    assert {one.tsc >> 47 for one in frames} == {0, 1}


def test_the_rotation_is_in_mid_message() -> None:
    """§10: the first six packets under AN 0, from then on AN 1 with counters from 0."""
    sent = [one for one in golden("rotation") if decode(one.plain_frame, crc="on")["ipv4"]["src"] == 0x0A00000B]
    assert [(one.an, one.tsc) for one in sent] == [(0, n) for n in range(6)] + [(1, n) for n in range(7)]


def test_a_retransmission_is_sealed_anew() -> None:
    """§8: one PSN, two counters."""
    counters: dict[int, set[int]] = {}
    for one in golden("lossy"):
        packet = decode(one.plain_frame, crc="on")
        if packet.payload:
            psn = next(layer.values["psn"] for layer in packet.layers if "psn" in layer.values)
            counters.setdefault(psn, set()).add(one.tsc)
    assert len(counters) == 12
    assert max(map(len, counters.values())) >= 2


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("run.mode=rud", "encapsulation=native"),
        ("security.start=random",),
        ("security.crypto_offset=40", "crc=off"),
        (
            "nodes.rank0.address=fd00::a00:b",
            "nodes.rank2.address=fd00::a00:10b",
            "nodes.rank0.ssi=1",
            "nodes.rank2.ssi=2",
        ),
    ],
)
def test_every_run_delivers_once(name: str, settings: tuple[str, ...]) -> None:
    result = play(f"gradient-sealed-{name}", *settings)
    assert result.ok, result
    assert result.counters["rank2"]["data_rx"] in (3, 12)
    lost = result.happened.get("drop", 0)
    sealed = sum(node["sealed"] for node in result.security.values())
    assert sealed == result.packets
    taken = sum(node["opened"] for node in result.security.values())
    assert taken == sealed - lost + result.happened.get("duplicate", 0)
    assert not any(node["refused"] for node in result.security.values())


@pytest.mark.parametrize("seed", range(4))
def test_rotation_under_loss(seed: int) -> None:
    """§10 step 3: retransmissions use the new key, late packets still open with the old one."""
    result = play(
        "gradient-sealed-rotation", f"seed={seed}", "faults.drop=0.2", "faults.reorder=0.2", "faults.duplicate=0.2"
    )
    assert result.ok, result
    assert not any(node["refused"] for node in result.security.values())


def test_rotation_by_the_clock_forgets_the_old_key() -> None:
    """§10 step 4: packets with the old key fail after the guard time; they are sent again, with the new one."""
    on_time = play("gradient-sealed-rotation", "security.rotate_at=2 us")
    assert on_time.ok
    assert [node["an"] for node in on_time.security.values()] == [1, 1]
    result = play("gradient-sealed-rotation", "security.rotate_at=100 ns", "security.rotate_guard=1 ps")
    assert result.ok, result
    assert result.security["rank2"]["refused"] == {
        "does not open": result.security["rank2"]["counters"]["in_auth_fail"]
    }


@pytest.mark.parametrize("name", ANY)
def test_any_run_can_be_sealed(name: str) -> None:
    """RUDI, UUD, operations, scripts: all happens as in clear."""
    plain = play(name, "tap.nodes=all")
    sealed = play(name, f"security.key={OTHER_KEY}", "security.mode=cluster", "security.start=off", "tap.nodes=all")
    assert sealed.checked
    assert not sealed.findings
    assert sum(node["sealed"] for node in sealed.security.values()) >= sealed.packets  # and what a script injects
    for what in ("ok", "match", "packets", "retransmissions", "nacks_by_code", "counters"):
        assert getattr(sealed, what) == getattr(plain, what), what


def test_random_start_needs_one_round_more() -> None:
    """§11, RANDOM_1RTT: NEW_START_PSN, itself sealed."""
    result = play("gradient-sealed-direct", "security.start=random")
    assert result.ok
    assert result.nacks_by_code == {"NEW_START_PSN": 3}


def test_damage_is_found_without_a_crc() -> None:
    result = play("gradient-sealed-direct", "faults.corrupt=[1]")
    assert result.ok, result
    assert result.security["rank2"]["refused"] == {"does not open": 1}
    assert "bad_crc" not in result.happened


def test_a_trimmed_packet_is_dropped() -> None:
    """§7.2: its ICV is gone."""
    result = play("gradient-sealed-direct", "faults.trim=[1]")
    assert result.ok, result
    assert result.security["rank2"]["counters"]["in_trimmed"] == 1


def test_a_wrong_key_delivers_nothing() -> None:
    result = play("gradient-sealed-direct", f"nodes.rank2.security.key={OTHER_KEY}", "run.time_limit=20 s")
    assert not result.ok
    assert not result.match
    assert "data_rx" not in result.counters["rank2"]
    rank0, rank2 = result.security["rank0"], result.security["rank2"]
    assert (rank2["sealed"], rank2["opened"]) == (0, 0)
    assert rank2["refused"] == {"does not open": rank0["sealed"]}
    share = f"rank2: {rank0['sealed']} of {rank0['sealed']} packets of SDI 1 did not open"
    assert result.failure is not None
    assert share in result.failure
    assert OTHER_KEY not in str(result.as_dict())


def test_one_seed_one_trace() -> None:
    """Sealing draws nothing: the packets of a lossy run are lost as those of the plain one."""
    plain, sealed = play("gradient-lossy"), play("gradient-sealed-lossy")
    assert (sealed.packets, sealed.happened, sealed.nacks_by_code) == (
        plain.packets, plain.happened, plain.nacks_by_code,
    )  # fmt: skip


def test_a_repeated_nonce_fails_the_run() -> None:
    """§14 item 4, asserted in every run."""
    scenario = load("gradient-sealed-direct")
    assert scenario.security is not None
    secured = Secured(scenario.security, lambda: 0)
    framer = secured.framer(scenario.nodes["rank0"], Encapsulation())
    packet = Datagram(0x0A00000B, 0x0A00010B, bytes(12))
    first = framer.frame(packet)
    assert secured.failure(None) is None
    framer.domain.tx_counter = 0
    assert framer.frame(packet) == first
    assert secured.failure(None) == "1 packets were sealed with a nonce that was used before"


@pytest.mark.parametrize("name", ["gradient", "gradient-native"])
def test_a_plain_capture_does_not_open(name: str) -> None:
    opener = Opener(KeyRing.read(PCAPS / "gradient-sealed-direct.keys.toml"))
    with open_capture(PCAPS / f"{name}.pcapng") as reader:
        assert {opener.open(record.data) for record in reader} == {Refused("not sealed")}
