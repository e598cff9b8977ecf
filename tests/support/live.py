# SPDX-License-Identifier: GPL-2.0-only
"""Endpoints on loopback: addresses that no other test uses, and a far end that runs beside the test."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
from uetproto.engine.tss.keys import KeyRing
from uetproto.live.world import LiveWorld

_NEXT = count(1)
_TURN = 5 * 10**9
"""Picoseconds that a far end sleeps at most, so that it ends soon."""


def addresses(number: int = 2) -> list[str]:
    """Return addresses of 127.0.0.0/8 that this process alone uses, so that tests may run side by side."""
    process = os.getpid() % 0xFFFF
    return [f"127.{1 + (process >> 8) % 254}.{process & 0xFF}.{next(_NEXT) % 254 + 1}" for _ in range(number)]


def clean(*files: Path, keys: KeyRing | None = None, least: int = 10) -> None:
    """Hold an audit against captures, each of more packets than `least`."""
    for file in files:
        report = audit([file], Options(complete=True, keys=keys))
        assert report.findings == []
        assert report.packets > least
        assert not report.others


@contextmanager
def running(world: LiveWorld) -> Iterator[None]:
    """Let a world take its turns in a thread, as another process would; it is closed at the end."""
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set():
            world.driver.turn(world.now + _TURN)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        world.close(drain=False)
