"""This module has what the commands for captures share: options, the decoding of records, and the report of damage."""

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from uetproto import Fault, LocalError, Packet
from uetproto.cli.terminal import printable
from uetproto.engine.tss.keys import KeyRing
from uetproto.wire.capture.pcap import LINK_NAMES, CaptureReader, Record
from uetproto.wire.flow_crc import decoded
from uetproto.wire.forms import IP_PROTOCOL, ROCE_PORT, UDP_PORT
from uetproto.wire.stack import CRC_MODES, RD_MODES, decode_at

if TYPE_CHECKING:  # this import needs the package cryptography
    from uetproto.cli.keys import Keys

F = TypeVar("F", bound=Callable[..., None])


class Decoding(NamedTuple):
    """This record has the options by which records of a capture are decoded.

    These are `--crc`, `--udp-port`, `--ip-protocol`, `--roce-port`, `--rd`, and for some commands `--sharp`,
    `--mcast`, `--keys`.
    """

    crc: str = "auto"
    udp_port: int = UDP_PORT
    ip_protocol: int = IP_PROTOCOL
    roce_port: int = ROCE_PORT
    rd: str = "raw"
    sharp: bool = False
    mcast: bool = False
    keys: "Keys | None" = None
    reader: CaptureReader | None = None
    """Reader of the capture, whose comments may state further UDP ports of UET."""

    @property
    def transports(self) -> dict[str, Any]:
        """Return the settings that locate the transports, by the field names of `audit.reader.options.Options`."""
        values = self._asdict()
        return {name: values[name] for name in ("crc", "udp_port", "ip_protocol", "roce_port", "rd")}

    @property
    def arguments(self) -> list[str]:
        """Return the command-line arguments with which another command reads the packets in the same way."""
        told = [(name, value) for name, value in self.transports.items() if value != self._field_defaults[name]]
        return [word for name, value in told for word in (f"--{name.replace('_', '-')}", str(value))]

    def packets(self, file: str, records: Iterable[Record]) -> Iterable[tuple[Record, Packet]]:
        """Return the records of `file` with their decoded packets. With `crc` "auto", the other packets of a flow
        decide whether a packet has a CRC.
        """
        if self.crc != "auto":
            return ((record, self.packet(record)) for record in records)
        return decoded(records, self.packet, pipe=not os.path.isfile(file))

    def opened(self, record: Record, packet: Packet) -> tuple[Packet, str]:
        """Return the packet, and a text that says whether and how it was opened. If the packet is sealed and a key
        opens it, return the opened packet. The text is empty if the packet is not sealed, or if there are no keys."""
        if self.keys is None or "sealed" not in packet.notes:
            return packet, ""
        return self.keys.read(record.data, packet, partial(self._plain, record))

    def _plain(self, record: Record, frame: bytes) -> Packet:
        """Decode an opened record, which always ends with a CRC."""
        return self.packet(record._replace(data=frame, length=len(frame)), "on")

    def packet(self, record: Record, crc: str | None = None) -> Packet:
        """Decode a record without regard to other records. If `crc` is given, it replaces the option `--crc`. A sealed
        packet stays sealed."""
        link = LINK_NAMES.get(record.link)
        if link is None:
            fault = Fault("unknown", 0, f"link type {record.link} is not decoded")
            return Packet(error=fault, raw=record.data)
        return decode_at(
            frozenset() if self.reader is None else self.reader.udp_ports,
            record.data,
            link=link,
            crc=crc or self.crc,
            udp_port=self.udp_port,
            ip_protocol=self.ip_protocol,
            roce_port=self.roce_port,
            rd=self.rd,
            length=record.length,
            sharp=self.sharp,
            mcast=self.mcast,
        )


def keys_option(required: bool = False) -> Callable[[F], F]:
    """Return a decorator that adds the option `--keys`, whose value `read_keys` or `read_key_ring` reads."""
    text = "Keys of sealed packets, in TOML; see uetproto open --help."
    return click.option("--keys", "keys_file", required=required, metavar="FILE", help=text)


def read_keys(file: str | None) -> "Keys | None":
    """Read the file of `--keys`, or return None if the option is not given. Raises `LocalError` that names file and
    key, and `OSError` if the file cannot be read."""
    if file is None:
        return None
    from uetproto.cli.keys import Keys

    return Keys(file)


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
    return click.option(name, type=click.Choice(modes), default=default, show_default=True, help=text)


def _number(name: str, last: int, default: int, text: str) -> Callable[[F], F]:
    numbers = click.IntRange(0, last)
    return click.option(name, type=numbers, default=default, show_default=True, metavar="N", help=text)


def check_files(files: Sequence[str]) -> None:
    """Check, before any file is read, that all files exist and that standard input is named only once. Raises
    `LocalError` or `OSError` if not."""
    if files.count("-") > 1:
        raise LocalError("", "- is there twice", "once, standard input can be read once")
    for file in files:
        if file != "-":
            os.stat(file)


def report_damage(file: str, reader: CaptureReader) -> bool:
    """Print each damaged place of a capture on standard error, with its offset in bytes. Return True if any place is
    damaged."""
    for offset, reason in reader.damage:
        click.echo(f"uetproto: {printable(file)}: damaged at byte {offset}: {reason}", err=True)
    return bool(reader.damage)
