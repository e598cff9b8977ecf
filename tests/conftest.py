# SPDX-License-Identifier: GPL-2.0-only
"""Hypothesis profiles: `ci` is quick, `full` tries more, `deep` goes on for hours (HYPOTHESIS_PROFILE)."""

import gc
import os
import signal
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from uetproto import system_memory

pytest.register_assert_rewrite("tests.support")
pytest_plugins = ["tests.support.cores"]

# A shell starts what runs in the background without SIGINT; tests that send it would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

for _name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):  # they change what commands print
    os.environ.pop(_name, None)

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=20, stateful_step_count=30, suppress_health_check=_SLOW
)
settings.register_profile("full", settings.get_profile("ci"), max_examples=60, stateful_step_count=40)
settings.register_profile(
    "deep", deadline=None, max_examples=100_000, stateful_step_count=100, suppress_health_check=_SLOW
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

if os.environ.get("HYPOTHESIS_PROFILE", "ci") != "deep" and hasattr(providers, "_get_local_constants"):
    # It tries constants of the modules that are loaded: what else has run in this process would choose the examples.
    providers._get_local_constants = lambda: providers._local_constants


# Commands that run in this process would move the memory of all tests into huge pages.
system_memory._HUGE = Path(os.devnull)


# Collecting the tests makes millions of objects that stay; looking for garbage among them takes a third of the time.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


_file: Path | None = None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Exempt what earlier files have left, which stays for the whole run, from every later garbage collection."""
    global _file
    if item.path != _file:
        _file = item.path
        gc.collect()
        gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Refuse a test that leaves memory traced: every later test of the process would take three times as long."""
    if tracemalloc.is_tracing():
        tracemalloc.stop()
        pytest.fail(f"{item.nodeid} leaves tracemalloc on")
