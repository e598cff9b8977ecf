# SPDX-License-Identifier: GPL-2.0-only
"""This package has the command `uetproto stats`, which prints measurements of captures as text or JSON, and plots
them."""
