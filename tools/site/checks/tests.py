# SPDX-License-Identifier: GPL-2.0-only
"""This check runs the tests that run the blocks of code of the pages and compare what they print."""

import subprocess
import sys
from pathlib import Path

import stage

from checks.blocks import LISTS
from checks.report import Report


def check(_: Path) -> Report:
    """Run the tests that `blocks.toml` names, once each."""
    tests = sorted({test for each in LISTS["tests"].values() for names in each.values() for test in names})
    command = [sys.executable, "-m", "pytest", "-q", "--cores", "auto", *tests]
    done = subprocess.run(command, cwd=stage.ROOT, capture_output=True, text=True, check=False)
    told = done.stdout.strip().splitlines()
    return Report(told[-1] if told else "", told[-30:] + done.stderr.splitlines()[-10:] if done.returncode else [])
