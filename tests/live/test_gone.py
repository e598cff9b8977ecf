# SPDX-License-Identifier: GPL-2.0-only
"""Programs that are killed or stopped in the middle of a transfer: the other end says so, in bounded time."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import click
import pytest

from tests.support.cli.frames import invoke
from tests.support.cli.serving import serving
from tests.support.effort import effort
from tests.support.live import addresses
from uetproto.api import fi
from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
from uetproto.cli.live import target
from uetproto.cli.live.options import LinkOptions, link_options
from uetproto.engine.config import PdsConfig
from uetproto.live import Interface


@contextmanager
def sending(here: str, there: str, data: Path, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Run `uetproto send` without an end."""
    data.write_bytes(bytes(1 << 20))
    command = [sys.executable, "-m", "uetproto", "send", "--write", str(data), "--repeat", "1000000", "--peer", there,
               "--local", here, "--json", *arguments]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("transport", ["uet", "rc"][: effort(1, 2, 2)])
def test_the_initiator_is_killed(tmp_path: Path, transport: str) -> None:
    here, there = addresses()
    with serving(there, "--count", "1", "--transport", transport) as server:
        with sending(here, there, tmp_path / "data", "--transport", transport) as client:
            assert server.line()["what"] == "begins"
            threading.Event().wait(0.2)
            client.kill()
        status, told = server.ended()
    assert (status, told["sessions"]) == (1, 1)
    assert told["failures"] == [f"{here}: its program was killed, or cannot be reached any more"]


def test_the_initiator_ends_by_ctrl_c(tmp_path: Path) -> None:
    """A `send` that Ctrl-C ends is no failure of `serve`."""
    here, there = addresses()
    with serving(there, "--count", "1") as server:
        with sending(here, there, tmp_path / "data") as client:
            assert server.line()["what"] == "begins"
            threading.Event().wait(0.2)
            client.send_signal(signal.SIGINT)
            out, _ = client.communicate(timeout=20)
            assert (client.returncode, json.loads(out)["error"]) == (130, None)
        status, told = server.ended()
    assert (status, told["failures"]) == (0, [])


LATE = {
    "operation": """\
[[operation]]
do = "region"
length = 64

[[operation]]
do = "write"
length = 64

[[operation]]
do = "write"
at = "60 s"
length = 64
""",
    "step": """\
[[step]]
submit = 1

[[step]]
deliver = 0

[[step]]
advance = "60 s"
""",
}
"""Rows of scenarios that take a minute."""


@pytest.mark.parametrize("rows", [*LATE][: effort(1, 2, 2)])
def test_a_scenario_ends_by_ctrl_c(tmp_path: Path, rows: str) -> None:
    """The capture is complete, and nobody says that the scenario went as expected."""
    here, there = addresses()
    scenario, capture = tmp_path / "late.toml", tmp_path / "late.pcapng"
    nodes = '[nodes.a]\naddress = "10.0.0.1"\n[nodes.b]\naddress = "10.0.0.2"\n'
    run = "" if rows == "operation" else 'ses = "scripted"\nmode = "rud"\n'
    scenario.write_text(f"[run]\n{run}{nodes}{LATE[rows]}")
    command = [sys.executable, "-m", "uetproto", "send", str(scenario), "--peer", there, "--local", here, "--json",
               "-o", str(capture)]  # fmt: skip
    with (
        serving(there, "--scenario", str(scenario)) as server,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as client,
    ):
        assert server.line()["what"] == "begins"
        threading.Event().wait(0.3)
        client.send_signal(signal.SIGINT)
        out, error = client.communicate(timeout=20)
    told = json.loads(out)
    assert (client.returncode, error) == (130, "")
    if rows == "operation":
        assert (told["match"], told["error"], told["operations"]) == (None, None, [])
    else:
        assert (told["match"], told["failure"].split(",")[0]) == (False, "script: interrupted")
    assert audit([capture], Options()).findings == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("--rendezvous", "off"), "no answer after the last retransmission"), (("--transport", "rc"), "has ended")][
        : effort(1, 2, 2)
    ],
)
def test_the_target_is_killed(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    here, there = addresses()
    with serving(there, *arguments) as server, sending(here, there, tmp_path / "data", *arguments) as client:
        threading.Event().wait(1.5)
        server.process.kill()
        out, _ = client.communicate(timeout=30)
    assert client.returncode == 1
    assert words in json.loads(out)["error"]


def test_a_process_that_is_stopped(tmp_path: Path) -> None:
    """A clock that jumps, as after a laptop slept: the transfer goes on, and the summary tells of it."""
    here, there = addresses()
    data = tmp_path / "data"
    data.write_bytes(os.urandom(300_000))
    with serving(there, "--count", "1") as server:
        timer = threading.Timer(3, os.kill, (server.process.pid, signal.SIGCONT))
        timer.start()
        os.kill(server.process.pid, signal.SIGSTOP)
        result = invoke("send", "--write", str(data), "--peer", there, "--local", here)
        timer.join()
        assert (result.exit_code, "equal at both ends" in result.stdout) == (0, True), result.output
        status, told = server.ended()
    assert status == 0
    assert max(told["stood_still_ps"]) > 2 * 10**12


def unheard(near: fi.Fabric, there: str) -> None:
    """Write to an address where nobody listens, until all packets are reported as lost. None of the sockets that the
    entropy values have sends again meanwhile."""
    endpoint, far = near.endpoint("local"), ip_address(there)
    peer = fi.Address(fa=int(far), ip_version=far.version, pid_on_fep=0, start_index=15, initiator_id=16)
    endpoint.av.insert(peer)
    endpoint.write(bytes(15 * 4096), peer, 0, 1)
    counters = near.live.path.counters
    assert near.live.wait(lambda: sum(counters.refused.values()) >= 15, 5 * 10**12)
    assert (counters.sent, counters.received, sum(counters.refused.values())) == (15, 0, 15)
    near.live.close(drain=False)


def test_nobody_listens() -> None:
    """Each socket is asked for its errors, also if it has sent once."""
    here, there = addresses()
    with fi.Fabric(live=Interface(here), pds=PdsConfig(rto_init_time=8 * 10**12)) as near:
        unheard(near, there)
        assert set(near.live.path.counters.refused) == {f"Connection refused (ICMP from {there})"}


def test_after_an_operation_that_failed(tmp_path: Path) -> None:
    """The PDC is closed, and the next program at the address begins anew; what nobody hears is said."""
    here, there = addresses()
    data = tmp_path / "data"
    data.write_bytes(os.urandom(100))
    by_hand = ("--write", str(data), "--local", here, "--rendezvous", "off", "--json")
    with serving(there, "--rendezvous", "off", "--count", "2") as server:
        refused = invoke("send", *by_hand, "--peer", there, "--key", "9")
        assert refused.exit_code == 1
        told = json.loads(refused.stdout)
        assert ("BAD_MKEY" in told["error"], told["not_closed"]) == (True, 0)
        assert server.line()["what"] == "has closed its PDCs"
        told = json.loads(invoke("send", *by_hand, "--peer", there, "--verify").stdout)
        assert (told["match"], told["error"], told["not_closed"]) == (True, None, 0)
        assert server.ended()[0] == 1


def fails(near: fi.Fabric, there: str) -> None:
    """Write to a target, and raise an exception in the `with` of the fabric."""
    with near:
        endpoint = near.endpoint("local")
        peer = fi.Address(fa=int(ip_address(there)), pid_on_fep=0, start_index=15, initiator_id=16)
        endpoint.av.insert(peer)
        endpoint.write(b"x", peer, 0, 1)
        assert endpoint.cq.sread(timeout="20 s")[0].ok
        raise ZeroDivisionError


def test_a_program_that_fails_closes_its_pdcs() -> None:
    """An exception that ends the `with` of a fabric leaves nothing behind at the peer."""
    here, there = addresses()
    with serving(there, "--rendezvous", "off", "--count", "1") as server:
        near = fi.Fabric(live=Interface(here))
        with pytest.raises(ZeroDivisionError):
            fails(near, there)
        assert near.live.not_closed == 0
        assert server.line()["what"] == "has closed its PDCs"


def test_a_silent_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a rendezvous a peer that falls silent is a session that has ended, and a failure if its message is not
    whole."""
    monkeypatch.setattr(target, "SILENCE", effort(15, 15, 30) * 10**11)
    here, there = addresses()
    found: list[Any] = []

    @link_options
    def take(options: LinkOptions) -> None:
        found.append(options)

    click.command()(take).main(["--local", there, "--rendezvous", "off"], standalone_mode=False)
    one = target.target(found[0], there, 1 << 20, [], None)
    said: list[tuple[str, str]] = []
    one.on_session = lambda peer, what: said.append((peer, what))
    fabric = fi.Fabric(live=Interface(here))
    end = fabric.endpoint("local")
    peer = fi.Address(fa=int(one.world.interface.address), pid_on_fep=0, start_index=15, initiator_id=16)
    end.av.insert(peer)
    end.write(bytes(1 << 20), peer, 0, 1)  # begins, and its program is gone
    fabric.live.driver.turn(fabric.live.now)
    fabric.live.path.close()
    until = one.world.now + 20 * 10**12
    while not one.ended and one.world.now < until:
        one.turn(one.world.now + 10**11)
    one.close()
    assert said == [(here, "has been silent for 1 s")]
    assert one.failures == [f"{here}: silent for 1 s, with a message that is not whole"]
