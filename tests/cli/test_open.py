# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto open`, and `--keys` of the commands that show packets: what opens, what does not, and why."""

import gzip
import json
import tracemalloc
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.cli.frames import ARP, ack, capture, frame, invoke, layer, trimmed, write
from tests.support.each import each
from tests.support.strategies import mutate, random_packet
from tests.support.tss.sealing import KEY, OTHER, domain, key_file, over, sealed
from uetproto import decode, encode
from uetproto.analysis.decoding import Decoding
from uetproto.analysis.opened import Keys
from uetproto.cli.dissect import as_json, as_text
from uetproto.engine.tss.keys import MODES
from uetproto.engine.tss.opener import Opened
from uetproto.impair.frame_outcome import FrameOutcome
from uetproto.wire.capture.pcap import RAW, PcapngWriter, Record, open_capture, open_writer
from uetproto.wire.codec import codec_of
from uetproto.wire.forms import FORMS

WRITE = frame(11, 12, *write(73728, 0, syn=1), payload=bytes(range(256)) * 4)
ACK = frame(12, 11, *ack(73728))
SERVER = 0x0A00000C  # 10.0.0.12


def records(path: Path) -> list[Record]:
    with open_capture(path) as reader:
        found = list(reader)
    assert not reader.damage
    return found


def objects(*arguments: str, status: int = 0) -> list[dict[str, Any]]:
    result = invoke("dissect", "--json", *arguments)
    assert result.exit_code == status, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def record_of(data: bytes) -> Record:
    return Record(0, 0, data, len(data), 0, 1, 0, None)


# What opens -----------------------------------------------------------------------------------------------------------


@each("mode", MODES)
@each("ssi", [None, 5])
@each("offset", ["header", 28])
@each("dress", [
    {}, {"native": True}, {"version": 6}, {"version": 6, "native": True}, {"tagged": True, "padding": 6},
    {"native": True, "link": "raw"},
])  # fmt: skip
def test_what_was_sealed_comes_out_as_it_was(
    tmp_path: Path, mode: str, ssi: int | None, offset: int | str, dress: dict[str, Any]
) -> None:
    """Bit by bit: lengths, IPv4 checksum and CRC are those of the frame that was never sealed."""
    servers = [SERVER + (0xFD << 120 if dress.get("version") == 6 else 0)] if mode == "client-server" else []
    secure = domain(mode, offset=offset, servers=servers)
    link = dress.get("link", "ethernet")
    plain = [over(WRITE, **dress), over(ACK, **dress)]
    wire = [sealed(one, secure, tsc=0x123456 + k, an=k, epoch=3, ssi=ssi, link=link) for k, one in enumerate(plain)]
    with open_writer(tmp_path / "in.pcap", interfaces=[("", RAW if link == "raw" else 1)]) as writer:
        writer.write_many([5, 6], wire)
    out = tmp_path / "out.pcapng"
    result = invoke("open", str(tmp_path / "in.pcap"), "--keys", key_file(tmp_path / "k", secure), "-o", str(out))
    assert (result.exit_code, result.stderr) == (0, "")
    found = records(out)
    assert [one.data for one in found] == plain
    says = "" if ssi is None else " SSI 5"
    assert [one.comment for one in found] == [
        f"opened: SDI 1{says} AN 0 epoch 3 TSC 1193046", f"opened: SDI 1{says} AN 1 epoch 3 TSC 1193047",
    ]  # fmt: skip
    assert [(one.time_ns, one.length, one.link) for one in found] == [
        (5 + k, len(one), RAW if link == "raw" else 1) for k, one in enumerate(plain)
    ]


def test_any_packet_comes_out_as_it_was(tmp_path: Path) -> None:
    """Tags, options, extension headers, every PDS and SES; and nothing that happens to it on the way raises."""
    rng, secure = Random("open"), domain("cluster")
    keys = Keys(key_file(tmp_path / "k.toml", secure))
    decoding = Decoding(keys=keys)
    met = set()
    for number in range(300):
        plain = encode(random_packet(rng, crc=True), fill=True)
        packet = decode(plain, crc="on")
        if "tss" in packet or packet.error is not None:
            continue
        wire = sealed(plain, secure, tsc=number, ssi=rng.choice((None, 3)))
        tried = keys.open(wire, decode(wire))
        assert isinstance(tried, Opened), tried
        assert tried.plain_frame == plain
        record = record_of(wire)
        found, remark = decoding.opened(record, decoding.packet(record))
        inside = [layer.form.startswith("tss") for layer in found.layers].index(True) + 1
        assert [layer[:2] for layer in found.layers[inside:]] == [layer[:2] for layer in packet.layers[inside - 1 :]]
        assert (found.payload, found.raw, remark) == (packet.payload, packet.raw, "opened with SDI 1 AN 0")
        for _ in range(4):
            record = record_of(mutate(wire, rng))
            found, remark = decoding.opened(record, decoding.packet(record))
            assert as_json(record, found)
            assert as_text(record, found, 0, "", 100, lambda text, style: text, remark)
        met |= {layer.form for layer in packet.layers}
    assert met > {"vlan", "ipv4.options", "ipv6.ext", "entropy", "udp"}


def test_the_object_of_an_opened_packet(tmp_path: Path) -> None:
    """Its own layers and the security header stay; what was sealed follows, where it stands in the frame."""
    secure = domain("cluster")
    wire = sealed(WRITE, secure, tsc=9, ssi=4)
    keys = key_file(tmp_path / "k.toml", secure)
    path = capture(tmp_path / "in.pcap", [wire])
    plain, *_ = objects(capture(tmp_path / "plain.pcap", [WRITE]))
    before, *_ = objects(path)
    found, *_ = objects(path, "--keys", keys)
    assert found["layers"][:4] == before["layers"]
    assert found["layers"][3]["form"] == "tss.ssi"
    moved = [one | {"offset": one["offset"] + 16} for one in plain["layers"][3:]]
    assert found["layers"][4:] == moved
    assert found["payload"] == {"offset": 98 + 16, "length": 1024}
    assert found["trailer"] == {"kind": "icv", "value": int.from_bytes(wire[-16:], "big"), "ok": True}
    assert before["trailer"] == found["trailer"] | {"ok": None}
    assert (before["notes"], found["notes"], found["error"]) == (["sealed"], [], None)
    assert (found["length"], found["captured"]) == (len(wire), len(wire))
    for mode in ("on", "off"):
        assert objects(path, "--keys", keys, "--crc", mode) == [found]


def test_an_opened_packet_in_words(tmp_path: Path) -> None:
    secure = domain()
    path = capture(tmp_path / "in.pcap", [sealed(WRITE, secure, an=1, tsc=9) + bytes(3)])
    text = invoke("dissect", path, "--keys", key_file(tmp_path / "k.toml", secure)).stdout
    assert "ROD_REQ SYN PSN 73728 · WRITE id 1 0–1024 of 12288 [opened]" in text
    assert "\n       opened with SDI 1 AN 1\n" in text
    assert "sealed" not in text
    size = 42 + 12 + 12 + 44 + 1024
    assert f"\n{size:5}  icv                    0x" in text
    assert " ok\n" in text
    assert f"\n{size + 16:5}  raw                    3 bytes, padding\n" in text
    assert "00 01 02 03 04 05 06 07" in text


def test_ladder(tmp_path: Path) -> None:
    secure = domain()
    frames = [sealed(WRITE, secure), sealed(ACK, secure, tsc=1), sealed(WRITE, domain(sdi=2))]
    path, keys = capture(tmp_path / "in.pcapng", frames), key_file(tmp_path / "k.toml", secure)
    result = invoke("ladder", path, "--json", "--keys", keys)
    drawn = [(row["tone"], row["text"]) for row in map(json.loads, result.stdout.splitlines())]
    assert drawn == [
        ("data", "ROD_REQ SYN PSN 73728 · WRITE id 1 0–1024 of 12288 [opened]"),
        ("ack", "ACK PSN 73728 CACK 73728 · OK [opened]"),
        ("data", "sealed, SDI 2 AN 0 epoch 0 TSC 0 · 1080 bytes"),
    ]
    assert result.exit_code == 1
    assert result.stderr == ("uetproto: SDI 2: 1 of 1 sealed packet did not open, 100.0%: no keys of SDI 2 (1)\n")
    assert "WRITE id 1" in invoke("ladder", path, "--pdc", "5", "--keys", keys).stdout


def test_several_keys_for_one_an(tmp_path: Path) -> None:
    """All are tried, but for those of another epoch."""
    secure = domain()
    path = capture(tmp_path / "in.pcap", [sealed(WRITE, secure, epoch=epoch) for epoch in (0, 1)])
    key = '{{an = 0, key = "{}"{}}}'
    for rows, opened in (
        ([key.format(OTHER.hex(), ""), key.format(KEY.hex(), "")], 2),
        ([key.format(OTHER.hex(), ", epoch = 0"), key.format(KEY.hex(), ", epoch = 1")], 1),
        ([key.format(KEY.hex(), ", epoch = 2")], 0),
    ):
        keys = key_file(tmp_path / "k.toml", secure, keys=f"[{', '.join(rows)}]")
        result = invoke("open", path, "--keys", keys, "--json", "-o", str(tmp_path / "o.pcapng"))
        assert (json.loads(result.stdout)["opened"], result.exit_code) == (opened, int(opened < 2))


# What does not open ---------------------------------------------------------------------------------------------------


def test_wrong_keys(tmp_path: Path) -> None:
    """The SDI, the share, the reason; an ICV is wrong only where a key was tried."""
    secure, unknown = domain(), domain(sdi=7)
    frames = [sealed(WRITE, secure, tsc=0), sealed(WRITE, secure, tsc=1), sealed(WRITE, unknown)]
    flipped = bytearray(frames[1])
    flipped[-20] ^= 1
    path = capture(tmp_path / "in.pcap", [frames[0], bytes(flipped), frames[2]])
    keys = key_file(tmp_path / "k.toml", secure)
    found = objects(path, "--keys", keys, status=1)
    assert [one["trailer"]["ok"] for one in found] == [True, False, None]
    assert [one["notes"] for one in found] == [[], ["sealed"], ["sealed"]]
    result = invoke("dissect", path, "--keys", keys)
    assert "sealed, SDI 1 AN 0 epoch 0 TSC 1 · 1080 bytes [ICV BAD]" in result.stdout
    assert "\n       sealed: no keys of SDI 7\n" in result.stdout
    told = result.stderr.splitlines()
    assert [line.split(", ")[0] for line in told] == [
        "uetproto: SDI 1: 1 of 2 sealed packets did not open",
        "uetproto: SDI 7: 1 of 1 sealed packet did not open",
    ]
    assert "50.0%: " in told[0]

    out = tmp_path / "out.pcapng"
    result = invoke("open", path, "--keys", keys, "-o", str(out))
    assert result.exit_code == 1
    first, one, seven, last = result.stdout.splitlines()
    assert first == f"{path}: 3 packets, 3 sealed, 1 opened"
    assert one.startswith("  SDI 1: 1 of 2 opened; 1 did not, 50.0%: ")
    assert seven == "  SDI 7: 0 of 1 opened; 1 did not, 100.0%: no keys of SDI 7 (1)"
    assert last == f"  capture {out}"
    stay = records(out)[1:]
    assert [one.data for one in stay] == [bytes(flipped), frames[2]]
    assert stay[0].comment is not None
    assert stay[0].comment.startswith("sealed: ")
    assert stay[1].comment == "sealed: no keys of SDI 7"

    again = invoke("open", path, "--keys", keys, "-o", str(out), "--json")
    summary = json.loads(again.stdout)
    reason = stay[0].comment.removeprefix("sealed: ")
    assert (again.exit_code, again.stderr) == (1, "")
    assert summary == {
        "file": path, "packets": 3, "sealed": 3, "opened": 1,
        "sdis": [
            {"sdi": 1, "sealed": 2, "opened": 1, "reasons": {reason: 1}},
            {"sdi": 7, "sealed": 1, "opened": 0, "reasons": {"no keys of SDI 7": 1}},
        ],
        "capture": str(out),
    }  # fmt: skip


def test_cut_packets_stay_sealed(tmp_path: Path) -> None:
    """Their ICV is gone: on the way, or in the capture."""
    secure = domain()
    wire = sealed(WRITE, secure)
    path, out = tmp_path / "in.pcapng", tmp_path / "out.pcapng"
    with open_writer(path) as writer:
        writer.write(0, trimmed(wire, 120))
        writer.write(1, wire[:200], length=len(wire))
        writer.write(2, wire[:50], length=len(wire))
    keys = key_file(tmp_path / "k.toml", secure)
    assert invoke("open", str(path), "--keys", keys, "-o", str(out)).exit_code == 1
    found = records(out)
    assert [(one.data, one.length) for one in found] == [(one.data, one.length) for one in records(path)]
    assert "trimmed" in str(found[0].comment)
    assert "truncated" in str(found[1].comment)
    assert found[2].comment is None  # not even its security header is there
    assert [one["trailer"] for one in objects(str(path), "--keys", keys, status=1)] == [None] * 3


def test_nonsense_that_was_sealed_well(tmp_path: Path) -> None:
    """Who has the key may send anything: it is told as it is of a plain packet, and no byte is lost."""
    secure = domain()
    tss, request = (codec_of(FORMS[form]).encode(values) for form, values in (
        ("tss", {"type": 1}), ("pds.rod_req", {"type": 3, "next_hdr": 3}),
    ))  # fmt: skip
    inner = [b"\xff" * 40, b"", tss + bytes(40), request + b"ab"]
    path = capture(tmp_path / "in.pcap", [sealed(WRITE, secure, inner=one) for one in inner])
    keys = key_file(tmp_path / "k.toml", secure)
    found = objects(path, "--keys", keys, status=1)
    assert [(one["error"]["kind"], one["error"]["offset"]) for one in found] == [
        ("malformed", offset) for offset in (54, 54, 54, 66)
    ]
    for one, data in zip(found, inner, strict=True):
        assert one["trailer"]["ok"]
        assert one["notes"] == []
        assert one["payload"]["offset"] + one["payload"]["length"] == 54 + len(data)
    assert "opened with SDI 1 AN 0" in invoke("dissect", path, "--keys", keys).stdout
    second = frame(11, 12, *write(73729, 1024), payload=bytes(1024))
    short = capture(tmp_path / "short.pcap", [sealed(WRITE, secure, inner=second[42:-6])])
    for crc in ("on", "off", "auto"):
        (one,) = objects(short, "--keys", keys, "--crc", crc, status=1)
        assert one["error"]["reason"] == "payload has 1022 bytes, the headers imply 1024"
    out = tmp_path / "out.pcapng"
    assert invoke("open", path, "--keys", keys, "-o", str(out)).exit_code == 0
    assert [one.data[42:-4] for one in records(out)] == inner


def test_noise_fills_no_memory(tmp_path: Path) -> None:
    """A thousand SDIs: those of the keys are told, the others up to a number."""
    secure = domain(sdi=1000)
    frames = [frame(1, 2, layer("tss", sdi=sdi), payload=bytes(40), crc=False) for sdi in range(1000)]
    path = capture(tmp_path / "in.pcap", [*frames, sealed(WRITE, secure)])
    keys = key_file(tmp_path / "k.toml", secure)
    result = invoke("open", path, "--keys", keys, "-o", str(tmp_path / "o.pcapng"), "--json")
    summary = json.loads(result.stdout)
    assert (summary["sealed"], summary["opened"]) == (1001, 1)
    sdis = {row["sdi"]: row for row in summary["sdis"]}
    assert len(sdis) == 64 + 2
    assert sdis[1000]["opened"] == 1
    assert sdis[None]["sealed"] == 1000 - 64
    assert len(sdis[None]["reasons"]) == 64 + 1
    text = invoke("open", path, "--keys", keys, "-o", str(tmp_path / "o.pcapng")).stdout
    assert "  other SDIs: 0 of 936 opened; 936 did not, 100.0%: " in text


# What stays as it is --------------------------------------------------------------------------------------------------


def test_plain_packets_and_everything_about_the_capture_stay(tmp_path: Path) -> None:
    secure = domain()
    path, out = tmp_path / "in.pcapng", tmp_path / "out.pcapng"
    with PcapngWriter(path, "what it is about") as writer:
        writer.add_interface("a.0", comment="left")
        writer.write(7, WRITE, comment="mine")
        writer.add_interface("b.0", RAW)
        writer.write(8, over(ACK, link="raw"), interface=1)
        writer.write(9, ARP, length=900)
        writer.write(2**63, sealed(WRITE, secure), comment=FrameOutcome.LOST)
        writer.write(11, sealed(over(ACK, link="raw"), secure, link="raw", tsc=1), interface=1)
    keys = key_file(tmp_path / "k.toml", secure)
    assert invoke("open", str(path), "--keys", keys, "-o", str(out)).exit_code == 0
    with open_capture(path) as reader, open_capture(out) as opened:
        before, after = list(reader), list(opened)
    assert opened.comments == ["what it is about\nsealed packets opened by uetproto open"]
    assert opened.interfaces == reader.interfaces
    for one, other in zip(before[:3], after[:3], strict=True):
        assert other._replace(offset=one.offset) == one
    assert (after[3].time_ns, after[3].data) == (2**63, WRITE)
    assert after[3].comment == "lost on the way; opened: SDI 1 AN 0 epoch 0 TSC 0"
    assert (after[4].interface, after[4].link, after[4].data) == (1, RAW, over(ACK, link="raw"))
    rows = [json.loads(line) for line in invoke("ladder", "--json", str(out)).stdout.splitlines()]
    assert [row["tone"] for row in rows if row["row"] == "packet"] == ["data", "lost"]
    assert "lost on the way; opened: SDI 1" in invoke("dissect", str(out)).stdout


def test_long_texts_and_times_beyond_the_format(tmp_path: Path) -> None:
    """Whatever a capture says can be written again: bytes that are no text become three each."""
    path, out = tmp_path / "in.pcapng", tmp_path / "out.pcapng"
    long = "x" * 65_000
    with PcapngWriter(path, long) as writer:
        writer.add_interface(long, comment=long, nanoseconds=False)
        writer.write((2**64 - 1) * 1000, WRITE, comment=long)
    path.write_bytes(path.read_bytes().replace(long.encode(), b"\xff" * len(long)))
    keys = key_file(tmp_path / "k.toml", domain())
    assert invoke("open", str(path), "--keys", keys, "-o", str(out)).exit_code == 0
    (one,) = records(out)
    assert (one.time_ns, one.data) == (0, WRITE)
    assert str(one.comment).endswith("; time 18446744073709551615000 ns has no place in this format")
    assert len(str(one.comment)) > 16_000


def test_pipes_and_gzip(tmp_path: Path) -> None:
    secure = domain()
    path, keys = tmp_path / "in.pcap", key_file(tmp_path / "k.toml", secure)
    capture(path, [sealed(WRITE, secure)])
    packed = gzip.compress(path.read_bytes())
    result = invoke("open", "-", "--keys", keys, "-o", "-", data=packed)
    assert (result.exit_code, result.stderr) == (
        0,
        "-: 1 packet, 1 sealed, 1 opened\n  SDI 1: 1 of 1 opened\n  capture -\n",
    )
    (tmp_path / "out.pcapng").write_bytes(result.stdout_bytes)
    assert [one.data for one in records(tmp_path / "out.pcapng")] == [WRITE]
    assert invoke("open", str(path), "--keys", keys, "-o", str(tmp_path / "out.pcapng.gz")).exit_code == 0
    assert gzip.decompress((tmp_path / "out.pcapng.gz").read_bytes()) == result.stdout_bytes


def test_an_empty_capture(tmp_path: Path) -> None:
    keys, out = key_file(tmp_path / "k.toml", domain()), tmp_path / "out.pcapng"
    result = invoke("open", capture(tmp_path / "in.pcap", []), "--keys", keys, "-o", str(out), "--json")
    assert (result.exit_code, json.loads(result.stdout)["sdis"]) == (0, [])
    assert records(out) == []


def test_damage_is_told_and_what_can_be_read_is_written(tmp_path: Path) -> None:
    secure = domain()
    path, out = tmp_path / "in.pcap", tmp_path / "out.pcapng"
    capture(path, [sealed(WRITE, secure), sealed(WRITE, secure, tsc=1)])
    path.write_bytes(path.read_bytes()[:-5])
    result = invoke("open", str(path), "--keys", key_file(tmp_path / "k.toml", secure), "-o", str(out))
    assert result.exit_code == 1
    assert result.stderr.startswith(f"uetproto: {path}: damaged at byte ")
    assert [one.data for one in records(out)] == [WRITE]


def test_memory_does_not_grow_with_the_capture(tmp_path: Path) -> None:
    secure = domain()
    wire = sealed(frame(11, 12, *write(73728, 0, size=8000, syn=1), payload=bytes(8000)), secure)
    path, keys = capture(tmp_path / "in.pcap", [wire] * 2500), key_file(tmp_path / "k.toml", secure)
    assert Path(path).stat().st_size > 20_000_000
    tracemalloc.start()
    try:
        assert invoke("open", path, "--keys", keys, "-o", str(tmp_path / "out.pcapng")).exit_code == 0
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 14_000_000


# Misuse ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"keys": f'[{{an = 0, key = "{KEY[:31].hex()}"}}]'}, "sdi.0.keys.0.key: "),
        ({"keys": f'[{{an = 0, key = "{KEY.hex()}x0"}}]'}, "sdi.0.keys.0.key: "),
        ({"keys": f'[{{an = 2, key = "{KEY.hex()}"}}]'}, "sdi.0.keys.0.an: "),
        ({"keys": f'["{KEY.hex()}"]'}, "sdi.0.keys"),
        ({"keys": f'"{KEY.hex()}"'}, "sdi.0.keys: "),
        ({"keys": "[]"}, "sdi.0.keys: "),
        ({"keys": ""}, "sdi.0.keys: "),
        ({"mode": '"quantum"'}, "sdi.0.mode: "),
        ({"mode": ""}, "sdi.0.mode: "),
        ({"id": "16777216"}, "sdi.0.id: "),
        ({"id": ""}, "sdi.0.id: "),
        ({"crypto_offset": '"middle"'}, "sdi.0.crypto_offset: "),
        ({"rekey_mask": "1"}, "sdi.0.rekey_mask: "),
        ({"ipv6_ssi_context": '"huge"'}, "sdi.0.ipv6_ssi_context: "),
        ({"servers": '["here"]'}, "sdi.0.servers: "),
        ({KEY.hex(): "1"}, "sdi.0."),
        ({"keys": f'[{{an = 0, key = "{KEY.hex()}}}]'}, "line 4"),  # a quotation mark is missing: not TOML
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["dissect", "ladder", "open"])
def test_bad_keys_are_named_and_never_shown(tmp_path: Path, command: str, changes: dict[str, str], said: str) -> None:
    keys = key_file(tmp_path / "k.toml", domain(), **changes)
    path, out = capture(tmp_path / "in.pcap", [WRITE]), tmp_path / "o.pcapng"
    result = invoke(command, path, "--keys", keys, *(["-o", str(out)] if command == "open" else []))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"uetproto: {keys}: {said}"), result.stderr
    assert KEY.hex()[:16] not in result.stderr
    assert not out.exists()


@pytest.mark.parametrize("command", ["dissect", "ladder", "open"])
def test_key_files_that_cannot_be_read(tmp_path: Path, command: str) -> None:
    path = capture(tmp_path / "in.pcap", [WRITE])
    more = ["-o", str(tmp_path / "o.pcapng")] if command == "open" else []
    for keys, said in (
        (tmp_path / "none.toml", "No such file or directory [file-not-found]"),
        (tmp_path, "Is a directory [is-a-directory]"),
    ):
        result = invoke(command, path, "--keys", str(keys), *more)
        assert (result.exit_code, result.stderr) == (2, f"uetproto: {keys}: {said}\n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    result = invoke(command, path, "--keys", str(tmp_path / "bytes"), *more)
    assert (result.exit_code, result.stderr.startswith(f"uetproto: {tmp_path / 'bytes'}: ")) == (2, True)


def test_misuse(tmp_path: Path) -> None:
    keys = key_file(tmp_path / "k.toml", domain())
    path = capture(tmp_path / "in.pcapng", [WRITE])
    (tmp_path / "k.pcapng").symlink_to(keys)
    for output, more, said in (
        ("o.pcap", [], "-o o.pcap: comments need a name in .pcapng or .pcapng.gz"),
        (path, [], f"-o {path}: would overwrite FILE"),
        (str(tmp_path / "k.pcapng"), [], "would overwrite --keys"),
        ("-", ["--json"], "-o - and --json both want standard output"),
    ):
        result = invoke("open", path, "--keys", keys, "-o", output, *more)
        assert (result.exit_code, result.stdout) == (2, "")
        assert said in result.stderr
    assert "Missing option '--keys'" in invoke("open", path, "-o", "o.pcapng").stderr
    assert "Missing option '-o'" in invoke("open", path, "--keys", keys).stderr
    assert [one.data for one in records(Path(path))] == [WRITE]


def test_keys_never_show(tmp_path: Path) -> None:
    """Neither in what is printed nor in the capture."""
    secure = domain()
    keys, out = key_file(tmp_path / "k.toml", secure), tmp_path / "out.pcapng"
    path = capture(tmp_path / "in.pcap", [sealed(WRITE, secure), sealed(WRITE, domain(sdi=2))])
    for arguments in (["dissect"], ["dissect", "--json"], ["ladder"], ["open", "-o", str(out)]):
        result = invoke(*arguments, path, "--keys", keys)
        text = result.stdout + result.stderr
        assert KEY.hex() not in text
        assert OTHER.hex() not in text
    assert OTHER not in out.read_bytes()
