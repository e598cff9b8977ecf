# SPDX-License-Identifier: GPL-2.0-only
"""This package has the command `uetproto conform`: options, the link to the peer, lines, JUnit and ladders."""
