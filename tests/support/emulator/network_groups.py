# SPDX-License-Identifier: GPL-2.0-only
"""This module has the address of a multicast group."""

GROUP = 0xE0010203
"""Address of a multicast group, 224.1.2.3."""
