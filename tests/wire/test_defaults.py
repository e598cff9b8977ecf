# SPDX-License-Identifier: GPL-2.0-only
"""What follows from what (`wire.defaults`): a packet made of defaults is one that our own audit accepts."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import paths
from uetproto import Layer, LocalError, Packet, decode, encode
from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
from uetproto.wire.capture.pcap import open_writer
from uetproto.wire.forms import FORMS, UET_FORMS
from uetproto.wire.headers import uet_ses
from uetproto.wire.headers.uet_pds import Mode, NextHdr
from uetproto.wire.headers.uet_ses import OPCODE_PROFILES, Extension, Opcode
from uetproto.wire.packet import Trailer
from uetproto.wire.stack import assemble

LOWER = (Layer("ethernet", {}), Layer("ipv4", {"src": 0x0A000001, "dst": 0x0A000002}), Layer("udp", {}))
EXTENSIONS: dict[Extension, tuple[tuple[str, ...], ...]] = {
    Extension.NONE: ((),),
    Extension.RENDEZVOUS: (("ses.ext.rendezvous",),),
    Extension.ATOMIC: (("ses.ext.atomic",), ("ses.ext.atomic_cas",)),
    Extension.SYNC: (("ses.ext.sync",),),
    Extension.SYNC_ATOMIC: (("ses.ext.sync", "ses.ext.atomic"), ("ses.ext.sync", "ses.ext.atomic_cas")),
}
PDS = {
    Mode.RUD: ("rud_req", "rud_cc_req"), Mode.ROD: ("rod_req", "rod_cc_req"), Mode.RUDI: ("rudi_req",),
    Mode.UUD: ("uud_req",),
}  # fmt: skip
LATER = (uet_ses.REQUEST_STD, uet_ses.SEND_STD, uet_ses.DEFERRABLE_STD)

Request = tuple[list[str], Opcode, bytes]


def before(mode: Mode) -> Iterator[list[str]]:
    for name in PDS[mode]:
        for form in (f"pds.{name}", f"pds.{name}.syn"):
            if form in FORMS:
                yield [form, "pds.req_cc_state"] if "cc" in name else [form]


def requests() -> Iterator[Request]:
    """Every request that is legal by ses.md §5.1: PDS and SES forms with extensions, its opcode, with and without
    payload."""
    for header in uet_ses.REQUESTS:
        size = next((size for size in ("SMALL", "MEDIUM") if size.lower() in header.name), "STD")
        later, codes = header in LATER, header["opcode"].only or uet_ses.REQUEST_STD["opcode"].only
        for opcode, row in OPCODE_PROFILES.items():
            other = opcode in uet_ses.SENDS or opcode in uet_ses.DEFERRABLES or opcode == Opcode.DEFERRABLE_RTR
            if NextHdr[f"REQUEST_{size}"] not in row.forms or (opcode not in codes if codes else other):
                continue
            if (opcode == Opcode.MSG_ERROR and not later) or (later and not row.payload):
                continue
            for mode in row.modes:
                if (mode is Mode.UUD and later) or (mode is Mode.RUDI and header.name.endswith(".hd")):
                    continue  # a datagram is one packet; RUDI has no completion data
                for extension in EXTENSIONS[row.extension] if not (later and row.extension is not _ALONE) else ():
                    bare = not row.payload or extension[-1:] == ("ses.ext.atomic_cas",)
                    for payload in (b"",) if bare else (b"data",) if later else (b"data", b""):
                        for pds in before(mode):
                            yield [*pds, header.name, *extension], opcode, payload


_ALONE = Extension.NONE


def packet_of(forms: list[str], payload: bytes = b"", **fields: int) -> Packet:
    """A packet of defaults but for some fields of its SES request."""
    layers = [Layer(form, fields if form in _REQUESTS else {}) for form in forms]
    return Packet([*LOWER, *layers], payload, Trailer("crc32c", 0))


_REQUESTS = {header.name for header in uet_ses.REQUESTS}


def findings(path: Path, frames: list[bytes]) -> list[list[str]]:
    """What our audit finds in each frame, alone in its capture: each goes from another node."""
    with open_writer(path) as writer:
        for number, frame in enumerate(frames):
            packet = decode(frame)
            layers = [Layer("ipv4", {**v, "src": 0x0B000000 + number}) if f == "ipv4" else Layer(f, v)
                      for f, v, _ in packet.layers]  # fmt: skip
            packet.layers = layers
            writer.write(number * 1_000, encode(packet, fill=True))
    found: list[list[str]] = [[] for _ in frames]
    for finding in audit([path], Options()).findings:
        found[finding.packets[-1]].append(f"{finding.rule.id}: expected {finding.expected}; seen {finding.seen}")
    return found


def test_every_request_of_defaults_is_accepted(tmp_path: Path) -> None:
    wanted = list(requests())
    assert {form for forms, _, _ in wanted for form in forms} >= _REQUESTS
    assert {opcode for _, opcode, _ in wanted} == set(OPCODE_PROFILES)
    packets = [packet_of(forms, payload, opcode=opcode) for forms, opcode, payload in wanted]
    packets += [packet_of(forms, payload) for forms, _, payload in wanted]
    frames = [encode(packet, fill=True) for packet in packets]
    for packet, frame in zip(packets, frames, strict=True):
        read = decode(frame)
        assert [layer.form for layer in read.layers] == [layer.form for layer in packet.layers]
        assert (read.error, read.payload, read.trailer and read.trailer.ok) == (None, packet.payload, True)
    for packet, found in zip(packets, findings(tmp_path / "all.pcap", frames), strict=True):
        assert not found, (packet, found)


def test_answers_of_defaults_are_accepted(tmp_path: Path) -> None:
    stacks = [
        ["pds.ack", "ses.response"], ["pds.ack.probe"], ["pds.ack.epsn"], ["pds.ack_cc", "pds.cc_state.nscc"],
        ["pds.ack_cc", "pds.cc_state.credit", "ses.response_data"], ["pds.ack_ccx", "pds.ccx_state"], ["pds.cp"],
        ["pds.cp.syn"], ["pds.rudi_resp", "ses.response"],
    ]  # fmt: skip
    frames = [encode(packet_of(forms, b"read" if "data" in forms[-1] else b""), fill=True) for forms in stacks]
    assert findings(tmp_path / "answers.pcap", frames) == [[]] * len(frames)
    for forms, frame in zip(stacks, frames, strict=True):
        assert [layer.form for layer in decode(frame).layers[3:]] == forms


def test_a_message_of_several_packets(tmp_path: Path) -> None:
    """Who gives the whole length, or that the message goes on, gets packets that fit together."""
    frames = []
    for psn, (form, fields) in enumerate((
        ("ses.request_std.som", {"eom": 0, "request_length": 12}),
        ("ses.request_std", {"eom": 0, "request_length": 12}),
        ("ses.request_std", {"request_length": 12}),
    )):  # fmt: skip
        packet = packet_of(["pds.rud_req.syn", form], b"data", opcode=Opcode.WRITE, **fields)
        packet.layers[3] = Layer("pds.rud_req.syn", {"psn": 100 + psn, "psn_offset": psn})
        frames.append(encode(packet, fill=True))
    with open_writer(tmp_path / "three.pcap") as writer:
        for number, frame in enumerate(frames):
            writer.write(number * 1_000, frame)
    assert not audit([tmp_path / "three.pcap"], Options()).findings
    read = [decode(frame) for frame in frames]
    assert [packet["pds.rud_req"]["clear_psn_offset"] for packet in read] == [-1, -2, -3]
    assert [packet["ses.request_std"]["eom"] for packet in read] == [0, 0, 1]
    assert [packet["ses.request_std"]["message_offset"] for packet in read[1:]] == [4, 8]


@pytest.mark.parametrize(
    ("form", "given", "field", "value"),
    [
        ("ses.request_std.som", {}, "request_length", 4),
        ("ses.request_std.som", {"eom": 0}, "request_length", 8),
        ("ses.request_std.som", {"request_length": 9}, "eom", 0),
        ("ses.request_std.som", {"request_length": 0}, "eom", 1),
        ("ses.request_std.som", {"opcode": Opcode.READ, "request_length": 9}, "eom", 1),
        ("ses.request_std.som", {"header_data": 0}, "hd", 1),
        ("ses.request_std", {}, "message_offset", 4),
        ("ses.request_std", {"request_length": 100}, "message_offset", 96),
        ("ses.request_std", {"request_length": 100, "message_offset": 4}, "eom", 0),
        ("ses.request_std", {"message_offset": 64, "eom": 0}, "request_length", 72),
        ("ses.send_medium", {}, "request_length", 4),
    ],
)
def test_what_follows_from_what_is_given(form: str, given: dict[str, int], field: str, value: int) -> None:
    assert decode(encode(packet_of(["pds.rud_req", form], b"data", **given), fill=True))[form][field] == value


@pytest.mark.parametrize("warm", [False, True])
def test_what_is_set_stays(warm: bool) -> None:
    """Each field of each header of a request, set to 0 by hand, or to what its form allows."""
    for form, names in (
        ("ipv4", ("dscp", "ecn", "df", "ttl", "protocol", "identification")), ("udp", ("sport", "dport")),
        ("pds.rud_req", UET_FORMS["pds.rud_req"].names),
        ("ses.request_std.som", UET_FORMS["ses.request_std.som"].names),
    ):  # fmt: skip
        for name in names:
            value = FORMS[form][name].default
            packet = packet_of(["pds.rud_req", "ses.request_std.som"], b"data")
            packet.layers = [Layer(f, {**v, name: value}) if f == form else Layer(f, v) for f, v, _ in packet.layers]
            for _ in range(12 if warm else 0):
                encode(packet, fill=True)
            frame = encode(packet, fill=True)
            assert frame == assemble(packet, True)
            at = sum(layer.size for layer in packet.layers[: [layer.form for layer in packet.layers].index(form)])
            read = decode(frame[at:], link="raw") if form == "ipv4" else None
            layer = read["ipv4"] if read else _fields(form, frame[at:])
            assert layer[name] == value, (form, name)


def _fields(form: str, data: bytes) -> Mapping[str, Any]:
    from uetproto.wire.codec import codec_of

    return codec_of(FORMS[form]).decode(data)


def test_verbatim_is_verbatim() -> None:
    """Without `fill` a missing field is 0, or what its form allows."""
    packet = packet_of(["pds.rud_req", "ses.request_std.som"], b"data")
    for _ in range(12):
        frame = encode(packet)
        assert encode(packet, fill=True) != frame
    at = 0
    for layer in packet.layers:
        header = FORMS[layer.form]
        assert _fields(layer.form, frame[at:]) == {f.name: layer.values.get(f.name, f.default) for f in header.fields}
        at += header.size


def test_numbers_of_numpy_do_not_wrap() -> None:
    packet = packet_of(["pds.rud_req", "ses.request_std"], bytes(300), message_offset=np.uint8(200))
    for _ in range(12):
        assert decode(encode(packet, fill=True))["ses.request_std"]["request_length"] == 500
    for bad in ("x", 1.5, None):
        packet = packet_of(["pds.rud_req", "ses.request_std"], bytes(300), message_offset=bad)  # type: ignore[arg-type]
        for _ in range(12):
            with pytest.raises(LocalError, match=r"ses\.request_std\.message_offset: .* is not an integer"):
                encode(packet, fill=True)


def test_a_sharp_message_over_uet_has_its_length() -> None:
    layers = [Layer("sharp", {"ver": 1, "payload_len": 3, "opcode": 4})]
    packet = packet_of(["pds.rud_req", "ses.send_std.som"])
    packet.layers += layers
    packet.payload = b"abc"
    read = decode(encode(packet, fill=True))
    assert read["ses.send_std"]["request_length"] == FORMS["sharp"].size + 4 == len(read.payload)


def test_codes_of_what_follows() -> None:
    lower = [Layer("ethernet", {}), Layer("vlan", {"vid": 5}), Layer("ipv6", {}), Layer("entropy", {})]
    read = decode(encode(Packet([*lower, Layer("pds.ack", {}), Layer("ses.response", {})]), fill=True))
    assert [layer.form for layer in read.layers] == [*(layer.form for layer in lower), "pds.ack", "ses.response"]
    roce = [Layer("ethernet", {}), Layer("ipv4", {}), Layer("udp", {}), Layer("bth", {}), Layer("reth", {})]
    read = decode(encode(Packet(roce, b"data", Trailer("icrc", 0)), fill=True))
    assert [layer.form for layer in read.layers] == [layer.form for layer in roce]
    assert (read.error, read.trailer and read.trailer.ok) == (None, True)


def test_the_first_example_of_the_readme_is_accepted(tmp_path: Path) -> None:
    """The Scapy example as it is printed, and with fields set by hand."""
    code = next(code for code in re.findall(r"```python\n(.*?)```", (paths.ROOT / "README.md").read_text(), re.S)
                if "# Scapy" in code)  # fmt: skip
    scope: dict[str, Any] = {}
    exec(code.split("from uetproto import columns")[0], scope)
    frame = bytes(scope["frame"])
    with open_writer(tmp_path / "readme.pcap") as writer:
        writer.write(0, frame)
    assert not audit([tmp_path / "readme.pcap"], Options()).findings
    assert decode(frame).payload == b"data"
