# SPDX-License-Identifier: GPL-2.0-only
"""No value of a key of a TOML file makes a traceback or a long error."""

from collections.abc import Callable

import pytest

from tests.support.effort import effort
from uetproto import LocalError
from uetproto.emulator.scenario.settings import SECTIONS
from uetproto.emulator.scenario.settings import load as load_scenario
from uetproto.traffic.profile import SECTIONS as PROFILE_SECTIONS
from uetproto.traffic.profile import load as load_profile

LONG = "a" * 20_000
ODD = (
    "[[]]", "{}", "[{}]", '[""]', "[[[1]]]", "1e400", "nan", "9" * 400, f'"{LONG}"', f"[{LONG!r}, [1]]", "-1",
    "2026-11-22",
)  # fmt: skip


@pytest.mark.parametrize("value", ODD, ids=lambda value: value[:12])
def test_no_value_of_a_key_is_a_traceback(value: str) -> None:
    """Every key of a profile and of a scenario, in `ci` each with every second value.

    Errors are short, however long the value is.
    """
    step = effort(2, 1, 1)
    first = ODD.index(value) % step
    rows = ("operation", "step")
    parts = [part for part in SECTIONS if part.name not in rows]
    scenario = [f"{part.name.replace('NAME', 'rank0')}.{key}" for part in parts for key in part.keys]
    profile = [f"{part.name}.{key}".strip(".") for part in PROFILE_SECTIONS for key in part.keys]
    loaders = [(load_profile, "bench", profile), (load_profile, "roce-bench", profile),
               (load_scenario, "gradient", scenario), (load_scenario, "gradient-roce", scenario)]  # fmt: skip
    refused = [
        error
        for load, name, keys in loaders
        for key in keys[first::step]
        if (error := refusal(load, name, f"{key}={value}"))
    ]
    assert len(refused) > effort(50, 100, 100)
    assert max(map(len, refused)) < 6000


def refusal(load: Callable[[str, list[str]], object], name: str, setting: str) -> str:
    """The text of the error of a setting; empty if it is legal."""
    try:
        load(name, [setting])
    except LocalError as error:
        return str(error)
    return ""
