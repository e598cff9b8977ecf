"""Collectives as schedules that know no transport: who sends what to whom in which step (collectives.md §3).

`catalogue.schedule(op, algorithm, size, count)` makes one; `check` proves it, `show` prints it, `draw` draws it.
"""
