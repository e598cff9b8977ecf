# SPDX-License-Identifier: GPL-2.0-only
"""This package makes the schedules of the collective algorithms: which rank sends which elements to which rank in which
step."""
