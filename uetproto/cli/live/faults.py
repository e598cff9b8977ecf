# SPDX-License-Identifier: GPL-2.0-only
"""This module reads the text of --faults, such as "drop=0.01,delay=0.1,delay_time=20 ms"."""

from typing import Any

from uetproto import LocalError
from uetproto.errors import similar
from uetproto.impair.faults import Faults
from uetproto.toml.values import FAULTS

_OPTION = "--faults"
USUAL_TIME = "5 ms"
"""Time for which frames wait on a real link that are delayed or reordered, unless another one is given."""
_TIMES = {"reorder_by": "reorder", "reorder_time": "reorder", "delay_time": "delay"}
"""Names that say how, and the name that says how many."""


def faults_of(text: str) -> Faults:
    """Return the faults that a text describes. Raises `LocalError` for what is not legal."""
    given: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        name, value = name.strip(), value.strip()
        key = FAULTS.get(name)
        if key is None or not equals:
            legal = f"NAME=VALUE,… with the names {', '.join(FAULTS)}"
            hint = " without a value" if key is not None else similar(name, FAULTS)
            raise LocalError(_OPTION, f"{part!r} is not legal{hint}", legal, id="wrong-format")
        if name in given:
            raise LocalError(_OPTION, f"{name} is given twice", "each name once", id="duplicate")
        try:
            given[name] = key.check(_number(value))
        except ValueError:
            raise LocalError(_OPTION, f"{name}: {value!r} is not legal", _legal(name), id="wrong-format") from None
    for name, of in _TIMES.items():
        if name in given and not given.get(of):
            raise LocalError(_OPTION, f"{name} has no effect without {of}", f"with {of}=SHARE", id="no-effect")
        if name.endswith("_time"):
            given.setdefault(name, FAULTS[name].check(USUAL_TIME))
    return Faults(**given)


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _legal(name: str) -> str:
    return FAULTS[name].legal if name in _TIMES else "a share, 0 … 1, such as 0.01"
