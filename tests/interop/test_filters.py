# SPDX-License-Identifier: GPL-2.0-only
"""Display filters let the same frames through as tshark 4.0 with the plugin: random filters over golden captures."""

from pathlib import Path
from random import Random

import pytest

from tests.support.effort import effort
from tests.support.filters import FilterDraws, passed, seen_values
from tests.support.interop.display_filters import asked
from tests.support.interop.tshark import folder, needs_tshark
from tests.support.paths import PCAPS
from uetproto.errors import LocalError
from uetproto.filters.display_filter import DisplayFilter

ALL = sorted(path for path in PCAPS.glob("*.pcapng"))
FEW = [PCAPS / f"{name}.pcapng" for name in ("gradient-lossy", "uet-mixed", "gradient-v6", "roce-fetch-add")]
CAPTURES, FILTERS = effort((FEW[:3], 20), (ALL, 12), (ALL, 60))
REPEATED = frozenset(f"infiniband.reth.{name}" for name in ("va", "r_key", "dmalen"))
"""Fields that Wireshark repeats in the responses of a READ."""


def differences(path: Path, texts: list[str]) -> list[str]:
    with folder() as home:
        said = asked(path, texts, home)
    return [
        f"{path.name}: {text}: {'refused by tshark' if frames is None else f'tshark {frames}, here {ours}'}"
        for text, frames in zip(texts, said, strict=True)
        if (ours := passed(path, text)) != frames
    ]


@needs_tshark
def test_random_filters_agree_with_tshark() -> None:
    found: list[str] = []
    drawn = 0
    for path in CAPTURES:
        values = seen_values(path)
        if len(values["frame.number"]) < 2:  # tshark asks no listener about all fields of the only frame
            continue
        draws = FilterDraws(Random(f"{path.name} 25"), values, REPEATED)
        texts = [draws.filter() for _ in range(FILTERS)]
        drawn += len(texts)
        found += differences(path, texts)
    assert drawn >= effort(60, 300, 300)
    assert found == []


CORNERS = r"""
uetp.psn != 73730
uetp.psn ~= 73730
uetp.psn === 73730
not uetp.psn in {73730}
uetp.psn not in {73730}
uetp.psn == 73730 or uetp.psn == 73731 and frame.number == 3
!uetp.psn == 73730
! ! uetp.psn
uetp.opcode == write
uetp.opcode == "WRITE"
uetp.opcode in {0..WRITE}
uetp.retx == 2
uetp.retx == True
frame[0] == 2
frame[0:2] == 0200
frame[0:2] == 02.00
frame[60:]
frame[5000:2]
frame[-2:]
frame[-2:3]
eth.src[0:3] > 02:00
eth.src[0:2] < 02:00:0a
eth.addr[4-7] != 01:0b
frame[0:2,5000:2] == 02:00
frame matches r"\x02\x00"
frame matches "\x0a"
frame contains "\x02\x00"
ip.src != 10.0.0.0/16
ip.src > 10.0.0.11
ip.addr != 10.0.0.11
all ip.addr > 10.0.0.1
any ip.addr != 10.0.0.11
uetp.acks != 3
uetp.acks === 3
all uetp.acks in {1..12}
uetp.psn & 1
uetp.psn & 1 == 1
uetp.psn == 073730
uetp.opcode == 'a'
uetp.spdcid == uetp.dpdcid
uetp.rel_psn > -1
frame.time_relative in {0..0.0001}
uetp.acked_in > frame.number
frame.number in{1,2}
frame.number==1 or(frame.number==2)
uetp.crc.status == Good
""".strip().split("\n")
REFUSED = r"""
uetp.opcode == 300
uetp.psn == 4294967296
frame[0:2] == 0x0200
frame[0] in {02}
1 < frame.number
frame.number < 5 < 3
uetp.psn in {73730 73735}
uetp.psn =
foo.bar
uetp.ack_time < 10us
eth.dst == 02:00:0a
ip.dst matches "10"
uetp.opcode contains "W"
uetp.analysis.retransmission == 1
uetp.psn == "73730"
frame.number == 1 AND frame.number == 1
frame.number in {}
()
ip.src == 10.0.0.11/33
frame[1-1] == 00
""".strip().split("\n")
"""Filters that both refuse."""


@needs_tshark
def test_corners_agree_with_tshark() -> None:
    path = PCAPS / "gradient-lossy.pcapng"
    assert differences(path, list(CORNERS)) == []
    with folder() as home:
        assert asked(path, REFUSED, home) == [None] * len(REFUSED)
    for text in REFUSED:
        with pytest.raises(LocalError):
            DisplayFilter(text)
