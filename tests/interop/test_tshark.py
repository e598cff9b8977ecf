# SPDX-License-Identifier: GPL-2.0-only
"""The Wireshark dissector against `decode`: every field, its bytes, trailer, faults, on any bytes."""

import json
import re
from collections.abc import Iterator, Mapping
from enum import IntFlag
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support import paths
from tests.support.audit.build import GOLDEN
from tests.support.effort import effort
from tests.support.interop.around import LINKS, TUNNELS, anywhere, tunnelled
from tests.support.interop.same_fields import (
    assert_same,
)
from tests.support.interop.tshark import (
    Frame,
    Shown,
    columns,
    copied,
    folder,
    needs_tshark,
    number,
    run,
    shown,
    write_pcap,
)
from tests.support.strategies import lower_layers, mutate, random_frame, random_packet
from uetproto import Layer, Packet, Trailer, decode, encode
from uetproto.wire.capture.pcap import ETHERNET, Record, open_capture, open_writer
from uetproto.wire.filter_names import FILTER_NAMES, FilterName, Given, filter_name, is_flag, of_packet
from uetproto.wire.flow_crc import decoded
from uetproto.wire.forms import MCAST_FORMS, NEXT, SHARP_FORMS, UET_FORMS
from uetproto.wireshark import PLUGIN
from uetproto.wireshark.lua import display_filter

pytestmark = needs_tshark

VECTORS = json.loads(paths.VECTORS.read_text())["vectors"]
SHARED = paths.SHARED
REFPROV = SHARED / "captures" / "refprov"
SOME = effort(400, 1200, 1200)
"""Number of frames that are drawn by chance."""
EACH_REFPROV = effort(50, 1000, 1000)


@pytest.fixture
def home() -> Iterator[Path]:
    with folder() as path:
        yield path


# Comparison -----------------------------------------------------------------------------------------------------------


def compare(frames: list[Frame], home: Path, *options: str, crc: str = "auto", **settings: Any) -> list[Shown | None]:
    """The plugin, in its second pass, shows what the reader of captures says; that is returned."""

    def read(record: Record, mode: str) -> Packet:
        return decode(record.data, length=record.length, crc=mode if crc == "auto" else crc, **settings)

    both = [frame if isinstance(frame, tuple) else (frame, len(frame)) for frame in frames]
    records = [Record(i, 0, data, length, 0, ETHERNET, 0, None) for i, (data, length) in enumerate(both)]
    packets = decoded(records, read) if crc == "auto" else ((record, read(record, crc)) for record in records)
    all_shown = shown(frames, home, "-2", *options)
    for (record, packet), found in zip(packets, all_shown, strict=True):
        assert_same(found, packet, f"frame {record.index} {record.data.hex()} {packet.error} {packet.notes}")
    return all_shown


# Frames ---------------------------------------------------------------------------------------------------------------


def rng_of(name: str) -> Random:
    return Random(name)


def around(data: bytes, rng: Random, *, encapsulation: str = "udp", version: int = 4, crc: bool = False, dscp: int = 0,
           extensions: bool = False, tags: int = 0) -> bytes:  # fmt: skip
    """A frame with right lengths around the bytes that follow UDP, or the entropy header."""
    layers = lower_layers(rng, encapsulation, version, tags, extensions)
    for layer in layers:
        if "dscp" in layer.values:
            assert isinstance(layer.values, dict)
            layer.values["dscp"] = dscp
        keep_port(layer, rng)
    return encode(Packet(layers, data, Trailer("crc32c", 0) if crc else None), fill=True)


def keep_port(layer: Layer, rng: Random) -> None:
    """Above 4793, so that no other dissector has a claim: Wireshark asks the lower port first. Each frame is a flow of
    its own: behind IP options or extension headers the plugin learns a CRC only when it shows the packet."""
    assert isinstance(layer.values, dict)
    if layer.form == "udp":
        layer.values["sport"] |= 0xC000
    if layer.form in ("ipv4", "ipv6"):
        layer.values["src"] = rng.getrandbits(32)


def legal(rng: Random, **settings: Any) -> bytes:
    packet = random_packet(rng, **settings)
    for layer in packet.layers:
        keep_port(layer, rng)
    return encode(packet, fill=True)


def uet_start(frame: bytes) -> int:
    """Where UET begins: behind UDP, or at the entropy header."""
    layers = decode(frame).layers
    for layer in layers:
        if layer.form == "udp":
            return layer.offset + 8
        if layer.form == "entropy":
            return layer.offset
    raise AssertionError(layers)


def way_to(form: str) -> list[tuple[str, Mapping[str, int]]]:
    """The shortest legal stack of headers before `form`, with the values that lead there."""
    if form in ("entropy", "tss", "tss.ssi") or form in {h.name for h in _first()}:
        return []
    best: list[tuple[str, Mapping[str, int]]] | None = None
    for row in NEXT:
        choices = [(value, c) for value, c in row.then.items()]
        if row.otherwise:
            free = next(v for v in range(16) if v not in row.then)
            choices.append((free, row.otherwise))
        for value, candidates in choices:
            if form not in {h.name for h in candidates}:
                continue
            for header in row.after:
                only = header[row.by].only if row.by else ()
                if only and value not in only:
                    continue
                if header.name.startswith("ses.") and form.startswith("ses.") and not form.startswith("ses.ext"):
                    continue
                before = [*way_to(header.name), (header.name, {row.by: value} if row.by else {})]
                if best is None or len(before) < len(best):
                    best = before
    assert best is not None, form
    return best


def _first() -> tuple[Any, ...]:
    from uetproto.wire.forms import FIRST

    return FIRST


def wrapped(form: str, data: bytes) -> bytes:
    """The bytes of a vector behind the headers that lead to its form."""
    return b"".join(encode(Packet([Layer(name, dict(values))])) for name, values in way_to(form)) + data


# (1) Vectors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encapsulation", ["udp", "native"])
def test_every_vector_shows_its_fields(encapsulation: str, home: Path) -> None:
    rng = rng_of("vectors")
    rows, frames = [], []
    for row in VECTORS:
        if row["form"] == "entropy" and encapsulation == "udp":
            continue
        rows.append(row)
        data = wrapped(row["form"], bytes.fromhex(row["hex"]))
        if row["form"] == "entropy":
            frame = around(b"", rng, encapsulation="native")
            frames.append(frame[:-4] + bytes.fromhex(row["hex"]))
        else:
            frames.append(around(data, rng, encapsulation=encapsulation, version=rng.choice((4, 6))))
    for row, frame, found in zip(rows, frames, compare(list(frames), home), strict=True):
        assert found is not None
        seen = [{name: number(text) for name, text in branch.values.items()} for branch in found.branches
                if branch.name == filter_name(row["form"])]  # fmt: skip
        assert row["fields"] in seen, f"{row['form']} {frame.hex()}"


# (2) Random frames ----------------------------------------------------------------------------------------------------


def test_legal_frames(home: Path) -> None:
    rng = rng_of("legal")
    compare([legal(rng) for _ in range(SOME)], home)


def some_uet(rng: Random) -> bytes:
    """The UET bytes of a legal frame."""
    frame = random_frame(rng, tags=0, extensions=False)
    return frame[uet_start(frame) :]


def test_damaged_frames_with_right_lengths(home: Path) -> None:
    rng = rng_of("damaged")
    frames: list[Frame] = []
    while len(frames) < SOME:
        encapsulation = rng.choice(("udp", "native"))
        data = mutate(some_uet(rng), rng)[:1400]
        if not data:
            continue  # without a byte of payload UDP asks nobody
        frames.append(
            around(
                data,
                rng,
                encapsulation=encapsulation,
                version=rng.choice((4, 6)),
                crc=rng.random() < 0.5,
                extensions=rng.random() < 0.2,
                tags=rng.choice((0, 0, 1, 2)),
            )
        )
    compare(frames, home)


def test_random_bytes(home: Path) -> None:
    rng = rng_of("random")
    frames: list[Frame] = [
        around(rng.randbytes(rng.randint(1, 160)), rng, encapsulation=rng.choice(("udp", "native")))
        for _ in range(SOME // 2)
    ]
    compare(frames, home)


def test_wrong_crc(home: Path) -> None:
    rng = rng_of("crc")
    frames: list[Frame] = []
    for _ in range(300):
        frame = bytearray(legal(rng, crc=True))
        frame[-rng.randint(1, 4)] ^= 1 << rng.randrange(8)
        frames.append(bytes(frame))
    compare(frames, home)


FLOWS = [("udp", 4), ("udp", 6), ("native", 4), ("native", 6)]
ADDRESSES = (1, 0xFF02 << 112 | 0x10 << 64 | 7 << 16, (1 << 128) - 1, 0xFFFF << 32 | 0x0A000001)


def test_flows_tell_whether_there_is_a_crc(home: Path) -> None:
    """Flows of both encapsulations and IP versions, half of them with CRCs, of which some are wrong or missing."""
    rng = rng_of("flows")
    frames: list[Frame] = []
    for _ in range(160):
        which, crc = rng.choice(FLOWS), rng.random() < 0.5
        packet = random_packet(rng, encapsulation=which[0], version=which[1], crc=crc, extensions=False)
        if packet.layers[-1].form.startswith("tss"):
            continue
        for layer in packet.layers:
            keep_port(layer, rng)
            if layer.form == f"ipv{which[1]}":
                assert isinstance(layer.values, dict)
                bits = (1 << (32 if which[1] == 4 else 128)) - 1
                layer.values.update(src=ADDRESSES[FLOWS.index(which)] & bits, dst=(2, 3)[crc])
        frame = bytearray(encode(packet, fill=True))
        frame[-1] ^= rng.random() < 0.3
        frames.append(bytes(frame))
    compare(frames, home)
    records = [Record(i, 0, bytes(data), len(data), 0, ETHERNET, 0, None) for i, data in enumerate(frames)]
    there = [packet.trailer is not None for _, packet in decoded(records, lambda r, crc: decode(r.data, crc=crc))]
    found = shown(frames, home, "-2", "-o", "uetp.verify:FALSE")
    assert [one is not None and one.number("crc") is not None for one in found] == there
    assert 30 < sum(there) < 130


def test_a_flipped_bit_shows_in_the_second_pass(home: Path) -> None:
    """The first packet of a message does not tell how much it carries; alone it is suspected."""
    frames = [flow(("pds.rod_req.syn", {**SYN[1], "psn": psn}), WRITE, payload=bytes(4096)) for psn in range(3)]
    frames[0] = frames[0][:-1] + bytes([frames[0][-1] ^ 1])
    frames.append(flow(SYN, WRITE, payload=bytes(4096), back=True)[:-1] + b"\1")
    assert [found and found.experts for found in shown(frames, home, "-2")] == [{"crc"}, set(), set(), {"crc_suspect"}]
    write_pcap(home / "alone.pcap", frames)
    told = [text for _, text in columns(home / "alone.pcap", home)]  # one pass: the first packet is still a suspect
    assert [text[text.rindex(" ") :] for text in told] == [" [crc-suspect]", " 12288", " 12288", " [crc-suspect]"]


def test_trimmed_frames(home: Path) -> None:
    """Cut anywhere: marked by the DSCP, or by a UDP length beyond the IP payload."""
    rng = rng_of("trimmed")
    frames: list[Frame] = []
    for _ in range(400):
        data = some_uet(rng)
        cut = data[: rng.randint(1, len(data))]
        frames.append(
            around(
                cut,
                rng,
                encapsulation=rng.choice(("udp", "native")),
                version=rng.choice((4, 6)),
                dscp=rng.choice((16, 18)),
            )
        )
        if len(cut) < len(data):
            frame = bytearray(around(cut, rng))
            frame[38:40] = (8 + len(data)).to_bytes(2, "big")
            frames.append(bytes(frame))
    compare(frames, home)


def test_captures_that_kept_less(home: Path) -> None:
    rng = rng_of("truncated")
    frames: list[Frame] = []
    for _ in range(400):
        frame = legal(rng)
        frames.append((frame[: rng.randint(uet_start(frame) + 1, len(frame))], len(frame)))
    compare([f for f in frames if isinstance(f, tuple) and len(f[0]) < f[1]], home)


def test_lengths_that_contradict(home: Path) -> None:
    """Bytes cut off or added behind the IP packet, as its header counts."""
    rng = rng_of("lengths")
    frames: list[Frame] = []
    for _ in range(300):
        frame = legal(rng)
        frames.append(frame[: rng.randint(uet_start(frame) + 1, len(frame))])
        frames.append(frame + rng.randbytes(rng.randint(1, 40)))
    compare(frames, home)


# Where UET lies in something else -------------------------------------------------------------------------------------


def test_tunnels_and_quotes(home: Path) -> None:
    """The innermost IP header counts; an ICMP error quotes a part; fragments are put together, without a CRC."""
    inner = flow(SYN, WRITE, payload=bytes(100))
    ethernet = Layer("ethernet", {"dst": 1, "src": 2, "type": 0x0800})

    def outer(protocol: int, data: bytes, **values: int) -> bytes:
        ip = Layer("ipv4", {"dscp": 16, "ttl": 64, "protocol": protocol, "src": 1, "dst": 2, **values})
        return encode(Packet([ethernet, ip], data), fill=True)

    vxlan = (5000).to_bytes(2, "big") + (4789).to_bytes(2, "big") + (16 + len(inner)).to_bytes(2, "big") + bytes(2)
    icmp = bytes([3, 3, 0, 0, 0, 0, 0, 0])
    six = Layer("ipv6", {"next_header": 4, "src": 1, "dst": 2})
    udp = inner[34:]
    frames = [
        outer(4, inner[14:]),
        encode(Packet([Layer("ethernet", {"type": 0x86DD}), six], inner[14:]), fill=True),
        outer(17, vxlan + bytes([8, 0, 0, 0, 0, 0, 1, 0]) + inner),
        outer(1, icmp + inner[14 : 14 + 40]),
        outer(1, icmp + inner[14:]),
        outer(17, udp[:64], dscp=0, identification=7, mf=1),
        outer(17, udp[64:], dscp=0, identification=7, fragment_offset=8),
    ]
    path = home / "inside.pcap"
    write_pcap(path, frames)
    damage = "uetp.expert.malformed || uetp.expert.short || uetp.expert.trimmed || uetp.expert.crc"
    assert matching(path, home, "uetp.pds.rod_req") == [1, 2, 3, 4, 5, 7]
    assert matching(path, home, "uetp.crc.status == 1") == [1, 2, 3]
    assert matching(path, home, damage) == []
    alone = ("-o", "ip.defragment:FALSE")
    assert matching(path, home, "uetp.pds.rod_req", *alone) == [1, 2, 3, 4, 5, 6]
    assert matching(path, home, damage, *alone) == []


def matching(path: Path, home: Path, expression: str, *options: str) -> list[int]:
    """The numbers of the frames that a display filter lets through."""
    out, _ = run(["-r", path, "-Y", expression, "-T", "fields", "-e", "frame.number", *options], home)
    return [int(line) for line in out.split()]


# (3) No error in Lua --------------------------------------------------------------------------------------------------


def test_no_error_in_lua_on_anything(home: Path) -> None:
    """`run` looks for them. Everything may be damaged here, from the first byte on, in tunnels, under other link types,
    and cut; with VLAN tags, extension headers and without UDP, as `legal` draws them."""
    rng, path = rng_of("anything"), home / "anything.pcapng"
    whole = ("-o", "uetp.reassemble:TRUE", "-o", "uetp.payload:float16", "-V")
    fields = ("-2", "-Y", "uetp.pdc", "-T", "fields", "-e", "uetp.psn", "-e", "uetp.acked_in", "-e", "frame.protocols")
    left = effort(600, 3000, 50_000)
    while left > 0:
        with open_writer(path, interfaces=[(str(link), link) for link in LINKS]) as writer:
            for count in range(min(left, 5000)):
                frame = mutate(legal(rng), rng, start=rng.choice((0, 14, 34)))
                link, data, length = anywhere(frame, rng)
                writer.write(count, data, interface=LINKS.index(link), length=length)
        path.chmod(0o644)
        left -= 5000
        for options in ((), whole, ("-2", "-Y", "uetp.crc.status == 0"), ("-o", "uetp.crc:on", "-Y", "uetp"), fields):
            out, _ = run(["-r", path, *options], home)
            assert "UET" in out or "Ultra Ethernet" in out or "uetp" in out


def test_fields_in_tunnels(home: Path) -> None:
    rng, path = rng_of("tunnels"), home / "tunnels.pcap"
    plain = [legal(rng, encapsulation="udp", tags=0, version=4, extensions=False) for _ in range(20)]
    write_pcap(path, [*plain, *(tunnelled(frame, name) for name in TUNNELS for frame in plain)])
    names = [word for field in ("psn", "spdcid", "crc.status", "len", "opcode") for word in ("-e", f"uetp.{field}")]
    lines = run(["-2", "-r", path, "-T", "fields", *names], home)[0].splitlines()
    assert len("".join(lines[:20]).split()) > 20
    for place, name in enumerate(TUNNELS, 1):
        assert lines[20 * place : 20 * place + 20] == lines[:20], name


# (4) Captures of others -----------------------------------------------------------------------------------------------


@pytest.mark.skipif(not REFPROV.is_dir(), reason=f"no captures of the reference provider in {REFPROV}")
def test_reference_provider(home: Path) -> None:
    """The first packets of each capture, in one file."""
    records = []
    for path in sorted(REFPROV.glob("*.pcap")):
        with open_capture(path) as capture:
            records += [(f"{path.name} {record.index}", record) for record in islice(capture, EACH_REFPROV)]
    count = 0
    frames: list[Frame] = [(record.data, record.length) for _, record in records]
    for (what, record), found in zip(records, shown(frames, home), strict=True):
        packet = decode(record.data, length=record.length)
        if found is None and not any(layer.form in UET_FORMS for layer in packet.layers):
            continue  # ARP, neighbour discovery
        assert_same(found, packet, what)
        assert found is not None
        assert not found.experts & {"malformed", "reserved", "short", "crc"}
        count += 1
    assert count > effort(540, 2000, 2000)


# (5) Preferences ------------------------------------------------------------------------------------------------------


def test_preference_port(home: Path) -> None:
    frame = legal(rng_of("port"), encapsulation="udp", tags=0, version=4, extensions=False)
    other = frame[:36] + (5555).to_bytes(2, "big") + frame[38:]
    assert [found is None for found in shown([frame, other], home)] == [False, True]
    assert [found is None for found in shown([frame, other], home, "-o", "uetp.port:5555")] == [True, False]
    assert [found is None for found in shown([frame, other], home, "-o", "uetp.port:0")] == [True, True]
    assert [found is None for found in shown([frame, other], home, "-d", "udp.port==5555,uetp")] == [False, False]


def test_source_port_does_not_count(home: Path) -> None:
    frame = legal(rng_of("source"), encapsulation="udp", tags=0, version=4, extensions=False)
    swapped = frame[:34] + frame[36:38] + frame[34:36] + frame[38:]
    assert shown([swapped], home) == [None]


def test_entropy_may_be_a_port_of_others(home: Path) -> None:
    """The source port 53 is DNS's; `udp.try_heuristic_first` lets the destination port decide."""
    frame = legal(rng_of("entropy"), encapsulation="udp", tags=0, version=4, extensions=False)
    taken = frame[:34] + (53).to_bytes(2, "big") + frame[36:]
    (found,) = shown([taken], home, "-o", "udp.try_heuristic_first:TRUE")
    assert found is not None


def test_preference_protocol(home: Path) -> None:
    frame = legal(rng_of("protocol"), encapsulation="native", tags=0, version=4, extensions=False)
    other = frame[:23] + bytes([254]) + frame[24:]
    assert [found is None for found in shown([frame, other], home)] == [False, True]
    assert [found is None for found in shown([frame, other], home, "-o", "uetp.protocol:254")] == [True, False]


@pytest.mark.parametrize("mode", ["on", "off", "auto"])
def test_preference_crc(mode: str, home: Path) -> None:
    rng = rng_of(mode)
    frames: list[Frame] = [legal(rng) for _ in range(SOME // 4)]
    frames += [around(some_uet(rng)[: rng.randint(1, 200)], rng) for _ in range(SOME // 8)]
    compare(frames, home, "-o", f"uetp.crc:{mode}", crc=mode)


def test_preference_verify(home: Path) -> None:
    """Off, a CRC that the headers leave room for is not computed, another one is still found."""
    rng = rng_of("verify")
    frames = [legal(rng, crc=True) for _ in range(300)]
    statuses = set()
    for frame, found in zip(frames, shown(frames, home, "-o", "uetp.verify:FALSE"), strict=True):
        assert found is not None
        packet = decode(frame)
        if packet.trailer and packet.trailer.kind == "crc32c":
            assert found.number("crc") == packet.trailer.value
            statuses.add(found.number("crc.status"))
    assert statuses == {1, 2}


def test_preference_headers(home: Path) -> None:
    """At the top of the tree the headers are protocols of the hierarchy; `frame.protocols` stays."""
    path = home / "headers.pcap"
    write_pcap(path, [flow(SYN, WRITE, payload=bytes(4096))])
    top = ("-o", "uetp.headers:at the top")
    hierarchy, _ = run(["-r", path, "-q", "-z", "io,phs,uetp.psn", *top], home)
    assert re.findall(r"^ *(uetp\S*)", hierarchy, re.MULTILINE) == ["uetp", "uetp.pds.rod_req", "uetp.ses.request_std"]
    out, _ = run(["-r", path, "-O", "uetp.pds.rod_req", *top], home)
    assert "\n    psn: 73728\n" in out
    assert "\n    UET" not in out
    for options in (top, ()):
        out, _ = run(
            ["-r", path, "-T", "fields", "-e", "frame.protocols", "-e", "uetp.psn", "-O", "uetp", *options], home
        )
        assert out == "eth:ethertype:ip:udp:uetp\t73728\n"


def test_preference_trimmed(home: Path) -> None:
    rng = rng_of("classes")
    frames: list[Frame] = [around(some_uet(rng)[:20], rng, dscp=dscp) for dscp in (5, 16, 18, 63) for _ in range(5)]
    compare(frames, home, "-o", "uetp.trimmed:5, 63", trimmed_dscp=frozenset({5, 63}))


def test_preferences_that_are_not_legal_are_told(home: Path) -> None:
    path = copied(GOLDEN / "gradient.pcapng", home)
    options = ["-o", "uetp.port:99999", "-o", "uetp.protocol:256", "-o", "uetp.trimmed:16,64 x"]
    out, err = run(["-r", path, "-Y", "uetp", *options], home)
    assert [line for line in err.splitlines() if line.startswith("uetp: ")] == [
        "uetp: preference uetp.port: 99999 is not legal; legal: 0 to 65535; 4793 is used",
        "uetp: preference uetp.protocol: 256 is not legal; legal: 0 to 255; 253 is used",
        "uetp: preference uetp.trimmed: 64 is not legal; legal: 0 to 63, with commas between them",
        "uetp: preference uetp.trimmed: x is not legal; legal: 0 to 63, with commas between them",
    ]
    assert len(out.splitlines()) == 7


# (6) Names ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fields() -> str:
    """What tshark tells of all fields. -G must come first, and knows nothing of options behind it but -X."""
    with folder() as home:
        return run(["-G", "fields"], home, check=False)[0]


def test_every_field_of_every_form_is_registered(fields: str) -> None:
    registered = {line.split("\t")[2] for line in fields.splitlines() if line[:2] in ("F\t", "P\t")}
    headers = [*UET_FORMS.values(), *SHARP_FORMS.values(), *MCAST_FORMS.values()]
    wanted = {display_filter(h.name, f.name) for h in headers for f in h.fields}
    wanted |= {display_filter(h.name) for h in headers}
    bits = [(h, f, bit) for h in headers for f in h.fields for bit in f.values or () if isinstance(bit, IntFlag)]
    wanted |= {display_filter(h.name, f"{f.name}.{str(bit.name).lower()}") for h, f, bit in bits}
    assert wanted <= registered
    assert {"uetp.payload", "uetp.crc", "uetp.crc.status", "uetp.icv", "uetp.ack_psn"} <= registered
    ours = {name for name in registered if name.startswith("uetp.") and not name.startswith("uetp.expert.")}
    assert len(ours - wanted) == len({name for name in ours - wanted if name.count(".") <= 2})


def test_every_field_has_a_description_and_flags_are_booleans(fields: str) -> None:
    """A field of `-G fields` is: F, name, filter, type, protocol, base, mask, description."""
    rows = [row for line in fields.splitlines() if (row := line.split("\t"))[0] == "F" and row[2].startswith("uetp.")]
    assert [row[2] for row in rows if not row[7] and not row[2].startswith("uetp.expert.")] == []
    types = {row[2]: row[3] for row in rows}
    headers = [*UET_FORMS.values(), *SHARP_FORMS.values(), *MCAST_FORMS.values()]
    flags = {display_filter(h.name, f.name) for h in headers for f in h.fields if is_flag(f)}
    assert {types[name] for name in flags} == {"FT_BOOLEAN"}
    wanted = {row.filter: row.kind for row in FILTER_NAMES if row.given is not Given.ANALYSIS}
    assert {name: types[name].removeprefix("FT_").lower().replace("boolean", "bool") for name in wanted} == wanted


def value_shown(text: str, row: FilterName) -> int | bool:
    return number(text) == 1 if row.kind == "bool" else number(text)


def test_names_over_forms(home: Path) -> None:
    """The names and values are those of the table, in the tree and where only they are printed."""
    rng = rng_of("names")
    frames: list[Frame] = [around(some_uet(rng), rng, encapsulation=rng.choice(("udp", "native"))) for _ in range(SOME)]
    rows = [row for row in FILTER_NAMES if row.given is not Given.ANALYSIS]
    path = home / "names.pcap"
    write_pcap(path, frames)
    options = [part for row in rows for part in ("-e", row.filter)]
    out, _ = run(["-r", path, "-T", "fields", "-E", "aggregator=;", *options], home)
    more, _ = run(["-r", path, "-T", "fields", "-E", "aggregator=;", *options, "-e", "_ws.expert.message"], home)
    assert [line.rpartition("\t")[0] for line in more.splitlines()] == out.splitlines()
    for frame, line in zip(frames, out.splitlines(), strict=True):
        assert isinstance(frame, bytes)
        packet = decode(frame)
        told = dict(zip(rows, line.split("\t"), strict=True))
        found = {
            row.filter: [value_shown(text, row) for text in texts.split(";")] for row, texts in told.items() if texts
        }
        wanted = of_packet(packet)
        single = {name: values if isinstance(wanted.get(name), list) else values[-1] for name, values in found.items()}
        assert single == {name: value for name, value in wanted.items() if value not in ([], 0) or name in found}, (
            packet
        )


def test_codes_have_names_and_fields_a_meaning(fields: str, home: Path) -> None:
    out, _ = run(["-G", "values"], home, check=False)
    assert "V\tuetp.pds.nack.nack_code\t13\tROD_OOO" in out
    assert re.search(r"\tuetp\.pds\.ack\.cack_psn\t.*\tcumulative ACK$", fields, re.MULTILINE)


# (7) Side by side with a native dissector -----------------------------------------------------------------------------

NATIVE = """
local uet = Proto("uet", "Ultra Ethernet Transport, native")
uet.fields = { ProtoField.uint8("uet.pds.type", "type") }
function uet.dissector(tvb, pinfo, tree)
  pinfo.cols.protocol = "NATIVE"
  tree:add(uet, tvb())
  return tvb:len()
end
DissectorTable.get("udp.port"):add(4793, uet)
DissectorTable.get("ip.proto"):add(253, uet)
"""


def test_beside_a_native_dissector(home: Path) -> None:
    native = home / "uet.lua"
    native.write_text(NATIVE)
    rng = rng_of("native")
    frames = [legal(rng, encapsulation="udp"), legal(rng, encapsulation="native")]
    ours_last, theirs_last = (native, PLUGIN), (PLUGIN, native)
    for found, frame in zip(shown(frames, home, scripts=ours_last), frames, strict=True):
        assert_same(found, decode(frame), "ours last")
    # Wireshark lets the last one win; Decode As still finds ours.
    assert shown(frames, home, scripts=theirs_last) == [None, None]
    options = ("-d", "udp.port==4793,uetp", "-d", "ip.proto==253,uetp")
    for found, frame in zip(shown(frames, home, *options, scripts=theirs_last), frames, strict=True):
        assert_same(found, decode(frame), "theirs last")
    # Where our preference steps back, the other has its numbers again.
    out, _ = run(["-r", home / "frames.pcap", "-o", "uetp.port:0", "-o", "uetp.protocol:0"], home, scripts=ours_last)
    assert out.count("NATIVE") == 2


def test_loaded_twice(home: Path) -> None:
    """Installed, and named on the command line too."""
    frame = legal(rng_of("twice"))
    (found,) = shown([frame], home, scripts=(PLUGIN, PLUGIN))
    assert_same(found, decode(frame), "twice")


# Words ----------------------------------------------------------------------------------------------------------------


def flow(*stack: tuple[str, dict[str, int]], payload: bytes = b"", crc: bool = True, back: bool = False,
         dscp: int = 0) -> bytes:  # fmt: skip
    """A frame from 10.0.0.1 to 10.0.0.2, or back."""
    source, destination = (0x0A000002, 0x0A000001) if back else (0x0A000001, 0x0A000002)
    layers = [
        Layer("ethernet", {"dst": 1, "src": 2, "type": 0x0800}),
        Layer("ipv4", {"dscp": dscp, "df": 1, "ttl": 64, "protocol": 17, "src": source, "dst": destination}),
        Layer("udp", {"sport": 50000, "dport": 4793}),
        *(Layer(form, values) for form, values in stack),
    ]
    return encode(Packet(layers, payload, Trailer("crc32c", 0) if crc else None), fill=True)


WRITE = ("ses.request_std.som", {"opcode": 1, "message_id": 1, "request_length": 12288})
SYN = ("pds.rod_req.syn", {"next_hdr": 3, "ar": 1, "psn": 73728, "spdcid": 9, "clear_psn_offset": -1})
REQUEST = ("pds.rod_req", {"next_hdr": 3, "retx": 1, "psn": 73729, "spdcid": 9, "dpdcid": 7, "clear_psn_offset": -1})
ACK = ("pds.ack", {"next_hdr": 4, "cack_psn": 73729, "ack_psn_offset": -1, "spdcid": 7, "dpdcid": 9})
BAD = flow(("pds.cp", {"ctl_type": 4, "psn": 73731}))

CONVERSATION = [
    (flow(SYN, WRITE, payload=bytes(4096)), "ROD_REQ SYN PSN 73728 WRITE id 1 0–4096 of 12288"),
    (flow(REQUEST, ("ses.request_std", {"opcode": 1, "message_id": 1, "payload_length": 4096, "message_offset": 4096,
                                        "request_length": 12288}), payload=bytes(4096)),
     "ROD_REQ PSN 73729 retx WRITE id 1 4096–8192 of 12288"),
    (flow(ACK, ("ses.response", {"return_code": 1}), back=True), "ACK PSN 73728 CACK 73729 OK"),
    (flow(("pds.nack", {"nack_code": 0x0D, "nack_psn": 73729, "dpdcid": 9, "nack_payload": 73729}), back=True),
     "NACK ROD_OOO PSN 73729 expects 73729"),
    (flow(ACK, ("ses.response", {"opcode": 1, "return_code": 9, "message_id": 1}), back=True),
     "ACK PSN 73728 CACK 73729 AT_PERM id 1"),
    (flow(("pds.cp", {"ctl_type": 4, "psn": 73730, "ar": 1})), "CP CLOSE_CMD PSN 73730"),
    (flow(SYN, dscp=16, crc=False), "ROD_REQ SYN PSN 73728 [trimmed]"),
    (flow(("tss", {"sdi": 1}), payload=bytes(40), crc=False), "TSS SDI 1 AN 0 [sealed]"),
    (BAD[:-1] + bytes([BAD[-1] ^ 1]), "CP CLOSE_CMD PSN 73731 [bad CRC]"),
    (flow(("pds.rod_req", {"next_hdr": 9, "clear_psn_offset": 0}), crc=False),
     "ROD_REQ PSN 0 [malformed: pds.rod_req.next_hdr 9 is reserved]"),
    (flow(("pds.rudi_resp", {"next_hdr": 4, "pkt_id": 5}), ("ses.response", {"return_code": 1}), back=True),
     "RUDI_RESP pkt_id 0x00000005 OK"),
]  # fmt: skip


def test_columns(home: Path) -> None:
    path = home / "words.pcap"
    write_pcap(path, [frame for frame, _ in CONVERSATION])
    expected = [("UET", text) for _, text in CONVERSATION]
    assert columns(path, home) == expected  # nobody looks at the tree
    assert columns(path, home, "-Y", "uetp.payload || uetp") == expected


def test_expert_infos(home: Path) -> None:
    experts = [found.experts for found in shown([frame for frame, _ in CONVERSATION], home) if found]
    assert experts == [
        set(), {"retx"}, set(), {"nack"}, {"error", "duplicate_ack"}, set(), {"trimmed"}, set(), {"crc"}, {"reserved"},
        set(),
    ]  # fmt: skip
    (short,) = shown(
        [flow(SYN, ("ses.request_std.som", {"som": 1, "eom": 1, "opcode": 1, "request_length": 50}))], home
    )
    assert short is not None
    assert short.experts == {"short"}


def test_answers_point_to_requests(home: Path) -> None:
    found = shown([frame for frame, _ in CONVERSATION], home, "-2")
    assert [f and f.number("request_in") for f in found[:6]] == [None, None, 1, 2, 1, None]
    assert [f and f.number("answer_in") for f in found[:6]] == [5, 4, None, None, None, None]


def test_filters(home: Path) -> None:
    """Together they show these frames, and no frame is on the wrong side of any of them."""
    path = home / "filters.pcap"
    write_pcap(path, [frame for frame, _ in CONVERSATION])
    wanted = {
        "uetp.pds.ack.cack_psn == 73729": "frame.number in {3, 5}",
        "uetp.pds.rod_req.clear_psn_offset < 0": "frame.number in {1, 2, 7}",
        'uetp.pds.nack.nack_code == "ROD_OOO"': "frame.number in {4}",
        "uetp.trimmed": "frame.number in {7}",
        "uetp.sealed": "frame.number in {8}",
        "uetp.crc.status == 0": "frame.number in {9}",
        "uetp.expert.reserved": "frame.number in {10}",
        "uetp.pds.rudi_resp": "frame.number in {11}",
    }
    wrong = [f"(({rule}) && !({at})) || (!({rule}) && ({at}))" for rule, at in wanted.items()]
    assert matching(path, home, " || ".join(f"({rule})" for rule in wanted)) == [1, 2, 3, 4, 5, 7, 8, 9, 10, 11]
    assert matching(path, home, " || ".join(wrong)) == []
