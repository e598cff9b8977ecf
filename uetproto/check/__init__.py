# SPDX-License-Identifier: GPL-2.0-only
"""This package tests the protocol engines. It has numbered invariants, simulators with an adversarial wire, and
fuzzers."""
