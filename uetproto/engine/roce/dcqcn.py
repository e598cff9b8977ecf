"""DCQCN at the sender: the rate of one queue pair, cut by each CNP, raised step by step without (roce.md §13).

Integers only, so that every machine finds the same rates: bits a second, and α in parts of `ONE`. Nothing here runs by
itself: who asks brings the time, and what was due until then is made up for.
"""

from uetproto.engine.contract import NEVER, SECOND
from uetproto.engine.roce.config import ALPHA_PARTS, RoceConfig

ONE = 1 << 40
"""An α of 1."""


class Rate:
    """From the first CNP on. Before it there is nothing to know: line speed, and the α that is the start.

    At equal instants a timer comes before a CNP.
    """

    __slots__ = (
        "_alpha_at", "_bytes", "_config", "_step_at", "alpha", "byte_steps", "current", "line", "ready_at", "target",
        "timer_steps", "waits",
    )  # fmt: skip

    def __init__(self, config: RoceConfig, line: int) -> None:
        self._config = config
        self.line = line
        """Line speed, which no rate passes."""
        self.current = self.target = line
        """R_C and R_T."""
        self.alpha = ONE * config.dcqcn_initial_alpha // ALPHA_PARTS
        self.timer_steps = self.byte_steps = 0
        """Since the last CNP."""
        self.ready_at = 0
        """The next packet with data leaves then at the earliest."""
        self.waits = False
        """There may be one that waits for it."""
        self._alpha_at = self._step_at = NEVER
        """When the next of the two timers' steps is due."""
        self._bytes = 0
        """Sent since the last step of the byte counter."""

    def on_cnp(self, now: int) -> None:
        """The cut: the more of it, the more CNPs came lately. It restarts the timers and the byte counter."""
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
        """A packet with data left, `size` bytes on the wire: they are counted, and the next one waits for its turn."""
        self._advance(now)
        self._bytes += size
        while self._bytes >= self._config.dcqcn_byte_counter and self.paced:
            self._bytes -= self._config.dcqcn_byte_counter
            self.byte_steps += 1
            self._increase()
        if self.paced:
            self.ready_at = now - (-8 * SECOND * size // self.current)

    def rate(self, now: int) -> int:
        """R_C now, in bits a second."""
        self._advance(now)
        return self.current

    @property
    def paced(self) -> bool:
        """It is below line speed, as far as is known."""
        return self.current < self.line

    def deadline(self) -> int:
        return self.ready_at if self.waits else NEVER

    def _advance(self, now: int) -> None:
        """Takes all steps of both timers that are due. At line speed, or with an α of 0, they would change nothing."""
        config = self._config
        while self._alpha_at <= now and self.alpha:
            self._alpha_at += config.dcqcn_alpha_timer
            self.alpha = self.alpha * (config.dcqcn_g - 1) // config.dcqcn_g
        while self._step_at <= now and self.paced:
            self._step_at += config.dcqcn_increase_timer
            self.timer_steps += 1
            self._increase()

    def _increase(self) -> None:
        """One step: fast recovery, additive or hyper increase; then half of the way to R_T, rounded up to get there."""
        config = self._config
        less, more = sorted((self.timer_steps, self.byte_steps))
        if less > config.dcqcn_fast_recovery:
            self.target += (less - config.dcqcn_fast_recovery) * config.dcqcn_rate_hai
        elif more > config.dcqcn_fast_recovery:
            self.target += config.dcqcn_rate_ai
        self.target = min(self.target, self.line)
        self.current = (self.target + self.current + 1) // 2
