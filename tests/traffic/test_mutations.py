# SPDX-License-Identifier: GPL-2.0-only
"""Mutated traffic: the written copy differs where the side file says, and nowhere else (interfaces.md §7)."""

import json
import random
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tests.support.effort import effort
from tests.support.wire.roce_frames import packet_of
from uetproto import Layer, LocalError, decode, encode
from uetproto.traffic.generate import generate
from uetproto.traffic.mutations import SUFFIX, Mutator, parse
from uetproto.traffic.profile import load
from uetproto.wire.capture.pcap import Record, open_capture
from uetproto.wire.codec import codec_of
from uetproto.wire.forms import FORMS
from uetproto.wire.mutate.mutation import NAMES

PACKETS = effort(1_000, 4_000, 4_000)
KEYS = ["index", "mutation", "form", "field", "offset", "before", "after", "rule"]


def records(path: Path) -> list[Record]:
    with open_capture(path) as capture:
        found = list(capture)
    assert not capture.damage
    return found


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(f"{path}{SUFFIX}").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    path = tmp_path_factory.mktemp("originals") / "mixed.pcap"
    generate(load("mixed"), str(path), packets=PACKETS)
    assert not Path(f"{path}{SUFFIX}").exists()
    return records(path)


@pytest.mark.parametrize("name", NAMES)
def test_the_side_file_tells_what_was_changed(name: str, originals: list[Record], tmp_path: Path) -> None:
    path = tmp_path / "wrong.pcap"
    outcome = generate(load("mixed"), str(path), packets=PACKETS, mutations={name: 0.5})
    found, listed = records(path), rows(path)
    assert outcome.side_file == f"{path}{SUFFIX}"
    assert outcome.mutations == {name: len(listed)}
    assert len(listed) >= 3
    assert [row["index"] for row in listed] == sorted({row["index"] for row in listed})
    for row in listed:
        assert list(row) == KEYS
        assert row["mutation"] == name
        assert (row["rule"] is None) == (name == "payload-flip-crc-fixed")
        before, after = originals[row["index"]].data, found[row["index"]].data
        assert before != after
        assert row["before"] != row["after"]
        assert value(before, before, row) == row["before"]
        assert value(before, after, row) == row["after"]
    changed = {row["index"] for row in listed}
    for original, written in zip(originals, found, strict=True):
        assert written.time_ns == original.time_ns
        assert (written.data != original.data) == (written.index in changed)


def value(original: bytes, data: bytes, row: dict[str, Any]) -> int:
    """What `data`, the frame `original` changed or not, has where `row` says."""
    if row["form"] is not None:
        packet = decode(original)
        at = next(layer.offset for layer in packet.layers if layer.form == row["form"])
        header = FORMS[row["form"]]
        assert row["offset"] == at + header.offset_of(row["field"]) // 8
        return int(codec_of(header).decode(data, at)[row["field"]])
    if row["field"] == "crc32c":
        return int.from_bytes(data[row["offset"] : row["offset"] + 4], "big")
    if row["field"] == "frame":
        return len(data)
    if row["mutation"] == "payload-flip-crc-fixed":
        return data[row["offset"]]
    return len(decode(data).payload)


def test_a_flip_with_a_right_crc_is_not_seen(originals: list[Record], tmp_path: Path) -> None:
    path = tmp_path / "flip.pcap"
    generate(load("mixed"), str(path), packets=PACKETS, mutations={"payload-flip-crc-fixed": 1.0})
    changed = [decode(records(path)[row["index"]].data) for row in rows(path)[:200]]
    assert changed
    assert all(packet.error is None and packet.trailer and packet.trailer.ok for packet in changed)


def test_several_at_once(originals: list[Record], tmp_path: Path) -> None:
    """A packet has one; shares are those of packets to which a mutation applies."""
    path = tmp_path / "several.pcapng"
    shares = {"bad-crc": 0.1, "reserved-bit": 0.2}
    outcome = generate(load("mixed"), str(path), packets=PACKETS, mutations=shares)
    for name, share in shares.items():
        assert 0.8 * share < outcome.mutations[name] / PACKETS < 1.2 * share
    assert len({row["index"] for row in rows(path)}) == len(rows(path)) == sum(outcome.mutations.values())


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("bad-crx=0.1",), "mutate bad-crx=0.1: 'bad-crx' is no mutation (did you mean bad-crc?); legal: bad-crc, "),
        (("bad-crc",), "mutate bad-crc: legal is bad-crc=SHARE, a share 0 … 1"),
        (("bad-crc=x",), "mutate bad-crc=x: legal is"),
        (("bad-crc=nan",), "mutate bad-crc=nan: legal is"),
        (("bad-crc=1.5",), "mutate bad-crc=1.5: legal is"),
        (("bad-crc=0.5", "cut=0.6"), "mutate: the shares add up to 1.1; legal: at most 1"),
    ],
)
def test_shares_that_cannot_be(texts: tuple[str, ...], message: str) -> None:
    with pytest.raises(LocalError) as caught:
        parse(texts)
    assert str(caught.value).startswith(message)


def requests_of_roce(port: int) -> list[bytes]:
    """Of one flow, to any port, with answers among them; payloads differ."""
    frames = []
    for psn in range(240):
        opcode, size = ((0x00, 256), (0x01, 256), (0x02, 8), (0x0A, 256), (0x0C, 0), (0x11, 0))[psn % 6]
        packet = packet_of(opcode, random.Random(1), psn=psn, destqp=9, tver=0, rsvd=0)
        fixed = {"udp": {"dport": port}, "reth": {"dmalen": 256}}
        layers = [Layer(layer.form, {**layer.values, **fixed.get(layer.form, {})}) for layer in packet.layers]
        frames.append(encode(replace(packet, layers=layers, payload=bytes([psn]) * size), fill=True))
    return frames


@pytest.mark.parametrize("port", [4791, 5000])
@pytest.mark.parametrize("name", NAMES)
def test_frames_of_roce(name: str, port: int) -> None:
    """Each mutation that RoCE has is listed with what was changed; the others do nothing."""
    frames, side = requests_of_roce(port), StringIO()
    mutator = Mutator({name: 1.0}, random.Random(1), side, roce_port=port)
    written = mutator(frames)
    listed = [json.loads(line) for line in side.getvalue().splitlines()]
    assert bool(listed) == (name in MEANT_FOR_ROCE)
    assert mutator.done == {name: len(listed)}
    assert [row["index"] for row in listed] == [n for n, frame in enumerate(frames) if written[n] != frame]
    assert all(list(row) == KEYS for row in listed)
    assert all(row["rule"] is None or row["rule"].startswith("ROCE-") for row in listed)


MEANT_FOR_ROCE = {
    "bad-crc", "reserved-bit", "bad-version", "unknown-opcode", "unknown-code", "cut", "extra-bytes", "ip-length",
    "length-over", "length-under", "opcode-change", "key-change", "psn-two-contents", "response-wrong-id",
    "payload-flip-crc-fixed",
}  # fmt: skip


def test_standard_output_has_no_side_file() -> None:
    with pytest.raises(LocalError, match="-o -: mutations need a file"):
        generate(load("bench"), "-", packets=1, mutations={"bad-crc": 0.1})
