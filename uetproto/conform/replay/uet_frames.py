# SPDX-License-Identifier: GPL-2.0-only
"""This module sends the UET packets of one side of a capture to a live peer, with other PDCIDs, PSNs and CRCs.

The DPDCID is the one that the peer told, and PSNs of the return direction are those that the peer has begun with.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from uetproto.conform.expressions import named
from uetproto.conform.packets import ENTROPY, AnswerPacket, PeerFacts, read
from uetproto.conform.player import Link, Patience
from uetproto.conform.replay.differences import AnswerDifference, NormalAnswer, distance, in_words
from uetproto.conform.replay.frames import GIVE_UP, FrameReplay, Replayed
from uetproto.conform.replay.side import SidePacket
from uetproto.diff.normal import OWN, psns_of
from uetproto.wire.forms import FORMS
from uetproto.wire.headers.uet_pds import CONTROLS, AckReq, CpPayload, CpPsn, CtlType, NackCode, NextHdr, PdsType
from uetproto.wire.headers.uet_ses import ResponseOpcode, ReturnCode
from uetproto.wire.packet import Layer, Packet, Trailer
from uetproto.wire.stack import encode

_AROUND = 1 << 16
"""The return direction begins within so many PSNs of the forward direction, or elsewhere (pds.md §2.2)."""
_BACK = ("cack_psn", "nack_psn", "expected_psn")
_REQUESTS = (NextHdr.REQUEST_STD, NextHdr.REQUEST_MEDIUM, NextHdr.REQUEST_SMALL)
_ROD = (PdsType.ROD_REQ, PdsType.ROD_CC_REQ)
_NOT_OURS = "of PDCs that this side has not opened in the capture"
_CLOSED = "of PDCs that the peer closed although the capture goes on"
_NOT_COMPARED = frozenset((
    "spdcid", "dpdcid", "pdc_info", "ack_psn_offset", "clear_psn_offset", "psn_offset",  # others each time, or derived
    "service_time", "restore_cwnd", "rcv_cwnd_pend", "rcvd_bytes", "ooo_count", "credit", "ack_cc_state",
    "ack_ccx_state", "sack_psn_offset", "sack_bitmap", "ecn",  # follow from the times of packets
))  # fmt: skip
_NEVER = ("clear_req", "credit", "close_req", "probe")
"""Kinds of packets that may come at any time (pds.md §13), and are not compared."""
_INV_DPDCID = named(NackCode.INV_DPDCID, FORMS["pds.nack"]["nack_code"])
_TOLD = ("return_code", "nack_code", "opcode", "payload_length", "req")


@dataclass(slots=True)
class ReplayedPdc(Replayed):
    """This class is a PDC of the capture that is played again."""

    start: int = 0
    """First PSN in the capture."""
    us: int = 0
    """PDCID with which it is played."""
    new_start: int = 0
    peer: int | None = None
    """PDCID that the peer told, or None until it has told one."""
    return_start: int | None = None
    """First PSN of the return direction in the capture, if it is not that of the forward direction."""
    new_return_start: int | None = None
    late: bool = False
    """Whether the capture begins within the PDC, so that a NOOP opens it, one PSN before the first packet."""
    closed: bool = False
    """Whether the peer refuses packets of the PDC as of none, which it did not do in the capture."""

    @property
    def shift(self) -> int:
        """Return what is added to PSNs of the forward direction."""
        return self.new_start - self.start

    @property
    def return_shift(self) -> int:
        """Return what is added to PSNs of the return direction."""
        return self._or(self.new_return_start, self.new_start) - self._or(self.return_start, self.start)

    @staticmethod
    def _or(told: int | None, start: int) -> int:
        return start if told is None else told

    def learn_return(self, psn: int, captured: bool) -> None:
        """Take the PSN of a request of the peer: its direction begins there, unless it begins where the pages say."""
        start = self.start if captured else self.new_start
        if abs(distance(psn, start)) < _AROUND and not self.late:
            return
        if captured and self.return_start is None:
            self.return_start = psn
        elif not captured and self.new_return_start is None:
            self.new_return_start = psn

    def starts(self, captured: bool) -> tuple[int, int]:
        """Return the first PSNs of both directions, in the capture or now."""
        if captured:
            return self.start, self._or(self.return_start, self.start)
        return self.new_start, self._or(self.new_return_start, self.new_start)


class UetFrameReplay(FrameReplay[AnswerPacket]):
    """This class plays the UET packets of one side, and aligns the answers."""

    def __init__(
        self, link: Link, peer: PeerFacts, patience: Patience, seed: str, *, ignored: frozenset[str] = frozenset(),
        addresses: bool = True, key: int | None = None,
        recorded: Callable[[int, bytes], None] = lambda time, frame: None,
    ) -> None:  # fmt: skip
        """`recorded` gets each frame with its time. If `addresses` is true, the first JobID, PIDonFEP, resource index,
        initiator and memory key of the capture are replaced by those of the peer. `key` is that memory key, if it is
        not the first one."""
        super().__init__(link, patience, seed, ignored, recorded)
        self.peer = peer
        self.pdcs: dict[int, ReplayedPdc] = {}
        """PDCs by the PDCID that the side has in the capture."""
        self._mine: dict[int, ReplayedPdc] = {}
        self._addresses = addresses
        self._first: dict[str, int] = {} if key is None else {"memory_key": key}
        """Addresses of the capture that those of the peer stand for."""
        self._now = {
            "job_id": peer.job_id, "pid_on_fep": peer.pid_on_fep, "resource_index": peer.resource_index,
            "memory_key": peer.key, "initiator": peer.initiator_id,
        }  # fmt: skip
        self._opened = 0

    # Our side

    def send(self, one: SidePacket[AnswerPacket]) -> None:
        answer, pdc = one.answer, None
        if "spdcid" in answer.values:
            pdc = self._pdc(answer)
            if pdc is None or pdc.closed:
                self.left_out[_NOT_OURS if pdc is None else _CLOSED] += 1
                return
            if "dpdcid" in answer.values:
                self._learn_peer(pdc)
        self.put(self._rewritten(answer, pdc))
        self.sent += 1

    def _learn_peer(self, pdc: ReplayedPdc) -> None:
        """Wait until the peer has told its PDCID, unless it did not in time before."""
        if pdc.peer is None and pdc.silent < GIVE_UP:
            came = self.gather(self.link.now + self.patience.answer, lambda: pdc.peer is not None)
            pdc.silent = 0 if came else GIVE_UP

    def _pdc(self, answer: AnswerPacket) -> ReplayedPdc | None:
        """Return the PDC of a packet of the side; None for one that the side did not open."""
        values = answer.values
        found = self.pdcs.get(values["spdcid"])
        if values.get("syn") and "psn" in values:
            start = (values["psn"] - values["psn_offset"]) & 0xFFFFFFFF
            return found if found is not None and found.start == start else self._open(values["spdcid"], start)
        if found is None and answer.kind == "request" and values["next_hdr"] in _REQUESTS:
            # The capture begins within this PDC: its initiator alone sends such requests.
            found = self._open(values["spdcid"], values["psn"])
            found.late = True
            opening = {"type": PdsType.CP, "ctl_type": CtlType.NOOP, "ar": 1, "psn": (found.new_start - 1) & 0xFFFFFFFF,
                       "spdcid": found.us, "isrod": int(values["type"] in _ROD)}  # fmt: skip
            layers = [*self.peer.lower({"dscp": self.peer.how.dscp.control}, self.link.entropy(ENTROPY)),
                      Layer("pds.cp.syn", opening)]  # fmt: skip
            self.put(encode(Packet(layers, b"", self._trailer), fill=True))
        return found

    def _open(self, captured: int, start: int) -> ReplayedPdc:
        """Return a new PDC for one of the capture."""
        before = self.pdcs.get(captured)
        if before is not None:
            self._mine.pop(before.us, None)
        us = next(us for us in iter(lambda: self._rng.randrange(1, 1 << 16), None) if us not in self._mine)
        pdc = ReplayedPdc(self._opened, start=start, us=us, new_start=self._rng.getrandbits(32))
        self._opened += 1
        self.pdcs[captured] = self._mine[us] = pdc
        return pdc

    @property
    def _trailer(self) -> Trailer | None:
        return Trailer("crc32c", 0) if self.peer.how.crc else None

    def _rewritten(self, answer: AnswerPacket, pdc: ReplayedPdc | None) -> bytes:
        """Return the frame of a packet as it is sent now."""
        packet = answer.packet
        layers = []
        for layer in packet.layers:
            if layer.form.startswith("pds."):
                layers.append(Layer(layer.form, self._pds(dict(layer.values), answer, pdc)))
            elif layer.form.startswith("ses."):
                layers.append(Layer(layer.form, self._ses(dict(layer.values))))
        ip = next(layer.values for layer in packet.layers if layer.form in ("ipv4", "ipv6"))
        entropy = packet["udp"]["sport"] if "udp" in packet else packet["entropy"]["entropy"]
        lower = self.peer.lower({"dscp": ip["dscp"], "ecn": ip["ecn"]}, self.link.entropy(entropy))
        return encode(Packet([*lower, *layers], packet.payload, self._trailer), fill=True)

    def _pds(self, values: dict[str, int], answer: AnswerPacket, pdc: ReplayedPdc | None) -> dict[str, int]:
        if pdc is None:
            return values
        forward = pdc.shift
        if "spdcid" in values:
            values["spdcid"] = pdc.us if values["spdcid"] else 0
        if values.get("dpdcid") and pdc.peer is not None:
            values["dpdcid"] = pdc.peer
        profile = CONTROLS.get(values["ctl_type"]) if "ctl_type" in values else None  # type: ignore[call-overload]
        if profile is not None and profile.psn is CpPsn.NONE:
            forward = 0
        if "psn" in values:
            values["psn"] = (values["psn"] + forward) & 0xFFFFFFFF
        if profile is not None and profile.payload is CpPayload.PSN:
            back = answer.kind == "clear_req"
            values["ctl_payload"] = (values["ctl_payload"] + (pdc.return_shift if back else pdc.shift)) & 0xFFFFFFFF
        for name in _BACK:
            if name in values:
                values[name] = (values[name] + pdc.return_shift) & 0xFFFFFFFF
        if values.get("nack_code") in (NackCode.ROD_OOO, NackCode.NEW_START_PSN):
            values["nack_payload"] = (values["nack_payload"] + pdc.return_shift) & 0xFFFFFFFF
        return values

    def _ses(self, values: dict[str, int]) -> dict[str, int]:
        if not self._addresses:
            return values
        for name, now in self._now.items():
            if name in values and values[name] == self._first.setdefault(name, values[name]):
                values[name] = now
        if "memory_key" in values and "buffer_offset" in values:
            values["buffer_offset"] = (values["buffer_offset"] + self.peer.base) & 0xFFFFFFFFFFFFFFFF
        return values

    # The answers

    def expect(self, one: SidePacket[AnswerPacket]) -> None:
        values = one.answer.values
        captured = values.get("dpdcid")
        pdc = self.pdcs.get(captured) if captured else None
        if pdc is None and (captured or values.get("spdcid")):
            return  # of a PDC that is not played
        if pdc is None and "pkt_id" not in values and "nack_pkt_id" not in values:
            return
        if pdc is not None and pdc.closed:
            return
        if pdc is not None and one.answer.kind == "request":
            pdc.learn_return(values["psn"], True)
        starts = pdc.starts(True) if pdc is not None else (0, 0)
        found = normal(one.answer, None if pdc is None else pdc.number, *starts, one.number)
        if found is None or one.answer.fault:
            return
        self.wait_for(found, pdc)
        if pdc is not None and found.key[1] == "ack":
            refused = self.alignment.arrived((pdc.number, "nack", *found.key[2:]))
            pdc.closed = refused is not None and refused.values["nack_code"] == NackCode.INV_DPDCID

    def differs(self, difference: AnswerDifference) -> None:
        """Note that the peer has closed a PDC to which the side goes on to send in the capture."""
        if difference.fields.get("nack_code", ("", ""))[1] == _INV_DPDCID:
            for pdc in self.pdcs.values():
                pdc.closed = pdc.closed or pdc.number == difference.key[0]

    def read(self, frame: bytes) -> AnswerPacket | None:
        return read(frame, self.peer.how)

    def arrive(self, found: AnswerPacket) -> None:
        values = found.values
        pdc = self._mine.get(values["dpdcid"]) if values.get("dpdcid") else None
        if pdc is None and "pkt_id" not in values and "nack_pkt_id" not in values:
            self.aside += 1
            return
        if pdc is not None:
            if values.get("spdcid") and pdc.peer is None:
                pdc.peer = values["spdcid"]
            if pdc.late and values.get("ack_psn") == (pdc.new_start - 1) & 0xFFFFFFFF:
                return  # the answer to the NOOP that opened the PDC, which the capture has not
            if found.kind == "request":
                pdc.learn_return(values["psn"], False)
        starts = pdc.starts(False) if pdc is not None else (0, 0)
        for name, value in self._first.items():  # as the answer would be to the addresses of the capture
            if values.get(name) == self._now[name]:
                found = replace(found, values={**found.values, name: value})
        answer = normal(found, None if pdc is None else pdc.number, *starts, None)
        if answer is not None:
            self.alignment.arrive(answer, repeated=found.kind == "request" and bool(values.get("retx")))


def normal(
    found: AnswerPacket, conversation: int | None, start: int, return_start: int, number: int | None
) -> NormalAnswer | None:
    """Return an answer in the form that is compared, or None for one that is not compared.

    `start` is the first PSN of the requests that are answered, and `return_start` that of the requests that come with
    the answers.
    """
    kind, values = found.kind, dict(found.values)
    if kind in _NEVER:
        return None
    psns = {name: return_start if whose == OWN else start for whose, _, name, _ in psns_of(found.packet) if whose}
    psns |= {name: base for name, base in (("ack_psn", start), ("clear_psn", return_start)) if name in values}
    if "pkt_id" in values or "nack_pkt_id" in values:
        psns = {}
    values |= {name: distance(values[name], base) for name, base in psns.items()}
    if "probe_opaque" in values and kind == "ack":
        what: tuple[Any, ...] = ("probe", f"{values['probe_opaque']:#x}")
    elif "pkt_id" in values or "nack_pkt_id" in values:
        what = (f"pkt_id {values.get('pkt_id', values.get('nack_pkt_id'))}",)
    else:
        what = tuple(values[name] for name in ("ack_psn", "nack_psn", "psn") if name in values)[:1]
    compared = {name: value for name, value in values.items() if name not in _NOT_COMPARED}
    kind_of = f"PDC {conversation}, {kind}" if conversation is not None else kind
    return NormalAnswer(
        (conversation, kind, *what), compared, found.rows, frozenset(psns), found.payload, number, found.fault,
        in_words((kind_of, *what), _TOLD, values, found.rows), values.get("cack_psn"),
        values.get("ack_psn", 0) if _is_plain(kind, values) else None,
    )  # fmt: skip


def _is_plain(kind: str, values: Mapping[str, int]) -> bool:
    """Return whether an answer is an ACK that says no more than that packets arrived."""
    plain = values.get("opcode") in (None, ResponseOpcode.DEFAULT_RESPONSE, ResponseOpcode.RESPONSE)
    good = values.get("return_code", ReturnCode.OK) in (ReturnCode.OK, ReturnCode.NULL)
    data = values.get("next_hdr") in (NextHdr.RESPONSE_DATA, NextHdr.RESPONSE_DATA_SMALL)
    return kind == "ack" and plain and good and not data and values.get("req") == AckReq.NONE and not values.get("p")
