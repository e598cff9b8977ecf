# SPDX-License-Identifier: GPL-2.0-only
"""This package defines the steps of a simulation of two endpoints. Scripts list them, and the fuzzer draws them."""
