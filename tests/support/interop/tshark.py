# SPDX-License-Identifier: GPL-2.0-only
"""This module runs tshark with the dissector, and returns its output as Python values.

tshark runs unprivileged: as root, versions from 4.4 on ignore Lua without a word. It exits with 0 after errors in Lua,
so every run looks for them. Starting it costs 0.2 s, so there is one run for a capture, not one for a packet.
"""

import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import pytest

from uetproto.wireshark import PLUGIN

needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")

NOBODY = 65534
LUA_ERROR = re.compile(r"^.*(?:Lua Error|Lua: .*|_ws\.lua\.error|\.lua:\d+:).*$", re.MULTILINE)

Frame = bytes | tuple[bytes, int]
"""Type of a frame: the captured bytes, with the length on the wire if that is more."""


def write_pcap(path: Path, frames: Iterable[Frame]) -> None:
    """Write a pcap file with nanosecond stamps, without the code under test."""
    with path.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1))
        for index, frame in enumerate(frames):
            data, length = frame if isinstance(frame, tuple) else (frame, len(frame))
            out.write(struct.pack("<IIII", index, 0, len(data), length) + data)


@contextmanager
def folder() -> Iterator[Path]:
    """Yield a temporary folder that tshark can read whoever runs the tests; the folder is also its HOME."""
    path = Path(tempfile.mkdtemp(prefix="uetproto-tshark-"))
    try:
        path.chmod(0o755)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def run(
    arguments: Sequence[str | Path], home: Path, *, scripts: Sequence[Path] = (PLUGIN,), check: bool = True
) -> tuple[str, str]:
    """Return standard output and standard error of tshark with `scripts` loaded; fail the test on a Lua error."""
    loaded: list[str] = []
    for number, script in enumerate(scripts):
        copy = home / f"{number}-{script.name}"
        shutil.copyfile(script, copy)
        copy.chmod(0o644)
        loaded += ["-X", f"lua_script:{copy}"]
    command = ["tshark", *(str(argument) for argument in arguments), *loaded, "-n"]
    environment = os.environ | {"HOME": str(home), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    environment.pop("XDG_CONFIG_HOME", None)
    if os.geteuid() == 0:
        command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command]
    done = subprocess.run(command, capture_output=True, env=environment, cwd=home, timeout=120, check=False)
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    if check:
        found = LUA_ERROR.search(err) or LUA_ERROR.search(out)
        assert found is None, found.group()
        assert done.returncode == 0, err
    return out, err


def counts(path: Path, home: Path, filters: Sequence[str], *options: str) -> list[int]:
    """Return how many frames each display filter lets through; a filter has no comma."""
    out, _ = run(["-r", path, "-q", "-z", ",".join(("io,stat,0", *filters)), *options], home)
    (row,) = re.findall(r"^\|.*<>[^|]*\|(.*)\|$", out, re.MULTILINE)
    return [int(number) for number in row.split("|")[: 2 * len(filters) : 2]]  # frames and bytes of each


@dataclass(slots=True)
class Branch:
    """One header in the tree that tshark shows has a filter name, a place, and fields with their places."""

    name: str
    place: tuple[int, int]
    values: dict[str, str] = field(default_factory=dict)
    places: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(slots=True)
class Shown:
    """What tshark shows of one frame: the headers of UET, everything else of the plugin, expert infos."""

    branches: list[Branch] = field(default_factory=list)
    own: Branch = field(default_factory=lambda: Branch("uetp", (0, 0)))
    experts: set[str] = field(default_factory=set)

    def number(self, name: str) -> int | None:
        text = self.own.values.get(name)
        return None if text is None else number(text)


def copied(path: Path, home: Path) -> Path:
    """Return a copy of a capture that tshark may read, whoever runs the tests."""
    there = home / path.name
    shutil.copyfile(path, there)
    there.chmod(0o644)
    return there


def number(text: str) -> int:
    """Return the number that tshark shows for a field; bytes count as one big-endian number."""
    if ":" in text:
        return int(text.replace(":", ""), 16)
    if text in ("True", "False"):
        return int(text == "True")
    return int(text, 0)


def shown(
    frames: Iterable[Frame], home: Path, *options: str, scripts: Sequence[Path] = (PLUGIN,)
) -> list[Shown | None]:
    """Return what tshark shows of each frame; None where tshark does not dissect it as UET."""
    path = home / "frames.pcap"
    write_pcap(path, frames)
    return shown_file(path, home, *options, scripts=scripts)


def shown_file(path: Path, home: Path, *options: str, scripts: Sequence[Path] = (PLUGIN,)) -> list[Shown | None]:
    """Return what tshark shows of each frame of a capture that tshark can read."""
    out, _ = run(["-r", path, "-T", "pdml", "-J", "uetp", *options], home, scripts=scripts)
    found = []
    for _, element in ElementTree.iterparse(BytesIO(out.encode())):
        if element.tag == "packet":
            tree = [proto for proto in element if proto.get("name") == "uetp"]
            found.append(_shown(tree[0]) if tree else None)
            element.clear()
    return found


def _shown(tree: ElementTree.Element) -> Shown:
    result = Shown()
    for element in tree:
        _read(element, result, result.own)
    return result


def _read(element: ElementTree.Element, result: Shown, branch: Branch) -> None:
    name = element.get("name", "").removeprefix("uetp.")
    place = int(element.get("pos", 0)), int(element.get("size", 0))
    if name.startswith("expert."):
        result.experts.add(name.removeprefix("expert."))
    elif name.startswith(branch.name + ".") and branch is not result.own:
        field_name = name[len(branch.name) + 1 :]
        assert field_name not in branch.values, f"{name} is there twice"
        branch.values[field_name], branch.places[field_name] = element.get("show", ""), place
    elif name.split(".")[0] in ("pds", "ses", "tss", "entropy", "sharp", "mcast"):
        branch = Branch(name, place)
        result.branches.append(branch)
    elif name and not name.startswith("_ws."):
        result.own.values[name], result.own.places[name] = element.get("show", ""), place
    for child in element:
        _read(child, result, branch)


def columns(path: Path, home: Path, *options: str) -> list[tuple[str, str]]:
    """Return the Protocol and Info column of each packet."""
    out, _ = run(["-r", path, "-o", r'gui.column.format:"P","%p","I","%i"', *options], home)
    return [(protocol, info) for protocol, _, info in (line.strip().partition(" ") for line in out.splitlines())]
