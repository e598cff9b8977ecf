# SPDX-License-Identifier: GPL-2.0-only
"""Mutated frames of RoCE and InfiniBand against the decoder: where the search begins, what it judges, what it finds."""

import random
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.effort import effort, examples
from tests.support.wire import roce_frames
from tests.support.wire.roce_frames import plain_icrc
from uetproto import Packet, decode, encode
from uetproto.check.bytes_fuzz import BytesFinding, Disagreement, Search, attempt
from uetproto.check.roce import bytes as bytes_roce
from uetproto.check.roce.bytes import ENCAPSULATIONS, GOLDEN, RoceFrames, built
from uetproto.schemas import SCHEMAS
from uetproto.wire.headers.roce import SEQUENCES
from uetproto.wire.packet import Trailer


@cache
def target() -> RoceFrames:
    return RoceFrames()


def test_the_golden_frames_are_those_of_the_page() -> None:
    assert tuple((golden.link, golden.frame) for golden in roce_frames.GOLDEN) == GOLDEN


def test_every_opcode_in_every_encapsulation() -> None:
    """Each is whole, and its ICRC is that of roce.md §4."""
    kinds = dict(zip(ENCAPSULATIONS, ("ipv4", "ipv6", "v1", "local", "global"), strict=True))
    met: Counter[int] = Counter()
    for (link, frame), kind in zip(built(), list(kinds.values()) * len(SEQUENCES), strict=True):
        packet = decode(frame, link=link, rd="headers")
        assert (packet.error, packet.notes) == (None, ())
        assert packet.trailer == Trailer("icrc", plain_icrc(frame, kind), True)
        met[packet["bth"]["opcode"]] += 1
    assert met == dict.fromkeys(SEQUENCES, len(kinds))


def test_construct_reads_every_header_alike() -> None:
    for link, frame in (*GOLDEN, *built()):
        for layer in decode(frame, link=link, rd="headers").layers:
            part = frame[layer.offset : layer.offset + layer.size]
            parsed = SCHEMAS[layer.form].parse(part)
            assert list(parsed.items()) == list(layer.values.items())
            assert SCHEMAS[layer.form].build(parsed) == part


def test_every_prefix() -> None:
    """Of a frame of each opcode: truncated where the length on the wire is known, with no fault but the frame's."""
    for link, frame in (*GOLDEN, *list(built())[:: len(ENCAPSULATIONS)]):
        whole = decode(frame, link=link)
        for size in range(len(frame)):
            packet = decode(frame[:size], link=link, length=len(frame))
            assert packet.error is None or packet.error == whole.error
            assert "truncated" in packet.notes
            assert packet.layers == whole.layers[: len(packet.layers)]
            assert packet.vcrc is None


def test_a_short_search_finds_nothing() -> None:
    search = Search(target(), random.Random(1))
    seeds = len(target().seeds())
    for _ in range(seeds + effort(150, 1_000, 10_000)):
        finding = search.step()
        assert finding is None, finding.text
    opcodes = {
        feature[2] for feature in search.met if isinstance(feature, tuple) and feature[:2] == ("infiniband", "headers")
    }
    assert opcodes > SEQUENCES.keys(), "known ones, and some that are not"
    assert len(search.corpus) > seeds / 2


def test_a_search_is_seeded() -> None:
    runs = [Search(RoceFrames(), random.Random(5)) for _ in range(2)]
    for search in runs:
        for _ in range(effort(120, 600, 600)):
            search.step()
    assert runs[0].corpus == runs[1].corpus


@given(data=st.binary(max_size=200))
@examples(150)
def test_inputs_of_any_bytes(data: bytes) -> None:
    found = attempt(target(), data)
    assert not isinstance(found, BytesFinding), found


@given(data=st.binary(max_size=80), native=st.booleans(), start=st.integers(0, 70))
@examples(150)
def test_any_bytes_behind_a_good_start(data: bytes, native: bool, start: int) -> None:
    link, frame = GOLDEN[-1] if native else GOLDEN[0]
    found = attempt(target(), bytes([link == "infiniband"]) + frame[:start] + data)
    assert not isinstance(found, BytesFinding), found


# What is wrong is found -----------------------------------------------------------------------------------------------


def without_pad(packet: Packet) -> None:
    packet.pad = b""


def other_verdict(packet: Packet) -> None:
    assert packet.trailer is not None
    packet.trailer = packet.trailer._replace(ok=not packet.trailer.ok)


def other_note(packet: Packet) -> None:
    packet.notes = ("padding",)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (without_pad, "is another frame"),
        (other_verdict, "the compiled shape says something else"),
        (other_note, "the compiled shape says something else"),
    ],
)
def test_a_decoder_that_errs_is_found(
    spoil: Callable[[Packet], None], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(frame: bytes, **settings: Any) -> Packet:
        packet = decode(frame, **settings)
        spoil(packet)
        return packet

    good = target()
    monkeypatch.setattr(bytes_roce, "decode", wrong)
    with pytest.raises(Disagreement, match=said):
        good.run(b"\0" + GOLDEN[0][1])


def test_a_cut_called_malformed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(frame: bytes, *, length: int | None = None, **settings: Any) -> Packet:
        return decode(frame, **settings)

    good = target()
    monkeypatch.setattr(bytes_roce, "decode", forgetful)
    with pytest.raises(Disagreement, match="a prefix of known length"):
        good.run(b"\0" + GOLDEN[0][1])


def test_a_wrong_fill_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(packet: Packet, *, fill: bool = False) -> bytes:
        data = encode(packet, fill=fill)
        return data[:-1] + bytes([data[-1] ^ 1]) if fill else data

    good = target()
    monkeypatch.setattr(bytes_roce, "encode", wrong)
    with pytest.raises(Disagreement, match="no right ICRC"):
        good.run(b"\0" + GOLDEN[0][1])


def test_rd_is_judged_raw_and_by_headers() -> None:
    met = set(target().run(target().seeds()[len(GOLDEN) + list(SEQUENCES).index(0x40) * len(ENCAPSULATIONS)]))
    assert {("ethernet", "raw", 0x40), ("ethernet", "headers", 0x40), ("bth", "rdeth")} <= met
