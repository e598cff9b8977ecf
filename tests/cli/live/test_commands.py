# SPDX-License-Identifier: GPL-2.0-only
"""`serve`, `send`, `ping` and `probe` over loopback, as in two shells."""

import errno
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli.frames import invoke
from tests.support.cli.serving import serving
from tests.support.effort import effort
from tests.support.live import addresses, clean
from tests.support.paths import PCAPS
from uetproto import LocalError
from uetproto.api import fi
from uetproto.cli.live import steps, target
from uetproto.cli.live.steps import at_addresses
from uetproto.emulator.run.uet_script import UetScript
from uetproto.emulator.scenario.settings import load
from uetproto.engine.tss.keys import KeyRing
from uetproto.live import Interface
from uetproto.wire.pcap import open_capture

SIZE = 200_000
KEYS = str(PCAPS / "gradient-sealed-direct.keys.toml")


def said(*arguments: str, status: int = 0) -> list[dict[str, Any]]:
    """Invoke a command with --json, and return the objects that it prints."""
    result = invoke(*arguments, "--json")
    assert result.exit_code == status, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_all_commands_with_one_server(tmp_path: Path) -> None:
    here, there = addresses()
    data, copy = tmp_path / "data", tmp_path / "copy"
    data.write_bytes(os.urandom(SIZE))
    ours, theirs = tmp_path / "ours.pcapng", tmp_path / "theirs.pcapng"
    common = ("--peer", there, "--local", here)
    with serving(there, "--count", "6", "--memory", "1 MiB", "-o", str(theirs), "--allow", "127.0.0.0/8") as server:
        assert server.told["memory"] == {"key": 1, "address": 0, "length": 1 << 20}
        (written,) = said("send", "--write", str(data), "--offset", "100", *common, "-o", str(ours))
        assert (written["bytes"], written["match"], written["error"], written["refused"]) == (SIZE, True, None, {})
        wrong = invoke("send", "--write", str(data), *common, "--key", "9")
        assert wrong.exit_code == 2
        assert "--key: 9 is not what the peer tells at the rendezvous; legal: 1, or --rendezvous off" in wrong.stderr
        (read,) = said("send", "--read", str(SIZE), "--to", str(copy), "--offset", "100", *common)
        assert read["match"]
        assert copy.read_bytes() == data.read_bytes()
        (sent,) = said("send", "--send", str(data), *common)
        assert sent["match"]
        *rows, summary = said("ping", *common, "--sizes", "0,64", "--iterations", "5", "--operations", "write,send")
        assert [(row["operation"], row["bytes"], row["iterations"]) for row in rows] == [
            ("write", 0, 5), ("write", 64, 5), ("send", 0, 5), ("send", 64, 5),
        ]  # fmt: skip
        assert all(0 < row["t_min_us"] <= row["t_typical_us"] <= row["p99_us"] <= row["t_max_us"] for row in rows)
        assert summary["error"] is None
        (found,) = said("probe", there, "--local", here)
        assert [found[name] for name in (
            "answers", "full_packet_passes", "dscp_survives", "ecn_survives", "checksum_0_passes",
        )] == [True] * 5  # fmt: skip
        assert found["suggested_rto_ps"] >= 8 * found["rtt_max_ps"]
        status, told = server.ended()
    assert (status, told["sessions"], told["failures"], told["not_allowed"]) == (0, 6, [], 0)
    assert (told["messages_received"], told["bytes_received"]) == (1 + 2 * 10, SIZE + 10 * 64)
    clean(ours, theirs, least=4)


def test_roce_and_by_hand(tmp_path: Path) -> None:
    here, there = addresses()
    data, file = tmp_path / "data", tmp_path / "roce.pcapng"
    data.write_bytes(os.urandom(SIZE))
    common = ("--peer", there, "--local", here)
    with serving(there, "--transport", "rc", "--count", "2") as server:
        (written,) = said("send", "--write", str(data), "--transport", "rc", *common, "-o", str(file))
        assert written["match"]
        (sent,) = said("send", "--send", str(data), "--transport", "rc", *common)
        assert sent["match"]
        assert server.ended()[0] == 0
    clean(file, least=4)
    with serving(there, "--rendezvous", "off", "--key", "7", "--addr", "0x1000", "--count", "1") as server:
        by_hand = ("--rendezvous", "off", "--key", "7", "--addr", "0x1000", "--verify")
        (written,) = said("send", "--write", str(data), *common, *by_hand)
        assert written["match"]
        assert server.ended()[0] == 0


def test_roce_by_hand(tmp_path: Path) -> None:
    """Both ends know all numbers beforehand. When the peer has been silent, its queue pair begins anew."""
    here, there = addresses()
    data, file = tmp_path / "data", tmp_path / "roce.pcapng"
    data.write_bytes(os.urandom(20_000))
    roce = ("--transport", "rc", "--rendezvous", "off", "--rkey", "0x1234", "--addr", "0x10000")
    theirs = ("--qpn", "0x22", "--psn", "7", "--peer-gid", f"::ffff:{here}", "--peer-qpn", "0x33", "--peer-psn", "9")
    ours = ("--qpn", "0x33", "--psn", "9", "--peer", f"::ffff:{there}", "--peer-qpn", "0x22", "--peer-psn", "7")
    with serving(there, *roce, *theirs) as server:
        for _ in "12":
            written = said("send", "--write", str(data), "--local", here, *roce, *ours, "--verify", "-o", str(file))
            assert (written[0]["match"], written[0]["retransmissions"]) == (True, {})
            assert [server.line()["what"] for _ in "12"] == ["begins", "has been silent for 5 s"]
            clean(file, least=4)
        server.process.send_signal(signal.SIGINT)
        status, told = server.ended()
        assert (status, told["sessions"], told["failures"]) == (130, 2, [])


def test_a_peer_that_is_recognised(tmp_path: Path) -> None:
    """A target that recognises the reference provider by its first packet behaves as it from the second on."""
    here, there = addresses()
    data = tmp_path / "data"
    data.write_bytes(os.urandom(20_000))
    refprov = ("--personality", "refprov", "--rendezvous", "off", "--mode", "rod")
    with serving(there, "--personality", "auto", "--rendezvous", "off", "--count", "1") as server:
        assert server.told["payload_mtu"] == 4096
        (written,) = said("send", "--write", str(data), "--peer", there, "--local", here, *refprov, "--verify")
        assert written["match"]
        assert server.line()["what"] == "is recognised as refprov"
        assert (server.line()["payload_mtu"], server.ended()[0]) == (1024, 0)


@pytest.mark.parametrize(
    "scenario",
    ["ses-fetching-atomic", "ses-tagged-send", "gradient-sealed-client-server", "ses-fail-at-perm", "gradient-lossy"],
)
def test_a_scenario(tmp_path: Path, scenario: str) -> None:
    here, there = addresses()
    file = tmp_path / "scenario.pcapng"
    with serving(there, "--scenario", scenario, "--count", "1") as server:
        wrong = invoke("send", "ses-write", "--peer", there, "--local", here)
        assert (wrong.exit_code, "differs from the one that is served" in wrong.stderr) == (2, True)
        (played,) = said("send", scenario, "--peer", there, "--local", here, "-o", str(file))
        assert played["match"]
        assert {one["code"] for one in played["operations"]} <= {"OK", "NONE", "AT_PERM"}
        status, told = server.ended()
        assert (status, bool(told["security"])) == (0, "sealed" in scenario)
        assert sum(told["faults"].get("sent", {}).values()) == 0 or "lossy" in scenario
        assert (sum(played["faults"].get("sent", {}).values()) > 0) is ("lossy" in scenario)
        assert not played["faults"].get("received"), "the other end does them"
    clean(file, keys=KeyRing.read(KEYS) if "sealed" in scenario else None, least=4)


@pytest.mark.parametrize("scenario", ["ladder-L05", "ladder-C2", "ladder-L13"][: effort(2, 3, 3)])
def test_a_script_of_single_packets(tmp_path: Path, scenario: str) -> None:
    """The packets that cross the link are those that the emulator delivers, in its order and bit by bit."""
    here, there = addresses()
    file = tmp_path / "script.pcapng"
    with serving(there, "--scenario", scenario, "--count", "1") as server:
        (played,) = said("send", scenario, "--peer", there, "--local", here, "-o", str(file))
        assert (played["match"], played["failure"], played["peer_failure"]) == (True, None, None)
        assert server.ended()[0] == 0
    delivered: list[bytes] = []
    script = UetScript(at_addresses(scenario, load(scenario), here, there))
    script.cross = lambda node, frame: delivered.append(frame)
    script.play()
    with open_capture(str(file)) as records:
        assert [record.data[28:] for record in records] == [frame[42:] for frame in delivered]
    assert played["packets"] == len(delivered) > 4


def test_a_script_whose_packets_do_not_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end that waits for a packet says which one is missing."""
    monkeypatch.setattr(steps, "_PATIENCE", 10**11)
    here, there = addresses()
    at = at_addresses("ladder-L05", load("ladder-L05"), here, there)
    with fi.Fabric(live=Interface(there)) as fabric:
        end = steps.ScriptedEnd(fabric.live, at.encapsulation)
        with pytest.raises(LocalError, match="packet 1 of the script did not arrive in"):
            end.play(at, at.run.target)


def test_keys(tmp_path: Path) -> None:
    """Both ends need the key of the domain. Who has none is refused at the rendezvous, and who has another one is told
    that nothing opens."""
    here, there = addresses()
    data, file, other = (tmp_path / name for name in ("data", "sealed.pcapng", "other.toml"))
    data.write_bytes(os.urandom(20_000))
    keys = PCAPS / "gradient-sealed-direct.keys.toml"
    other.write_text(keys.read_text().replace('key = "07', 'key = "08'))
    common = ("send", "--write", str(data), "--peer", there, "--local", here)
    with serving(there, "--keys", str(keys), "--count", "3") as server:
        assert server.told["security"] == {"sdi": 1, "mode": "direct"}
        plain = invoke(*common)
        assert (plain.exit_code, "--keys: packets of this end travel in clear, and" in plain.stderr) == (2, True)
        for _ in "12":  # no counter is used twice
            (sealed,) = said(*common, "--keys", str(keys), "-o", str(file))
            assert (sealed["match"], sealed["security"]["troubles"]) == (True, [])
        clean(file, keys=KeyRing.read(keys), least=4)
        (wrong,) = said(*common, "--keys", str(other), status=1)
        assert wrong["error"]
        status, told = server.ended()
        assert (status, told["sessions"]) == (0, 3)
        assert re.fullmatch(r"\d+ of \d+ packets of SDI 1 did not open", told["security"]["troubles"][0])


def test_ctrl_c_leaves_a_capture_and_a_summary(tmp_path: Path) -> None:
    here, there = addresses()
    file = tmp_path / "served.pcapng"
    with serving(there, "-o", str(file)) as server:
        said("ping", "--peer", there, "--local", here, "--sizes", "8", "--iterations", "5", "--operations", "write")
        server.process.send_signal(signal.SIGINT)
        status, told = server.ended()
    assert (status, told["kind"], told["sessions"]) == (130, "summary", 1)
    clean(file, least=4)


def test_a_peer_that_is_killed(tmp_path: Path) -> None:
    """A transfer towards a program that is killed ends soon, with exit status 1 and the reason."""
    here, there = addresses()
    data = tmp_path / "data"
    data.write_bytes(bytes(1 << 20))
    with serving(there) as server:
        os.kill(server.process.pid, signal.SIGSTOP)  # so that the kill comes while the transfer is open
        pid = os.fork()
        if not pid:
            os.kill(server.process.pid, signal.SIGCONT)
            os._exit(0)
        os.waitpid(pid, 0)
        import threading

        timer = threading.Timer(1.0, server.process.kill)
        timer.start()
        result = invoke("send", "--write", str(data), "--peer", there, "--local", here, "--repeat", "100000")
        timer.join()
    assert result.exit_code == 1
    assert "has ended" in result.stdout + result.stderr or "UNDELIVERABLE" in result.stdout


def test_memory_that_the_host_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    def zeros(size: int) -> memoryview:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(target, "zeros", zeros)
    result = invoke("serve", "--local", addresses()[0], "--memory", "16 GiB")
    assert (result.exit_code, "--memory: 17,179,869,184 bytes: Cannot allocate" in result.stderr) == (2, True)


def test_misuse() -> None:
    local, other = addresses()
    for arguments, text in (
        (("serve",), "--local"),
        (("serve", "--local", "192.0.2.1"), "192.0.2.1 is no address of this host"),
        (("serve", "--local", "localhost"), "--local: 'localhost' is not legal"),
        (("probe", other, "--local", "999.0.0.1"), "--local: '999.0.0.1' is not legal"),
        (("conform", "--list", "--only", " ,"), "--only: ' ,' names no test"),
        (("serve", "--local", local, "--memory", "nothing"), "--memory"),
        (("serve", "--local", local, "--allow", "10.0.0.0/99"), "--allow"),
        (("serve", "--local", local, "--personality", "refprof"), "did you mean refprov"),
        (("serve", "--local", local, "--rendezvous", "0"), "--rendezvous"),
        (("serve", "--local", local, "--scenario", "gradient-roce"), "gradient-roce is over RoCE; legal: over UET"),
        (("serve", "--local", local, "--scenario", "ladder-L01", "--faults", "drop=0.1"), "--faults: does not go with"),
        (("send", "--peer", other), "one of SCENARIO, --write, --read, --send"),
        (("send", "--write", "/nonexistent", "--peer", other), "/nonexistent: No such file"),
        (("send", "--read", "8", "--peer", other, "--local", local), "no rendezvous at"),
        (("send", "--read", "8", "--peer", "here"), "--peer: 'here' is not legal"),
        (("ping", "--peer", other, "--operations", "wirte"), "did you mean write"),
        (("ping", "--peer", other, "--personality", "auto"), "auto is of serve alone"),
        (("probe", other, "--transport", "rc", "--cc", "off"), "--cc"),
        (
            ("send", "--read", "8", "--peer", other, "--qpn", "3"),
            "--qpn: goes with --transport rc and --rendezvous off",
        ),
        (
            ("send", "--read", "8", "--peer", other, "--transport", "rc", "--rendezvous", "off", "--peer-qpn", "1"),
            "--peer-qpn: 1 is not legal; legal: 2",
        ),
        (("send", "--read", "8", "--peer", other, "--transport", "rc", "--key", "0x100000000"), "--key"),
        (("serve", "--local", other, "--transport", "rc", "--rendezvous", "off"), "--peer-gid: is missing"),
        (
            ("serve", "--local", local, "--cc", "rccc"),
            "--cc: 'rccc' is not legal; legal: nscc, off on a real link: RCCC",
        ),
        (("serve", "--local", local, "--sdi", "1"), "--sdi: does not go without --keys"),
        (("serve", "--local", local, "--keys", "/nonexistent"), "/nonexistent: No such file"),
        (("serve", "--local", local, "--keys", KEYS, "--sdi", "2"), "--sdi: 2 is not in"),
        (("serve", "--local", local, "--keys", KEYS, "--transport", "rc"), "--keys: does not go with --transport rc"),
        (("serve", "--local", "::1", "--keys", KEYS), "--ssi: is missing"),
        (("serve", "--local", local, "--scenario", "uet-incast"), "has traffic of several nodes, and a link has two"),
        (("serve", "--local", other, "--peer-gid", other), "--peer-gid: goes with --transport rc and --rendezvous off"),
    ):
        result = invoke(*arguments)
        assert (result.exit_code, text in result.stderr) == (2, True), (arguments, result.stderr)
        assert result.stderr.count("\n") <= 3
