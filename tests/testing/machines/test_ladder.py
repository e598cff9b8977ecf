# SPDX-License-Identifier: GPL-2.0-only
"""The ladder of a finding shows what the rules did to frames."""

from pathlib import Path

import pytest

from uetproto.testing import PdcMachine
from uetproto.testing.machines.machine import ladder
from uetproto.testing.machines.picture import write_capture
from uetproto.wire.capture.pcap import open_capture


@pytest.mark.parametrize(
    ("rule", "arguments", "drawn"),
    [
        ("corrupt", {"bit": 8 * 60}, "WRITE id 1 64 bytes [damaged on the way]"),
        ("corrupt", {"bit": 8 * 9 + 1}, "WRITE id 1 64 bytes [damaged on the way]"),  # it is no UDP any more
        ("trim", {"last_hop": True}, "RUD_REQ SYN PSN 4526027 ar [trimmed]"),
    ],
)
def test_what_happened_to_a_frame_is_drawn(rule: str, arguments: dict[str, object], drawn: str, tmp_path: Path) -> None:
    begin = ("begin", {"seed": 0, "knobs": {}}), ("message", {"node": 1, "mode": "rud", "packets": 1})
    played = PdcMachine.replay([*begin, (rule, {"index": 0, **arguments}), ("deliver", {"index": 0})])
    lines = [line for line in ladder(played.frames) if "RUD_REQ SYN PSN" in line]
    assert drawn in lines[0]
    assert all(line.rstrip().endswith("▶│") for line in lines[1:])  # the retransmission is whole
    write_capture(tmp_path / "port.pcapng", played.frames)
    with open_capture(tmp_path / "port.pcapng") as records:
        first = next(records)
    assert first.data == played.frames[0].data  # as it arrived
    assert (first.comment == "damaged on the way") == (rule == "corrupt")
