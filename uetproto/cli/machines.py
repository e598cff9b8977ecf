# SPDX-License-Identifier: GPL-2.0-only
"""This module names the machines that Hypothesis drives, and tells whether a file is a finding of such a machine. It
does not import Hypothesis."""

import tomllib
from importlib.util import find_spec

from uetproto import LocalError
from uetproto.errors import MissingPackageError, missing_package
from uetproto.textfile import read_bounded

HYPOTHESIS = find_spec("hypothesis") is not None
"""Whether Hypothesis, which drives these machines, is installed."""
TESTED: tuple[str, ...] = ()
"""Names of the machines. The tuple is empty if Hypothesis is not installed."""
DRIVEN: tuple[str, ...] = ()
"""Names of those machines that take an adapter."""
OURS: tuple[str, ...] = ()
"""Names of those machines that drive networks of our engines."""
if HYPOTHESIS:
    from uetproto.testing.machines.named import FABRICS, PLACES, TURNS

    TESTED, OURS = (*PLACES, *TURNS), FABRICS
    DRIVEN = tuple(name for name in TESTED if name not in FABRICS)


def no_hypothesis(what: str) -> MissingPackageError:
    """Return the error for `what` if Hypothesis is not installed."""
    return missing_package(what, "hypothesis", "testing")


def is_finding(name: str) -> bool:
    """Return whether a file is a finding of a machine: its `[run]` has the key `machine`."""
    if not name.endswith(".toml") and "/" not in name:
        return False
    try:
        data = read_bounded(name)
        run = tomllib.loads(data.decode()).get("run") if b"machine" in data else None
    except (OSError, ValueError, RecursionError, LocalError):  # whoever loads the file tells what is wrong
        return False
    return isinstance(run, dict) and "machine" in run
