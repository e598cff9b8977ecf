# SPDX-License-Identifier: GPL-2.0-only
"""This module makes random runs with the personality of the reference provider, on which an audit has only notes."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

from tests.support.audit.network import Faults, FindingPlace, Record, Run
from tests.support.audit.random_values import faults
from tests.support.audit.views import View, views
from uetproto.audit.reader.options import Options
from uetproto.engine.config import PERSONALITIES
from uetproto.traffic import profile

_REFPROV = PERSONALITIES["refprov"]
_OPERATIONS = ("send, write", "tagged_send", "write, read", "send, write, read, fetching_atomic")
_LOSSES = (0.05, 0.2, 0.4)
"""Shares of frames that a tap missed."""


def refprov_run(seed: int) -> Run:
    """Return a run with few operations on each PDC; the next PDC repeats the PSNs of the closed one."""
    chance = Random(f"refprov/{seed}")
    settings = [
        f"seed={seed}", "sizes=0 .. 64, 1 .. 4096", "endpoints=2", "pdcs=1", "modes=rud, rod",
        f"operations={chance.choice(_OPERATIONS)}", f"operations_per_pdc={chance.choice((1, 2, 3))}",
        f"depth={chance.choice((1, 2, 4))}", f"jobs={chance.choice((1, 3))}", "pds.idle_time=100 us",
    ]  # fmt: skip
    settings += _set("pds", _REFPROV["pds"])
    settings += _set("ses", _REFPROV["ses"]) if chance.random() < 0.5 else ()
    sealed = chance.random() < 0.8
    if sealed:
        settings += ["security.mode=direct", "security.ssi=7", "security.start=expected"]
    harmed = chance.random() < 0.7
    return Run(
        seed=seed,
        profile=profile.load("sealed" if sealed else "mixed", settings),
        before=faults(chance) if harmed else Faults(),
        behind=faults(chance) if harmed else Faults(),
        most=400,
    )


def refprov_views(run: Run) -> Iterator[View]:
    """Yield the views of all runs, and views that lack many frames."""
    places = run.emulate()
    yield from (_excused(view) for view in views(run, places))
    yield from map(_excused, _with_much_missed(run, places))


def _with_much_missed(run: Run, places: dict[FindingPlace, list[Record]]) -> Iterator[View]:
    chance = Random(f"missed/{run.seed}")
    security = run.profile.security
    options = Options(keys=None if security is None else security.ring())
    for place, records in places.items():
        loss = chance.choice(_LOSSES)
        yield View(f"{loss:.0%} missed at {place}", [each for each in records if chance.random() >= loss], options)


def _excused(view: View) -> View:
    return view._replace(options=replace(view.options, personality="refprov"))


def _set(part: str, values: dict[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        yield f"{part}.{name}={text} ps" if name.endswith("_time") or name == "msl" else f"{part}.{name}={text}"
