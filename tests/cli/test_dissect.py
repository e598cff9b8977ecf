# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto dissect`: the JSON shape to the letter, the text, damage, exit statuses."""

import gzip
import json
import os
import pty
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli.frames import ARP, ack, capture, frame, invoke, layer, nack, program, trimmed, write
from tests.support.wire.odd_times import shifted
from tests.support.wire.vectors import VECTORS, frame_around, uet_before
from uetproto.wire.capture.pcap import open_writer
from uetproto.wire.crc import crc32c

WRITE = frame(11, 12, *write(73728, 0, size=4096, syn=1), payload=bytes(range(256)) * 16)
WRONG = frame(11, 12, *write(73729, 4096, size=4096), payload=bytes(4096))[:-1] + b"\0"  # …fa made …00


def objects(*arguments: str, status: int = 0, data: bytes | None = None) -> list[dict[str, Any]]:
    result = invoke("dissect", "--json", *arguments, data=data)
    assert result.exit_code == status, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


# JSON -----------------------------------------------------------------------------------------------------------------


def test_the_object_of_a_packet(tmp_path: Path) -> None:
    path = tmp_path / "one.pcapng"
    with open_writer(path) as writer:
        writer.write(5_000_000_085, WRITE)
    fields = [
        {"dst": 0x02000A00000C, "src": 0x02000A00000B, "type": 0x0800},
        {
            "version": 4, "ihl": 5, "dscp": 8, "ecn": 2, "total_length": 4184, "identification": 0, "rsvd": 0, "df": 1,
            "mf": 0, "fragment_offset": 0, "ttl": 64, "protocol": 17,
            "checksum": int.from_bytes(WRITE[24:26], "big"), "src": 0x0A00000B, "dst": 0x0A00000C,
        },
        {"sport": 0xC000, "dport": 4793, "length": 4164, "checksum": 0},
        {
            "type": 3, "next_hdr": 3, "rsvd": 0, "retx": 0, "ar": 0, "syn": 1, "rsvd2": 0, "clear_psn_offset": -1,
            "psn": 73728, "spdcid": 5, "pdc_info": 0, "psn_offset": 0,
        },
        {
            "rsvd": 0, "opcode": 1, "version": 0, "dc": 0, "ie": 0, "rel": 1, "hd": 0, "eom": 0, "som": 1,
            "message_id": 1, "ri_generation": 0, "job_id": 101, "rsvd2": 0, "pid_on_fep": 0, "rsvd3": 0,
            "resource_index": 0, "buffer_offset": 0, "initiator": 0, "memory_key": 0, "header_data": 0,
            "request_length": 12288,
        },
    ]  # fmt: skip
    forms = ["ethernet", "ipv4", "udp", "pds.rod_req.syn", "ses.request_std.som"]
    expected = {
        "index": 0,
        "number": 1,
        "time_ns": 5_000_000_085,
        "length": 4198,
        "captured": 4198,
        "interface": 0,
        "layers": [
            {"form": form, "offset": offset, "fields": values}
            for form, offset, values in zip(forms, (0, 14, 34, 42, 54), fields, strict=True)
        ],
        "payload": {"offset": 98, "length": 4096},
        "trailer": {"kind": "crc32c", "value": crc32c(WRITE[26:-4]), "ok": True},
        "notes": [],
        "error": None,
    }
    result = invoke("dissect", "--json", str(path))
    assert result.stdout == json.dumps(expected) + "\n"  # the order of the keys, too
    assert (result.exit_code, result.stderr) == (0, "")


def test_vectors_in_frames(tmp_path: Path) -> None:
    """Every golden vector comes out as its fields, at its offset."""
    frames, expected = [], []
    for vector in VECTORS:
        native = vector["form"] == "entropy"
        before = uet_before(vector["form"])
        frames.append(frame_around(before + bytes.fromhex(vector["hex"]), native=native))
        expected.append((vector["form"], (34 if native else 42) + len(before), vector["fields"]))
    seen = objects(capture(tmp_path / "all.pcap", frames), status=1)  # some end early: the vectors have any next_hdr
    assert [packet["index"] for packet in seen] == list(range(len(VECTORS)))
    for packet, (form, offset, fields) in zip(seen, expected, strict=True):
        assert {"form": form, "offset": offset, "fields": fields} in packet["layers"]


def test_notes_trailers_and_errors(tmp_path: Path) -> None:
    sealed = frame(1, 2, layer("tss", sdi=7, tsc=9), payload=bytes(34) + b"\1" * 16, crc=False)
    fragment = WRITE[:20] + b"\x20\0" + WRITE[22:]
    frames = [
        WRONG,
        frame(1, 2, *ack(5), crc=False) + bytes(20),
        trimmed(WRITE, 60),
        sealed,
        fragment,
        ARP,
        frame(1, 2, *write(1, 1024), payload=b"short"),
    ]
    wrong, padded, cut, tss, part, arp, short = objects(capture(tmp_path / "x.pcap", frames), status=1)
    assert wrong["trailer"] == {"kind": "crc32c", "value": crc32c(WRONG[26:-4]) & 0xFFFFFF00, "ok": False}
    assert (wrong["error"], wrong["payload"]["length"]) == (None, 4096)
    assert (padded["trailer"], padded["notes"]) == (None, ["padding"])
    assert (cut["notes"], cut["error"], cut["payload"]) == (["trimmed"], None, {"offset": 54, "length": 0})
    assert tss["trailer"] == {"kind": "icv", "value": int.from_bytes(b"\1" * 16, "big"), "ok": None}
    assert tss["notes"] == ["sealed"]
    assert (part["notes"], part["layers"][-1]["form"]) == (["fragment"], "ipv4")
    assert arp["error"] == {"kind": "unknown", "offset": 14, "reason": "EtherType 0x0806"}
    assert [one["form"] for one in arp["layers"]] == ["ethernet"]
    assert short["error"]["kind"] == "malformed"
    assert short["error"]["offset"] == 98


def starts(count: int = 5, spoilt: int = 2) -> list[bytes]:
    """First packets of longer messages, which do not say how much they carry; one CRC has a flipped bit."""
    frames = [frame(11, 12, *write(73728 + psn, 0, size=4096, syn=1), payload=bytes(4096)) for psn in range(count)]
    frames[spoilt] = frames[spoilt][:-1] + bytes([frames[spoilt][-1] ^ 1])
    return frames


def test_a_flipped_bit_in_a_crc_shows_by_the_other_packets(tmp_path: Path) -> None:
    path = capture(tmp_path / "x.pcap", starts())
    right = {"kind": "crc32c", "ok": True}
    for seen in (objects(path), objects("-", data=Path(path).read_bytes()), objects(path, "--count", "4")):
        assert [one["trailer"]["ok"] for one in seen] == [True, True, False, True, True][: len(seen)]
        assert {one["payload"]["length"] for one in seen} == {4096}
    for number in range(5):
        (one,) = objects(path, "--packet", str(number + 1))
        assert one["trailer"] == right | {"value": one["trailer"]["value"], "ok": number != 2}
    assert invoke("dissect", path).stdout.count(" BAD\n") == 1


def test_a_lone_suspect_is_told(tmp_path: Path) -> None:
    path = capture(tmp_path / "x.pcap", starts(1, 0))
    (one,) = objects(path)
    assert (one["trailer"], one["payload"]["length"], one["notes"]) == (None, 4100, ["crc-suspect"])
    text = invoke("dissect", path).stdout
    assert "0–4100 of 12288 [crc-suspect]\n" in text
    assert "       crc-suspect: a payload MTU and 4 bytes, perhaps a wrong CRC32C; see --crc on\n" in text


def test_truncated_is_no_fault(tmp_path: Path) -> None:
    [packet] = objects(capture(tmp_path / "x.pcap", [WRITE[:80]], length=len(WRITE)))
    assert (packet["length"], packet["captured"], packet["notes"]) == (4198, 80, ["truncated"])
    assert packet["error"] is None


NATIVE = bytes.fromhex("10220005000700070440ffff000000128000000564617461a6850afe0f14")  # roce.md §5


def test_link_types(tmp_path: Path) -> None:
    path = tmp_path / "links.pcapng"
    with open_writer(path, interfaces=[("ip", 101), ("usb", 220), ("ib", 247)]) as writer:
        for interface in range(2):
            writer.write(0, WRITE[14:], interface=interface)
        writer.write(0, NATIVE, interface=2)
    raw, usb, infiniband = objects(str(path))
    assert [one["form"] for one in raw["layers"]] == ["ipv4", "udp", "pds.rod_req.syn", "ses.request_std.som"]
    assert raw["error"] is None
    assert usb["error"] == {"kind": "unknown", "offset": 0, "reason": "link type 220 is not decoded"}
    assert (usb["interface"], usb["layers"], usb["payload"]) == (1, [], {"offset": 0, "length": 0})
    assert [one["form"] for one in infiniband["layers"]] == ["lrh", "bth"]
    assert infiniband["trailer"] == {"kind": "icrc", "value": 0xFE0A85A6, "ok": True}
    assert infiniband["vcrc"] == {"kind": "vcrc", "value": 0x140F, "ok": True}


def test_bytes_without_a_table_are_hex(tmp_path: Path) -> None:
    data = bytearray(WRITE[:34] + b"\x94\x04\0\0" + WRITE[34:-4])
    data[14] = 0x46
    data[16:18] = (len(data) - 14).to_bytes(2, "big")
    [packet] = objects(capture(tmp_path / "x.pcap", [bytes(data)]))
    assert packet["layers"][2] == {"form": "ipv4.options", "offset": 34, "fields": {"raw": "94040000"}}


# Options and files ----------------------------------------------------------------------------------------------------


@pytest.fixture
def three(tmp_path: Path) -> str:
    frames = [frame(11, 12, *write(73728 + k, 4096 * k, size=4096), payload=bytes(4096)) for k in range(3)]
    return capture(tmp_path / "three.pcap", frames)


def test_several_files_are_named_and_counted_each(three: str, tmp_path: Path) -> None:
    other = capture(tmp_path / "other\t.pcap", [ARP])
    seen = objects(three, other)
    assert [(packet["index"], packet["file"]) for packet in seen] == [(0, three), (1, three), (2, three), (0, other)]
    assert list(seen[0])[-1] == "file"
    assert "file" not in objects(three)[0]
    text = invoke("dissect", three, other).stdout
    assert f"{three}\n\n#1 " in text
    assert "other\N{REPLACEMENT CHARACTER}.pcap\n\n#1 " in text


def test_count_and_packet(three: str) -> None:
    def indexes(*arguments: str) -> list[int]:
        return [packet["index"] for packet in objects(*arguments)]

    assert indexes(three, "--count", "2") == [0, 1]
    assert indexes(three, three, "--count", "4") == [0, 1, 2, 0]
    assert indexes(three, "--count", "0") == []
    assert indexes(three, "--packet", "2") == [1]
    assert indexes(three, three, "--packet", "3") == [2, 2]
    result = invoke("dissect", three, "--packet", "4")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"uetproto: {three}: there is no packet #4; it has 3 packets [unknown-packet]\n"


def test_crc_setting(three: str) -> None:
    assert objects(three, "--crc", "off")[0]["trailer"] is None
    assert objects(three, "--crc", "off")[0]["payload"]["length"] == 4100
    assert objects(three, "--crc", "on")[0]["trailer"]["ok"] is True


def test_other_ports(tmp_path: Path) -> None:
    data = bytearray(WRITE)
    data[36:38] = (5000).to_bytes(2, "big")
    path = capture(tmp_path / "x.pcap", [bytes(data)])
    assert objects(path)[0]["error"]["kind"] == "unknown"
    assert objects(path, "--udp-port", "5000")[0]["error"] is None
    native = frame_around(bytes(4), native=True)
    native = native[:23] + b"\xc8" + native[24:]
    path = capture(tmp_path / "y.pcap", [native])
    assert objects(path)[0]["error"]["kind"] == "unknown"
    assert objects(path, "--ip-protocol", "200", status=1)[0]["layers"][2]["form"] == "entropy"


def test_standard_input_and_gzip(three: str, tmp_path: Path) -> None:
    data = Path(three).read_bytes()
    expected = objects(three)
    assert objects("-", data=data) == expected
    packed = tmp_path / "three.pcap.gz"
    packed.write_bytes(gzip.compress(data))
    assert objects(str(packed)) == expected
    with program("dissect", "--json", "-", stdin=subprocess.PIPE) as process:
        out, err = process.communicate(packed.read_bytes())
        assert (process.returncode, err) == (0, b"")
    assert [json.loads(line) for line in out.splitlines()] == expected


def test_damage_is_told_with_its_offset(three: str, tmp_path: Path) -> None:
    data = bytearray(Path(three).read_bytes())
    second = 24 + 16 + 4198
    data[second + 8 : second + 12] = struct.pack("<I", 0x7FFFFFFF)
    path = tmp_path / "damaged.pcap"
    path.write_bytes(data)
    result = invoke("dissect", "--json", str(path))
    assert result.exit_code == 1
    assert [json.loads(line)["layers"][3]["fields"]["psn"] for line in result.stdout.splitlines()] == [73728, 73730]
    assert result.stderr.startswith(f"uetproto: {path}: damaged at byte {second}: ")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (WRITE, 0),
        (ARP, 0),
        (WRONG, 0),
        (WRITE[:200], 1),
        (frame(1, 2, *write(1, 1024), payload=b"short"), 1),
    ],
    ids=["good", "no UET", "wrong CRC", "shorter than IP says", "shorter than SES says"],
)
def test_exit_status(data: bytes, status: int, tmp_path: Path) -> None:
    path = capture(tmp_path / "x.pcap", [data])
    assert invoke("dissect", path).exit_code == status
    assert invoke("dissect", "--json", path).exit_code == status


# Text -----------------------------------------------------------------------------------------------------------------

TEXT = """\
#1  0.000 µs  10.0.0.11 → 10.0.0.12  ROD_REQ SYN PSN 73728 · WRITE id 1 0–4096 of 12288
     4198 bytes
    0  ethernet               Ethernet II
         dst = 02:00:0a:00:00:0c   src = 02:00:0a:00:00:0b   type = 0x0800 IPV4
   14  ipv4                   IPv4
         version = 4   ihl = 5 → 20 bytes   dscp = 8   ecn = 2 ECT0   total_length = 4184
         identification = 0x0000   df = 1   mf = 0   fragment_offset = 0   ttl = 64
         protocol = 17 UDP   checksum = 0x165d   src = 10.0.0.11   dst = 10.0.0.12
   34  udp                    UDP
         sport = 49152   dport = 4793   length = 4164   checksum = 0x0000
   42  pds.rod_req.syn        ROD request, PDC establishment
         type = 3 ROD_REQ   next_hdr = 3 REQUEST_STD   retx = 0   ar = 0   syn = 1
         clear_psn_offset = -1 → CLEAR_PSN 73727   psn = 73728 (0x12000)   spdcid = 5   pdc_info = 0
         psn_offset = 0 → Start_PSN 73728
   54  ses.request_std.som    SES standard request, first packet
         opcode = 1 WRITE   version = 0   dc = 0   ie = 0   rel = 1   hd = 0   eom = 0   som = 1
         message_id = 1   ri_generation = 0   job_id = 101   pid_on_fep = 0   resource_index = 0
         buffer_offset = 0x0   initiator = 0   memory_key = 0x0   header_data = 0x0
         request_length = 12288
   98  payload                4096 bytes
         0000  00 01 02 03 04 05 06 07  08 09 0a 0b 0c 0d 0e 0f  ................
         0010  10 11 12 13 14 15 16 17  18 19 1a 1b 1c 1d 1e 1f  ................
         … 4064 more
 4194  crc32c                 0x406cb3a3 ok

"""


def test_text_of_a_write(tmp_path: Path) -> None:
    assert invoke("dissect", capture(tmp_path / "x.pcap", [WRITE])).stdout == TEXT


def test_text_tells_what_fields_mean_together(tmp_path: Path) -> None:
    cc = layer("pds.ack_cc", cack_psn=100, ack_psn_offset=-2, mpr=8, sack_psn_offset=1, sack_bitmap=0b1101)
    state = layer("pds.cc_state.nscc", service_time=10, rcvd_bytes=4)
    frames = [
        frame(1, 2, cc, state),
        frame(1, 2, nack(5, 3)),
        frame(1, 2, layer("pds.cp", ctl_type=2, ctl_payload=333)),
        frame(1, 2, layer("pds.rud_req", next_hdr=3, rsvd=2), layer("ses.request_std.som", som=1, opcode=0x2A)),
    ]
    text = invoke("dissect", capture(tmp_path / "x.pcap", frames)).stdout
    for said in (
        "ack_psn_offset = -2 → ACK_PSN 98", "mpr = 8 → 1024 PSNs", "sack_psn_offset = 1 → SACK base 101",
        "sack_bitmap = 0xd → received 101, 103–104", "service_time = 10 → 1.28 µs", "rcvd_bytes = 4 → 1024 bytes",
        "nack_code = 0x0d ROD_OOO", "nack_payload = 3 → expected PSN 3", "ctl_payload = 333 → CLEAR_PSN 333",
        "rsvd = 2", "opcode = 42   ",
    ):  # fmt: skip
        assert said in text
    assert "rsvd = 0" not in text


def test_text_of_what_went_wrong(tmp_path: Path) -> None:
    frames = [WRONG, trimmed(WRITE, 60), ARP, frame(1, 2, *write(1, 1024), payload=b"short")]
    wrong, cut, arp, short = invoke("dissect", capture(tmp_path / "x.pcap", frames)).stdout.split("\n\n")[:4]
    assert wrong.endswith(" BAD")
    assert cut.endswith("trimmed: a switch removed the end")
    assert arp.startswith("#3  2.000 µs  00:00:00:00:00:00 → 00:00:00:00:00:00  EtherType 0x0806\n")
    assert "   14  raw                    46 bytes, not decoded\n" in arp
    assert arp.endswith("       not UET, byte 14: EtherType 0x0806")
    assert short.endswith("       malformed, byte 98: payload has 5 bytes, the headers imply 1024")


def test_text_of_where_and_when(tmp_path: Path) -> None:
    path = tmp_path / "x.pcapng"
    with open_writer(path, interfaces=[("leaf0.p1\x1b[31m", 1)]) as writer:
        writer.write(1_795_000_000_000_000_085, WRITE, length=9000, comment="look\nhere")
    line = invoke("dissect", str(path)).stdout.splitlines()[1]
    assert line == (
        "     4198 of 9000 bytes captured · leaf0.p1\N{REPLACEMENT CHARACTER}[31m · "
        "2026-11-18 11:06:40.000000085 UTC · look\N{REPLACEMENT CHARACTER}here"
    )


def test_text_of_a_time_beyond_the_calendar(tmp_path: Path) -> None:
    result = invoke("dissect", str(shifted(tmp_path / "late.pcapng", (1 << 63) - 1, [WRITE])))
    assert f"{((1 << 63) - 1) * 10**9} ns" in result.stdout
    assert result.exit_code == 0


@pytest.mark.parametrize(("env", "colours"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_colours_only_on_a_terminal(env: dict[str, str], colours: bool, three: str) -> None:
    master, slave = pty.openpty()
    environment = {"NO_COLOR": "", "TERM": "xterm"} | env
    with program("dissect", three, "--count", "1", stdout=slave, env=environment) as process:
        os.close(slave)
        out = b""
        try:
            while data := os.read(master, 1 << 16):
                out += data
        except OSError:  # what Linux says when the other side is closed
            pass
        os.close(master)
        assert process.communicate()[1] == b""
        assert process.returncode == 0
    assert (b"\x1b[" in out) is colours
    assert b"WRITE id 1 0" in out
