# SPDX-License-Identifier: GPL-2.0-only
"""The table of filter names over forms, and the values that one packet gives."""

from typing import Any

from uetproto import Layer, Packet, decode, encode
from uetproto.wire.filter_names import BY_NAME, FILTER_NAMES, Given, of_packet
from uetproto.wire.forms import FORMS
from uetproto.wire.headers.uet_pds import CtlType
from uetproto.wire.headers.uet_ses import ResponseOpcode, ReturnCode
from uetproto.wireshark.lua import filter_name

WIDTH = {"bool": 1, "uint8": 8, "uint16": 16, "uint24": 24, "uint32": 32, "uint64": 64}


def names_of(*stack: tuple[str, dict[str, Any]], payload: bytes = b"") -> dict[str, Any]:
    lower = [Layer("ethernet", {"type": 0x0800}), Layer("ipv4", {"protocol": 17}), Layer("udp", {"dport": 4793})]
    packet = Packet([*lower, *(Layer(form, values) for form, values in stack)], payload)
    return of_packet(decode(encode(packet, fill=True), crc="off"))


def test_a_request() -> None:
    write = {"opcode": 1, "message_id": 7, "job_id": 9, "request_length": 4, "hd": 0, "header_data": 5, "eom": 1}
    found = names_of(
        ("pds.rod_req.syn", {"next_hdr": 3, "psn": 3, "psn_offset": 4, "clear_psn_offset": -5, "spdcid": 8, "retx": 1}),
        ("ses.request_std.som", write),
        payload=b"data",
    )
    wanted = {"psn": 3, "start_psn": 0xFFFFFFFF, "clear_psn": 0xFFFFFFFE, "spdcid": 8, "retx": True, "syn": True,
              "opcode": 1, "message_id": 7, "job_id": 9, "length": 4, "len": 4, "som": True, "eom": True}  # fmt: skip
    assert {name: found[f"uetp.{name}"] for name in wanted} == wanted
    assert not found.keys() & {"uetp.dpdcid", "uetp.header_data", "uetp.cack_psn", "uetp.sack_psn", "uetp.trimmed"}


def test_an_ack_has_the_psns_of_its_bitmap_and_no_psn_of_its_own() -> None:
    found = names_of(
        ("pds.ack_cc", {"next_hdr": 4, "cack_psn": 10, "ack_psn_offset": 2, "retx": 1, "sack_psn_offset": -11,
                        "sack_bitmap": 1 << 63 | 0b101}),
        ("pds.cc_state.nscc", {"ooo_count": 6}),
        ("ses.response", {"opcode": ResponseOpcode.RESPONSE, "return_code": ReturnCode.OK, "message_id": 4}),
    )  # fmt: skip
    wanted = {"ack_psn": 12, "sack_psn": [0xFFFFFFFF, 1, 62], "ack_retx": True, "ooo_count": 6, "message_id": 4,
              "return_code": 1, "response_opcode": 1}  # fmt: skip
    assert {name: found[f"uetp.{name}"] for name in wanted} == wanted
    assert not found.keys() & {"uetp.psn", "uetp.retx", "uetp.opcode", "uetp.len"}


def test_some_control_packets_have_no_psn() -> None:
    assert names_of(("pds.cp", {"ctl_type": CtlType.NOOP, "psn": 5}))["uetp.psn"] == 5
    assert "uetp.psn" not in names_of(("pds.cp", {"ctl_type": CtlType.CREDIT}))


def test_response_data_belongs_to_the_message_of_its_request() -> None:
    values = {"read_request_message_id": 5, "response_message_id": 6}
    found = names_of(("pds.rud_req", {"next_hdr": 5}), ("ses.response_data", values))
    assert (found["uetp.message_id"], found["uetp.response_message_id"]) == (5, 6)


def test_types_hold_the_fields() -> None:
    assert len(BY_NAME) == len(FILTER_NAMES)
    assert not BY_NAME.keys() & {filter_name(form) for form in FORMS}
    for row in FILTER_NAMES:
        assert bool(row.forms) == (row.given in (Given.FIELD, Given.SUM)), row
        assert row.doc
        for header in row.forms:
            assert header[row.field_of(header)].bits <= WIDTH[row.kind], (row.name, header.name)
