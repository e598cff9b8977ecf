# SPDX-License-Identifier: GPL-2.0-only
"""This module has the table of filter names over forms: `uetp.psn` is the PSN of a packet, whatever its header form is.

The name of a field in one form, such as `uetp.pds.rod_req.psn`, is that of the form and the field. The names of this
table stand beside them. The Wireshark plugin is generated from the table, and `stats --per-packet` has the names as
keys. A row has the type, the number base, the unit and the description of a name, and says where its value is from
(`Given`): `of_packet` returns all values that one packet alone gives.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum, IntFlag
from typing import Any, Literal

from uetproto.wire.fields import Field, Header
from uetproto.wire.forms import FORMS, UET_FORMS
from uetproto.wire.headers import uet_pds, uet_ses, uet_tss
from uetproto.wire.headers.uet_pds import CONTROLS, CpPsn
from uetproto.wire.packet import Packet
from uetproto.wire.serial import add32

Kind = Literal["bool", "uint8", "uint16", "uint24", "uint32", "uint64", "int32", "framenum", "relative_time", "label"]
"""Type of a field in Wireshark. A label has no value: it is there, or it is absent. A relative time is in seconds."""


class Given(Enum):
    """This enumeration says where the value of a name is from."""

    FIELD = "a field of a header"
    SUM = "the sum of two fields of a header"
    PACKET = "the packet"
    ANALYSIS = "this packet and others"


@dataclass(frozen=True, slots=True)
class FilterName:
    """A filter name is one row of the table: `name` stands behind "uetp.".

    In each form of `forms` the value is that of the first field of `fields` that the form has. In a sum, `sign` times
    the field `plus` is added, modulo 2^32. There is no value where the field that is the first of `absent` has one of
    the values that are the second. A name with `many` can have several values in a packet.
    """

    name: str
    kind: Kind
    doc: str
    given: Given
    unit: str = ""
    hexadecimal: bool = False
    many: bool = False
    forms: tuple[Header, ...] = ()
    fields: tuple[str, ...] = ()
    plus: str = ""
    sign: int = 1
    absent: tuple[str, frozenset[int]] = ("", frozenset())

    @property
    def filter(self) -> str:
        """Return the display filter, such as `uetp.psn`."""
        return f"uetp.{self.name}"

    @property
    def values(self) -> type[IntEnum] | type[IntFlag] | None:
        """Return the codes of the field; None if it has no codes, or those of its forms differ."""
        found = {header[self.field_of(header)].values for header in self.forms} if not self.plus else set()
        return found.pop() if len(found) == 1 else None

    def field_of(self, header: Header) -> str:
        """Return the name of the field that has the value in `header`, which is one of `forms`."""
        return next(field for field in self.fields if field in header.names)

    def of(self, form: str, values: Mapping[str, Any]) -> Any:
        """Return the value in a layer, None where it has none."""
        field, codes = self.absent
        if values.get(field) in codes:
            return None
        value = values[self.field_of(FORMS[form])]
        if self.plus:
            return add32(value, self.sign * values[self.plus])
        return bool(value) if self.kind == "bool" else value


def _field(
    name: str, kind: Kind, doc: str, *fields: str, forms: tuple[Header, ...] = uet_pds.HEADERS, **more: Any
) -> FilterName:
    """Return the row of a field; its name is that of the fields, unless `fields` names them."""
    fields = fields or (name,)
    having = tuple(header for header in forms if set(fields) & set(header.names))
    return FilterName(name, kind, doc, Given.FIELD, forms=having, fields=fields, **more)


def _sum(name: str, doc: str, field: str, plus: str, sign: int = 1) -> FilterName:
    having = tuple(header for header in uet_pds.HEADERS if {field, plus} <= set(header.names))
    return FilterName(name, "uint32", doc, Given.SUM, forms=having, fields=(field,), plus=plus, sign=sign)


def _packet(name: str, kind: Kind, doc: str, **more: Any) -> FilterName:
    return FilterName(name, kind, doc, Given.PACKET, **more)


def _analysis(name: str, kind: Kind, doc: str, **more: Any) -> FilterName:
    return FilterName(name, kind, doc, Given.ANALYSIS, **more)


_REQUESTS = (*uet_pds.REQUESTS, uet_pds.RUDI_REQ, uet_pds.RUDI_RESP, uet_pds.CP, uet_pds.CP_SYN)
_SES, _TSS = uet_ses.HEADERS, uet_tss.HEADERS
_ASKS = (*uet_ses.REQUESTS, uet_ses.EXT_RENDEZVOUS, uet_ses.EXT_ATOMIC, uet_ses.EXT_ATOMIC_CAS)
_NO_PSN = frozenset(int(kind) for kind, row in CONTROLS.items() if row.psn is CpPsn.NONE)

FILTER_NAMES: tuple[FilterName, ...] = (
    # PDS
    _field("type", "uint8", "Type of the PDS header"),
    _field("next_hdr", "uint8", "SES header that follows the PDS header"),
    _field("psn", "uint32", "PSN of the packet itself: a request or control packet", absent=("ctl_type", _NO_PSN)),
    _field("pkt_id", "uint32", "Packet identifier of a RUDI packet, in place of a PSN", hexadecimal=True),
    _sum("start_psn", "Start_PSN of the PDC: psn - psn_offset", "psn", "psn_offset", -1),
    _sum("clear_psn", "CLEAR_PSN: psn + clear_psn_offset", "psn", "clear_psn_offset"),
    _field("spdcid", "uint16", "PDCID of the sender"),
    _field("dpdcid", "uint16", "PDCID of the receiver; absent in a packet that opens a PDC"),
    _field("pdc_info", "uint8", "PDC information in a packet that opens a PDC: highest bit use_rsv_pdc"),
    _field("retx", "bool", "The packet is a retransmission; absent in ACK and NACK", forms=_REQUESTS),
    _field("syn", "bool", "The packet can open a PDC"),
    _field("ar", "bool", "The packet asks for an ACK"),
    _field("cack_psn", "uint32", "Cumulative ACK: the receiver has every PSN up to this one"),
    _sum("ack_psn", "PSN of the packet that the ACK answers: cack_psn + ack_psn_offset", "cack_psn", "ack_psn_offset"),
    _field("ack_retx", "bool", "The packet that this ACK or NACK answers was a retransmission", "retx",
           forms=(*uet_pds.ACKS, *uet_pds.NACKS)),
    _field("ecn_marked", "bool", "The packet that this one answers was ECN-marked", "m"),
    _field("req", "uint8", "What an ACK asks for: CLEAR or CLOSE"),
    _field("mpr", "uint8", "PSN range that the receiver accepts", unit="128 PSNs"),
    _sum("sack_base", "PSN of the lowest bit of the SACK bitmap: cack_psn + sack_psn_offset",
         "cack_psn", "sack_psn_offset"),
    _field("sack_bitmap", "uint64", "SACK bitmap: bit i says that sack_base + i was received", hexadecimal=True),
    _packet("sack_psn", "uint32", "PSN that the SACK bitmap says was received", many=True),
    _field("expected_psn", "uint32", "Lowest Start_PSN of the next PDC"),
    _field("nack_psn", "uint32", "PSN of the packet that the NACK refuses"),
    _field("nack_pkt_id", "uint32", "Packet identifier of the RUDI packet that the NACK refuses", hexadecimal=True),
    _field("nack_code", "uint8", "Why the packet was refused"),
    _field("vendor_code", "uint8", "The vendor's reason of a NACK"),
    _field("nack_payload", "uint32", "By NACK code: new Start_PSN, or expected PSN"),
    _field("ctl_type", "uint8", "Type of a control packet"),
    _field("ctl_payload", "uint32", "By control type: CLEAR_PSN, SACK base, credit, message identifier"),
    _field("probe_opaque", "uint16", "Token of a probe and of its answer", hexadecimal=True),
    _field("cc_type", "uint8", "Type of the congestion control state of an ACK"),
    _field("ccc_id", "uint8", "Congestion control context"),
    _field("credit_target", "uint24", "Credit that the sender wants", unit="256 bytes"),
    _field("credit", "uint24", "Cumulative credit granted", unit="256 bytes"),
    _field("service_time", "uint16", "Time from receiving the packet to its ACK", unit="128 ns"),
    _field("restore_cwnd", "bool", "The sender restores the window that it saved"),
    _field("rcv_cwnd_pend", "uint8", "Window penalty", unit="1/128"),
    _field("rcvd_bytes", "uint24", "Bytes received on the PDC", unit="256 bytes"),
    _field("ooo_count", "uint16", "Packets that the receiver holds out of order", unit="packets"),
    # SES
    _field("opcode", "uint8", "Opcode of a request", forms=uet_ses.REQUESTS),
    _field("response_opcode", "uint8", "Opcode of a response", "opcode", forms=uet_ses.RESPONSES),
    _field("return_code", "uint8", "Result that a response reports", forms=_SES),
    _field("list", "uint8", "List in which the target found the buffer", forms=_SES),
    _field("som", "bool", "First packet of a message", forms=_SES),
    _field("eom", "bool", "Last packet of a message", forms=_SES),
    _field("hd", "bool", "Header data is present", forms=_SES),
    _field("dc", "bool", "The response may not come before delivery is complete", forms=_SES),
    _field("ie", "bool", "The initiator reports an error", forms=_SES),
    _field("rel", "bool", "Relative addressing", forms=_SES),
    _field("message_id", "uint16", "Message identifier of a request; in a response, that of its request",
           "message_id", "read_request_message_id", forms=_SES),
    _field("response_message_id", "uint16", "Message identifier of a response with data", forms=_SES),
    _field("original_request_psn", "uint32", "PSN of the request that small response data answers", forms=_SES),
    _field("job_id", "uint24", "JobID", forms=_SES),
    _field("ri_generation", "uint8", "Generation of the resource index", forms=(*uet_ses.REQUESTS, *uet_ses.RESPONSES)),
    _field("pid_on_fep", "uint16", "Process on the fabric endpoint", forms=uet_ses.REQUESTS),
    _field("resource_index", "uint16", "Resource index", forms=uet_ses.REQUESTS),
    _field("initiator", "uint32", "Identity of the initiator", forms=_SES),
    _field("buffer_offset", "uint64", "Where in the buffer the message starts", hexadecimal=True, forms=_SES),
    _field("memory_key", "uint64", "Key of the memory region", hexadecimal=True, forms=_SES),
    _field("match_bits", "uint64", "Tag of a send", hexadecimal=True, forms=_SES),
    _field("header_data", "uint64", "Completion data of the message", hexadecimal=True, forms=_SES,
           absent=("hd", frozenset({0}))),
    _field("length", "uint32", "Length of the whole message", "request_length", unit="bytes", forms=_SES),
    _field("payload_length", "uint16", "Length of the message's part in this packet, as its header says",
           unit="bytes", forms=_SES),
    _field("message_offset", "uint32", "Where in the message the part in this packet starts", unit="bytes", forms=_SES),
    _field("modified_length", "uint32", "Bytes of the target's buffer that the message has changed", unit="bytes",
           forms=_SES),
    _field("eager_length", "uint32", "Bytes sent before the target has agreed", unit="bytes", forms=_ASKS),
    _field("atomic_opcode", "uint8", "Atomic operation", forms=_ASKS),
    _field("atomic_datatype", "uint8", "Datatype of an atomic operation", forms=_ASKS),
    # TSS
    _field("sdi", "uint24", "Secure domain", forms=_TSS),
    _field("ssi", "uint32", "Secure source", forms=_TSS),
    _field("an", "uint8", "Association number", forms=_TSS),
    _field("epoch", "uint16", "Epoch of the key", forms=_TSS),
    _field("tsc", "uint64", "Counter that is never used twice under one key", forms=_TSS),
    # The packet
    _packet("len", "uint16", "Length of the payload in this packet", unit="bytes"),
    _packet("trimmed", "bool", "A switch cut off the end"),
    _packet("sealed", "bool", "The packet is encrypted and authenticated"),
    # This packet and others
    _analysis("pdc", "uint32", "Index of the PDC, both directions together"),
    _analysis("rel_psn", "int32", "PSN relative to the first PSN of its direction"),
    _analysis("qp_stream", "uint32", "Index of the pair of queue pairs of RoCE"),
    _analysis("acked_in", "framenum", "The first frame that acknowledges this packet"),
    _analysis("acks", "framenum", "A frame that this ACK answers, or is the first to acknowledge", many=True),
    _analysis("ack_time", "relative_time", "Time from this packet to the frame that acknowledges it", unit="s"),
    _analysis("nacked_in", "framenum", "The first frame that refuses this packet"),
    _analysis("retransmission_of", "framenum", "The frame that this packet repeats"),
    _analysis("response_in", "framenum", "The frame of the response to this message"),
    _analysis("response_to", "framenum", "The frame of the request that this response answers"),
    _analysis("msg", "uint32", "Index of the message"),
    _analysis("msg.first", "framenum", "The first frame of the message"),
    _analysis("msg.last", "framenum", "The frame with which no byte of the message is missing"),
    _analysis("msg.missing", "uint32", "Bytes of the message that no frame up to this one has", unit="bytes"),
    _analysis("msg.time", "relative_time", "Time from the message's first frame to its last ACK or data", unit="s"),
    _analysis("analysis.retransmission", "label", "The packet is marked as sent again"),
    _analysis("analysis.spurious_retransmission", "label", "The packet was sent again after its ACK was seen"),
    _analysis("analysis.duplicate", "label", "The PSN was seen before, yet retx is 0"),
    _analysis("analysis.duplicate_ack", "label", "The ACK says nothing that an earlier one did not"),
    _analysis("analysis.copy_of", "framenum", "The frame at another interface that this one copies"),
    _analysis("analysis.out_of_order", "label", "A newer PSN was seen before"),
    _analysis("analysis.lost_segment", "label", "The CACK_PSN is beyond a PSN that was never seen"),
    _analysis("analysis.trimmed", "label", "A switch trimmed the packet"),
    _analysis("analysis.window_full", "label", "Packets in flight reach the latest MPR"),
    _analysis("analysis.ack_unseen", "label", "The ACK names a PSN that was not seen"),
    _analysis("analysis.packets_in_flight", "uint32", "Packets in flight, as seen at this tap", unit="packets"),
    _analysis("analysis.bytes_in_flight", "uint32", "Bytes in flight, as seen at this tap", unit="bytes"),
    _analysis("analysis.rtt", "relative_time", "Time from a packet to the ACK that answers it", unit="s"),
)  # fmt: skip
"""Every name over forms. Order: PDS, SES, TSS, then what the packet gives, then what only several packets give."""

BY_NAME: dict[str, FilterName] = {row.name: row for row in FILTER_NAMES}

BY_FORM: dict[str, tuple[FilterName, ...]] = {
    form: tuple(row for row in FILTER_NAMES if header in row.forms) for form, header in UET_FORMS.items()
}
"""Rows that have a value in a form, by the name of the form."""


def sack_psns(values: Mapping[str, Any]) -> list[int]:
    """Return the PSNs that the SACK bitmap of an ACK says were received, from the lowest bit on."""
    base = add32(values["cack_psn"], values["sack_psn_offset"])
    return [add32(base, bit) for bit in range(64) if values["sack_bitmap"] >> bit & 1]


_OF_PACKET: dict[str, Callable[[Packet], Any]] = {
    "sack_psn": lambda packet: [
        psn for layer in packet.layers if "sack_bitmap" in layer.values for psn in sack_psns(layer.values)
    ],
    "len": lambda packet: len(packet.payload),
    "trimmed": lambda packet: "trimmed" in packet.notes,
    "sealed": lambda packet: "sealed" in packet.notes,
}


def of_packet(packet: Packet) -> dict[str, Any]:
    """Return the values that a packet of UET alone gives, by filter name with "uetp." in front.

    Flags are True or False. `uetp.trimmed` and `uetp.sealed` are absent where they would be False, an empty list and a
    length of 0 as well. A packet without a header of UET has no names.
    """
    layers = [layer for layer in packet.layers if layer.form in UET_FORMS]
    found = {
        row.filter: value
        for layer in layers
        for row in BY_FORM[layer.form]
        if (value := row.of(layer.form, layer.values)) is not None
    }
    if layers:
        found |= {f"uetp.{name}": value for name, get in _OF_PACKET.items() if (value := get(packet))}
    return found


# Names of forms and fields --------------------------------------------------------------------------------------------

VARIANTS = ("syn", "probe", "epsn", "rudi", "ssi", "som", "hd")
"""Suffixes of forms that are variants of another form."""


def filter_name(form: str, field: str = "") -> str:
    """Return the name that a form, or one of its fields, has in display filters behind "uetp.".

    The suffix of a variant is left out: the name of the form `pds.ack.probe` is `pds.ack`.
    """
    base, _, suffix = form.rpartition(".")
    name = base if suffix in VARIANTS else form
    return f"{name}.{field}" if field else name


def is_flag(field: Field) -> bool:
    """Return whether Wireshark shows the field as true or false."""
    return field.bits == 1 and field.values is None and not field.name.startswith("rsvd")
