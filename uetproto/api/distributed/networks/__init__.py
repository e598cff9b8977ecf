# SPDX-License-Identifier: GPL-2.0-only
"""This package provides the networks of `distributed`: UET, RoCE, SHARP and multicast over the emulator."""
