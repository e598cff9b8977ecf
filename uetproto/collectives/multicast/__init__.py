# SPDX-License-Identifier: GPL-2.0-only
"""This package has broadcast and all_gather over multicast groups: sender, receiver, barrier and recovery."""
