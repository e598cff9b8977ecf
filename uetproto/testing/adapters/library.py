# SPDX-License-Identifier: GPL-2.0-only
"""This adapter drives an implementation in a shared library with a C interface: `examples/uet_adapter.h`.

The library runs in the process of Python. A crash of the library ends the tests, and a call that does not return is not
interrupted; in a process of its own (`serve.py`) both are findings.
"""

import ctypes
import json
from collections.abc import Mapping
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from ipaddress import ip_address
from os import PathLike
from pathlib import Path
from typing import Any

from uetproto.errors import LocalError, shown
from uetproto.testing.adapters.adapter import AdapterFault, Capabilities, WorkRefused, capabilities_of

VERSION = 1
"""Version of the interface, UET_ADAPTER_VERSION."""
FRAME_MAX = 65_535
"""Number of bytes of the buffer of `uet_poll`, UET_FRAME_MAX."""
TEXT = 1 << 16
"""Number of bytes that the buffer of `uet_observe` has at first."""
LONGEST_TEXT = 64 << 20
"""Number of bytes that an observation may have."""
MOST_FRAMES = 10_000
"""Number of frames that may leave at one time."""
_GUARD = bytes(range(0xA0, 0xE0))
"""Bytes behind each buffer, which show that the library wrote beyond its end."""
_OK, _REFUSED = 0, 1


class _Config(ctypes.Structure):
    _fields_ = (("address", c_uint32), ("peer", c_uint32), ("seed", c_uint32), ("json", c_char_p))


_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "uet_adapter_version": (c_int,),
    "uet_capabilities": (c_char_p,),
    "uet_create": (c_void_p,),
    "uet_destroy": (None, c_void_p),
    "uet_reset": (c_int, c_void_p, POINTER(_Config)),
    "uet_submit_message": (c_int, c_void_p, c_uint32, c_char_p, c_size_t, POINTER(c_char_p), POINTER(c_size_t)),
    "uet_deliver": (c_int, c_void_p, c_char_p, c_size_t),
    "uet_advance": (c_int, c_void_p, c_uint64),
    "uet_poll": (c_int64, c_void_p, POINTER(c_uint8), c_size_t),
    "uet_submit": (c_int, c_void_p, c_char_p),
    "uet_observe": (c_int64, c_void_p, POINTER(c_uint8), c_size_t),
}
"""Type of the result and types of the arguments of each function."""
_OPTIONAL = {"uet_submit", "uet_observe"}


class _Room:
    """This buffer for the library to write into has a guard behind its end."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._all = (c_uint8 * (size + len(_GUARD)))()
        ctypes.memmove(ctypes.byref(self._all, size), _GUARD, len(_GUARD))
        self.start = ctypes.cast(self._all, POINTER(c_uint8))
        self._end = ctypes.addressof(self._all) + size

    def is_whole(self) -> bool:
        """Return whether nothing was written behind the end."""
        return ctypes.string_at(self._end, len(_GUARD)) == _GUARD

    def read(self, length: int) -> bytes:
        return ctypes.string_at(self.start, length)


def check_library(path: str | PathLike[str]) -> None:
    """Raise `LocalError` if a file is no library, or if a function is missing. No function is called."""
    _functions_of(str(Path(path).absolute()))


def _functions_of(path: str) -> dict[str, Any]:
    """Load a library, and return its functions by name."""
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise LocalError(path, f"is not loaded: {error}", "a shared library", id="adapter-not-loaded") from error
    found = {}
    for name, (result, *arguments) in _FUNCTIONS.items():
        address = getattr(library, name, None)
        if address is None and name not in _OPTIONAL:
            raise LocalError(
                path, f"it has no function {name}", "the functions of uet_adapter.h", id="adapter-not-loaded"
            )
        if address is not None:
            found[name] = CFUNCTYPE(result, *arguments)((name, library))
    return found


class LibraryAdapter:
    """This adapter loads a shared library and makes one endpoint in it."""

    def __init__(self, path: str | PathLike[str]) -> None:
        """Load the library `path`. Raises `LocalError` if it is no library, if a function is missing, or if its version
        or capabilities are not legal."""
        self._path = str(Path(path).absolute())
        self._endpoint: int | None = None
        self._functions = _functions_of(self._path)
        version = self._functions["uet_adapter_version"]()
        if version != VERSION:
            raise LocalError(self._path, f"uet_adapter_version returns {version}", VERSION, id="adapter-not-loaded")
        self.capabilities = self._told()
        self._endpoint = self._functions["uet_create"]()
        if not self._endpoint:
            raise LocalError(self._path, "uet_create returns NULL", "an endpoint", id="adapter-not-loaded")
        self._frame, self._text = _Room(FRAME_MAX), _Room(TEXT)

    def _told(self) -> Capabilities:
        text = self._functions["uet_capabilities"]()
        try:
            told = json.loads(text or b"")
        except (ValueError, RecursionError):
            raise LocalError(
                self._path, f"uet_capabilities returns {shown(text)}", "a JSON object", id="adapter-not-loaded"
            ) from None
        if not isinstance(told, dict):
            raise LocalError(
                self._path, f"uet_capabilities returns {shown(told)}", "a JSON object", id="adapter-not-loaded"
            )
        return capabilities_of({"observable": "uet_observe" in self._functions, **told})

    def _call(self, name: str, *arguments: Any) -> None:
        """Call a function. Raises `WorkRefused` and `AdapterFault`."""
        if self._endpoint is None:
            raise AdapterFault("adapter-raised", f"{name}: the adapter is closed")
        result = self._functions[name](self._endpoint, *arguments)
        if result == _REFUSED and name.startswith("uet_submit"):
            raise WorkRefused(f"{name} refused the work")
        if result != _OK:
            raise AdapterFault("adapter-raised", f"{name} returned {result}")

    def _written(self, name: str, room: _Room, longest: int) -> int:
        """Let a function write, and return the length that it tells. Raises `AdapterFault`."""
        if self._endpoint is None:
            raise AdapterFault("adapter-raised", f"{name}: the adapter is closed")
        length: int = self._functions[name](self._endpoint, room.start, room.size)
        if not room.is_whole():
            raise AdapterFault("adapter-garbage", f"{name} wrote behind the {room.size} bytes of its buffer")
        if length < 0:
            raise AdapterFault("adapter-raised", f"{name} returned {length}")
        if length > longest:
            raise AdapterFault("adapter-garbage", f"{name} returned {length}; {longest} bytes are legal")
        return length

    # The calls of an adapter

    def reset(self, config: Mapping[str, Any]) -> None:
        address, peer = (int(ip_address(config[name])) for name in ("address", "peer"))
        seed = config.get("seed", 0) & 0xFFFF_FFFF
        self._call("uet_reset", ctypes.byref(_Config(address, peer, seed, json.dumps(dict(config)).encode())))

    def submit(self, work: Mapping[str, Any]) -> None:
        if work.get("op") == "message":
            packets = [bytes.fromhex(each) for each in work["packets"]]
            count = len(packets)
            lengths = (c_size_t * count)(*map(len, packets))
            self._call("uet_submit_message", work["id"], work["mode"].encode(), count, (c_char_p * count)(*packets),
                       lengths)  # fmt: skip
        elif "uet_submit" in self._functions:
            self._call("uet_submit", json.dumps(dict(work)).encode())
        else:
            raise WorkRefused("the library has no function uet_submit")

    def deliver(self, frame: bytes) -> None:
        self._call("uet_deliver", frame, len(frame))

    def poll(self) -> list[bytes]:
        frames: list[bytes] = []
        while length := self._written("uet_poll", self._frame, FRAME_MAX):
            frames.append(self._frame.read(length))
            if len(frames) > MOST_FRAMES:
                raise AdapterFault("adapter-garbage", f"uet_poll returned more than {MOST_FRAMES} frames at one time")
        return frames

    def advance(self, picoseconds: int) -> None:
        self._call("uet_advance", picoseconds)

    def observe(self) -> Any:
        if "uet_observe" not in self._functions:
            return None
        length = self._written("uet_observe", self._text, LONGEST_TEXT)
        if length > self._text.size:
            self._text = _Room(2 * length)
            length = self._written("uet_observe", self._text, self._text.size)
        text = self._text.read(length)
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise AdapterFault("adapter-garbage", f"uet_observe: {shown(text)} is no JSON") from None

    def close(self) -> None:
        """Destroy the endpoint. The library stays loaded."""
        if self._endpoint is not None:
            self._functions["uet_destroy"](self._endpoint)
            self._endpoint = None
