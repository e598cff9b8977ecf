# SPDX-License-Identifier: GPL-2.0-only
"""Sealed runs (tss.md §7–11): what they deliver, what an observer with the keys sees, and what is refused."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.support import paths
from tests.support.each import each
from tests.support.effort import effort
from uetproto import LocalError, decode
from uetproto.emulator.run.play import run
from uetproto.emulator.run.result import RunResult
from uetproto.emulator.scenario.settings import SHIPPED, load, names
from uetproto.engine.contract import Datagram
from uetproto.engine.tss.cipher import Refused
from uetproto.engine.tss.keys import MODES, KeyRing
from uetproto.engine.tss.opener import Opened, Opener
from uetproto.framing.tss import Secured
from uetproto.framing.uet import Encapsulation
from uetproto.wire.capture.pcap import open_capture
from uetproto.wire.headers.uet_pds import NackCode
from uetproto.wire.serial import diff32

PCAPS = paths.PCAPS
GOLDEN = ("direct", "cluster", "client-server", "lossy", "rotation", "epoch")
TWINS = ("direct", "cluster", "client-server")
"""They differ from the plain gradient by nothing but their seal."""
START = ("secure-start-expected", "secure-start-random")
PLAIN = [name for name in names() if "security" not in tomllib.loads((SHIPPED / f"{name}.toml").read_text("utf-8"))]
OVER_UET = [name for name in PLAIN if "roce" not in name]
OVER_ROCE = [name for name in PLAIN if "roce" in name]
OTHER_KEY = f"{7:064d}"


def play(name: str, *settings: str) -> RunResult:
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
    name = name if name in START else f"gradient-sealed-{name}"
    return opened(PCAPS / f"{name}.pcapng", PCAPS / f"{name}.keys.toml")


def of_rank0(one: Opened) -> bool:
    return bool(decode(one.plain_frame, crc="on")["ipv4"]["src"] == 0x0A00000B)


def transport(frame: bytes) -> bytes:
    """PDS, SES and payload, and the CRC32C over all from the source address on."""
    packet = decode(frame, crc="on")
    assert packet.error is None
    assert packet.trailer is not None
    assert packet.trailer.ok
    return frame[42:]


@pytest.mark.parametrize("name", [*GOLDEN, *START])
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
    sent = filter(of_rank0, golden("rotation"))
    assert [(one.an, one.tsc) for one in sent] == [(0, n) for n in range(6)] + [(1, n) for n in range(7)]


def test_the_epoch_is_new_in_mid_message() -> None:
    """§10: each node moves on after two packets, also over the wrap; its counter goes on."""
    frames = golden("epoch")
    for count, own in ((13, True), (3, False)):
        sent = [(one.epoch, one.tsc) for one in frames if of_rank0(one) is own]
        assert sent == [(0xFFFF if n < 2 else 0, n) for n in range(count)]


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


# Any run --------------------------------------------------------------------------------------------------------------


def outcome(result: RunResult) -> dict[str, Any]:
    """What came of a run, but for times: sealed packets are longer."""
    happened = {name: count for name, count in result.happened.items() if name != "bad_crc"}  # found by the ICV
    operations = [{**one, "time_ps": None} for one in result.operations]
    names = ("ok", "match", "failure", "packets", "retransmissions", "nacks_by_code", "counters", "sha256_target")
    return {"happened": happened, "operations": operations, **{name: getattr(result, name) for name in names}}


TRIMMED = ("ladder-L22", "ladder-C4", "ladder-C4b")
CONTROLLED = [name for name in OVER_UET if load(name).plane is not None and not name.startswith("ladder-")]
"""These depend on sizes and times."""
SEALED = [name for name in OVER_UET if name not in TRIMMED and name not in CONTROLLED]


@each("name", SEALED)
def test_any_run_can_be_sealed(name: str) -> None:
    """RUDI, UUD, operations, scripts, failures: all happens as in clear."""
    plain = outcome(play(name, "tap.nodes=all"))
    first = SEALED.index(name) % len(MODES)
    for mode in (MODES * 2)[first : first + effort(1, len(MODES), len(MODES))]:
        sealed = play(name, f"security.key={OTHER_KEY}", f"security.mode={mode}", "tap.nodes=all")
        assert sealed.checked
        assert not sealed.findings
        assert sum(node["sealed"] for node in sealed.security.values()) >= sealed.packets  # and what a script injects
        assert outcome(sealed) == plain


@pytest.mark.parametrize("name", CONTROLLED)
def test_runs_with_congestion_control_can_be_sealed(name: str) -> None:
    """§7.2: a trimmed packet is dropped, and so its loss is found in another way."""
    result = play(name, f"security.key={OTHER_KEY}", "tap.nodes=all")
    assert result.ok, result
    assert not result.nacks_by_code
    assert sum(node["sealed"] for node in result.security.values()) == result.packets


@pytest.mark.parametrize("name", TRIMMED)
def test_a_ladder_of_trimming_says_why_it_cannot_be_sealed(name: str) -> None:
    """§7.2: nobody refuses what has lost its ICV, so the NACK of the script does not come."""
    with pytest.raises(LocalError, match=rf"{name}.toml:\d+: .* b: 1 refused: trimmed: its ICV is gone$"):
        play(name, f"security.key={OTHER_KEY}")


@pytest.mark.parametrize("name", OVER_ROCE[::10])
def test_no_run_over_roce_can(name: str) -> None:
    with pytest.raises(LocalError, match=r"security: does not go with this transport; run.transport may be uet$"):
        load(name, (f"security.key={OTHER_KEY}",))


# Epochs, thresholds (§3, §8–10) ---------------------------------------------------------------------------------------


def test_the_epoch_before_may_be_over() -> None:
    """§9 step 6: rank0 has moved on, rank2 has not; what it sends meanwhile is late, and is sent again."""
    result = play("gradient-sealed-epoch", "security.rx_max_epoch_lifetime=0")
    assert result.ok, result
    assert result.security["rank0"]["refused"] == {"its epoch is over": 2}
    assert result.security["rank0"]["counters"]["in_late_pkts"] == 2
    assert [node["epoch"] for node in result.security.values()] == [0, 0]


def test_an_epoch_by_the_clock() -> None:
    """§10: all members move together."""
    result = play("gradient-sealed-epoch", "security.epoch=7", "security.epoch_at=1 us")
    assert result.ok, result
    assert [node["epoch"] for node in result.security.values()] == [8, 8]


@pytest.mark.parametrize(("epoch", "ok"), [(16, True), (17, False), (0x8000, True)])
def test_a_member_that_missed_epochs(epoch: int, ok: bool) -> None:
    """§14 item 10: 16 epochs back are accepted, and all that are newer."""
    result = play("gradient-sealed-direct", f"nodes.rank2.security.epoch={epoch}", "run.time_limit=20 s")
    assert result.ok is ok
    if not ok:
        assert result.failure is not None
        sealed = result.security["rank0"]["sealed"]
        assert result.failure.endswith(f"; rank2: {sealed} refused: its epoch is over")


def test_no_counter_is_left() -> None:
    """§8, §10: the sender stops; there is no wrap."""
    result = play("gradient-sealed-rotation", "nodes.rank0.security.invoke_fatal_threshold=4", "security.rotate_at=9")
    assert result.failure is not None
    counters = result.security["rank0"]["counters"]
    assert f"rank0: {counters['out_invoke_fail']} not sent: no counter is left under the key of SDI 1" in result.failure
    assert counters["out_auth_pkts"] == 4
    assert result.packets == 4 + result.security["rank2"]["sealed"]


def test_nothing_leaves_at_all(tmp_path: Path) -> None:
    """Of a message with more packets than a NIC takes at once: the link is idle, and stays so."""
    (tmp_path / "large").write_bytes(bytes(64 << 10))
    result = play("gradient-sealed-rotation", f"input={tmp_path / 'large'}", "security.invoke_fatal_threshold=0")
    assert result.packets == 0
    assert set(result.security["rank0"]["counters"]) == {"out_invoke_fail"}
    assert "not sent: no counter is left under the key of SDI 1" in str(result.failure)


def test_a_rotation_brings_new_counters() -> None:
    """§10: the twelve packets of the message spend the first key, CLOSE_CMD waits for the next one."""
    twelve = "nodes.rank0.security.invoke_fatal_threshold=12"
    result = play("gradient-sealed-rotation", twelve, "security.rotate_at=20 us")
    assert result.ok, result
    rank0 = result.security["rank0"]
    assert (rank0["an"], rank0["sealed"], rank0["counters"]["out_invoke_fail"]) == (1, 13, 1)


def test_a_script_whose_packets_are_not_sent() -> None:
    with pytest.raises(LocalError, match=r"frame 4 is not on the wire; nothing is; a: 2 not sent: no counter is left"):
        play("ladder-L05", f"security.key={OTHER_KEY}", "security.invoke_fatal_threshold=2")


@pytest.mark.parametrize(("threshold", "ok"), [(2, True), (1, False)])
def test_too_many_failures_latch_the_domain(threshold: int, ok: bool) -> None:
    """§9 steps 4 and 7, §14 item 11."""
    settings = (f"nodes.rank2.security.auth_fail_threshold={threshold}", "run.time_limit=20 s")
    result = play("gradient-sealed-direct", "payload_mtu=1024", "faults.corrupt=[1, 2]", *settings)
    assert result.ok is ok, result
    rank2 = result.security["rank2"]
    assert rank2["counters"]["in_auth_fail"] == 2
    assert bool(rank2["counters"].get("in_invalid")) is not ok


def test_one_counter_for_both_directions_breaks_the_nonces() -> None:
    """§4: what the reference provider does (observed.md `strict_tsc_halves`) fails the run."""
    result = play("gradient-sealed-client-server", "security.strict_tsc_halves=false")
    assert result.match
    assert result.failure == "3 packets were sealed with a nonce that was used before"


# Secure start (§11, pds.md §6.6) --------------------------------------------------------------------------------------


def psns(frames: list[Opened]) -> list[int]:
    """Of all that node a sent."""
    packets = [decode(one.plain_frame, crc="on") for one in frames if of_rank0(one)]
    return [next(layer.values["psn"] for layer in packet.layers if "psn" in layer.values) for packet in packets]


def test_no_psn_comes_twice_over_several_pdcs() -> None:
    """Refused, twice 0-RTT, refused after a restart: what was accepted rises without a gap from the floor on."""
    sent = psns(golden("secure-start-expected"))
    accepted = [psn for psn in sent if diff32(psn, 0x70000000) >= 0]
    assert accepted == list(range(0x70000000, 0x70000009))
    assert len(sent) == len(accepted) + 3  # 5000, 5001, and what was drawn after the restart
    result = play("secure-start-expected")
    assert result.ok, result
    assert result.nacks_by_code == {"NEW_START_PSN": 3}


def test_random_start_in_a_script() -> None:
    """L14 with RANDOM_1RTT: both packets come twice, first where a chose, then where b demands."""
    first, second, third, fourth = psns(golden("secure-start-random"))
    assert (first, second) == (5000, 5001)
    assert fourth == third + 1
    assert play("secure-start-random").nacks_by_code == {"NEW_START_PSN": 2}


def test_nacks_in_clear_are_the_only_packets_in_clear() -> None:
    """observed.md `clear_nacks`; with a CRC32C, and the capture says so."""
    opener = Opener(KeyRing.read(PCAPS / "secure-start-clear-nack.keys.toml"))
    codes = []
    with open_capture(PCAPS / "secure-start-clear-nack.pcapng") as reader:
        for record in reader:
            if isinstance(opener.open(record.data), Refused):
                packet = decode(record.data, crc="on")
                assert packet.trailer is not None
                assert packet.trailer.ok
                codes.append(packet["pds.nack"]["nack_code"])
    assert codes == [NackCode.NEW_START_PSN, NackCode.NEW_START_PSN, NackCode.INV_DPDCID]


@pytest.mark.parametrize("settings", [(), ("security.plain=drop",), ("security.clear_nacks=[]",)])
def test_a_nack_in_clear_is_as_good_as_a_sealed_one(settings: tuple[str, ...]) -> None:
    result = play("secure-start-clear-nack", *settings)
    assert result.ok, result
    assert result.nacks_by_code == {"INV_DPDCID": 1, "NEW_START_PSN": 2}
    clear = 0 if settings == ("security.clear_nacks=[]",) else 3
    a, b = (node["counters"] for node in result.security.values())
    assert (a.get("in_rx_encryption_bypass", 0), b.get("out_rx_encryption_bypass", 0)) == (clear, clear)


def test_a_nack_in_clear_is_refused_by_others() -> None:
    """§11: it could be forged; so the provider and we do not come together when a start is refused."""
    settings = ("payload_mtu=1024", "preset.rank2.expected_psn=0x20000", "run.time_limit=20 s")
    result = play("gradient-sealed-direct", "nodes.rank2.personality=refprov", *settings)
    assert result.failure is not None
    assert result.failure.endswith(f"; rank0: {result.nacks} refused: not sealed")
    both = ("nodes.rank0.personality=refprov", "nodes.rank2.personality=refprov")
    assert play("gradient-sealed-direct", *both, *settings).ok


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
    assert "does not open" not in result.failure, "it is told once"
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
