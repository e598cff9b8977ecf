# SPDX-License-Identifier: GPL-2.0-only
"""An adapter lets the machines drive an implementation: six calls and one attribute (docs/howto/machines.md).

Frames are whole Ethernet frames. Times are integers of picoseconds. The values of `config`, `work` and observations are
those of JSON: dictionaries with text keys, lists, texts, integers, booleans and None; bytes travel as hexadecimal text.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from traceback import extract_tb
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from uetproto.errors import LocalError, shown, similar

VIRTUAL, REAL = "virtual", "real"
TIMES = (VIRTUAL, REAL)
MODES = ("rud", "rod", "rudi", "uud")
_PDC_WORK = (
    "message", "reserved_message", "return_data", "respond", "respond_all", "close", "ask_close", "noop", "negotiate",
    "probe", "ask_credit", "give_credit",
)  # fmt: skip
_SES_WORK = (
    "write", "read", "atomic", "send", "tagged_send", "receive", "cancel", "close", "peek", "dc", "access",
    "rendezvous", "deferrable", "truncate", "restrict", "directed",
)  # fmt: skip
WORK: dict[str, tuple[str, ...]] = {
    "pdc": _PDC_WORK,
    "tss": (*_PDC_WORK, "switch_key", "next_epoch"),
    "roce": ("recv", "send", "write", "read", "atomic"),
    "ses_target": _SES_WORK,
    "ses_initiator": _SES_WORK,
    "sharp_node": ("allreduce", "reduce", "bcast", "barrier", "floats", "prod", "loc", "sat", "cleanup"),
}
"""What each machine may hand to an implementation, or ask of it."""


Steps: TypeAlias = Sequence[tuple[str, Mapping[str, Any]]]
"""Type of the rules of a machine that were played, each with its name and its arguments."""


class WorkRefused(Exception):  # noqa: N818 - it is no error: the implementation does not do this work
    """An adapter raises this exception in `submit` for work that the implementation does not do at this moment. The
    machine then continues without the work."""


class PortFrame(NamedTuple):
    """This record is a frame at the port of the implementation."""

    time: int
    """Time in picoseconds."""
    data: bytes
    sent: bool
    """Whether the implementation sent the frame."""
    whole: bytes | None = None
    """The frame as its sender sent it, if it was damaged on the way; None: it was not."""


class AdapterFault(AssertionError):  # noqa: N818 - it is a finding
    """The adapter broke its contract: it raised an exception, did not return in time, ended, or returned what is not
    legal."""

    def __init__(self, kind: str, text: str) -> None:
        """`kind` is one of `adapter-raised`, `adapter-hung`, `adapter-died`, `adapter-garbage`."""
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.frames: Sequence[PortFrame] = ()
        """Frames at the port of the implementation up to the fault, if a machine drove it."""
        self.steps: Steps = ()
        """The rules of the machine that were played up to the fault, and their arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """This record says what an implementation offers. Raises `LocalError` for a value that is not legal."""

    time: str = VIRTUAL
    """`virtual`: time passes only in `advance`. `real`: `advance` sleeps, and times are not judged."""
    observable: bool = True
    """Whether `observe` returns a mapping; if not, the implementation is a black box."""
    work: tuple[str, ...] = ("message",)
    """The operations (`work["op"]`) that `submit` takes, and what else the machines may ask for: names of `WORK`."""
    modes: tuple[str, ...] = ("rud", "rod")
    """The delivery modes of the operations, a selection of rud, rod, rudi and uud."""
    knobs: tuple[str, ...] = ()
    """Names of the settings in `config["knobs"]` that the implementation follows; the machine draws no others."""
    losses: int = 4
    """Number of frames that the network may lose or damage before an operation may fail. If an operation fails after
    fewer losses, or after exactly this number, the machine reports a finding."""

    def check_work(self, machine: str) -> None:
        """Raise `LocalError` if the implementation does nothing that a machine may ask for."""
        legal = WORK.get(machine, self.work)
        if {*legal}.isdisjoint({*self.work} - {"close"}):
            raise LocalError(
                "work", f"{shown(self.work)} is not legal with {machine}", f"some of {', '.join(legal)}",
                id="not-with-machine"
            )  # fmt: skip

    def __post_init__(self) -> None:
        if self.time not in TIMES:
            raise LocalError("time", f"{shown(self.time)} is not legal", ", ".join(TIMES), id="unknown-name")
        if type(self.observable) is not bool:
            raise LocalError("observable", f"{shown(self.observable)} is not legal", "True, False", id="wrong-type")
        for name in ("work", "modes", "knobs"):
            values = getattr(self, name)
            if type(values) is not tuple or not all(type(each) is str for each in values):
                raise LocalError(name, f"{shown(values)} is not legal", "a tuple of texts", id="wrong-type")
        known = {name for names in WORK.values() for name in names}
        for name in self.work:
            if name not in known:
                raise LocalError(
                    "work", f"{shown(name)} is not legal{similar(name, known)}", ", ".join(sorted(known)),
                    id="unknown-name"
                )  # fmt: skip
        if not self.modes or not {*self.modes} <= {*MODES}:
            raise LocalError(
                "modes", f"{shown(self.modes)} is not legal", f"some of {', '.join(MODES)}", id="unknown-name"
            )
        if type(self.losses) is not int or self.losses < 0:
            raise LocalError("losses", f"{shown(self.losses)} is not legal", "0 and more", id="out-of-range")


def described(error: BaseException) -> str:
    """Return the type and the text of an exception of an adapter, and the line that raised it."""
    text = f"{type(error).__name__}: {error}".removesuffix(": ")
    places = extract_tb(error.__traceback__)
    return f"{text} ({Path(places[-1].filename).name}:{places[-1].lineno})" if len(places) > 1 else text


_NAMES = tuple(field.name for field in fields(Capabilities))


def capabilities_of(told: object) -> Capabilities:
    """Return the capabilities that an adapter states. `told` is a `Capabilities`, or a mapping of its fields, which an
    adapter in another process sends. Raises `LocalError` for what is neither, and for a value that is not legal."""
    if isinstance(told, Capabilities):
        return told
    if not isinstance(told, Mapping):
        raise LocalError(
            "capabilities", f"{shown(told)} is not legal", "Capabilities, or a mapping of its fields", id="wrong-type"
        )
    for name in told:
        if name not in _NAMES:
            raise LocalError("capabilities", f"{shown(name)} is not legal", ", ".join(_NAMES), id="unknown-argument")
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in told.items()}
    return Capabilities(**values)


@runtime_checkable
class Adapter(Protocol):
    """An adapter drives one endpoint of an implementation."""

    capabilities: Capabilities

    def reset(self, config: Mapping[str, Any], /) -> None:
        """Begin anew: forget all state and take `config`, whose keys docs/howto/machines.md lists."""

    def submit(self, work: Mapping[str, Any], /) -> None:
        """Take an operation. Raises `WorkRefused` if the implementation does not do it at this moment."""

    def deliver(self, frame: bytes, /) -> None:
        """Take a frame that arrives."""

    def poll(self) -> list[bytes]:
        """Return the frames that leave, in order; they leave at the present time."""

    def advance(self, picoseconds: int, /) -> None:
        """Let time pass, and run the timers that expire."""

    def observe(self) -> Mapping[str, Any] | None:
        """Return the state, and the events since the last call. Return None for a black box."""


AdapterFactory: TypeAlias = Callable[[], Adapter]
"""Type of a function without arguments that makes an adapter, such as its class."""
