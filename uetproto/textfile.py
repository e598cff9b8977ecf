# SPDX-License-Identifier: GPL-2.0-only
"""This module reads text files of the user up to a limit.

A device, or a capture given by mistake, must not fill the memory.
"""

import os
from pathlib import Path

from uetproto.errors import LocalError, Location

MOST = 1 << 24
"""Number of bytes that a text file may have."""


def read_bounded(path: str | os.PathLike[str], most: int = MOST) -> bytes:
    """Return the bytes of a file.

    Raises `LocalError` if the file has more than `most` bytes, and `OSError` if it cannot be read.
    """
    with Path(path).open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise LocalError(
            "", f"more than {most >> 20} MiB", "a text file of less", place=Location(os.fspath(path)),
            id="file-too-large"
        )  # fmt: skip
    return data
