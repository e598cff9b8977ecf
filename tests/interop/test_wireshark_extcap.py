# SPDX-License-Identifier: GPL-2.0-only
"""The extcap: what it tells Wireshark, and that what it captures is what the commands write."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli.frames import invoke
from tests.support.interop.tshark import needs_tshark
from uetproto.wireshark import extcap, personal


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert extcap.main(list(arguments)) == 0
    return capsys.readouterr().out.splitlines()


def test_it_lists_its_interfaces(capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(capsys, "--extcap-interfaces", "--extcap-version=4.0")
    assert lines[0].startswith("extcap {version=")
    assert [line.partition("}")[0] for line in lines[1:]] == [
        "interface {value=uet-scenario",
        "interface {value=uet-traffic",
    ]
    assert told(capsys, "--extcap-interface", "uet-traffic", "--extcap-dlts") == [
        "dlt {number=1}{name=EN10MB}{display=Ethernet}"
    ]


def test_every_shipped_name_is_offered(capsys: pytest.CaptureFixture[str]) -> None:
    scenarios = told(capsys, "--extcap-interface", "uet-scenario", "--extcap-config")
    assert "value {arg=0}{value=gradient}{display=gradient}{default=false}" in scenarios
    assert "value {arg=0}{value=gradient-lossy}{display=gradient-lossy}{default=true}" in scenarios
    assert sum(line.startswith("value") for line in scenarios) == len(list(extcap.SCENARIOS.glob("*.toml")))
    profiles = "\n".join(told(capsys, "--extcap-interface", "uet-traffic", "--extcap-config"))
    assert "{value=mixed}" in profiles
    assert "{value=sealed}" not in profiles, "whose keys would be lost"


def test_what_is_not_offered_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The pipe is opened even so: Wireshark waits for that without end."""
    assert extcap.main(["--extcap-interface", "eth0", "--capture"]) == 2
    assert "unknown interface: 'eth0'" in capsys.readouterr().err
    scenario = ["--extcap-interface", "uet-scenario", "--capture", "--scenario", "/etc/passwd"]
    assert extcap.main([*scenario, "--fifo", str(tmp_path / "pipe")]) == 2
    assert "unknown scenario: /etc/passwd; uetproto run --help" in capsys.readouterr().err
    assert (tmp_path / "pipe").read_bytes() == b""
    assert extcap.main(scenario) == 2
    assert "--fifo: no path" in capsys.readouterr().err


def test_it_captures_what_the_command_writes(tmp_path: Path) -> None:
    pipe = tmp_path / "captured.pcapng"
    options = ["sends", "--packets", "9", "--seed", "5"]
    arguments = ["--capture", "--extcap-interface", "uet-traffic", "--fifo", str(pipe), "--profile", *options]
    done = subprocess.run(
        [sys.executable, "-m", personal.EXTCAP_MODULE, *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert invoke("generate", *options, "-o", str(tmp_path / "written.pcapng")).exit_code == 0
    assert pipe.read_bytes() == (tmp_path / "written.pcapng").read_bytes()


@needs_tshark
def test_tshark_captures_from_it(tmp_path: Path) -> None:
    """As root, 4.0 ignores the variable for the folder, so that ours is mounted in its place, for this run alone."""
    program = personal.install_extcap(tmp_path / "extcap")
    command = ["tshark", "-n", "-i", "uet-scenario", "-o", "extcap.uet_scenario.scenario:gradient"]
    environment = os.environ | {"HOME": str(tmp_path), "WIRESHARK_EXTCAP_DIR": str(program.parent)}
    if os.geteuid() == 0:
        folders = subprocess.run(["tshark", "-G", "folders"], capture_output=True, text=True, check=True).stdout
        system = next(line.split("\t")[-1] for line in folders.splitlines() if "xtcap path" in line)
        script = f'mount --bind "{program.parent}" "{system}" && exec "$@"'
        unshare = ["unshare", "-m", "sh", "-c", script, "sh"]
        if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], check=False).returncode:
            pytest.skip("root may not mount here")
        command = [*unshare, *command]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert len(done.stdout.splitlines()) == 7, done.stderr
