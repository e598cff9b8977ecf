# SPDX-License-Identifier: GPL-2.0-only
"""This package has the command `uetproto replay`: one side of a capture is played to a live peer."""
