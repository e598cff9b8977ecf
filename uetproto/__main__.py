# SPDX-License-Identifier: GPL-2.0-only
"""`python -m uetproto` runs the command `uetproto`."""

from uetproto.cli.entry import run

if __name__ == "__main__":
    run()
