# SPDX-License-Identifier: GPL-2.0-only
"""This module has the fabric of sharp.md §7 by the names that tests use."""

from uetproto.testing.machines.fabrics.sharp_fabric import HOSTS, KEY, SEVEN, A, B, S
from uetproto.testing.machines.fabrics.sharp_fabric import SharpWire as Wire

__all__ = ["HOSTS", "KEY", "SEVEN", "A", "B", "S", "Wire"]
