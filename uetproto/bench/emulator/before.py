# SPDX-License-Identifier: GPL-2.0-only
"""This module keeps how fast the emulator was before trains, for the rows of `bench.emulator.measure`.

Measured at commit 5e453867 by `python -m uetproto.bench.emulator.runs NAME SIZE before`, with writes of 64 MiB, 50,000
packets of `generate`, and otherwise the sizes that `ROWS` has by default, on 28 November 2026, on two cores of an Intel
Xeon with nothing else to do, with CPython 3.11.7. A figure is packets for each second of CPU divided by the passes of
`floor.calibration` for each second of CPU in the same process; it is the best of 3 processes, which ran one after the
other, in turns of all rows. Ring and permutation were measured again when their sizes grew, on 29 November. The rows
of SHARP were measured in the same way at commit 275b0eca, which had no trains for SHARP, but beside some 8 other
programs.
"""

BEFORE_AT = "5e453867"
"""Begin of the name of the commit before trains."""
BEFORE: dict[str, float] = {
    "write": 0.01543,
    "write-no-capture": 0.01720,
    "roce": 0.01654,
    "roce-no-capture": 0.02036,
    "two-senders": 0.01514,
    "ring": 0.01856,
    "sharp": 0.00436,
    "sharp-uet": 0.00300,
    "permutation": 0.00571,
    "incast": 0.00473,
    "generate": 0.04506,
}
