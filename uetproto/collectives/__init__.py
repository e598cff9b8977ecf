"""This package has collectives as schedules, independent of the transport (collectives.md §3).

A schedule says which rank sends which elements to which rank in which step. `catalogue.schedule(op, algorithm, size,
count)` makes one; `check` proves that it is correct, `show` prints it, `draw` draws it.
"""
