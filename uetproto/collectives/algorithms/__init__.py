"""This package has the schedules of the collective algorithms: which rank sends which elements where in which step."""
