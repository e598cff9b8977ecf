# SPDX-License-Identifier: GPL-2.0-only
"""This module decodes the records of a capture: by which settings, with which keys."""

import os
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from uetproto.wire.capture.base import StatedPort
from uetproto.wire.capture.pcap import LINK_NAMES, Record
from uetproto.wire.flow_crc import decoded
from uetproto.wire.forms import IP_PROTOCOL, ROCE_PORT, UDP_PORT
from uetproto.wire.packet import Fault, Packet
from uetproto.wire.stack import decode_at

if TYPE_CHECKING:  # this import needs the package cryptography
    from uetproto.analysis.opened import Keys


class StatesPorts(Protocol):
    """This protocol describes a capture that may state UDP ports of UET of itself."""

    @property
    def udp_ports(self) -> frozenset[StatedPort]: ...


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
    reader: StatesPorts | None = None
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

    def packets(
        self, file: str, records: Iterable[Record], pipe: bool | None = None
    ) -> Iterable[tuple[Record, Packet]]:
        """Return the records of `file` with their decoded packets. With `crc` "auto", the other packets of a flow
        decide whether a packet has a CRC. `pipe` says whether packets may arrive while they are read; None: unless
        `file` is a file on disk.
        """
        if self.crc != "auto":
            return ((record, self.packet(record)) for record in records)
        return decoded(records, self.packet, pipe=not os.path.isfile(file) if pipe is None else pipe)

    def anew(self) -> "Decoding":
        """Return the same settings with keys whose counts begin at 0."""
        if self.keys is None:
            return self
        return self._replace(keys=type(self.keys)(self.keys.ring))

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


def read_keys(file: str | None) -> "Keys | None":
    """Read the file of `--keys`, or return None if the option is not given. Raises `LocalError` that names file and
    key, and `OSError` if the file cannot be read."""
    if file is None:
        return None
    from uetproto.analysis.opened import Keys

    return Keys(file)
