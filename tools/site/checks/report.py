# SPDX-License-Identifier: GPL-2.0-only
"""This module has what a check reports."""

from typing import NamedTuple


class Report(NamedTuple):
    """What a check looked at, and what is wrong."""

    told: str
    faults: list[str]
