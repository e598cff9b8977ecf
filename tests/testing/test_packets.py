# SPDX-License-Identifier: GPL-2.0-only
"""Headers, packets and frames of `uetproto.testing`: legal, with one fault, and small when a test fails."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis.errors import InvalidArgument

from tests.support.audit.frames import audited
from tests.support.effort import examples
from tests.support.testing.shrunk import shrunk
from uetproto import Layer, Packet, decode, encode
from uetproto.testing import Spoilt, frames, headers, packets
from uetproto.testing.strategies.stacks import all_stacks
from uetproto.wire.codec import codec_of
from uetproto.wire.forms import FORMS, UET_FORMS


def rules(frame: bytes) -> set[str]:
    return {finding.rule.id for finding in audited([frame]).findings}


# Legal ----------------------------------------------------------------------------------------------------------------


@given(headers())
@examples(60)
def test_a_header_holds_what_its_table_allows(header: Layer) -> None:
    form = FORMS[header.form]
    assert tuple(header.values) == form.names
    codec = codec_of(form)
    assert codec.decode(codec.encode(header.values)) == header.values
    for field in form.fields:
        assert not field.only or header.values[field.name] in field.only
        assert not field.name.startswith("rsvd") or header.values[field.name] == 0


@given(packets() | packets(transport="roce"))
@examples(100)
def test_a_packet_is_legal_alone(packet: Packet) -> None:
    assert packet.error is None
    assert set(packet.notes) <= {"sealed"}
    data = encode(packet)
    assert decode(data) == packet
    assert encode(packet, fill=True) == data
    assert rules(data) == set()


@given(frames(spoilt=True) | frames(transport="roce", spoilt=True))
@examples(100)
def test_a_spoilt_frame_breaks_the_rule_that_it_names(spoilt: Spoilt[bytes]) -> None:
    assert rules(spoilt.value) == {spoilt.rule}, spoilt.what


@given(headers(spoilt=True))
@examples(60)
def test_a_spoilt_header_has_one_field_that_its_table_forbids(spoilt: Spoilt[Layer]) -> None:
    layer, column, what = spoilt
    codec = codec_of(FORMS[layer.form])
    assert codec.decode(codec.encode(layer.values)) == layer.values, "it fits its bits"
    name = what.partition(" ")[0].removeprefix(f"{layer.form}.")
    field, value = FORMS[layer.form][name], layer.values[name]
    assert {"only": value not in field.only, "reserved": value != 0,
            "values": value not in [*(field.values or ())]}[column]  # fmt: skip


def test_every_form_that_has_a_code_of_its_own_is_drawn() -> None:
    """Only a vendor's code announces `pds.cc_state.other`; `entropy` is below UET."""
    drawn = {form for stack in all_stacks() for form in stack.forms}
    assert set(UET_FORMS) - drawn == {"pds.cc_state.other", "entropy"}


# Restricted -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "holds"),
    [
        ({"form": "ses.ext.atomic_cas"}, lambda packet: "ses.ext.atomic_cas" in packet),
        ({"mode": "uud"}, lambda packet: "pds.uud_req" in packet),
        ({"opcode": "READ", "mode": "rudi"}, lambda p: p["pds.rudi_req"] and p[p.layers[-1].form]["opcode"] == 2),
        ({"encapsulation": "native", "ip_version": 6}, lambda packet: "ipv6" in packet and "entropy" in packet),
        ({"crc": True, "mode": "rod"}, lambda packet: packet.trailer.ok),
        ({"transport": "roce", "mode": "uc", "form": "reth"}, lambda packet: packet["bth"]["opcode"] >> 5 == 1),
        ({"crc": False, "mode": "rod"}, lambda packet: packet.trailer is None),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_arguments_restrict_what_is_drawn(arguments: dict[str, Any], holds: Callable[[Packet], bool]) -> None:
    @given(packets(**arguments))
    @examples(12)
    def check(packet: Packet) -> None:
        assert holds(packet)

    check()


@pytest.mark.parametrize(
    ("make", "legal"),
    [
        (lambda: packets(opcode="WRITES"), "opcode='WRITES' is not legal (did you mean WRITE"),
        (lambda: packets(opcode="SEND", mode="uud"), "mode='uud' is not legal with opcode='SEND'; legal: rud, rod"),
        (
            lambda: packets(mode="rudi", form="pds.ack"),
            "form='pds.ack' is not legal with mode='rudi'; legal: pds.rudi_req",
        ),
        (lambda: frames(mtu=1500), "mtu=1500 is not legal; legal: 1024, 2048, 4096, 8192"),
        (lambda: packets(ip_version=5), "legal: 4, 6"),
        (lambda: frames(transport="roce", crc=False), "crc=False is not legal; legal: True"),
        (lambda: frames(transport="roce", mode="ud", opcode="FETCH_ADD"), "legal: rc, xrc"),
        (lambda: frames(crc=1), "legal: False, True"),  # type: ignore[call-overload]
        (lambda: frames(spoilt=1), "spoilt=1 is not legal; legal: False, True"),  # type: ignore[call-overload]
        (lambda: headers("pds.akc"), "did you mean pds.ack"),
        (
            lambda: headers("udp", spoilt=True),
            "form='udp' is not legal with spoilt=True: its fields may hold any value",
        ),
    ],
)
def test_what_is_not_legal_is_refused_with_the_legal_values(make: Callable[[], object], legal: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        make()
    assert legal in str(caught.value)


# Shrunk ---------------------------------------------------------------------------------------------------------------

SIMPLEST = {
    "ethernet": {"type": 0x0800},
    "ipv4": {"version": 4, "ihl": 5, "df": 1, "protocol": 17, "ecn": 1},
    "udp": {"dport": 4793},
    "pds.rud_req": {"type": 2, "clear_psn_offset": -1, "spdcid": 1, "dpdcid": 1},
    "ses.request_std.som": {"eom": 1, "som": 1, "message_id": 1, "resource_index": 1},
}
"""Fields of the simplest packet that are not 0, but for lengths, checksums, and what says which header follows."""


def other_than_simplest(packet: Packet) -> dict[str, int]:
    """Return the fields of a packet that differ from the simplest one."""
    left_out = ("length", "total_length", "checksum", "next_hdr", "opcode")
    return {
        f"{form}.{name}": value
        for form, values, _ in packet.layers
        for name, value in values.items()
        if name not in left_out and value != SIMPLEST[form].get(name, 0)
    }


def test_a_failing_packet_of_five_headers_shrinks_to_the_field() -> None:
    """Of a property of one field, that field is left with the least value that fails; the rest is the simplest. The
    report shows it by name."""
    seen: list[Packet] = []

    @settings(database=None, max_examples=300, phases=[Phase.generate, Phase.shrink])
    @given(packets(form="ses.request_std.som"))
    def test(packet: Packet) -> None:
        seen.append(packet)
        assert packet["pds"].get("psn", 0) <= 5

    with pytest.raises(AssertionError) as caught:
        test()
    found = seen[-1]
    assert [layer.form for layer in found.layers] == [*SIMPLEST]
    assert other_than_simplest(found) == {"pds.rud_req.psn": 6}
    assert (found.payload, found.trailer) == (b"", None)
    told = "\n".join(caught.value.__notes__)
    assert "packet=Packet(" in told
    assert "'psn': 6" in told
    assert "payload=" not in told


def test_the_simplest_packet_is_an_ack_and_the_simplest_fault_a_reserved_bit() -> None:
    assert [layer.form for layer in shrunk(packets(), bool).layers] == ["ethernet", "ipv4", "udp", "pds.ack"]
    assert shrunk(packets(spoilt=True), bool).what == "pds.ack.rsvd at byte 43 is 1, 0 is right"
