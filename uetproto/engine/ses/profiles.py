# SPDX-License-Identifier: GPL-2.0-only
"""These constants say which profiles of a target have a feature other than an opcode (ses.md §4.3)."""

from uetproto.wire.headers.uet_ses import Profile

OPTIMIZED_FORMS = Profile.AI_FULL | Profile.HPC
"""Profiles that have medium and small headers."""
WILDCARDS = Profile.HPC
"""Profiles in which a tagged receive may ignore bits of the tag."""
REAL_DEFERRAL = Profile.AI_FULL
"""Profiles in which a target can stop a deferrable message. In other profiles, a target answers NO_MATCH if it has no
buffer for a deferrable message."""
RUDI = Profile.HPC
"""Profiles that support RUDI."""


def profile_of(text: str) -> Profile:
    """Return the profiles whose names `text` joins with "+", as in "ai_full+hpc"."""
    profile = Profile(0)
    for name in text.split("+"):
        profile |= Profile[name.upper()]
    return profile
