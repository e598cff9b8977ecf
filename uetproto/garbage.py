# SPDX-License-Identifier: GPL-2.0-only
"""This module sets how often Python collects garbage while a run makes many objects that live long.

Objects that the engines, the emulator and the audit drop are freed by their reference counts. A collection would look
through all PDCs, queues and packets in flight, and find nothing to free.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = 50_000, 50, 50
"""Thresholds of the garbage collector, in place of Python's default of 700, 10, 10."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Collect garbage seldom within the `with` block. Thresholds that are already higher than `SELDOM` stay."""
    before = gc.get_threshold()
    gc.set_threshold(*map(max, before, SELDOM) if before[0] else before)
    try:
        yield
    finally:
        gc.set_threshold(*before)
