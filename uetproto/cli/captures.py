# SPDX-License-Identifier: GPL-2.0-only
"""This module has what the commands for captures share: options, and reports of damage and of closed packets."""

import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import wraps
from time import monotonic
from typing import Any, BinaryIO, TypeVar

import click

from uetproto import LocalError, Packet
from uetproto.analysis.decoding import Decoding
from uetproto.analysis.filtering import judged, looked_at, matching, read_again
from uetproto.analysis.sources import CaptureSource
from uetproto.cli.choice import Choice
from uetproto.cli.terminal import printable, share_words
from uetproto.engine.tss.keys import KeyRing
from uetproto.errors import identified
from uetproto.filters.display_filter import DisplayFilter, FilteredPacket
from uetproto.wire.capture.pcap import CaptureReader, Record, open_capture
from uetproto.wire.forms import IP_PROTOCOL, ROCE_PORT, UDP_PORT
from uetproto.wire.stack import CRC_MODES, RD_MODES
from uetproto.wire.words.summary import count

F = TypeVar("F", bound=Callable[..., None])


def keys_option(required: bool = False) -> Callable[[F], F]:
    """Return a decorator that adds the option `--keys`, whose value `read_keys` or `read_key_ring` reads."""
    text = "Keys of sealed packets, in TOML; see uetproto open --help."
    return click.option("--keys", "keys_file", required=required, metavar="FILE", help=text)


def read_key_ring(file: str | None) -> KeyRing | None:
    """Read the file of `--keys` for code that opens packets itself, or return None if the option is not given. Raises
    the errors of `read_keys`."""
    return None if file is None else KeyRing.read(file)


def encapsulation_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options `--udp-port` and `--ip-protocol`, which identify UET, to a command. The command gets their
    values in its argument `decoding`, a `Decoding`."""

    @wraps(command)
    def with_decoding(*arguments: Any, **values: Any) -> None:
        decoding = Decoding(**{name: values.pop(name) for name in Decoding._fields if name in values})
        command(*arguments, decoding=decoding, **values)

    add_protocol = _number("--ip-protocol", 255, IP_PROTOCOL, "IP protocol of UET without UDP.")
    return _number("--udp-port", 65535, UDP_PORT, "UDP port of UET.")(add_protocol(with_decoding))


def decoding_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say how records are decoded to a command. The command gets their values in its argument
    `decoding`, a `Decoding`."""
    add_mode = _mode("--rd", RD_MODES, "raw", "How to read opcodes 0x40-0x5f of RoCE: as a vendor's (raw), or as RD.")
    add_port = _number("--roce-port", 65535, ROCE_PORT, "UDP port of RoCEv2.")
    add_crc = _mode("--crc", CRC_MODES, "auto", "Whether a CRC32C ends each packet; auto learns it from each flow.")
    return add_crc(encapsulation_options(add_port(add_mode(command))))


def _mode(name: str, modes: Sequence[str], default: str, text: str) -> Callable[[F], F]:
    return click.option(name, type=Choice(modes), default=default, show_default=True, help=text)


def _number(name: str, last: int, default: int, text: str) -> Callable[[F], F]:
    numbers = click.IntRange(0, last)
    return click.option(name, type=numbers, default=default, show_default=True, metavar="N", help=text)


def check_files(files: Sequence[str]) -> None:
    """Check, before any file is read, that all files exist and that standard input is named only once. Raises
    `LocalError` or `OSError` if not."""
    if files.count("-") > 1:
        raise LocalError("", "- is there twice", "once, standard input can be read once", id="stdin-twice")
    for file in files:
        if file != "-":
            os.stat(file)


def is_pipe(file: str) -> bool:
    """Return whether a capture can be read only once: standard input, a pipe, a device."""
    return file == "-" or not os.path.isfile(file)


def readable_again(file: str, owned: ExitStack, why: str = "") -> str | BinaryIO:
    """Return a file that can be read several times: `file`, or a temporary copy of a pipe that `owned` removes. `why`
    is what reads it several times, in the plural; it is told of a copy."""
    if not is_pipe(file):
        return file
    raw = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
    raw.name = file  # what is told of the copy names the pipe
    copy: BinaryIO = owned.enter_context(io.BufferedRandom(raw))
    _copy_pipe(file, copy, why)
    copy.seek(0)
    return copy


def file_of(file: str, owned: ExitStack, why: str) -> str:
    """Return the name of a file that several readers can read at a time, as `readable_again` does."""
    if not is_pipe(file):
        return file
    copy = owned.enter_context(tempfile.NamedTemporaryFile(suffix=".pcap"))  # noqa: SIM115
    _copy_pipe(file, copy, why)
    copy.flush()
    return copy.name


def _copy_pipe(file: str, copy: Any, why: str) -> None:
    if why:
        told = f"{printable(file)} is a pipe, copied to a temporary file: {why} read it several times"
        click.echo(f"uetproto: {told}", err=True)
    if file == "-":
        shutil.copyfileobj(sys.stdin.buffer, copy)
    else:
        with open(file, "rb") as pipe:
            shutil.copyfileobj(pipe, copy)


def filtered_once(
    wanted: DisplayFilter, file: str, decoding: Decoding, marks: bytearray | None = None
) -> CaptureReader:
    """Open a pipe whose reader returns the packets that a filter wants, in one reading. With `marks` it returns all
    packets, and appends to `marks` 1 for each that is wanted, and else 0. The filter must not ask for later packets."""
    reader = open_capture(file)

    def changed(records: Iterator[Record]) -> Iterator[Record]:
        reading = decoding._replace(reader=reader)
        pairs = reading.packets(file, records)
        for record, _, is_wanted in judged(wanted, reading, pairs, lambda: reader.interfaces, tuple):
            if marks is not None:
                marks.append(is_wanted)
            if is_wanted or marks is not None:
                yield record

    reader.change(changed)
    return reader


LATER = "names that tell of later packets"
"""What reads a capture twice."""


def offsets_option(command: F) -> F:
    """Add the option `--offsets`, whose value is None or the nanoseconds to be added to the times of each file."""

    def parsed(_: click.Context, __: click.Parameter, value: str | None) -> list[int] | None:
        try:
            return None if value is None else [int(one) for one in value.split(",")]
        except ValueError:
            raise identified(
                click.BadParameter(f"{value!r}; legal are whole numbers of nanoseconds, such as 0,-1500"),
                "wrong-format",
            ) from None

    text = "Nanoseconds that are added to the times of each file, to set clocks right."
    return click.option("--offsets", callback=parsed, metavar="NS,…", help=text)(command)


def check_offsets(offsets: Sequence[int] | None, files: Sequence[str]) -> None:
    """Check that `--offsets` has a number for each file. Raises `LocalError` if not."""
    if offsets is not None and len(offsets) != len(files):
        raise LocalError(
            "--offsets", f"has {count(len(offsets), 'number')}", f"one for each of {count(len(files), 'file')}",
            id="wrong-count"
        )  # fmt: skip


def report_damage(file: str, reader: CaptureReader) -> bool:
    """Print each damaged place of a capture on standard error, with its offset in bytes. Return True if any place is
    damaged."""
    for offset, reason in reader.damage:
        click.echo(f"uetproto: {printable(file)}: damaged at byte {offset}: {reason}", err=True)
    return bool(reader.damage)


def filter_option(what: str) -> Callable[[F], F]:
    """Return a decorator that adds the option `--filter`, whose value is a `DisplayFilter`. `what` says what is left
    out of packets that the filter does not want."""

    def checked(_: click.Context, __: click.Parameter, text: str | None) -> DisplayFilter | None:
        return None if text is None else DisplayFilter(text)

    example = "uetp.retx == 1 and ip.src == 10.0.0.0/24"
    text = f"{what} that a display filter wants, as in '{example}'; see docs/reference/filters.md."
    return click.option("--filter", "wanted", metavar="F", callback=checked, help=text)


def chosen_packets(wanted: DisplayFilter, source: CaptureSource, decoding: Decoding) -> bytearray:
    """Return an item for each packet of a capture, which is 1 if the filter wants the packet, and else 0. Raises
    `LocalError` for a pipe, because the capture is read again later; `readable_again` copies it."""
    return matching(wanted, [source], decoding)[0]


def wanted_packets(
    wanted: DisplayFilter | None, file: str, decoding: Decoding, pairs: Iterable[tuple[Record, Packet]]
) -> Iterable[tuple[Record, Packet, bool]]:
    """Return pairs of `file`, the capture of `decoding.reader`, each with whether the filter wants it."""
    if wanted is None:
        return ((record, packet, True) for record, packet in pairs)
    reader = decoding.reader
    assert isinstance(reader, CaptureReader)
    return judged(
        wanted, decoding, pairs, lambda: reader.interfaces, lambda: read_again([CaptureSource(file)], decoding)
    )


def seen_packets(
    wanted: DisplayFilter | None, file: str, decoding: Decoding, pairs: Iterable[tuple[Record, Packet]],
    analysed: bool, late: bool,
) -> Iterable[tuple[Record, Packet, FilteredPacket]]:  # fmt: skip
    """Return the pairs of `file`, the capture of `decoding.reader`, that the filter wants, each with what filters look
    at. `analysed` says that the packets around each packet matter, and `late` that later ones do."""
    reader = decoding.reader
    assert isinstance(reader, CaptureReader)
    analysed = analysed or (wanted is not None and wanted.analysed)
    late = late or (wanted is not None and wanted.late)
    found = looked_at(
        analysed, late, decoding, pairs, lambda: reader.interfaces, lambda: read_again([CaptureSource(file)], decoding)
    )
    return (one for one in found if wanted is None or wanted.matches(one[2]))


def report_closed(complaints: Sequence[str]) -> bool:
    """Print on standard error what `Keys.complaints` says of sealed packets. Return True if there is anything."""
    for text in complaints:
        click.echo(f"uetproto: {text}", err=True)
    return bool(complaints)


def progress_words(packets: int, share: float | None, elapsed: float) -> str:
    """Return how far a capture has been read: the number of packets, per cent of the file, packets a second and the
    time left. `share` is the part of the file that has been read, or None if it is not known; `elapsed` is in seconds.
    """
    words = [f"{packets:,} packet{'s' * (packets != 1)}"]
    if elapsed > 0 and packets:
        words.append(f"{packets / elapsed:,.0f} packets/s")
    if share is not None:
        words.append(share_words(share, elapsed))
    return ", ".join(words)


class ReadingLine:
    """This class shows on a line of progress how far a capture has been read. `open` opens a capture, and a call with
    the number of packets that were read shows the line."""

    def __init__(self, show: Callable[[str], None], opener: Callable[[Any], CaptureReader]) -> None:
        self._show, self._opener = show, opener
        self._reader: CaptureReader | None = None
        self._began = monotonic()

    def open(self, source: Any) -> CaptureReader:
        self._reader, self._began = self._opener(source), monotonic()
        return self._reader

    def __call__(self, packets: int) -> None:
        share = None if self._reader is None else self._reader.share
        self._show(progress_words(packets, share, monotonic() - self._began))
