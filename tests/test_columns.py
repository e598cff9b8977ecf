# SPDX-License-Identifier: GPL-2.0-only
"""Columns against `decode`: same packets, same forms, same values, whatever the bytes; then types and memory."""

import gzip
import json
import os
import random
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from tests.support import paths
from tests.support.columns import (
    SHARED,
    Frame,
    agrees,
    write,
)
from tests.support.effort import effort
from tests.support.wire.odd_times import shifted
from uetproto import Layer, LocalError, Packet, columns, columns_records, encode
from uetproto.wire.capture import pcap
from uetproto.wire.fields import Header
from uetproto.wire.forms import FIRST, FORMS, UET_FORMS, Candidates, matches, rows_after

VECTORS = json.loads(paths.VECTORS.read_text())["vectors"]


# Frames ----------------------------------------------------------------------------------------------------------


def fields_of(header: Header, rng: random.Random, **chosen: int) -> dict[str, int]:
    values = {}
    for row in header.fields:
        values[row.name] = rng.choice(row.only) if row.only else rng.getrandbits(row.bits) + row.low
    return values | chosen


def uet_layers(rng: random.Random, todo: list[Candidates]) -> list[Layer]:
    """Any stack that NEXT allows, all rows of it alike."""
    layers = []
    while todo:
        candidates = todo.pop(0)
        values = fields_of(header := rng.choice(candidates), rng)
        following: list[Candidates] = []
        for row in rows_after(header):
            if row.by is None:
                following.append(row.otherwise or ())
                continue
            if not header[row.by].only and rng.random() < 0.7 and row.otherwise != ():
                values[row.by] = rng.choice(list(row.then))
            following.append(row.then.get(values[row.by], row.otherwise) or ())
        layers.append(Layer(header.name, values))
        todo = [some for some in following if some] + todo
    return layers


def lower_layers(rng: random.Random, link: int, native: bool) -> list[Layer]:
    layers: list[Layer] = []
    version = rng.choice((4, 4, 4, 6))
    ethertype = 0x0800 if version == 4 else 0x86DD
    if link != pcap.RAW:
        first = {pcap.ETHERNET: "ethernet", pcap.SLL: "sll", pcap.SLL2: "sll2"}[link]
        tags = rng.choice((0, 0, 0, 1, 2, 3))
        types = [rng.choice((0x8100, 0x88A8)) for _ in range(tags)] + [ethertype]
        for form, kind in zip([first] + ["vlan"] * tags, types, strict=True):
            layers.append(Layer(form, fields_of(FORMS[form], rng, type=kind)))
    protocol = 253 if native else 17
    if version == 4:
        options = 4 * rng.choice((0, 0, 0, 0, 1, 3, 10))
        part = {"mf": 0, "fragment_offset": 0} if rng.random() < 0.95 else {}
        layers.append(Layer("ipv4", fields_of(FORMS["ipv4"], rng, protocol=protocol, **part)))
        if options:
            layers.append(Layer("ipv4.options", {"raw": rng.randbytes(options)}))
    else:
        raw = []
        following = protocol
        for _ in range(rng.choice((0, 0, 1, 2))):
            kind = rng.choice((0, 43, 60, 51, 44))
            size = {51: 12, 44: 8}.get(kind, 16)
            count = {51: 1, 44: 0}.get(kind, 1)
            offset = b"\0\0" if rng.random() < 0.8 else rng.randbytes(2)
            raw.append(bytes((following, count)) + offset + rng.randbytes(size - 4))
            following = kind
        layers.append(Layer("ipv6", fields_of(FORMS["ipv6"], rng, next_header=following)))
        layers += [Layer("ipv6.ext", {"raw": data}) for data in reversed(raw)]
    if native:
        layers.append(Layer("entropy", fields_of(FORMS["entropy"], rng)))
    else:
        layers.append(Layer("udp", fields_of(FORMS["udp"], rng, dport=4793 if rng.random() < 0.95 else 53)))
    return layers


def legal_frame(rng: random.Random, link: int = pcap.ETHERNET) -> bytes:
    layers = lower_layers(rng, link, native=rng.random() < 0.3) + uet_layers(rng, [FIRST])
    return encode(Packet(layers, payload=rng.randbytes(rng.choice((0, 0, 3, 16, 60)))), fill=True)


def odd_frame(rng: random.Random, link: int = pcap.ETHERNET) -> bytes:
    """A legal one with some bytes changed near the fields that steer, cut short, or longer."""
    data = bytearray(legal_frame(rng, link))
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        at = min(int(rng.expovariate(1 / 25)), len(data) - 1)
        data[at] = rng.choice((0, 4, 6, 17, 44, 0x08, 0x81, 0xFF, data[at] ^ 1 << rng.randrange(8), rng.getrandbits(8)))
    if rng.random() < 0.4:
        del data[rng.randrange(len(data) + 1) :]
    return bytes(data) + (rng.randbytes(20) if rng.random() < 0.2 else b"")


def request_or_ack(rng: random.Random, request: bool) -> bytes:
    """98 or 66 bytes."""
    layers = [
        Layer("ethernet", fields_of(FORMS["ethernet"], rng, type=0x0800)),
        Layer("ipv4", fields_of(FORMS["ipv4"], rng, protocol=17, mf=0, fragment_offset=0)),
        Layer("udp", {"sport": rng.getrandbits(16), "dport": 4793}),
    ]
    pds, ses, next_hdr = ("pds.rud_req", "ses.request_std", 3) if request else ("pds.ack", "ses.response", 4)
    layers.append(Layer(pds, fields_of(FORMS[pds], rng, next_hdr=next_hdr)))
    layers.append(Layer(ses, fields_of(FORMS[ses], rng, opcode=1)))
    return encode(Packet(layers), fill=True)


def write_raw(path: Path, frames: list[bytes], order: str = "<", nano: bool = True) -> Path:
    """Plain pcap in any flavour; half of the stamps are in the next second."""
    head = struct.pack(order + "I2H2i2I", 0xA1B23C4D if nano else 0xA1B2C3D4, 2, 4, 0, 0, 262_144, 1)
    parts = [head]
    for number, data in enumerate(frames):
        seconds = 1_700_000_000 + (number > len(frames) // 2)
        parts += (struct.pack(order + "4I", seconds, number, len(data), len(data)), data)
    path.write_bytes(b"".join(parts))
    return path


# What is expected ------------------------------------------------------------------------------------------------


# Agreement -------------------------------------------------------------------------------------------------------


def stack_with(header: Header, rng: random.Random) -> list[Layer]:
    """The shortest way through NEXT to `header`, from the first UET header on."""
    todo: list[tuple[list[Layer], list[Candidates]]] = [([], [FIRST])]
    while todo:
        layers, (candidates, *later) = todo.pop(0)
        if header in candidates:
            return [*layers, Layer(header.name, fields_of(header, rng))]
        for candidate in candidates:
            rows = rows_after(candidate)
            for value in {v for row in rows for v in row.then} or {0}:
                chosen = {row.by: value for row in rows if row.by and value <= candidate[row.by].high}
                values = fields_of(candidate, rng, **chosen)
                if not matches(candidate, int.from_bytes(encode(Packet([Layer(candidate.name, values)]))[:2], "big")):
                    continue
                following = [row.then.get(values[row.by], row.otherwise) if row.by else row.otherwise for row in rows]
                if None not in following and (comes := [some for some in following if some] + later):
                    todo.append(([*layers, Layer(candidate.name, values)], comes))
    raise AssertionError(f"{header.name}: no way there")


def test_all_vectors(tmp_path: Path) -> None:
    rng = random.Random(1)
    frames: list[Frame] = []
    for vector in VECTORS:
        header = UET_FORMS[vector["form"]]
        below = [
            Layer("ethernet", {"type": 0x0800}),
            Layer("ipv4", {"version": 4, "ihl": 5, "protocol": 253 if header.name == "entropy" else 17}),
        ]
        if header.name == "entropy":
            stack = []
        else:
            below.append(Layer("udp", {"dport": 4793}))
            stack = stack_with(header, rng)[:-1]
        raw = bytes.fromhex(vector["hex"])
        frame = encode(Packet([*below, *stack], payload=raw + rng.randbytes(80)), fill=True)
        frames.append((pcap.ETHERNET, frame, len(frame)))
    found = agrees(write(tmp_path / "vectors.pcap", frames))
    assert set(found) >= set(UET_FORMS)


@pytest.mark.parametrize("suffix", ["pcap", "pcap.gz", "pcapng", "pcapng.gz"])
def test_legal_stacks(tmp_path: Path, suffix: str) -> None:
    rng = random.Random(suffix)
    frames = [(pcap.ETHERNET, data, len(data)) for data in (legal_frame(rng) for _ in range(effort(300, 1500, 1500)))]
    found = agrees(write(tmp_path / f"legal.{suffix}", frames))
    assert len(found) > 40


@pytest.mark.parametrize("seed", range(4))
def test_odd_frames_of_all_links(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    links = (pcap.ETHERNET, pcap.SLL, pcap.SLL2, pcap.RAW, pcap.INFINIBAND, pcap.ERF, 147)
    frames = []
    for _ in range(effort(350, 2500, 2500)):
        link = rng.choice(links)
        data = odd_frame(rng, link if link in links[:4] else pcap.ETHERNET)
        length = len(data)
        if rng.random() < 0.2:
            data = data[: rng.randrange(length + 1)]
        frames.append((link, data, length))
    agrees(write(tmp_path / "odd.pcapng", frames, links))


def test_random_bytes(tmp_path: Path) -> None:
    rng = random.Random(7)
    frames = []
    for _ in range(effort(500, 2000, 2000)):
        data = legal_frame(rng)
        cut = rng.randrange(len(data))
        data = data[:cut] + rng.randbytes(rng.randrange(80))
        frames.append((pcap.ETHERNET, data, len(data)))
    agrees(write(tmp_path / "random.pcap", frames))


def test_configured_numbers(tmp_path: Path) -> None:
    rng = random.Random(4)
    frames = [(pcap.ETHERNET, data, len(data)) for data in (legal_frame(rng) for _ in range(300))]
    path = write(tmp_path / "numbers.pcap", frames)
    assert "tss" not in agrees(path, udp_port=53, ip_protocol=17)
    agrees(path, udp_port=53)
    agrees(path, ip_protocol=6)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("nano", [True, False])
@pytest.mark.parametrize("mix", ["one length", "two lengths", "many lengths"])
def test_flavours_of_pcap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, nano: bool, mix: str) -> None:
    monkeypatch.setattr(columns_records, "_CHUNK", 1 << 19)  # so that there are borders
    rng = random.Random(mix)
    kinds = [request_or_ack(rng, request=i % 2 == 0 or mix == "one length") for i in range(50)]
    if mix == "many lengths":
        kinds += [legal_frame(rng) for _ in range(20)] + [kinds[0] + rng.randbytes(9000)]
    agrees(write_raw(tmp_path / "flavour.pcap", rng.choices(kinds, k=effort(2_500, 8_000, 8_000)), order, nano))


def test_payload_that_looks_like_records(tmp_path: Path) -> None:
    """A landmark within a frame deceives nobody."""
    rng = random.Random(5)
    frames = [request_or_ack(rng, request=True) for _ in range(40)]
    inner = write_raw(tmp_path / "inner.pcap", frames).read_bytes()[24:]
    outer = [rng.choice(frames) if rng.random() < 0.9 else frames[0] + inner for _ in range(6000)]
    agrees(write_raw(tmp_path / "outer.pcap", outer))


@pytest.mark.parametrize("suffix", ["pcap", "pcapng"])
def test_damage_in_the_middle(tmp_path: Path, suffix: str) -> None:
    rng = random.Random(11)
    count = effort(900, 3000, 3000)
    frames = [(pcap.ETHERNET, data, len(data)) for data in (legal_frame(rng) for _ in range(count))]
    path = write(tmp_path / f"damaged.{suffix}", frames)
    data = bytearray(path.read_bytes())
    for at in (len(data) // 3, len(data) // 2):
        data[at : at + 400] = rng.randbytes(400)
    path.write_bytes(data[:-7])
    found = agrees(path)
    assert len(found.damage) >= 2
    assert found.packets > count - 100
    pieces = list(columns.iter_batches(path, 700))
    assert sum(piece.packets for piece in pieces) == found.packets
    assert sum((piece.damage for piece in pieces), ()) == found.damage


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("captured too long", (0, 0, 300_000, 300_000)),
        ("more captured than sent", (0, 0, 80, 70)),
        ("never that long", (0, 0, 80, 1 << 24)),
        ("fraction too large", (0, 10**9, 80, 80)),
        ("zeros", (0, 0, 0, 0)),
    ],
)
def test_records_that_are_none(tmp_path: Path, name: str, head: tuple[int, ...]) -> None:
    rng = random.Random(name)
    frames = [request_or_ack(rng, request=rng.random() < 0.5) for _ in range(300)]
    path = write_raw(tmp_path / "odd.pcap", frames)
    data = path.read_bytes()
    path.write_bytes(data + struct.pack("<4I", *head) + rng.randbytes(80) + data[24:])
    assert agrees(path).damage


def test_cut_within_the_last_record(tmp_path: Path) -> None:
    rng = random.Random(2)
    whole = write_raw(tmp_path / "whole.pcap", [request_or_ack(rng, request=True) for _ in range(100)]).read_bytes()
    for cut in (1, 90, 98, 100, 113):
        path = tmp_path / "cut.pcap"
        path.write_bytes(whole[:-cut])
        assert agrees(path).packets == 99


@pytest.mark.parametrize("suffix", ["pcap", "pcapng", "pcap.gz"])
def test_empty_capture(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"empty.{suffix}", [])
    found = agrees(path)
    assert (found.packets, found.forms, found.nbytes) == (0, (), 0)
    assert [piece.packets for piece in columns.iter_batches(path)] == [0]
    with pytest.raises(KeyError, match=r"pds\.ack: does not occur here; there are none"):
        found["pds.ack"]


def test_what_is_not_a_capture(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("no capture at all")
    with pytest.raises(LocalError, match="not a capture"):
        columns.read(path)
    with pytest.raises(FileNotFoundError):
        columns.read(tmp_path / "none")


def test_captures_of_others() -> None:
    folder = SHARED / "captures"
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent")
    paths = sorted(folder.glob("*/*.pcap"))
    assert len(paths) > 24
    for path in paths:
        agrees(path)


@pytest.mark.parametrize("address", [0xFD000000000000000000000000010000, 0, 0xFF << 120, 1])
def test_wide_fields_keep_their_zeros(tmp_path: Path, address: int) -> None:
    layers = [Layer("ethernet", {"type": 0x86DD}), Layer("ipv6", {"version": 6, "next_header": 59, "src": address})]
    path = write(tmp_path / "six.pcap", [(pcap.ETHERNET, encode(Packet(layers), fill=True), 54)] * 3)
    found = columns.read(path)["ipv6"]["src"]
    assert found.tobytes() == 3 * address.to_bytes(16, "big")
    assert [bytes(value) for value in found] == found.tolist() == [address.to_bytes(16, "big")] * 3


@pytest.mark.parametrize("seconds", [-(1 << 63), -9_223_372_037, 9_223_372_037, (1 << 63) - 1])
def test_times_that_do_not_fit_are_told(tmp_path: Path, seconds: int) -> None:
    path = shifted(tmp_path / "late.pcapng", seconds, [bytes(60)] * 3)
    found = columns.read(path)
    assert found.times.tolist() == [columns.NO_TIME] * 3
    assert np.isnat(found.times.view("datetime64[ns]")).all()
    (damage,) = found.damage
    with pcap.open_capture(path) as reader:
        first = next(reader)
    assert damage.offset == first.offset
    assert damage.reason == f"time {first.time_ns} ns of #1 does not fit 64 bits, and 2 more"
    assert columns.read(shifted(path, 9_223_372_036, [bytes(60)])).times.tolist() == [9_223_372_036 * 10**9]
    pieces = list(columns.iter_batches(shifted(path, seconds, [bytes(60)] * 3), 2))
    assert [len(piece.damage) for piece in pieces] == [1, 0]


@pytest.mark.parametrize("late", [1, 63, 64, 65, 300, 499])
def test_one_value_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: int) -> None:
    """What repeats is kept once, up to where it ends."""
    monkeypatch.setattr(columns, "_SLICE", 64)
    rng = random.Random(9)
    first, other = (request_or_ack(rng, request=True) for _ in range(2))
    frames = [first] * 500
    frames[late] = other
    found = agrees(write_raw(tmp_path / "late.pcap", frames))
    agrees(write_raw(tmp_path / "same.pcap", [first] * 500))
    assert columns.read(tmp_path / "same.pcap").nbytes < found.nbytes


# Batches, types, memory ------------------------------------------------------------------------------------------


def test_a_pipe_with_a_name_is_read_once(tmp_path: Path) -> None:
    data = write(tmp_path / "x.pcap", [(pcap.ETHERNET, bytes(60), 60)] * 3).read_bytes()
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    try:
        assert columns.read(f"/dev/fd/{reading}").packets == 3
    finally:
        os.close(reading)


def test_values_of_columns_can_be_encoded() -> None:
    """Integers of NumPy have few bits, so shifts must not be done with them."""
    rng = random.Random(1)
    for form, header in FORMS.items():
        values = fields_of(header, rng)
        wanted = encode(Packet([Layer(form, values)]))
        for field in header.fields:
            if field.bits <= 64:
                size = next(size for size in (8, 16, 32, 64) if field.bits <= size)
                small = np.dtype(f"{'i' if field.signed else 'u'}{size // 8}").type(values[field.name])
                for _ in range(2):
                    assert encode(Packet([Layer(form, {**values, field.name: small})])) == wanted, (
                        f"{form}.{field.name}"
                    )
                assert encode(Packet([Layer(form, {**values, field.name: small})] * 2)) == wanted * 2


def test_misuse(tmp_path: Path) -> None:
    path = write(tmp_path / "x.pcap", [])
    with pytest.raises(LocalError, match="rows: 0 is not legal; legal: a whole number from 1 on"):
        next(columns.iter_batches(path, 0))
    with pytest.raises(LocalError, match="udp_port: '4793' is not legal; legal: 0 … 65535"):
        columns.read(path, udp_port="4793")  # type: ignore[arg-type]


LONG = effort(2000, 4000, 4000)


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """A short and a long capture, by the number of their packets."""
    rng = random.Random(1)
    frames = [(pcap.ETHERNET, data, len(data)) for data in (legal_frame(rng) for _ in range(LONG))]
    folder = tmp_path_factory.mktemp("batches")
    return {count: write(folder / f"{count}.pcap", frames[:count]) for count in (40, LONG)}


@pytest.mark.parametrize("rows", [1, 999, 1000, *effort((), (LONG,), (LONG,)), 10_000])
def test_batches_are_pieces_of_the_whole(captures: dict[int, Path], rows: int) -> None:
    path = captures[40 if rows == 1 else LONG]
    whole = columns.read(path)
    pieces = list(columns.iter_batches(path, rows))
    assert [piece.packets for piece in pieces[:-1]] == [rows] * (len(pieces) - 1)
    assert sum(piece.packets for piece in pieces) == whole.packets
    assert np.concatenate([piece.times for piece in pieces]).tolist() == whole.times.tolist()
    for form, all_rows in whole.items():
        parts = [piece[form] for piece in pieces if form in piece]
        for name in all_rows:
            assert np.array_equal(np.concatenate([part[name] for part in parts]), all_rows[name]), f"{form}.{name}"


def test_types(tmp_path: Path) -> None:
    rng = random.Random(4)
    frames = [(pcap.ETHERNET, data, len(data)) for data in (legal_frame(rng) for _ in range(effort(600, 2000, 2000)))]
    found = columns.read(write(tmp_path / "types.pcap", frames))
    assert found.times.dtype == np.int64
    assert found.lengths.dtype == np.uint32
    for form, rows in found.items():
        assert rows["index"].dtype == np.uint32
        for row in FORMS[form].fields:
            array = rows[row.name]
            size = next((size for size in (1, 2, 4, 8) if row.bits <= size * 8), 16)
            assert array.dtype == ("V16" if row.bits > 64 else f"{'i' if row.signed else 'u'}{size}"), (form, row.name)
            assert len(array) == rows.count
    with pytest.raises(
        KeyError,
        match=r"udp\.port: no such field \(did you mean sport or dport\?\); there are index, sport, dport, length, ",
    ):
        found["udp"]["port"]
    with pytest.raises(KeyError, match="tcp: no such form; there are ethernet, "):
        found["tcp"]
    found["udp"]["sport"][:] = 1
    assert found["udp"]["sport"].std() > 0  # what is handed out is the caller's own


@pytest.mark.parametrize("mix", ["one length", "two lengths"])
def test_memory(tmp_path: Path, mix: str) -> None:
    """Frames of nothing but headers, the worst case: no more is kept than the file has, and little more is used."""
    rng = random.Random(6)
    kinds = [request_or_ack(rng, request=i % 2 == 0 or mix == "one length") for i in range(100)]
    path = write_raw(tmp_path / "large.pcap", rng.choices(kinds, k=100_000))
    size = path.stat().st_size
    columns.read(path)  # tables are made once
    tracemalloc.start()
    found = columns.read(path)
    kept, _ = tracemalloc.get_traced_memory()
    for rows in found.values():
        for name in rows:
            assert len(rows[name]) == rows.count
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.nbytes <= size
    assert kept <= 1.03 * size + 100_000  # with what was reserved and never touched
    assert peak <= 1.5 * size + (20 << 20)


def test_batches_need_no_more_memory_for_more_packets(tmp_path: Path) -> None:
    rng = random.Random(8)
    kinds = [request_or_ack(rng, request=i % 2 == 0) for i in range(100)]
    peaks = []
    for count in (50_000, 150_000):
        path = write_raw(tmp_path / f"{count}.pcap", rng.choices(kinds, k=count))
        tracemalloc.start()
        assert sum(piece.packets for piece in columns.iter_batches(path, 5000)) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


# pcapng with array operations ----------------------------------------------------------------------------------------


def block(order: str, kind: int, body: bytes, behind: int = 0) -> bytes:
    body += bytes(-len(body) & 3)
    total = len(body) + 12
    return struct.pack(f"{order}2I", kind, total) + body + struct.pack(f"{order}I", total + behind)


def sections(order: str, resolution: int | None, shift: int) -> bytes:
    """A section header and two interfaces, with what says how to read their times."""
    options = b"" if resolution is None else struct.pack(f"{order}2HB3x", 9, 1, resolution)
    options += struct.pack(f"{order}2Hq2H", 14, 8, shift, 0, 0)
    head = block(order, 0x0A0D0D0A, struct.pack(f"{order}I2Hq", 0x1A2B3C4D, 1, 0, -1))
    return head + 2 * block(order, 1, struct.pack(f"{order}2HI", 1, 0, 0) + options)


def frame_block(order: str, number: int, data: bytes, ticks: int, options: bytes = b"", behind: int = 0) -> bytes:
    head = struct.pack(f"{order}5I", number, ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(data) + 3)
    return block(order, 6, head + data + bytes(-len(data) & 3) + options, behind)


def same_as_record_by_record(path: Path) -> columns.Columns:
    """Columns of a file are those of its compressed copy, which is read record by record."""
    copy = path.with_suffix(".gz")
    copy.write_bytes(gzip.compress(path.read_bytes(), 1))
    found, slow = columns.read(path), columns.read(copy)
    assert found.times.tolist() == slow.times.tolist()
    assert found.interfaces.tolist() == slow.interfaces.tolist()
    assert found.lengths.tolist() == slow.lengths.tolist()
    assert list(found) == list(slow)
    assert all((found[form][name] == slow[form][name]).all() for form in slow for name in slow[form])
    assert [one.reason for one in found.damage] == [one.reason for one in slow.damage]
    return found


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(("resolution", "shift"), [(None, 0), (9, 5), (3, -7), (0x80 | 10, 0), (9, 2**40)])
@pytest.mark.parametrize("mix", ["one length", "many lengths"])
def test_flavours_of_pcapng(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, resolution: int | None, shift: int, mix: str
) -> None:
    monkeypatch.setattr(columns_records, "_CHUNK", 1 << 19)
    rng = random.Random(f"{order}{resolution}{mix}")
    kinds = [request_or_ack(rng, request=True) for _ in range(20)]
    if mix == "many lengths":
        kinds += [legal_frame(rng) for _ in range(20)] + [kinds[0] + rng.randbytes(9000)]
    comment = struct.pack(f"{order}2H8s2H", 1, 8, b"a remark", 0, 0)
    blocks = [
        frame_block(order, rng.randrange(2), rng.choice(kinds), rng.randrange(1 << 40), rng.choice((b"", b"", comment)))
        for _ in range(effort(200, 6000, 6000))
    ]
    for kind in (4, 5):
        blocks.insert(rng.randrange(len(blocks)), block(order, kind, rng.randbytes(20)))
    path = tmp_path / "flavour.pcapng"
    path.write_bytes(sections(order, resolution, shift) + b"".join(blocks) + block(order, 5, bytes(8)))
    assert same_as_record_by_record(path).packets == len(blocks) - 2


WRONG_BLOCKS = {
    "another interface": lambda: block("<", 1, struct.pack("<2HI", 1, 0, 0)),
    "another section": lambda: sections("<", 9, 0),
    "a simple packet": lambda: block("<", 3, struct.pack("<I", 60) + bytes(60)),
    "an unknown block": lambda: block("<", 0x0BAD, bytes(16)),
    "a length that differs behind": lambda: frame_block("<", 0, bytes(60), 5, behind=4),
    "an interface that is not there": lambda: frame_block("<", 7, bytes(60), 5),
    "a length of 0": lambda: struct.pack("<2I", 6, 0) + bytes(8),
    "a length of 8": lambda: struct.pack("<2I", 6, 8) + bytes(8),
    "a length beyond the end": lambda: struct.pack("<2I", 6, 1 << 30) + bytes(8),
    "a frame longer than its block": lambda: block("<", 6, struct.pack("<5I", 0, 0, 0, 900, 900) + bytes(60)),
    "a late time": lambda: frame_block("<", 0, bytes(60), 1 << 63),
    "bytes": lambda: bytes(range(200)),
}


@pytest.mark.parametrize("what", WRONG_BLOCKS)
def test_pcapng_that_is_read_with_care_from_some_block_on(tmp_path: Path, what: str) -> None:
    rng = random.Random(what)
    frames = [frame_block("<", 0, legal_frame(rng), 1000 * number) for number in range(60)]
    frames.insert(40, WRONG_BLOCKS[what]())
    path = tmp_path / "odd.pcapng"
    path.write_bytes(sections("<", 9, 0) + b"".join(frames))
    assert same_as_record_by_record(path).packets >= 59
    path.write_bytes(sections("<", 9, 0) + b"".join(frames)[:-5])
    assert same_as_record_by_record(path).packets >= 58
