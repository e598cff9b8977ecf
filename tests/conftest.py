"""Hypothesis profiles: `ci` is quick and the same every time, `deep` goes on for hours (HYPOTHESIS_PROFILE=deep)."""

import os

from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=60, stateful_step_count=40, suppress_health_check=_SLOW
)
settings.register_profile(
    "deep", deadline=None, max_examples=100_000, stateful_step_count=100, suppress_health_check=_SLOW
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
