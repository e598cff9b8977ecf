# SPDX-License-Identifier: GPL-2.0-only
"""This module has a guard around an adapter. The guard raises an `AdapterFault` if the adapter itself is wrong."""

import time
from collections.abc import Callable, Mapping
from math import inf
from types import NoneType
from typing import Any, NamedTuple, TypeVar

from hypothesis.errors import InvalidArgument

from uetproto.check.time_limit import TooSlow
from uetproto.engine.contract import SECOND
from uetproto.errors import LocalError, identified, shown, similar
from uetproto.testing.adapters.adapter import (
    REAL,
    Adapter,
    AdapterFactory,
    AdapterFault,
    WorkRefused,
    capabilities_of,
    described,
)
from uetproto.testing.machines.judge import Verdicts

MOST_FRAMES = 10_000
"""Number of frames that one `poll` may return."""
LONGEST = 65_535
"""Number of bytes that a frame may have."""
HANGS = 60.0
"""Seconds after which a call counts as hung. An adapter that has a limit of its own, its attribute `timeout`, gets this
time in addition; and so does `advance`, in real time, its duration."""

_T = TypeVar("_T")


class Observed(NamedTuple):
    """This record says what `observe` may return: the keys, with their types, of each event and of the state. The type
    `bytes` stands for hexadecimal text."""

    events: Mapping[str, Mapping[str, type]] = {}
    """The keys that an event must have, by its name. It may have more."""
    state: Mapping[str, type] = {}
    """Keys that the state may have. It may have more."""


_WORDS: Mapping[type, str] = {
    int: "a whole number", str: "a text", bool: "true or false", list: "a list", bytes: "hexadecimal text",
}  # fmt: skip


def made_by(factory: AdapterFactory, observed: Observed, verdicts: Verdicts) -> "GuardedAdapter":
    """Return the adapter that `factory` makes. `verdicts` counts what it does and refuses. Raises `InvalidArgument` for
    what is no adapter, `LocalError` for capabilities that are not legal, and `AdapterFault` for a factory that raises
    something else."""
    try:
        made = factory()
        if isinstance(made, Adapter):
            return GuardedAdapter(made, observed, verdicts)
    except (AdapterFault, LocalError):
        raise
    except (Exception, SystemExit) as error:
        raise AdapterFault("adapter-raised", f"no adapter was made: {described(error)}") from error
    needs = "`capabilities` and the methods reset, submit, deliver, poll, advance and observe"
    raise identified(InvalidArgument(f"{shown(made)} is no adapter: it needs {needs}"), "wrong-type")


class GuardedAdapter:
    """A guarded adapter passes calls on, and raises `AdapterFault` for whatever the contract of adapters does not
    allow."""

    def __init__(self, adapter: Adapter, observed: Observed, verdicts: Verdicts) -> None:
        """Raises `LocalError` if the adapter's capabilities are not legal."""
        self.adapter = adapter
        self.capabilities = capabilities_of(adapter.capabilities)
        self._observed, self._verdicts = observed, verdicts
        own = getattr(adapter, "timeout", 0)
        self._patience = HANGS + (own if isinstance(own, int | float) else 0)
        self._until = inf
        """Time at which the present call counts as hung."""

    def check_time(self) -> None:
        """Raise `TooSlow` if the present call takes too long."""
        if time.monotonic() > self._until:
            self._until = inf
            raise TooSlow("it takes too long")

    def _call(self, name: str, call: Callable[..., _T], *arguments: Any, seconds: float = 0.0) -> _T:
        """Return what a call of the adapter returns. The call may take `seconds` longer than others."""
        self._until = time.monotonic() + self._patience + seconds
        try:
            return call(*arguments)
        except WorkRefused as error:
            if name == "submit":
                raise
            raise AdapterFault("adapter-raised", f"{name} refused: {error}; only submit may refuse") from error
        except AdapterFault:
            raise
        except TooSlow as error:
            raise AdapterFault("adapter-hung", f"{name} did not return: {error}") from error
        except (Exception, SystemExit) as error:
            raise AdapterFault("adapter-raised", f"{name} raised {described(error)}") from error
        finally:
            self._until = inf

    def reset(self, config: Mapping[str, Any]) -> None:
        self._call("reset", self.adapter.reset, config)

    def submit(self, work: Mapping[str, Any]) -> None:
        """Raises `WorkRefused` if the implementation does not do the work."""
        name = f"work {work['op']!r}"
        try:
            self._call("submit", self.adapter.submit, work)
        except WorkRefused:
            self._verdicts.skip(name, "the implementation refuses it")
            raise
        self._verdicts.judged[name] += 1

    def deliver(self, frame: bytes) -> None:
        self._call("deliver", self.adapter.deliver, frame)

    def poll(self) -> list[bytes]:
        frames = self._call("poll", self.adapter.poll)
        if not isinstance(frames, list) or not all(type(frame) is bytes for frame in frames):
            raise AdapterFault("adapter-garbage", f"poll returned {shown(frames)}, and not a list of bytes")
        if len(frames) > MOST_FRAMES:
            raise AdapterFault("adapter-garbage", f"poll returned {len(frames)} frames; {MOST_FRAMES} are legal")
        if any(len(frame) > LONGEST for frame in frames):
            raise AdapterFault("adapter-garbage", f"poll returned a frame of more than {LONGEST} bytes")
        return frames

    def advance(self, picoseconds: int) -> None:
        sleeps = picoseconds / SECOND if self.capabilities.time == REAL else 0.0
        self._call("advance", self.adapter.advance, picoseconds, seconds=sleeps)

    def observe(self) -> Mapping[str, Any] | None:
        seen = self._call("observe", self.adapter.observe)
        if not self.capabilities.observable:
            return None
        if not isinstance(seen, Mapping):
            raise AdapterFault("adapter-garbage", f"observe returned {shown(seen)}, and not a mapping")
        events, state = seen.get("events", []), seen.get("state", {})
        if not isinstance(events, list) or not all(isinstance(event, Mapping) for event in events):
            raise AdapterFault("adapter-garbage", f"observe: events: {shown(events)} is not a list of mappings")
        if not isinstance(state, Mapping):
            raise AdapterFault("adapter-garbage", f"observe: state: {shown(state)} is not a mapping")
        for event in events:
            self._check_event(event)
        for key, kind in self._observed.state.items():
            if type(state.get(key)) not in (kind, NoneType):
                raise _wrong(f"state: {key}", state[key], kind)
        return seen

    def _check_event(self, event: Mapping[str, Any]) -> None:
        name, events = event.get("event"), self._observed.events
        if not isinstance(name, str) or name not in events:
            what = f"{shown(name)} is no event{similar(name, events)}"
            raise AdapterFault("adapter-garbage", f"observe: {what}; legal: {', '.join(events) or 'none'}")
        for key, kind in events[name].items():
            value = event.get(key)
            if type(value) is not kind and not (kind is bytes and _is_hexadecimal(value)):
                raise _wrong(f"event {name}: {key}", value, kind)

    def close(self) -> None:
        """Release what the adapter holds, if it has a method `close`."""
        close = getattr(self.adapter, "close", None)
        if close is not None:
            self._call("close", close)


def _is_hexadecimal(value: object) -> bool:
    try:
        return isinstance(value, str) and bytes.fromhex(value) is not None
    except ValueError:
        return False


def _wrong(what: str, value: object, kind: type) -> AdapterFault:
    """Return the fault of a value that is observed, and that is not of its type."""
    return AdapterFault("adapter-garbage", f"observe: {what} is {shown(value)}, and not {_WORDS[kind]}")
