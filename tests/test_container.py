# SPDX-License-Identifier: GPL-2.0-only
"""Dockerfile and devcontainer: their commands run in a chroot, as docker would run them (profile deep)."""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.support import containers
from tests.support.effort import PROFILE
from uetproto import __version__

ROOT = Path(__file__).parents[1]
DOCKERFILE = ROOT / "Dockerfile"
DEVCONTAINER = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
in_a_chroot = pytest.mark.skipif(PROFILE != "deep", reason="minutes, and a Debian release to load: in the profile deep")


@pytest.fixture(autouse=True)
def chroot() -> None:
    if PROFILE == "deep" and os.geteuid() != 0:
        pytest.skip("NOT RUN: only root can use chroot")
    if PROFILE == "deep" and shutil.which("debootstrap") is None:
        pytest.skip("NOT RUN: debootstrap is not installed")


def test_the_devcontainer_uses_the_dockerfile() -> None:
    build = DEVCONTAINER["build"]
    assert (ROOT / ".devcontainer" / build["dockerfile"]).resolve() == DOCKERFILE
    stages = [rest.partition(" AS ")[2] for word, rest in containers.instructions(DOCKERFILE) if word == "FROM"]
    assert stages == [build["target"], "uetproto"]


@in_a_chroot
def test_the_image(tmp_path: Path) -> None:
    image = containers.build(DOCKERFILE, "uetproto", tmp_path)
    os.chown(image.root / "work", 1000, 1000)  # a volume of the user
    assert image.start("--version") == f"uetproto {__version__}\n"
    assert "capture g.pcapng" in image.start("run", "gradient", "-o", "g.pcapng")
    assert "7 rows" in image.start("export", "g.pcapng", "-o", "g.parquet")
    shown = image.run("tshark", "-r", "g.pcapng", "-Y", "uetp.psn == 73729", "-O", "uetp")
    assert "ROD_REQ SYN PSN 73729" in shown


@in_a_chroot
def test_the_devcontainer(tmp_path: Path) -> None:
    """What is there after the container was made: an environment in which tests run."""
    image = containers.build(DOCKERFILE, DEVCONTAINER["build"]["target"], tmp_path)
    place = "/workspaces/uetproto"
    image.copy(place)
    image.run("bash", "-c", DEVCONTAINER["postCreateCommand"], folder=place)
    told = image.run(
        "tools/test", "tests/wire/test_vectors.py", "tests/interop/test_wireshark_command.py", "-q", folder=place
    )
    assert " passed" in told
    assert "failed" not in told
    assert "tshark with the plugin" in image.run("tools/demo", folder=place)
