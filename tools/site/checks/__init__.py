# SPDX-License-Identifier: GPL-2.0-only
"""Checks of the site, by name: each takes the folder of the built site and reports what is wrong."""

from collections.abc import Callable
from pathlib import Path

from checks import links, pages
from checks.report import Report

CHECKS: dict[str, Callable[[Path], Report]] = {
    "links": links.check,
    "pages": pages.check,
}
"""The checks in the order in which they run."""
