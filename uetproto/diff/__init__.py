# SPDX-License-Identifier: GPL-2.0-only
"""This package compares two captures: which packets are missing, extra, moved, or changed, and in which fields.

Packets are aligned by their conversation (a PDC, a pair of queue pairs), their direction, and what they carry, not by
their place in the capture (diff.md). It takes decoded packets from any source, and reads them twice: to align
them, and to compare the fields of those that differ.

compare.py      `diff`, which does all of it
normal.py       what of a packet counts: fields that are left out, and fields that are compared as distances
conversations.py  the packets of a capture by conversation and direction
pairing.py      conversations of one capture that belong to those of the other; the distance of their PSNs
align.py        the alignment of two sequences
fields.py       one packet against another, field by field
result.py       what was found
"""

from uetproto.diff.compare import diff
from uetproto.diff.normal import DiffOptions
from uetproto.diff.result import Difference, DiffResult, FieldDifference

__all__ = ["DiffOptions", "DiffResult", "Difference", "FieldDifference", "diff"]
