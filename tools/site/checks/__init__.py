# SPDX-License-Identifier: GPL-2.0-only
"""Checks of the site, by name: each takes the folder of the built site and reports what is wrong."""

from collections.abc import Callable
from pathlib import Path

from checks import blocks, language, links, pages, seeded, sizes, tests
from checks.report import Report

CHECKS: dict[str, Callable[[Path], Report]] = {
    "links": links.check,
    "language": language.check,
    "sizes": sizes.check,
    "blocks": blocks.check,
    "pages": pages.check,
    "seeded": seeded.check,
    "tests": tests.check,
}
"""The checks in the order in which they run."""
