# SPDX-License-Identifier: GPL-2.0-only
"""This module sets how many random cases the tests try, by profile: `ci` (minutes), `full` (ten times), `deep` (hours).

`HYPOTHESIS_PROFILE` selects the profile. Every random test takes its number of runs, seeds or examples from here.
"""

import os
from typing import TypeVar

from hypothesis import settings

T = TypeVar("T")
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")


def effort(ci: T, full: T, deep: T) -> T:
    """Return the number, or other value, that the profile in force asks for."""
    return {"ci": ci, "full": full}.get(PROFILE, deep)


def examples(count: int) -> settings:
    """Return settings of `count` examples in the profile `full`, and of all in `deep`.

    `ci` takes a quarter of them, but at least six if `count` is that many.
    """
    return settings(max_examples=effort(min(count, max(6, count // 4)), count, settings.default.max_examples))
