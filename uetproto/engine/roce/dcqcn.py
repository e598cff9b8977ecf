# SPDX-License-Identifier: GPL-2.0-only
"""DCQCN runs at the sender: each CNP cuts the rate of a queue pair, and timers raise it in steps (roce.md §13).

All numbers are integers, so that every machine computes the same rates. A rate is in bits a second, and α is a multiple
of 1/`ONE`. Every call with a time first takes the timer steps that are due by that time.
"""

from uetproto.engine.contract import NEVER, SECOND
from uetproto.engine.roce.config import ALPHA_PARTS, RoceConfig

ONE = 1 << 40
"""Integer that stands for an α of 1."""


class Rate:
    """A queue pair has a `Rate` from its first CNP on. Before the first CNP its rate is line speed.

    A timer step that is due at the time of a CNP is taken before the CNP.
    """

    __slots__ = (
        "_alpha_at", "_bytes", "_config", "_step_at", "alpha", "byte_steps", "current", "line", "ready_at", "target",
        "timer_steps", "waits",
    )  # fmt: skip

    def __init__(self, config: RoceConfig, line: int) -> None:
        self._config = config
        self.line = line
        """Line speed in bits a second, the upper limit of the rate."""
        self.current = self.target = line
        """Current rate R_C and target rate R_T, in bits a second. `current` is the rate of sending."""
        self.alpha = ONE * config.dcqcn_initial_alpha // ALPHA_PARTS
        self.timer_steps = self.byte_steps = 0
        """Number of steps of the increase timer, and number of steps of the byte counter, since the last CNP."""
        self.ready_at = 0
        """Earliest time of the next packet with data."""
        self.waits = False
        """Whether the queue pair stopped sending until `ready_at`."""
        self._alpha_at = self._step_at = NEVER
        """Time of the next step of the α timer, and time of the next step of the increase timer."""
        self._bytes = 0
        """Number of bytes sent since the last step of the byte counter."""

    def on_cnp(self, now: int) -> None:
        """Reduce the rate by the fraction α/2 after a CNP, then increase α, and restart both timers and the byte
        counter."""
        self._advance(now)
        config = self._config
        self.target = self.current
        cut = self.current * (2 * ONE - self.alpha) // (2 * ONE)
        self.current = max(cut, min(config.dcqcn_rate_min, self.line))
        self.alpha = (self.alpha * (config.dcqcn_g - 1) + ONE) // config.dcqcn_g
        self._alpha_at = now + config.dcqcn_alpha_timer
        self._step_at = now + config.dcqcn_increase_timer
        self.timer_steps = self.byte_steps = self._bytes = 0

    def sent(self, size: int, now: int) -> None:
        """Count a packet with data that has `size` bytes on the wire, and compute when the next packet may be sent."""
        self._advance(now)
        self._bytes += size
        while self._bytes >= self._config.dcqcn_byte_counter and self.paced:
            self._bytes -= self._config.dcqcn_byte_counter
            self.byte_steps += 1
            self._increase()
        if self.paced:
            self.ready_at = now - (-8 * SECOND * size // self.current)

    def rate(self, now: int) -> int:
        """Return the current rate R_C at the time `now`, in bits a second."""
        self._advance(now)
        return self.current

    @property
    def paced(self) -> bool:
        """Return True when the rate is below line speed."""
        return self.current < self.line

    def deadline(self) -> int:
        """Return the time at which the next packet may be sent, or NEVER if the queue pair does not wait."""
        return self.ready_at if self.waits else NEVER

    def _advance(self, now: int) -> None:
        """Take all timer steps that are due, unless they would change nothing: at line speed, or with an α of 0."""
        config = self._config
        while self._alpha_at <= now and self.alpha:
            self._alpha_at += config.dcqcn_alpha_timer
            self.alpha = self.alpha * (config.dcqcn_g - 1) // config.dcqcn_g
        while self._step_at <= now and self.paced:
            self._step_at += config.dcqcn_increase_timer
            self.timer_steps += 1
            self._increase()

    def _increase(self) -> None:
        """Take one step: fast recovery, additive or hyper increase, then half of the way to R_T, rounded up."""
        config = self._config
        less, more = sorted((self.timer_steps, self.byte_steps))
        if less > config.dcqcn_fast_recovery:
            self.target += (less - config.dcqcn_fast_recovery) * config.dcqcn_rate_hai
        elif more > config.dcqcn_fast_recovery:
            self.target += config.dcqcn_rate_ai
        self.target = min(self.target, self.line)
        self.current = (self.target + self.current + 1) // 2
