# SPDX-License-Identifier: GPL-2.0-only
"""This module checks the frames of a run that has the option `--check`.

`FrameJudge` checks each frame that a tap records: the frame must decode without an error, encode to the same bytes, end
with the right CRC (or with none, if the network has none), and have lower headers as its transport sends them. A sealed
frame must open with the keys of the run, and its plain text is checked. `engine_guards` checks the endpoints.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from uetproto.emulator.network.tap import FrameWriter
from uetproto.emulator.scenario.roce_settings import UET
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.tss.cipher import Refused
from uetproto.engine.tss.opener import Opener
from uetproto.framing.dscp import Dscp
from uetproto.framing.roce import ECN
from uetproto.wire.headers.ethernet import Ecn, internet_checksum
from uetproto.wire.packet import Packet
from uetproto.wire.stack import decode, encode
from uetproto.wire.words.text import numbered

_MOST = 1000  # findings that are kept


class FrameJudge:
    """A frame judge checks the frames of a capture, and collects the violations that the engine guards find."""

    def __init__(self, scenario: Any) -> None:
        self._how = how = scenario.encapsulation
        self._roce = {node.address: node.roce for node in scenario.nodes.values()}
        """Configurations by address of the sender; empty over UET."""
        first = next(iter(scenario.nodes.values())).roce
        if scenario.run.transport == UET:
            self._roce = {}
            self._decoding: dict[str, Any] = {
                "crc": "on" if how.crc else "off",
                "udp_port": how.udp_port,
                "ip_protocol": how.ip_protocol,
                "trimmed_dscp": frozenset((how.dscp.trimmed, how.dscp.trimmed_last_hop)),
            }
        else:
            self._decoding = {"crc": "on" if first.icrc else "off", "roce_port": first.udp_port, "rd": first.rd}
        security = scenario.security
        self._opener = None if security is None else Opener(security.ring())
        self._clear_nacks = {
            node.address: security.members[node.name].clear_nacks for node in scenario.nodes.values() if security
        }
        self._names = scenario.interfaces
        self._not_capable = {node.address for node in scenario.nodes.values() if not node.pds.ecn_capable}
        self._on_frames: list[list[str]] = []
        self._on_engines: list[str] = []
        self.frames = 0

    def findings(self, damaged: int) -> tuple[str, ...]:
        """Return the texts of all findings. Findings about frames are left out unless more than `damaged` frames are
        wrong.
        """
        frames = self._on_frames if len(self._on_frames) > damaged else []
        return (*(text for texts in frames for text in texts), *self._on_engines)[:_MOST]

    def find(self, text: str) -> None:
        """Note that an engine broke an invariant; `text` says which."""
        if len(self._on_engines) < _MOST:
            self._on_engines.append(text)

    def watch(self, writer: FrameWriter | None) -> FrameWriter:
        """Return a writer that judges each frame and then writes it to `writer`, if that is not None."""
        return JudgingWriter(self, writer)

    def judge(self, frame: bytes, interface: int) -> None:
        number = self.frames
        self.frames += 1
        packet = decode(frame, **self._decoding)
        texts = [f"{self._names[interface]}, {numbered(number)}: {text}" for text in self._faults(packet, frame)]
        if texts and len(self._on_frames) < _MOST:
            self._on_frames.append(texts)

    def _faults(self, packet: Packet, frame: bytes) -> Iterator[str]:
        if self._opener is not None and "trimmed" not in packet.notes:
            opened = self._opener.open(frame, packet)
            if isinstance(opened, Refused):
                if not self._may_be_clear(packet):
                    yield f"does not open: {opened.reason}"
                    return
            else:
                frame = opened.plain_frame
                packet = decode(frame, **self._decoding | {"crc": "on"})
        if packet.error is not None:
            yield f"{packet.error.kind} at byte {packet.error.offset}: {packet.error.reason}"
            return
        if encode(packet) != frame:
            yield "does not encode to the same bytes again"
        if packet.trailer is not None and packet.trailer.ok is False:
            yield f"the {'ICRC' if self._roce else 'CRC32C'} does not match"
        if _bad_checksum(packet):
            yield "the IPv4 checksum does not match"
        if "pfc" in packet:
            return
        ip: Mapping[str, Any] = packet["ipv4"] if "ipv4" in packet else packet["ipv6"]
        if "ipv4" in packet and (not ip["df"] or ip["mf"] or ip["fragment_offset"]):
            yield "may be fragmented: DF is not set"
        if "udp" in packet and packet["udp"]["checksum"]:
            yield "has an UDP checksum"
        if self._roce:
            if ip["src"] in self._roce:
                yield from _roce_class(packet, ip, self._roce[ip["src"]])
        elif "trimmed" not in packet.notes:
            yield from _class(packet, ip, self._how.dscp, ip["src"] not in self._not_capable)

    def _may_be_clear(self, packet: Packet) -> bool:
        """Return whether a packet is a NACK that its sender does not seal (observed.md `clear_nacks`)."""
        if "pds.nack" not in packet:
            return False
        ip: Mapping[str, Any] = packet["ipv4"] if "ipv4" in packet else packet["ipv6"]
        return packet["pds.nack"]["nack_code"] in self._clear_nacks.get(ip["src"], ())


def _bad_checksum(packet: Packet) -> bool:
    if "ipv4" not in packet:
        return False
    offset = next(layer.offset for layer in packet.layers if layer.form == "ipv4")
    return internet_checksum(encode(packet)[offset : offset + packet["ipv4"]["ihl"] * 4]) != 0


_DATA = ("pds.rud_req", "pds.rod_req", "pds.rud_cc_req", "pds.rod_cc_req", "pds.rudi_re", "pds.uud_req")
_ACKS = ("pds.ack",)


def _class(packet: Packet, ip: Any, dscp: Dscp, capable: bool) -> Iterator[str]:
    """Yield a text for each wrong value of DSCP and ECN of a UET packet (cms.md §1).

    Data that are not ECN-capable must have DSCP 0 (observed.md).
    """
    is_data = any(layer.form.startswith(_DATA) for layer in packet.layers)
    long_ack = packet.payload and any(layer.form.startswith(_ACKS) for layer in packet.layers)
    if is_data:
        legal = (dscp.data, dscp.data_rtx) if capable else (0,)
    else:
        legal = (dscp.control, dscp.data) if long_ack else (dscp.control,)  # an ACK with read data may be trimmed
    if ip["dscp"] not in legal:
        yield f"DSCP {ip['dscp']}; legal here: {', '.join(map(str, legal))}"
    if is_data and capable and ip["ecn"] == Ecn.NOT_ECT:
        yield "data that is not ECN-capable"
    if not is_data and not long_ack and ip["ecn"] != Ecn.NOT_ECT:
        yield "a control packet that is ECN-capable"


def _roce_class(packet: Packet, ip: Any, config: RoceConfig) -> Iterator[str]:
    """Yield a text for each value of DSCP and ECN that is not in the sender's configuration (roce.md §1, §13)."""
    notifies = "cnp" in packet
    dscp = config.cnp_dscp if notifies else config.dscp
    ecn = ECN[config.cnp_ecn if notifies else config.ecn]
    legal = {ecn} if ecn == Ecn.NOT_ECT else {ecn, Ecn.CE}
    if ip["dscp"] != dscp:
        yield f"DSCP {ip['dscp']}; legal here: {dscp}"
    if ip["ecn"] not in legal:
        yield f"ECN {ip['ecn']}; legal here: {', '.join(str(int(ecn)) for ecn in sorted(legal))}"


class JudgingWriter:
    def __init__(self, judge: FrameJudge, writer: FrameWriter | None) -> None:
        self._judge = judge.judge
        self._writer = writer

    def write(self, time_ns: int, data: bytes, *, interface: int = 0, comment: str | None = None) -> None:
        self._judge(data, interface)
        if self._writer is not None:
            self._writer.write(time_ns, data, interface=interface, comment=comment)

    def write_many(self, times_ns: Sequence[int], frames: Sequence[bytes], *, interface: Sequence[int]) -> None:
        for frame, one in zip(frames, interface, strict=True):
            self._judge(frame, one)
        if self._writer is not None:
            self._writer.write_many(times_ns, frames, interface=interface)
