# SPDX-License-Identifier: GPL-2.0-only
"""This module has the commands `run`, `generate`, `collective` and `fabric` as functions. Their results have the
accessors of a capture."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Generic, Protocol, TypeVar
from weakref import finalize

from uetproto.analysis.arguments import check_int, check_text, check_texts
from uetproto.analysis.capture import Capture, open_captures
from uetproto.analysis.html import table_html
from uetproto.analysis.results import AuditResult, FlowRows, Ladder, MessageRows, StatsResult
from uetproto.collectives.costs.measure import MeasuredCollective
from uetproto.emulator.run.result import RunResult
from uetproto.errors import LocalError, SuggestsNames, shown, suggests_arguments, typed, unfit
from uetproto.fabric.result import StudyResult
from uetproto.traffic.generate import TrafficResult


class Told(Protocol):
    """This protocol describes what a command returns: it can be told as a dictionary."""

    def as_dict(self) -> dict[str, Any]: ...


T = TypeVar("T", bound=Told)
PathText = str | os.PathLike[str]


class CommandOutcome(SuggestsNames, Generic[T]):
    """An outcome is what came of a command: its `result`, and the frames, if they were captured.

    `flows`, `pdcs`, `messages`, `qps`, `audit`, `stats` and `ladder` are those of the capture.
    """

    def __init__(self, result: T, ok: bool, capture: Capture | None) -> None:
        self.result = result
        """Result of the command, a record whose fields are the keys of `as_dict`."""
        self.ok = ok
        """Whether the command would have exit status 0."""
        self._capture = capture

    @property
    def capture(self) -> Capture:
        """Return the frames. Raises `LocalError` if they were not captured."""
        if self._capture is None:
            raise LocalError("capture", "was not asked for", "with capture=True, or output=FILE", id="not-captured")
        return self._capture

    @property
    def flows(self) -> FlowRows:
        """Return the flows of the capture."""
        return self.capture.flows

    @property
    def pdcs(self) -> FlowRows:
        """Return the directions of PDCs of the capture."""
        return self.capture.pdcs

    @property
    def qps(self) -> FlowRows:
        """Return the directions of queue pairs of the capture."""
        return self.capture.qps

    @property
    def messages(self) -> MessageRows:
        """Return the messages of the capture."""
        return self.capture.messages

    def audit(self, *rules: str, **options: Any) -> AuditResult:
        """Judge the capture, as `Capture.audit` does."""
        return self.capture.audit(*rules, **options)

    def stats(self) -> StatsResult:
        """Measure the capture, as `Capture.stats` does."""
        return self.capture.stats()

    def ladder(self, **options: Any) -> Ladder:
        """Draw the capture, as `Capture.ladder` does."""
        return self.capture.ladder(**options)

    def as_dict(self) -> dict[str, Any]:
        """Return what the command prints with `--json`."""
        return self.result.as_dict()

    def _rows(self) -> list[tuple[str, str]]:
        return [(name, _cell(name, value)) for name, value in self.as_dict().items() if value not in (None, {}, [], ())]

    def __repr__(self) -> str:
        rows = self._rows()
        wide = max((len(name) for name, _ in rows), default=0)
        return "\n".join(f"{name:{wide}}  {value}" for name, value in rows)

    def _repr_html_(self) -> str:
        return table_html(["", ""], self._rows())


def _cell(name: str, value: object) -> str:
    """Return a value as text: numbers of things with separators."""
    return f"{value:,}" if type(value) is int and name != "seed" else str(value)


# The commands ---------------------------------------------------------------------------------------------------------


@suggests_arguments
def run(
    scenario: PathText,
    settings: Mapping[str, object] | None = None,
    *,
    seed: int | None = None,
    tap: str | None = None,
    trains: str | None = None,
    check: bool = False,
    capture: bool = True,
    output: PathText | None = None,
) -> CommandOutcome[RunResult]:
    """Run a scenario in virtual time, as `uetproto run` does: a shipped name, or a TOML file.

    `settings` has keys and values, as `--set`; `tap` says where frames are captured. `check` also checks each frame and
    both engines. The capture is a temporary file unless `output` names one. Raises `LocalError` for what is not legal.
    """
    from uetproto.emulator.run.play import run as play
    from uetproto.emulator.scenario.settings import load

    texts = [*_texts(settings), *([] if tap is None else [f"tap.nodes={tap}"])]
    if trains is not None:
        texts.append(f"fabric.trains={trains}")
    set_by = {"tap.nodes": "tap", "run.seed": "seed", "fabric.trains": "trains"}
    loaded = load(scenario, [*texts, *([] if seed is None else [f"run.seed={_seed(seed)}"])], set_by)
    with _captured(output, capture) as frames:
        result = play(loaded, output=frames.file, check=check)
        return CommandOutcome(result, result.ok, frames.opened())


@suggests_arguments
def generate(
    profile: PathText,
    settings: Mapping[str, object] | None = None,
    *,
    packets: int | None = None,
    duration: str | int | None = None,
    mutate: Mapping[str, float] | None = None,
    seed: int | None = None,
    trains: str = "auto",
    output: PathText | None = None,
) -> CommandOutcome[TrafficResult]:
    """Generate the traffic of a profile, as `uetproto generate` does: a shipped name, or a TOML file.

    `packets` (default 10,000) or `duration`, such as "5 ms" or in picoseconds, end it. `mutate` has shares of packets
    by mutation. `trains` is "auto", "on" or "off". The capture of a sealed profile is opened with its keys. Raises
    `LocalError` for what is not legal.
    """
    from uetproto.toml.values import time
    from uetproto.traffic import mutations
    from uetproto.traffic.generate import generate as write
    from uetproto.traffic.profile import load

    loaded = load(profile, _texts(settings))
    if seed is not None:
        loaded = replace(loaded, seed=_seed(seed))
    typed("mutate", {} if mutate is None else mutate, Mapping, "shares by mutation, as {'bad-crc': 0.01}")
    check_int("packets", packets, 1, none=True)
    shares = mutations.parse(tuple(f"{name}={share}" for name, share in (mutate or {}).items()))
    lasts = None if duration is None else _checked("duration", duration, time(1))
    most = _PACKETS if packets is None and lasts is None else packets
    with _captured(output, True) as frames:
        result = write(loaded, str(frames.file), packets=most, duration=lasts, mutations=shares, trains=trains)
        return CommandOutcome(result, result.failure is None, frames.opened(result.keys_file))


@suggests_arguments
def fabric(
    pattern: PathText,
    settings: Mapping[str, object] | None = None,
    *,
    hosts: int = 16,
    rate: str | int = "100 Gb/s",
    delay: str | int = "1 us",
    topology: str = "fat-tree",
    flow_size: str | int = 2_000_000,
    cc: str = "nscc",
    lb: str = "mixed",
    profile: str = "recommended",
    queue: str | int | None = None,
    trim: bool = True,
    slow_links: int = 0,
    wire: str = "bytes",
    trains: str = "auto",
    seed: int = 1,
    tap: str | None = None,
    capture: bool = False,
    output: PathText | None = None,
) -> CommandOutcome[StudyResult]:
    """Run the flows of a pattern, or of a traffic matrix file, through a fabric, as `uetproto fabric` does.

    The arguments are its options; `settings` has keys of `cc`, `switch` and `pds`. Frames are captured if `capture` is
    True or `output` names a file. Raises `LocalError` for what is not legal.
    """
    from uetproto.cli.collective.options import topology as topology_of
    from uetproto.cli.fabric.settings import settings_of
    from uetproto.emulator.congestion import OFF, PROFILES
    from uetproto.emulator.network.config import TRAINS
    from uetproto.engine.cc.config import PATHS
    from uetproto.engine.cc.registry import check_algorithm
    from uetproto.fabric.matrix import traffic_matrix
    from uetproto.fabric.study import Study, StudyConfig
    from uetproto.impair.unencoded_frames import WIRES
    from uetproto.toml.values import RATE, size, time
    from uetproto.wire.capture.pcap import open_writer
    from uetproto.wire.stack import check_choice

    for name, text in (("topology", topology), ("cc", cc)):
        check_text(name, text)
    check_text("tap", tap, none=True)
    check_int("hosts", hosts, 2)
    check_int("slow_links", slow_links, 0, 1024)
    if tap is not None and not capture and output is None:
        raise LocalError("tap", "without a capture", "with capture=True, or output=FILE", id="no-effect")
    for name, value, legal in (
        ("lb", lb, PATHS),
        ("profile", profile, PROFILES),
        ("wire", wire, WIRES),
        ("trains", trains, TRAINS),
    ):
        check_choice(name, value, legal)
    if cc != OFF:
        check_algorithm(cc, "cc")
    bytes_of = size(1, 2**32 - 2)
    sizes = [_checked("flow_size", one, bytes_of) for one in str(flow_size).split(",")]
    load = traffic_matrix(os.fspath(pattern), hosts, *sizes)
    kind, parameters = topology_of(topology)
    given = settings_of(_texts(settings), StudyConfig().pds)
    if (capture or output is not None) and wire != "bytes":
        raise LocalError("wire", f"{wire} cannot be captured", "bytes", id="wire-objects")
    config = StudyConfig(
        rate=_checked("rate", rate, RATE), delay=_checked("delay", delay, time(0)), topology=kind,
        parameters=parameters, queue=None if queue is None else _checked("queue", queue, bytes_of), trim=trim,
        profile=profile, slow_links=slow_links, taps=None if tap is None else tuple(tap.split(",")), given=given.cc,
        switch=given.switch, pds=given.pds, wire=wire, trains=trains, cc=cc, lb=lb, seed=_seed(seed),
    )  # fmt: skip
    with _captured(output, capture) as frames, ExitStack() as stack:
        writer = None
        if frames.file is not None:
            comment = f"uetproto fabric {load.name}, seed {config.seed}"
            places = Study.interfaces(config, load)
            writer = stack.enter_context(open_writer(frames.file, comment=comment, interfaces=places))
        result = Study(config, load, writer).run()
        stack.close()
        return CommandOutcome(result, result.failure is None, frames.opened())


@suggests_arguments
def collective(
    op: str,
    *,
    ranks: int = 4,
    algorithm: str | None = None,
    bytes: str | int | None = None,
    dtype: str = "float32",
    reduce_op: str | None = None,
    topology: str = "switch",
    transport: str = "uet",
    channels: int | None = None,
    slices: int | None = None,
    sockets: int | None = None,
    between: str | None = None,
    ports: int = 1,
    sharp: Sequence[str] = (),
    multicast: Sequence[str] = (),
    cc: str | None = None,
    lb: str | None = None,
    rate: str | int | None = None,
    delay: str | int | None = None,
    mtu: int | None = None,
    loss: float = 0,
    trains: str = "auto",
    seed: int = 0,
    tap: str | None = None,
    capture: bool = False,
    output: PathText | None = None,
) -> CommandOutcome[MeasuredCollective]:
    """Run a collective with real tensors over an emulated fabric, as `uetproto collective` does.

    The arguments are its options. Frames are captured if `capture` is True or `output` names a file, at the ranks of
    `tap`. Raises `LocalError` for what is not legal.
    """
    from uetproto.cli.collective import options
    from uetproto.cli.collective.run import CollectiveCase, PreparedCase
    from uetproto.collectives.dtypes import dtype as dtype_of
    from uetproto.collectives.topology.kinds import GPUS_PER_NODE

    for name, text in (("op", op), ("topology", topology), ("transport", transport), ("dtype", dtype)):
        check_text(name, text)
    for name, other in (("algorithm", algorithm), ("reduce_op", reduce_op), ("cc", cc), ("lb", lb), ("tap", tap)):
        check_text(name, other, none=True)
    for name, number in (("channels", channels), ("slices", slices), ("sockets", sockets), ("mtu", mtu)):
        check_int(name, number, 1, none=True)
    check_int("ports", ports, 1)
    for name, values in (("sharp", sharp), ("multicast", multicast)):
        check_texts(name, values)
    if not isinstance(loss, int | float) or not 0 <= loss <= 1:
        raise LocalError("loss", f"{shown(loss)} is not legal", "a share 0 … 1", id="out-of-range")
    (one_op,) = _single("op", options.operations(op))
    (numbers,) = _single("ranks", options.rank_numbers(str(ranks)))
    (transport,) = _single("transport", options.transports(transport))
    kind, shape = options.topology(topology)
    gpus = shape.get("gpus_per_node", GPUS_PER_NODE[kind])
    names = options.algorithms([one_op], algorithm, None, hosts=gpus > 1)[one_op]
    length = options.length(one_op, None if bytes is None else str(bytes))
    given = {"channels": channels, "slices": slices, "sockets": sockets, "between": between}
    (variant,) = _single("cc", options.congestion(cc, lb, [transport], kind, names))
    case = CollectiveCase(
        op=one_op, algorithm=names[0], ranks=numbers, length=length, dtype=dtype_of(dtype),
        reduce_op=options.reduce_op(one_op, reduce_op), kind=kind, shape=shape,
        options=options.own_options(one_op, names, length, given), ports=options.ports(ports, transport),
        seed=_seed(seed), **options.in_network(names, list(sharp), list(multicast)),
        **options.fabric_values(
            options.DEFAULT_RATE if rate is None else str(rate), options.DEFAULT_DELAY if delay is None else str(delay),
            mtu, loss, trains, [transport],
        ),
        **variant,
    )  # fmt: skip
    prepared = PreparedCase(case)
    prepared.check_memory()
    with _captured(output, capture) as frames:
        result = prepared.run(frames.file, options.taps(frames.file, tap, transport, 1, numbers, False))
        return CommandOutcome(result, result.correct, frames.opened())


_PACKETS = 10_000
"""Packets that `generate` writes unless the caller says otherwise."""


def _single(name: str, values: Sequence[Any]) -> Sequence[Any]:
    """Return `values`, which must be one. Raises `LocalError` for several: a function runs once."""
    if len(values) != 1:
        raise LocalError(
            name, f"{', '.join(map(str, values))} are several", "one; a loop runs several", id="single-run"
        )
    return values


class Frames:
    """This class is where a command captures frames: in a file of the user, in a temporary one, or nowhere."""

    def __init__(self, file: str | None, folder: str | None) -> None:
        self.file = file
        """File to write, or None."""
        self._folder = folder
        self._capture: Capture | None = None

    def opened(self, keys: str | None = None) -> Capture | None:
        """Open what was captured. A temporary file is removed when nobody holds the capture any more."""
        if self.file is not None:
            self._capture = open_captures(self.file, keys=keys)
            if self._folder is not None:
                finalize(self._capture, rmtree, self._folder, True)
        return self._capture

    def abandon(self) -> None:
        """Remove a temporary file that nobody opened."""
        if self._capture is None and self._folder is not None:
            rmtree(self._folder, True)


@contextmanager
def _captured(output: PathText | None, capture: bool) -> Iterator[Frames]:
    """Yield where frames are captured: in `output`, or in a temporary file if `capture` is True."""
    frames = Frames(None, None)
    if output is not None:
        typed("output", output, (str, os.PathLike), "a path")
        if os.fspath(output) == "-":
            raise LocalError("output", "- is not legal", "the name of a file", id="stdout-not-possible")
        frames = Frames(os.fspath(output), None)
    elif capture:
        folder = mkdtemp(prefix="uetproto-")
        frames = Frames(str(Path(folder) / "capture.pcapng"), folder)
    try:
        yield frames
    finally:
        frames.abandon()


def _seed(seed: int) -> int:
    if type(seed) is not int or not 0 <= seed < 1 << 64:
        raise LocalError("seed", f"{shown(seed)} is not legal", "whole numbers from 0 to 2^64 - 1", id="out-of-range")
    return seed


class Checks(Protocol):
    """This protocol describes a kind of value, which checks a value and says what is legal."""

    @property
    def check(self) -> Callable[[Any], Any]: ...

    @property
    def legal(self) -> str: ...


def _checked(name: str, value: str | int, kind: Checks) -> int:
    """Return a value in the base unit of its kind: bytes, picoseconds, bits a second."""
    text = value
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        text = int(value)
    try:
        number: int = kind.check(text)
    except ValueError:
        raise LocalError(name, f"{shown(value)} is not legal", kind.legal, id=unfit(value)) from None
    return number


def _texts(settings: Mapping[str, object] | None) -> list[str]:
    """Return settings as texts "key=value". Raises `LocalError` for what is no mapping."""
    typed("settings", {} if settings is None else settings, Mapping, "keys and values, as {'payload_mtu': 1024}")
    return [f"{key}={_toml(value)}" for key, value in (settings or {}).items()]


def _toml(value: object, inner: bool = False) -> str:
    """Return a value as TOML has it; a text that is not within another value stands as it is, as after `--set`."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False) if inner else value
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(str(name))} = {_toml(one, True)}" for name, one in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return "[" + ", ".join(_toml(one, True) for one in value) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)
