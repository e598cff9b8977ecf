# SPDX-License-Identifier: GPL-2.0-only
"""This package has the parts of the emulated network: clock, links, queues, switches, NICs, faults, capture points."""
