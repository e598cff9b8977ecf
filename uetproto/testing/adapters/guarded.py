"""This module has a guard around an adapter. The guard raises an `AdapterFault` if the adapter itself is wrong."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from uetproto.check.time_limit import TooSlow
from uetproto.errors import shown
from uetproto.testing.adapters.adapter import Adapter, AdapterFault, WorkRefused, capabilities_of

MOST_FRAMES = 10_000
"""Number of frames that one `poll` may return."""
LONGEST = 65_535
"""Number of bytes that a frame may have."""

_T = TypeVar("_T")


class GuardedAdapter:
    """A guarded adapter passes calls on, and raises `AdapterFault` for whatever the contract of adapters does not
    allow."""

    def __init__(self, adapter: Adapter) -> None:
        """Raises `LocalError` if the adapter's capabilities are not legal."""
        self.adapter = adapter
        self.capabilities = capabilities_of(adapter.capabilities)

    def _call(self, name: str, call: Callable[..., _T], *arguments: Any) -> _T:
        try:
            return call(*arguments)
        except (WorkRefused, AdapterFault):
            raise
        except TooSlow as error:
            raise AdapterFault("adapter-hung", f"{name} did not return: {error}") from error
        except Exception as error:
            raise AdapterFault("adapter-raised", f"{name} raised {type(error).__name__}: {error}") from error

    def reset(self, config: Mapping[str, Any]) -> None:
        try:
            self._call("reset", self.adapter.reset, config)
        except WorkRefused as error:
            raise AdapterFault("adapter-raised", f"reset refused its configuration: {error}") from error

    def submit(self, work: Mapping[str, Any]) -> None:
        """Raises `WorkRefused` if the implementation does not do the work."""
        self._call("submit", self.adapter.submit, work)

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
        self._call("advance", self.adapter.advance, picoseconds)

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
        return seen

    def close(self) -> None:
        """Release what the adapter holds, if it has a method `close`."""
        close = getattr(self.adapter, "close", None)
        if close is not None:
            close()
