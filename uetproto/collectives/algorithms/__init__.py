"""Schedules of the collective algorithms: who sends what to whom in which step."""
