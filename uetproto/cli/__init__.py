# SPDX-License-Identifier: GPL-2.0-only
"""This package has the commands of `uetproto`. Each command is one file or one folder, and is loaded when it is
invoked."""
