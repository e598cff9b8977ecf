# SPDX-License-Identifier: GPL-2.0-only
"""This module handles Ctrl-C and SIGTERM: it raises an exception at once, or remembers the signal until a command can
end in order."""

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Timer
from types import FrameType, TracebackType
from typing import Self, TypeVar

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_AGAIN = 0.005
"""Seconds after which a signal whose exception was dropped is sent again."""


class CtrlC(KeyboardInterrupt):
    """This exception is raised for Ctrl-C.

    If a plain `KeyboardInterrupt` passes through `exec` of a text, Python remembers the exception, and later ends the
    process by a signal, even if the exception was handled. Dataclasses use such an `exec`. Python does not remember a
    subclass.
    """


def _raise(number: int, _: FrameType | None = None) -> None:
    if number == signal.SIGINT:
        raise CtrlC
    raise SystemExit(128 + number)


@contextmanager
def raised() -> Iterator[None]:
    """Raise `CtrlC` for Ctrl-C and `SystemExit(143)` for SIGTERM within the block.

    If a signal raises the exception in a destructor or in a callback of the garbage collector, Python prints the
    exception and drops it. In this case the signal is sent again after a short time.
    """

    def again(dropped: "sys.UnraisableHookArgs") -> None:
        number = {CtrlC: signal.SIGINT, SystemExit: signal.SIGTERM}.get(dropped.exc_type)
        if number is None:
            hook(dropped)
        else:
            Timer(_AGAIN, os.kill, (os.getpid(), number)).start()  # a hook that raised would be printed, too

    hook, before = sys.unraisablehook, {number: signal.getsignal(number) for number in SIGNALS}
    sys.unraisablehook = again
    try:
        for number in SIGNALS:
            signal.signal(number, _raise)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.unraisablehook = hook


class Interrupt:
    """This context manager remembers Ctrl-C and SIGTERM while its `with` block runs, so that work can end in order.

    Its truth value is True once a signal was received. A second signal raises `CtrlC` at once, whatever its number is:
    an adapter of a user, or Hypothesis, would take `SystemExit` for a fault of what they call. If the first signal was
    SIGTERM, the `with` block ends with `SystemExit(143)`.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        """Number of the signal that was received first, or None if no signal was received."""
        self._waiting = False

    def __bool__(self) -> bool:
        return self.number is not None

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._remember) for number in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if isinstance(error, CtrlC) and self.number == signal.SIGTERM:
            raise SystemExit(self.status) from None

    def _remember(self, number: int, _: FrameType | None) -> None:
        again, self.number = self.number is not None, self.number or number
        if again or self._waiting:
            raise CtrlC

    @property
    def status(self) -> int:
        """Return the exit status for the signal that was received: 130 for Ctrl-C, or 143 for SIGTERM."""
        return 128 + (self.number or 0)

    def check(self) -> None:
        """Raise the exception of the signal, if one was received."""
        if self.number is not None:
            _raise(self.number)

    def wait(self, call: Callable[[], T]) -> T | None:
        """Return the result of `call`, or None if a signal was received. The signal ends `call` at once, even while
        `call` waits for a pipe."""
        try:
            self._waiting = True
            return None if self else call()
        except (KeyboardInterrupt, SystemExit):
            if not self:
                raise
            return None
        finally:
            self._waiting = False

    def until(self, items: Iterable[T]) -> Iterator[T]:
        """Yield items until a signal is received. A signal also ends the wait for the next item at once."""
        try:
            self._waiting = True
            for item in items:
                self._waiting = False
                yield item
                if self.number is not None:
                    return
                self._waiting = True
        except (KeyboardInterrupt, SystemExit):
            if not self:
                raise
        finally:
            self._waiting = False
