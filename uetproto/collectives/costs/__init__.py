# SPDX-License-Identifier: GPL-2.0-only
"""This package computes the costs of algorithms by formulas, counts the bytes on links, and chooses an algorithm."""
