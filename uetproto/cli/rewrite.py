# SPDX-License-Identifier: GPL-2.0-only
"""This module copies a capture to a pcapng, record by record, with its interfaces, times and comments.

Frames may be changed and comments added.
"""

from collections.abc import Callable
from itertools import chain
from time import monotonic
from typing import NamedTuple

from uetproto.cli.captures import progress_words
from uetproto.cli.terminal import status
from uetproto.wire.capture.pcap import CaptureReader, PcapngWriter, Record

_EVERY = 4096  # packets from one report of progress to the next
_TEXT = 16_000  # characters kept of a name or comment, which may have 65,535 bytes
_TIMES = range(2**64)  # nanoseconds that a pcapng can hold


class Rewritten(NamedTuple):
    """This record holds the frame that is written in place of a captured frame, and a comment."""

    frame: bytes
    length: int
    """Length of the frame on the wire in bytes."""
    said: str = ""
    """Text that is added to the comment of the captured frame. It is empty if nothing is added."""


def rewrite(reader: CaptureReader, output: str, about: str, change: Callable[[Record], Rewritten]) -> int:
    """Write a capture with the frames and comments that `change` returns for the records, and return the number of
    packets. The text `about` is added to the comment of the capture."""
    packets = described = 0
    first = next(reader, None)  # the reader has the comments about the whole capture once it has read a record
    about = "\n".join((*(comment[:_TEXT] for comment in reader.comments[:1]), about))
    began = monotonic()
    with status() as show, PcapngWriter(output, about) as writer:
        for record in () if first is None else chain((first,), reader):
            for one in reader.interfaces[described:]:
                writer.add_interface(one.name[:_TEXT], one.link, comment=one.comment and one.comment[:_TEXT])
                described += 1
            _write(writer, record, change(record))
            packets += 1
            if packets % _EVERY == 0:
                show(progress_words(packets, reader.share, monotonic() - began))
    return packets


def _write(writer: PcapngWriter, record: Record, changed: Rewritten) -> None:
    time_ns, said = record.time_ns, changed.said[:_TEXT]
    if time_ns not in _TIMES:
        time_ns, said = 0, "; ".join(filter(None, (said, f"time {time_ns} ns has no place in this format")))
    kept = record.comment and record.comment[:_TEXT]
    comment = "; ".join(filter(None, (kept, said))) or kept
    writer.write(time_ns, changed.frame, interface=record.interface, length=changed.length, comment=comment)
