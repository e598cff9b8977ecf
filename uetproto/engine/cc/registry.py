# SPDX-License-Identifier: GPL-2.0-only
"""This module has the algorithms by name, and makes the contexts of an endpoint."""

from collections.abc import Callable
from functools import partial

from uetproto.engine.cc.config import LEAST_REROUTE, CcConfig
from uetproto.engine.cc.context import Ccc
from uetproto.engine.cc.contract import CongestionControl
from uetproto.engine.cc.entropy import SPRAYS, OnePath
from uetproto.engine.cc.nscc import Nscc
from uetproto.engine.cc.rccc import QUANTUM, CreditPacer, Rccc
from uetproto.engine.cc.receiver import CreditReceiver, HostBuffer, NsccReceiver
from uetproto.engine.contract import CongestionContext, CongestionReceiver, Mode, PathSelection, Rng
from uetproto.errors import LocalError, similar

ALGORITHMS: dict[str, Callable[[CcConfig, Callable[[], int]], CongestionControl]] = {
    "nscc": lambda config, active: Nscc(config),
    "rccc": Rccc,
}
"""What makes each algorithm, from the parameters and a function that counts the contexts with something to send. A
context has those algorithms that `CcConfig.algorithm` names, joined by +."""

UNTIMED = frozenset({"nscc"})
"""Algorithms whose `deadline` is always NEVER."""


def check_algorithm(text: str, name: str = "algorithm") -> None:
    """Raise `LocalError` for the argument `name` unless `text` has names of `ALGORITHMS`, each once, joined by +."""
    names = text.split("+")
    wrong = next((one for one in names if one not in ALGORITHMS), None)
    if wrong is not None or len(set(names)) < len(names):
        hint = similar(wrong, ALGORITHMS) if wrong else ""
        raise LocalError(
            name, f"{text!r} is not legal{hint}", f"{', '.join(ALGORITHMS)}, joined by +", id="unknown-algorithm"
        )


class CongestionContexts:
    """This class makes the congestion control contexts and receivers of one endpoint (`CongestionManager`)."""

    def __init__(self, config: CcConfig, rng: Rng, *, overhead: int, largest: int) -> None:
        """Make contexts as `config` says. `overhead` and `largest` are those of `engine.contract.CongestionManager`.

        Raises `LocalError` for an algorithm that is not in the registry.
        """
        check_algorithm(config.algorithm)
        self.config = config
        self.overhead = overhead
        self.largest = largest
        self.paces = not UNTIMED.issuperset(config.algorithm.split("+"))
        self._rng = rng
        self.host = HostBuffer(config.host_rate, config.host_backlog)
        self.pacer = CreditPacer(partial(self.host.rate, config.rate), config.max_wnd // QUANTUM)
        self.deadline = self.pacer.deadline  # without a call in between, as it is asked with every packet
        self.contexts: dict[tuple[int, Mode], Ccc] = {}
        self._named: dict[tuple[int, Mode], int] = {}
        """ccc_id of the contexts that send to this endpoint."""

    def context(self, peer: int, mode: Mode) -> CongestionContext:
        found = self.contexts.get((peer, mode))
        if found is None:
            names = self.config.algorithm.split("+")
            algorithms = [ALGORITHMS[name](self.config, self._active) for name in names]
            ccc_id = len(self.contexts) & 0xFF
            found = self.contexts[peer, mode] = Ccc(ccc_id, algorithms, self._paths(mode), self.config)
        return found

    def _paths(self, mode: Mode) -> Callable[[], PathSelection]:
        config = self.config
        if mode is Mode.ROD:
            return partial(OnePath, self._rng, max(config.reroute_time, LEAST_REROUTE * config.base_rtt))
        spray = SPRAYS[config.lb](self._rng, config.entropy_values)
        return lambda: spray

    def receiver(self, peer: int, mode: Mode, pdcid: int) -> CongestionReceiver:
        if not self.config.credits:
            return NsccReceiver(self.host)
        return CreditReceiver(self.host, self.pacer, self._named, peer, mode, pdcid, self.config.window)

    def closed(self, pdcid: int) -> None:
        self.pacer.closed(pdcid)

    def grants(self, now: int) -> list[tuple[int, int]]:
        return self.pacer.due(now)

    def _active(self) -> int:
        """Return the number of contexts that have something to send."""
        return sum(one.backlog > 0 or one.waiting_rtx > 0 for one in self.contexts.values())
