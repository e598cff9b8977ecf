"""The profiles of a target have these features, in addition to their opcodes (ses.md §4.3)."""

from uetproto.wire.headers.uet_ses import Profile

OPTIMIZED_FORMS = Profile.AI_FULL | Profile.HPC
"""Profiles that have medium and small headers."""
WILDCARDS = Profile.HPC
"""Profiles in which a tagged receive may ignore bits of the tag."""
REAL_DEFERRAL = Profile.AI_FULL
"""Profiles in which a target can stop a deferrable message; targets of other profiles refuse it with NO_MATCH."""
RUDI = Profile.HPC
"""Profiles that have RUDI."""


def profile_of(text: str) -> Profile:
    """Return the profiles that `text` joins with "+", as bits: "ai_full+hpc"."""
    profile = Profile(0)
    for name in text.split("+"):
        profile |= Profile[name.upper()]
    return profile
