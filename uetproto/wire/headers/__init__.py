# SPDX-License-Identifier: GPL-2.0-only
"""This package has the header tables: one module for each layer, in the order of the specification."""
