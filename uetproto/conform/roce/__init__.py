# SPDX-License-Identifier: GPL-2.0-only
"""This package has what tests of RoCE need beside those of UET: packets, queue pairs, and the tests as data."""
