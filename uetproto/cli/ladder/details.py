# SPDX-License-Identifier: GPL-2.0-only
"""This module says of an arrow what the packets before it tell: state of the PDC, bytes in flight, window, credit,
round-trip time, timer, and why the packet was sent, with the section of the protocol pages that says so."""

from array import array
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from uetproto import Packet
from uetproto.audit.per_packet.analyser import Analyser
from uetproto.wire.headers.roce import Nak, Transport
from uetproto.wire.headers.uet_pds import CONTROLS, AckReq, CtlType, NackCode
from uetproto.wire.words.summary import duration, pds_layer
from uetproto.wire.words.text import code

COLUMNS = {
    # name     characters  what
    "state":    (14, "state of the PDC, as far as the packets show it"),
    "flight":   (12, "bytes that the sender has in flight"),
    "window":   (7,  "packets beyond the CACK_PSN that the receiver takes (MPR)"),
    "cwnd":     (10, "window of the sender with NSCC, recomputed"),
    "credit":   (9,  "bytes of credit that the receiver of the data has granted (RCCC)"),
    "rtt":      (8,  "round-trip time that the ACK shows"),
    "timer":    (8,  "time since the packet was sent last, of a retransmission"),
}  # fmt: skip
"""Columns that may stand beside arrows."""

_MPR_UNIT, _CREDIT_UNIT = 128, 256
_TRIMMED = (NackCode.TRIMMED, NackCode.TRIMMED_LASTHOP, NackCode.TRIMMED_ACK)
_FARTHEST = (1 << 63) - 1  # a capture may state any time
_M32 = 0xFFFFFFFF
_MOST = 65_536  # NACKs that are kept, by the PDC and the PSN that they refuse


class LadderDetails:
    """This class tells of each packet of a capture what the packets before it say. A reason begins with its section,
    since the end of a long line is cut."""

    def __init__(self, windows: Mapping[int, int] | None = None) -> None:
        """Begin with the first packet. `windows` has the windows of NSCC by the numbers of packets
        (`audit.windows.windows_of`)."""
        self.windows = windows or {}
        self._analyser = Analyser()
        self.latest: Mapping[str, Any] = {}
        """What the analysis says of the packet that was taken last, by its names (docs/reference/analysis.md)."""
        self._times = array("q", [0])
        self._states: dict[object, str] = {}
        self._windows: dict[object, int] = {}
        self._credits: dict[object, int] = {}
        self._refused: dict[object, tuple[int, int]] = {}
        self._rewound: dict[object, tuple[int, int, int]] = {}

    def take(self, packet: Packet, data: bytes, time_ns: int, number: int, tap: Hashable) -> tuple[dict[str, str], str]:
        """Take packet `number` (from 1) of an interface. Return the values of its columns, and why it was sent, in
        words."""
        late = self._analyser.late
        while len(late.acked_in) < number:  # packets that are not drawn, of other interfaces
            late.add()
        self.latest = row = self._analyser.take(packet, data, time_ns, number, tap)
        while len(self._times) <= number:
            self._times.append(0)
        self._times[number] = min(max(time_ns, -_FARTHEST), _FARTHEST)
        layer = pds_layer(packet)
        if layer is None:
            return {}, _roce_reason(packet)
        head, pdc = layer.values, row.get("uetp.pdc")
        since = None
        if "uetp.retransmission_of" in row:
            since = time_ns - self._times[row["uetp.retransmission_of"]]
        columns = {} if pdc is None else self._columns((tap, pdc), layer.form, head, packet, row)
        if number in self.windows:
            columns["cwnd"] = _bytes(self.windows[number])
        if since is not None:
            columns["timer"] = duration(since)
        if "uetp.analysis.rtt" in row:
            columns["rtt"] = duration(round(row["uetp.analysis.rtt"] * 1e9))
        reason = self._reason((tap, pdc), layer.form, head, packet, row, since)
        if "nack_psn" in head and len(self._refused) < _MOST:
            nack = number, head["nack_code"]
            self._refused[tap, pdc, head["nack_psn"]] = nack
            start = head["nack_payload"] if head["nack_code"] == NackCode.ROD_OOO else head["nack_psn"]
            self._rewound[tap, pdc, head.get("dpdcid")] = *nack, start
        return columns, reason

    def _columns(
        self, pdc: Hashable, form: str, head: Mapping[str, Any], packet: Packet, row: Mapping[str, Any]
    ) -> dict[str, str]:
        to_sender = "cack_psn" in head or "nack_psn" in head
        found = {"state": self._state(pdc, form, head)}
        if "uetp.analysis.bytes_in_flight" in row:
            found["flight"] = _bytes(row["uetp.analysis.bytes_in_flight"])
        if head.get("mpr"):
            self._windows[pdc] = head["mpr"] * _MPR_UNIT
        for one, values, _ in packet.layers:
            if one == "pds.cc_state.credit":
                self._credits[pdc] = values["credit"] * _CREDIT_UNIT
        if head.get("ctl_type") == CtlType.CREDIT:
            self._credits[pdc] = head["ctl_payload"] * _CREDIT_UNIT
        if pdc in self._windows and (head.get("mpr") or not to_sender):
            found["window"] = str(self._windows[pdc])
        if pdc in self._credits:
            found["credit"] = _bytes(self._credits[pdc])
        return found

    def _state(self, pdc: Hashable, form: str, head: Mapping[str, Any]) -> str:
        """Return the state of the PDC behind this packet (pds.md §6.4)."""
        state = self._states.get(pdc, "CREATING" if head.get("syn") else "ESTABLISHED")
        if "cack_psn" in head:
            if state == "CLOSE_ACK_WAIT" and head.get("req") != AckReq.CLOSE and head["next_hdr"] == 0:
                state = "CLOSED"
            elif state == "CREATING":
                state = "ESTABLISHED"
        elif state == "CREATING" and not head.get("syn") and "nack_psn" not in head:
            state = "ESTABLISHED"
        if head.get("req") == AckReq.CLOSE or head.get("ctl_type") == CtlType.CLOSE_REQ:
            state = "QUIESCE"
        if head.get("ctl_type") == CtlType.CLOSE_CMD:
            state = "CLOSE_ACK_WAIT"
        self._states[pdc] = state
        return state

    def _reason(
        self, pdc: tuple[Hashable, Any], form: str, head: Mapping[str, Any], packet: Packet, row: Mapping[str, Any],
        since: int | None,
    ) -> str:  # fmt: skip
        for get in _REASONS:
            found = get(form, head, packet, row)
            if found:
                return found
        if not head.get("retx") or "cack_psn" in head or "nack_code" in head:
            return ""
        refused = self._refused.get((*pdc, head.get("psn"))) or self._rewinding(pdc, form, head, row)
        if refused is not None:
            return f"pds.md §11.2: sent again after NACK {code(NackCode, refused[1])} #{refused[0]}"
        if since is not None:
            return f"pds.md §11.1, §11.4: sent again after {duration(since)}, the RTO or an inferred loss"
        return "pds.md §11: sent again; the capture lacks the transmission before"

    def _rewinding(
        self, pdc: tuple[Hashable, Any], form: str, head: Mapping[str, Any], row: Mapping[str, Any]
    ) -> tuple[int, int] | None:
        """Return number and code of the NACK for which an ordered PDC sends this PSN again (pds.md §11.3), or None."""
        number, refusal, start = self._rewound.get((*pdc, head.get("spdcid")), (0, 0, 0))
        ordered = form.startswith("pds.rod_req") or head.get("isrod")
        sent_before = row.get("uetp.retransmission_of", 0) < number
        return (number, refusal) if ordered and sent_before and (head["psn"] - start) & _M32 < 1 << 31 else None


def _nack(form: str, head: Mapping[str, Any], packet: Packet, row: Mapping[str, Any]) -> str:
    if "nack_code" not in head:
        return ""
    section = "pds.md §14" if head["nack_code"] in _TRIMMED else "pds.md §12"
    return f"{section}: refused, {code(NackCode, head['nack_code'])}"


def _control(form: str, head: Mapping[str, Any], packet: Packet, row: Mapping[str, Any]) -> str:
    control = CONTROLS.get(head["ctl_type"]) if "ctl_type" in head else None
    return "" if control is None or head["retx"] else f"{control.section}: {control.purpose}"


def _ack(form: str, head: Mapping[str, Any], packet: Packet, row: Mapping[str, Any]) -> str:
    if "cack_psn" not in head:
        return ""
    if "probe_opaque" in head:
        return "pds.md §13: answers a PROBE"
    if head["req"] == AckReq.CLEAR:
        return "pds.md §9.3: asks for a clear of guaranteed responses"
    if head["req"] == AckReq.CLOSE:
        return "pds.md §6.5: asks the initiator to close the PDC"
    if "uetp.analysis.duplicate_ack" in row:
        return "pds.md §8.1: acknowledged again, as the packet came again"
    acked = row.get("uetp.acks", [])
    return f"pds.md §8.3: acknowledges {_listed(acked)}" if acked else ""


def _request(form: str, head: Mapping[str, Any], packet: Packet, row: Mapping[str, Any]) -> str:
    if "cack_psn" in head or "ctl_type" in head:
        return ""
    if "trimmed" in packet.notes:
        return "cms.md §7, pds.md §14: a switch has cut it off"
    if "uetp.analysis.spurious_retransmission" in row:
        return "pds.md §11.1: sent again though its ACK was seen"
    if head.get("retx"):
        return ""
    if "uetp.analysis.duplicate" in row:
        return "pds.md §8.1: seen before, without retx"
    if "uetp.analysis.out_of_order" in row:
        return "pds.md §8.1: behind a newer PSN"
    if "uetp.analysis.window_full" in row:
        return "pds.md §8.6: fills the window of the receiver"
    return "pds.md §6.2: opens a PDC, or the opening has no answer yet" if head.get("syn") else ""


_REASONS: tuple[Callable[[str, Mapping[str, Any], Packet, Mapping[str, Any]], str], ...] = (
    _nack, _control, _ack, _request,
)  # fmt: skip


def _roce_reason(packet: Packet) -> str:
    """Return why a packet of RoCE was sent, if the packet tells it."""
    if "bth" not in packet:
        return ""
    if packet["bth"]["opcode"] >> 5 == Transport.CNP:
        return "roce.md §13: congestion was marked"
    syndrome = packet["aeth"]["syndrome"] if "aeth" in packet else 0
    if syndrome >> 5 == 1:
        return "roce.md §8: the receiver is not ready"
    if syndrome >> 5 == 3:
        return f"roce.md §8: refused, {code(Nak, syndrome)}"
    return ""


def _listed(numbers: list[int]) -> str:
    told = ", ".join(f"#{number}" for number in numbers[:3])
    return told + (f" and {len(numbers) - 3} more" if len(numbers) > 3 else "")


def _bytes(size: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= 10 * unit:
            return f"{size / unit:.0f} {name}"
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"
