# SPDX-License-Identifier: GPL-2.0-only
"""This package plays scenarios. It has the runs (which join engines and a network), the steps of scripts, and the
results of runs.
"""
