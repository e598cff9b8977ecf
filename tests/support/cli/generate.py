# SPDX-License-Identifier: GPL-2.0-only
"""This module runs `uetproto generate` and returns its exit status."""

from uetproto.cli.main import cli


def status(*arguments: str) -> int:
    return cli.status(["generate", *arguments])  # type: ignore[attr-defined, no-any-return]
