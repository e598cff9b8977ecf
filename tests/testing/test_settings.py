# SPDX-License-Identifier: GPL-2.0-only
"""The strategies with Hypothesis' own settings: health checks, example database, `@reproduce_failure`, the extra."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, reproduce_failure, settings
from hypothesis.database import InMemoryExampleDatabase
from hypothesis.errors import InvalidArgument
from hypothesis.strategies import SearchStrategy

import uetproto.testing
from tests.support.effort import effort
from uetproto import Packet
from uetproto.testing import captures, exchanges, frames, headers, messages, packets, scenarios

DEFAULT = settings.get_profile("default")
ALL: list[SearchStrategy[Any]] = [
    make(spoilt=spoilt)  # type: ignore[operator]
    for make in (headers, packets, frames, messages, exchanges, captures, scenarios)
    for spoilt in (False, True)
]


@pytest.mark.parametrize("strategy", ALL, ids=str)
def test_health_checks_are_clean_in_default_settings(strategy: SearchStrategy[object]) -> None:
    """Nothing is suppressed; the deadline is that of a test, and this machine may be busy."""

    @settings(DEFAULT, deadline=None, database=None, derandomize=True, max_examples=effort(12, 100, 1000))
    @given(strategy)
    def test(value: object) -> None:
        assert value is not None

    test()


def test_an_argument_that_does_not_exist_is_refused() -> None:
    for make, name, told in (
        (captures, "exchange", "exchange' is no argument of captures (did you mean exchanges?); legal: format"),
        (messages, "faults", "faults' is no argument of messages; legal: spoilt, mode, opcode"),
    ):
        with pytest.raises(InvalidArgument) as error:
            make(**{name: 1})  # type: ignore[operator]
        assert told in str(error.value)


def test_type_checkers_know_every_name_of_the_package() -> None:
    stub = Path(uetproto.testing.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    assert ast.literal_eval(stub.partition("__all__ = ")[2]) == sorted(uetproto.testing.__all__)


def failing(database: InMemoryExampleDatabase | None, phases: list[Phase], seen: list[Packet]) -> Any:
    @settings(DEFAULT, deadline=None, database=database, phases=phases, print_blob=True, max_examples=200)
    @given(packets(form="pds.nack", ip_version=4, encapsulation="udp"))
    def test(packet: Packet) -> None:
        seen.append(packet)
        assert packet["pds.nack"]["nack_payload"] < 3

    return test


def test_database_and_reproduce_failure_make_the_shrunk_packet_again() -> None:
    database, seen = InMemoryExampleDatabase(), list[Packet]()
    with pytest.raises(AssertionError) as caught:
        failing(database, [Phase.generate, Phase.shrink], seen)()
    smallest = seen[-1]
    assert smallest["pds.nack"]["nack_payload"] == 3
    told = re.search(r"reproduce_failure\('([\d.]+)', (b'[^']*')\)", "\n".join(caught.value.__notes__))
    assert told is not None
    for again in (
        failing(database, [Phase.reuse], seen),
        reproduce_failure(told[1], eval(told[2]))(failing(None, [Phase.generate], seen)),
    ):
        seen.clear()
        with pytest.raises(AssertionError):
            again()
        assert seen[0] == smallest


def test_without_hypothesis_one_error_names_the_extra() -> None:
    code = "import sys; sys.modules['hypothesis'] = None\nimport uetproto.testing"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert "uetproto.testing: needs the package hypothesis" in last
    assert "[testing]" in last
