# SPDX-License-Identifier: GPL-2.0-only
"""This package has the command `uetproto audit`: options, text, JUnit, annotated captures and plots."""
