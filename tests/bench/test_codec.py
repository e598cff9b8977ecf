# SPDX-License-Identifier: GPL-2.0-only
"""The rows of `uetproto bench` about codec and captures: both sides do the same work, whatever the machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from uetproto import LocalError, decode
from uetproto.bench import codec
from uetproto.bench.codec import decoding, decoding_roce, encoding, encoding_roce, writing
from uetproto.bench.frames import ScapyPackets, mixed, mixed_roce
from uetproto.bench.ratio import BenchResult
from uetproto.wire.forms import ROCE_FORMS, UET_FORMS
from uetproto.wire.headers.roce import RD_OPCODES, SEQUENCES
from uetproto.wire.headers.uet_pds import CtlType

NO_TIME = 1e-9
"""Seconds for a row: each side is called a few times."""


def forms(frames: list[bytes]) -> set[str]:
    packets = [decode(frame) for frame in frames]
    assert all(packet.error is None and packet.trailer is not None and packet.trailer.ok for packet in packets)
    return {layer.form for packet in packets for layer in packet.layers}


def test_mixed_traffic_has_every_form_in_clear() -> None:
    frames = mixed(900)
    assert set(UET_FORMS) - forms(frames) == {"tss", "tss.ssi", "pds.cc_state.other"}
    controls = [packet["pds.cp"]["ctl_type"] for packet in map(decode, frames) if "pds.cp" in packet]
    assert set(controls) == set(CtlType)
    assert len({len(frame) for frame in frames}) > 50
    assert mixed(20) == mixed(20)


def test_mixed_roce_has_every_opcode_but_those_of_rd() -> None:
    frames = mixed_roce(1000)
    assert {decode(frame)["bth"]["opcode"] for frame in frames} == set(SEQUENCES) - set(RD_OPCODES)
    assert set(ROCE_FORMS) - forms(frames) == {"lrh", "grh", "rdeth"}


def rows(found: Iterator[BenchResult]) -> list[str]:
    names = []
    for row in found:
        assert min(row.rate, row.baseline_rate, row.least) > 0
        names.append(row.what)
    return names


def test_rows() -> None:
    assert rows(decoding(40, NO_TIME)) == [
        "a frame of 4198 bytes to values, CRC checked", "40 frames of mixed traffic, CRC checked",
    ]  # fmt: skip
    assert rows(decoding_roce(40, NO_TIME)) == [
        "RoCE: a WRITE of 4170 bytes to values, ICRC checked", "RoCE: 40 frames of mixed traffic, ICRC checked",
    ]  # fmt: skip
    assert rows(encoding(NO_TIME)) == [
        "a packet of 4198 bytes, made and encoded, CRC computed", "a packet of 4198 bytes, existing, CRC computed",
        "a packet of 4198 bytes, existing, all fields kept", "a partial packet, the other fields filled",
    ]  # fmt: skip
    assert len(rows(encoding_roce(NO_TIME))) == 3


def test_what_is_written_is_the_same(tmp_path: Path) -> None:
    assert rows(writing(30, NO_TIME, tmp_path)) == [
        "frames of 98 bytes to a pcap", "packets of 98 bytes, encoded to a pcap",
    ]  # fmt: skip


def test_other_work_is_no_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A side that builds, dissects or writes something else is told, and not compared."""
    make = ScapyPackets.make
    monkeypatch.setattr(ScapyPackets, "make", lambda packets: make(packets) / b"more")
    with pytest.raises(LocalError, match="Scapy builds another frame"):
        next(encoding(NO_TIME))
    with pytest.raises(LocalError, match="Scapy writes another capture"):
        list(writing(30, NO_TIME, tmp_path))
    monkeypatch.setattr(codec, "decode", lambda frame: decode(frame[:-1]))
    with pytest.raises(LocalError, match="Scapy dissects a frame otherwise"):
        next(decoding(3, NO_TIME))
