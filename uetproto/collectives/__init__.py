# SPDX-License-Identifier: GPL-2.0-only
"""This package has collectives as schedules, which do not depend on the transport (collectives.md §3).

A schedule says which rank sends which elements to which rank in which step. `catalogue.schedule(op, algorithm, size,
count)` makes a schedule. `costs.check` proves that it is correct, `topology.show` prints it, and `topology.draw` draws
it.
"""
