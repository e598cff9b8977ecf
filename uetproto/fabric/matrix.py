# SPDX-License-Identifier: GPL-2.0-only
"""This module makes the flows of a study: from the name of a pattern, or a traffic matrix file of the UEC simulator.

A matrix file has a line `Nodes n`, a line `Connections c`, and a line `a->b id i start t size s` a flow: from host a to
host b, its number, its start in picoseconds, and its size in bytes. `id` may be missing. A line that begins with # is a
comment.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from uetproto.emulator.flows import PATTERNS, Flow
from uetproto.errors import LocalError, Location, similar
from uetproto.textfile import read_bounded

MOST_HOSTS, MOST_FLOWS = 8192, 1 << 20
LARGEST = 2**32 - 2
"""Size of the largest flow in bytes: a flow is one message."""


class TrafficMatrix(NamedTuple):
    """A traffic matrix has the flows of a study, and the number of hosts among which they are."""

    name: str
    hosts: int
    flows: tuple[Flow, ...]


def traffic_matrix(what: str, hosts: int, *sizes: int) -> TrafficMatrix:
    """Return the flows of patterns joined by +, or those of the matrix file `what`, which then says the number of
    hosts. `sizes` has the flow size of each pattern in bytes, or one for all of them.

    Raises `LocalError` for a name that is neither, and for what is wrong in a file, with its line; `OSError` for a file
    that cannot be read.
    """
    names = what.split("+")
    unknown = next((name for name in names if name not in PATTERNS), None)
    if unknown is None:
        return _patterns(what, names, hosts, sizes)
    if "." not in what and "/" not in what:
        legal = f"{', '.join(PATTERNS)}, some of them joined by +, FILE.cm"
        raise LocalError("pattern", f"{unknown!r} is none{similar(unknown, PATTERNS)}", legal, id="unknown-pattern")
    return read_matrix(what)


def _patterns(what: str, names: Sequence[str], hosts: int, sizes: Sequence[int]) -> TrafficMatrix:
    if not 2 <= hosts <= MOST_HOSTS:
        raise LocalError("hosts", f"{hosts} is not legal", f"2 … {MOST_HOSTS}", id="out-of-range")
    if len(sizes) not in (1, len(names)):
        raise LocalError(
            "flow-size", f"{len(sizes)} sizes", f"one, or {len(names)}: one for each of {what}", id="wrong-count"
        )
    wrong = next((size for size in sizes if not 1 <= size <= LARGEST), None)
    if wrong is not None:
        raise LocalError("flow-size", f"{wrong} is not legal", f"1 … {LARGEST} bytes", id="out-of-range")
    if len(set(names)) < len(names):
        raise LocalError("pattern", f"{what!r} has one twice", "different ones", id="duplicate")
    if "all_to_all" in names and hosts * (hosts - 1) > MOST_FLOWS:
        raise LocalError("hosts", f"{hosts * (hosts - 1)} flows", f"at most {MOST_FLOWS}", id="too-many")
    all_sizes = sizes if len(sizes) == len(names) else (sizes[0],) * len(names)
    flows = [
        flow._replace(part=name)
        for name, size in zip(names, all_sizes, strict=True) for flow in PATTERNS[name](hosts, size)
    ]  # fmt: skip
    return TrafficMatrix(what, hosts, tuple(flow._replace(number=i) for i, flow in enumerate(flows, 1)))


_NODES = f"a line Nodes n before the flows, n = 2 … {MOST_HOSTS}"


def read_matrix(path: str) -> TrafficMatrix:
    """Return the flows of a traffic matrix file. Raises `LocalError` with the line of what is wrong; `OSError`."""
    hosts = wanted = None
    flows: list[Flow] = []
    numbers: dict[int, int] = {}
    told = 0
    for number, line in enumerate(read_bounded(path).decode("utf-8", "replace").splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        place = Location(path, number)
        if words[0] == "Nodes" and hosts is not None:
            raise LocalError("Nodes", "there are two of these lines", "one", place=place, id="duplicate")
        if words[0] == "Nodes":
            hosts = _number(words[1:], place, "Nodes", 2, MOST_HOSTS)
        elif words[0] == "Connections":
            wanted, told = _number(words[1:], place, "Connections", 1, MOST_FLOWS), number
        elif "->" in words[0]:
            if hosts is None:
                raise LocalError(
                    "Nodes", "this line is missing before the first flow", _NODES, place=place, id="missing-argument"
                )
            flows.append(flow := _flow(words, place, hosts, len(flows) + 1))
            if flow.number in numbers:
                wrong = f"{flow.number} is that of line {numbers[flow.number]}, too"
                raise LocalError("id", wrong, "a different one for each flow", place=place, id="duplicate")
            numbers[flow.number] = number
            if len(flows) > MOST_FLOWS:
                raise LocalError("flows", f"more than {MOST_FLOWS}", f"1 … {MOST_FLOWS}", place=place, id="too-many")
        else:
            legal = "Nodes n, Connections c, a->b id i start t size s"
            raise LocalError("line", f"{words[0]!r} is not known", legal, place=place, id="wrong-format")
    if hosts is None:
        raise LocalError("Nodes", "this line is missing", _NODES, place=Location(path), id="missing-argument")
    if not flows:
        raise LocalError(
            "flows", "there are none", "a line a->b id i start t size s for each", place=Location(path),
            id="wrong-format"
        )  # fmt: skip
    if wanted is not None and wanted != len(flows):
        found = "1 flow" if len(flows) == 1 else f"{len(flows)} flows"
        legal = f"{len(flows)}, or a line for each flow"
        raise LocalError(
            "Connections", f"{wanted}, but the file has {found}", legal, place=Location(path, told), id="wrong-count"
        )
    return TrafficMatrix(Path(path).stem, hosts, tuple(flows))


_WORDS = ("id", "start", "size")


def _flow(words: Sequence[str], place: Location, hosts: int, number: int) -> Flow:
    source, _, target = words[0].partition("->")
    ends = [_number([end], place, "host", 0, hosts - 1) for end in (source, target)]
    if ends[0] == ends[1]:
        raise LocalError("flow", f"from host {ends[0]} to itself", "two different hosts", place=place, id="same-node")
    said = dict(zip(words[1::2], words[2::2], strict=False))
    unknown = next((word for word in words[1::2] if word not in _WORDS), None)
    if unknown is not None:
        raise LocalError("flow", f"{unknown!r} is not supported", ", ".join(_WORDS), place=place, id="wrong-format")
    twice = next((word for word in said if words[1::2].count(word) > 1), None)
    if twice is not None or len(words) % 2 == 0:
        wrong = f"{words[-1]!r} has no value" if twice is None else f"{twice!r} is there twice"
        raise LocalError("flow", wrong, "a->b id i start t size s", place=place, id="wrong-format")
    if "size" not in said:
        raise LocalError("flow", "without size", "a->b size s", place=place, id="wrong-format")
    size = _number([said["size"]], place, "size", 1, LARGEST)
    start = _number([said.get("start", "0")], place, "start", 0, 10**18)
    number = _number([said.get("id", str(number))], place, "id", 0, 2**32)
    return Flow(number, ends[0], ends[1], start, size, Path(place.file).stem)


def _number(words: Sequence[str], place: Location, name: str, low: int, high: int) -> int:
    text = " ".join(words)
    if not text.isascii() or not text.isdecimal() or not low <= int(text[:20]) <= high:
        raise LocalError(name, f"{text!r} is not legal", f"{low} … {high}", place=place, id="wrong-format")
    return int(text)
