# SPDX-License-Identifier: GPL-2.0-only
"""This package decides what happens to frames on their way: they wait, are lost, delayed, copied, damaged, marked or
trimmed.

It does no I/O and has no clock of its own, so that the emulator and live links share it.
"""
