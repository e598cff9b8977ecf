# SPDX-License-Identifier: GPL-2.0-only
"""This module parses the output of `nvidia-smi topo -m`, and prints a matrix in the same form (collectives.md §4.1)."""

import re
from typing import NamedTuple

from uetproto.collectives.topology.gpu_matrix import CLASSES, LABELS, Class, GpuConnection, GpuMatrix, X, is_gpu
from uetproto.errors import LocalError

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_AFFINITIES = {"CPU Affinity": "cpu_affinity", "NUMA Affinity": "numa_affinity", "GPU NUMA ID": "gpu_numa_id"}
_WORD = re.compile("|".join((*_AFFINITIES, r"\S+")))
_NIC_NAME = re.compile(r"\s*(\w+):\s+(\S+)\s*")
_UNDERLINED, _PLAIN = "\x1b[4m", "\x1b[0m"
MOST_DEVICES = 1024


class _Word(NamedTuple):
    text: str
    line: int
    column: int
    """Column, which counts from 1 as the line does, without escape sequences."""

    def refused(self, legal: str) -> LocalError:
        return _refused(self.line, self.column, f"{self.text!r}", legal)


def _refused(line: int, column: int, found: str, legal: str) -> LocalError:
    return LocalError(f"topo -m: line {line}, column {column}", found, legal, id="wrong-matrix")


def parse(text: str) -> GpuMatrix:
    """Return the matrix that a text shows, with or without its legends. Raises `LocalError`, which names line and
    column, for a wrong text."""
    if not isinstance(text, str):
        raise LocalError("topo -m", type(text).__name__, "a text", id="wrong-matrix")
    lines = [_ESCAPE.sub("", line).rstrip("\r") for line in text.split("\n")]
    first = next((number for number, line in enumerate(lines) if line.strip()), None)
    if first is None:
        raise _refused(1, 1, "no matrix", "a header such as GPU0 GPU1 NIC0, then a row for each device")
    devices, affinities = _header(_words(lines, first))
    matrix = _Rows(devices, affinities)
    at = first + 1
    while at < len(lines) and lines[at].strip() and lines[at].split()[0] != "Legend:":
        matrix.add(_words(lines, at), len(lines[at]))
        at += 1
    return matrix.whole(at + 1, _nic_names(lines, at, [name for name in devices if not is_gpu(name)]))


def _words(lines: list[str], number: int) -> list[_Word]:
    return [_Word(match[0], number + 1, match.start() + 1) for match in _WORD.finditer(lines[number])]


def _header(words: list[_Word]) -> tuple[list[str], list[str]]:
    """Return the names of the devices, and of the columns behind them."""
    devices: list[str] = []
    affinities: list[str] = []
    for word in words:
        if word.text in _AFFINITIES:
            if word.text in affinities:
                raise word.refused("each column once")
            affinities.append(word.text)
        elif affinities:
            raise word.refused(", ".join(_AFFINITIES))
        elif word.text in devices:
            raise word.refused("each device once")
        elif is_gpu(word.text) and devices and not is_gpu(devices[-1]):
            raise word.refused("all GPUs before the NICs")
        elif not devices and not is_gpu(word.text):
            raise word.refused("a header that begins with GPU0 or another GPU")
        elif len(devices) == MOST_DEVICES:
            raise word.refused(f"at most {MOST_DEVICES} devices")
        else:
            devices.append(word.text)
    if not devices:
        raise words[0].refused("a header that begins with GPU0 or another GPU")
    return devices, affinities


class _Rows:
    """This class holds the rows parsed so far, with the positions of their words."""

    def __init__(self, devices: list[str], affinities: list[str]) -> None:
        self.devices = devices
        self.affinities = affinities
        self.rows: list[tuple[GpuConnection, ...]] = []
        self.values: dict[str, list[str]] = {name: [] for name in affinities}

    def add(self, words: list[_Word], width: int) -> None:
        size, done = len(self.devices), len(self.rows)
        name, cells, rest = words[0], words[1 : size + 1], words[size + 1 :]
        if done == size:
            raise name.refused("nothing but an empty line after the row of the last device")
        if name.text != self.devices[done]:
            raise name.refused(f"the row of {self.devices[done]}, as in the header")
        if len(cells) < size:
            raise _refused(name.line, width + 1, "the row ends", f"{size} connections, here are {len(cells)}")
        row = tuple(self._connection(word, at) for at, word in enumerate(cells))
        if is_gpu(name.text):
            if rest and len(rest) < len(self.affinities):
                raise _refused(name.line, width + 1, "the row ends", f"also {self.affinities[len(rest)]}")
            for column, word in zip(self.affinities, rest, strict=False):
                self.values[column].append(word.text)
            rest = rest[len(self.affinities) :]
        if rest:
            raise rest[0].refused("the end of the row")
        self.rows.append(row)

    def _connection(self, word: _Word, at: int) -> GpuConnection:
        done = len(self.rows)
        try:
            found = GpuConnection.of(word.text)
        except ValueError:
            raise word.refused(LABELS) from None
        if (found == X) is not (at == done):
            raise word.refused("X from a device to itself, and nowhere else")
        if at < done and found != self.rows[at][done]:
            pair = f"{self.devices[done]} to {self.devices[at]}"
            raise word.refused(f"{self.rows[at][done]} for {pair}, as the other way")
        return found

    def whole(self, line: int, nic_names: tuple[str, ...]) -> GpuMatrix:
        if len(self.rows) < len(self.devices):
            raise _refused(line, 1, "the matrix ends", f"the row of {self.devices[len(self.rows)]}")
        gpus = sum(map(is_gpu, self.devices))
        affinities = {_AFFINITIES[name]: tuple(values) for name, values in self.values.items() if len(values) == gpus}
        return GpuMatrix(tuple(self.devices), tuple(self.rows), nic_names=nic_names, **affinities)


def _nic_names(lines: list[str], start: int, nics: list[str]) -> tuple[str, ...]:
    """Return the names in the legend of NICs, or nothing if there is no such legend."""
    begin = next((at for at in range(start, len(lines)) if lines[at].strip() == "NIC Legend:"), None)
    if begin is None:
        return ()
    names: dict[str, str] = {}
    for at in range(begin + 1, len(lines)):
        if not lines[at].strip():
            continue
        match = _NIC_NAME.fullmatch(lines[at])
        if match is None or match[1] not in nics or match[1] in names:
            raise _words(lines, at)[0].refused("a NIC of the header, once, and its name, as in NIC0: mlx5_0")
        names[match[1]] = match[2]
    missing = [nic for nic in nics if nic not in names]
    if missing:
        raise _refused(len(lines), 1, "the NIC legend ends", f"the name of {missing[0]}")
    return tuple(names[nic] for nic in nics)


def show(matrix: GpuMatrix, *, underlined: bool = False, legend: bool = True) -> str:
    """Return the text of a matrix, whose columns are separated by tabs. If `underlined` is True, the header is
    underlined, as `nvidia-smi` does on a terminal; if `legend` is True, the legends follow."""
    affinities = {title: getattr(matrix, name) for title, name in _AFFINITIES.items() if getattr(matrix, name)}
    head = "\t".join((*matrix.devices, *affinities))
    lines = [f"\t{_UNDERLINED}{head}{_PLAIN}" if underlined else f"\t{head}"]
    for number, (name, row) in enumerate(zip(matrix.devices, matrix.rows, strict=True)):
        cells = [" X " if connection == X else str(connection) for connection in row]
        ends = [values[number] if number < len(matrix.gpus) else "" for values in affinities.values()]
        lines.append("\t".join((name, *cells)) + "".join(_behind(at, end) for at, end in enumerate(ends)))
    if legend:
        lines += ["", "Legend:", "", *(_meaning(kind) for kind in CLASSES.values())]
        if matrix.nic_names:
            names = zip(matrix.nics, matrix.nic_names, strict=True)
            lines += ["", "NIC Legend:", "", *(f"  {nic}: {name}" for nic, name in names)]
    return "\n".join(lines) + "\n"


def _behind(column: int, value: str) -> str:
    """Return a cell of a column behind the connections. From the third such column on, a cell has two tabs, as titles
    are wide."""
    return "\t" * (2 if column > 1 else 1) + value


def _meaning(kind: Class) -> str:
    return f"  {'NV#' if kind.label == 'NV' else kind.label:<4} = {kind.path[0].upper()}{kind.path[1:]}"
