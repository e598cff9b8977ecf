# SPDX-License-Identifier: GPL-2.0-only
"""Ctrl-C of the commands that ask a live peer: they end in order, with their sum, their reports and status 130."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from tests.support.cli.frames import invoke
from tests.support.cli.serving import serving
from tests.support.live import addresses


def interrupted(*arguments: str, begun: int = 1) -> tuple[int, list[str], str]:
    """Run a command until so many lines came, and then press Ctrl-C; with 0 somebody else does. Returns status, lines,
    and errors."""
    command = (sys.executable, "-m", "uetproto", *arguments)
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:  # fmt: skip
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(begun)]
        if begun:
            process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    return process.returncode, [*lines, *out.splitlines()], err


PARTIAL = "uetproto: partial: interrupted before the end\n"


def test_commands_against_a_peer(tmp_path: Path) -> None:
    here, there = addresses()
    data, capture, junit, page = (tmp_path / name for name in ("data", "sent.pcapng", "report.xml", "report.html"))
    data.write_bytes(bytes(4 << 20))
    common = ("--peer", there, "--local", here)
    with serving(there):
        status, lines, err = interrupted("conform", *common, "--json", "--junit", str(junit), "--html", str(page))
        *results, summary = [json.loads(line) for line in lines]
        assert (status, err, summary["kind"]) == (130, PARTIAL, "summary")
        assert 0 < summary["tests"] == len(results) < 129
        assert ElementTree.parse(junit).getroot()[0].get("tests") == str(len(results))
        assert page.read_text(encoding="utf-8").count('<details class="test ') == len(results)
        status, lines, err = interrupted("fuzz", *common, "--seconds", "300")
        assert (status, err, "no findings" in lines[-1]) == (130, PARTIAL, True)
        assert invoke("send", "--write", str(data), *common, "-o", str(capture)).exit_code == 0
        status, lines, err = interrupted("replay", str(capture), "--as", here, *common, "--frames")
        assert (status, err) == (130, PARTIAL), lines
        assert any(" played; answers: " in line for line in lines), lines


def test_a_peer_that_does_not_act(tmp_path: Path) -> None:
    here, there = addresses()
    target = ("conform", "--as", "target", "--peer", there, "--local", here, "--only", "UET-INI-00?", "--wait", "600")
    driver = f"{sys.executable} -c 'import os, time; os.kill(os.getppid(), 2); time.sleep(600)'"
    for more in (("--driver", driver), ()):
        status, lines, err = interrupted(*target, *more, begun=0 if more else 2)
        assert (status, err, lines[-1]) == (130, PARTIAL, "1 test: 0 pass, 0 fail, 1 inconclusive")
        assert "the peer did not act: interrupted" in lines[-2]
