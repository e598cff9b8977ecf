# SPDX-License-Identifier: GPL-2.0-only
"""This module reads the packets of a capture as they are compared: by PDC and direction, with every PSN relative to
Start_PSN."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.support import paths
from uetproto import Packet, decode
from uetproto.engine.tss.keys import DomainConfig, DomainKey, KeyRing
from uetproto.engine.tss.opener import Opened, Opener
from uetproto.wire.capture.pcap import open_capture
from uetproto.wire.headers.uet_pds import CtlType, NackCode, PdsType
from uetproto.wire.packet import Layer
from uetproto.wire.serial import diff32

REFPROV = paths.SHARED / "captures" / "refprov"
_NANOSECOND = 1000  # in picoseconds, the unit of virtual time


@dataclass(frozen=True)
class Seen:
    """A packet that was seen on the wire, opened if it was sealed."""

    time: int
    """Time in picoseconds since the first packet."""
    src: int
    dst: int
    ip: Mapping[str, Any]
    layers: tuple[Layer, ...]
    """Headers of PDS and SES."""
    payload: bytes
    sealed: bool

    @property
    def pds(self) -> Mapping[str, Any]:
        return self.layers[0].values

    @property
    def type(self) -> PdsType:
        return PdsType(self.pds["type"])

    @property
    def ses(self) -> Mapping[str, Any]:
        """Return the SES header; empty if the packet has none."""
        return next((layer.values for layer in self.layers if layer.form.startswith("ses.")), {})

    @property
    def extension(self) -> Mapping[str, Any]:
        """Return the extension header of an atomic or a SYNC_WRITE; empty if the packet has none."""
        return next((layer.values for layer in self.layers if layer.form.startswith("ses.ext.")), {})


def read(path: Path, ring: KeyRing | None = None) -> list[Seen]:
    """Return all packets of UET of a capture, in the order of the capture."""
    with open_capture(path) as reader:
        return list(seen(((record.time_ns * _NANOSECOND, record.data) for record in reader), ring))


def seen(frames: Iterable[tuple[int, bytes]], ring: KeyRing | None = None) -> Iterator[Seen]:
    """Yield the packets of frames with times, opened and decoded; ARP and neighbour discovery are left out."""
    opener = Opener(ring or KeyRing({}))
    first: int | None = None
    for time, data in frames:
        first = time if first is None else first
        packet = decode(data, crc="on")
        sealed = "sealed" in packet.notes
        if sealed:
            opened = opener.open(data, packet)
            assert isinstance(opened, Opened), opened
            packet = decode(opened.plain_frame, crc="on")
        layers = tuple(layer for layer in packet.layers if layer.form.startswith(("pds.", "ses.")))
        if layers:
            assert packet.error is None
            assert packet.trailer is not None
            assert packet.trailer.ok
            ip = _ip(packet)
            yield Seen(time - first, ip["src"], ip["dst"], ip, layers, packet.payload, sealed)


def _ip(packet: Packet) -> Mapping[str, Any]:
    return packet["ipv4"] if "ipv4" in packet else packet["ipv6"]


# Comparison -----------------------------------------------------------------------------------------------------------


class Pdc(NamedTuple):
    """A PDC is named by the end that opened it. Packets without a PDC, of RUDI and UUD, count as those of one PDC of
    their requester, with PDCID 0."""

    initiator: int
    pdcid: int


Place = tuple[Pdc, str]
"""A PDC, and a direction on it: forward or return."""
Line = Mapping[str, Any]
"""A packet as it is compared."""

_WITHOUT_PDC = (PdsType.RUDI_REQ, PdsType.RUDI_RESP, PdsType.UUD_REQ)
_CLEARS = (CtlType.CLEAR_CMD, CtlType.CLEAR_REQ)
"""Control packets that have a PSN as their payload, and none of their own (pds.md §13)."""


def lines(packets: Iterable[Seen]) -> dict[Place, list[Line]]:
    """Return the packets that were sent on each PDC in each direction, in the order of sending."""
    packets = list(packets)
    starts = _starts(packets)
    first_id = min((one.pds["pkt_id"] for one in packets if one.type is PdsType.RUDI_REQ), default=0)
    found: defaultdict[Place, list[Line]] = defaultdict(list)
    for one in packets:
        pdc = _pdc_of(one, starts)
        line = _line(one, starts.get(pdc, []), first_id)
        found[pdc, "forward" if one.src == pdc.initiator else "return"].append(line)
    return dict(found)


def _starts(packets: Iterable[Seen]) -> dict[Pdc, list[int]]:
    """The Start_PSNs of each PDC, one after the other: its target may demand another one (pds.md §6.6)."""
    starts: defaultdict[Pdc, list[int]] = defaultdict(list)
    for one in packets:
        if one.pds.get("syn"):
            known, start = (
                starts[Pdc(one.src, one.pds["spdcid"])],
                (one.pds["psn"] - one.pds["psn_offset"]) & 0xFFFFFFFF,
            )
            if start not in known:
                known.append(start)
    return dict(starts)


def _pdc_of(one: Seen, starts: Mapping[Pdc, Any]) -> Pdc:
    if one.type in _WITHOUT_PDC:
        return Pdc(one.dst if one.type is PdsType.RUDI_RESP else one.src, 0)
    own, other = Pdc(one.src, one.pds["spdcid"]), Pdc(one.dst, one.pds.get("dpdcid", 0))
    assert (own in starts) != (other in starts), "a PDC of which no SYN was seen, or two"
    return own if own in starts else other


def _line(one: Seen, starts: list[int], first_id: int) -> Line:
    """All fields of PDS and SES; of IP what the knob `ecn_capable` is about; the payload, as far as it is known."""
    line: dict[str, Any] = {
        "form": "/".join(layer.form for layer in one.layers),
        "dscp": one.ip.get("dscp"),
        "ecn": one.ip.get("ecn"),
        "sealed": one.sealed,
        "payload": len(one.payload) if "payload_length" in one.ses else one.payload,
    }
    for layer in one.layers:
        for name, value in layer.values.items():
            line[f"{layer.form.partition('.')[0]} {name}"] = value
    for name, value in one.pds.items():
        if name == "pkt_id":
            line["pds pkt_id"] = value - first_id
        elif _is_psn(name, one.pds):
            line[f"pds {name}"] = _relative(value, starts)
    return line


def _is_psn(name: str, pds: Mapping[str, Any]) -> bool:
    if name == "psn":
        return pds.get("ctl_type") not in _CLEARS
    if name == "ctl_payload":
        return pds["ctl_type"] in _CLEARS
    if name == "nack_payload":
        return bool(pds["nack_code"] == NackCode.NEW_START_PSN)
    return name in ("cack_psn", "nack_psn", "expected_psn")


def _relative(psn: int, starts: list[int]) -> str:
    """From the nearest Start_PSN of the PDC, which is named by its number among them."""
    distances = ((diff32(psn, start), number) for number, start in enumerate(starts))
    distance, number = min(distances, key=lambda pair: abs(pair[0]))
    return f"Start_PSN {number} {distance:+}"


# Keys -----------------------------------------------------------------------------------------------------------------


def ring() -> KeyRing:
    """Return the key of AN 0 in the README beside the captures, for a domain of mode cluster."""
    key = re.search(r"\b[0-9a-f]{64}\b", (REFPROV / "README.md").read_text())
    assert key is not None
    keys = (DomainKey(bytes.fromhex(key[0])),), ()
    return KeyRing(
        {1: DomainConfig(sdi=1, mode="cluster", keys=keys, rekey_mask=0xFF00, rekey_shift=8, strict_tsc_halves=False)}
    )


def keys_of(path: Path) -> KeyRing | None:
    """Return the keys with which the packets of a capture are opened, or None if they are not sealed."""
    if "tss" not in path.name:
        return None
    cluster = ring()
    if "direct" not in path.name:
        return cluster
    return KeyRing({1: DomainConfig(sdi=1, mode="direct", keys=cluster[1].keys, strict_tsc_halves=False)})
