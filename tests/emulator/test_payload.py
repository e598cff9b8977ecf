"""Payload on the links, without headers (collectives.md §2)."""

from pathlib import Path

import pytest

from uetproto import decode
from uetproto.emulator.payload import PayloadSize
from uetproto.emulator.switch import Dscp
from uetproto.engine.roce_config import RoceConfig
from uetproto.wire.pcap import open_capture

CAPTURES = sorted((Path(__file__).parents[2] / "pcaps").glob("*.pcapng"))
ROCE = Dscp(data=RoceConfig().dscp, data_rtx=RoceConfig().dscp, control=RoceConfig().cnp_dscp)


@pytest.mark.parametrize("roce", [False, True], ids=["uet", "roce"])
def test_as_decoded(roce: bool) -> None:
    """Every data packet of the golden captures: all modes, operations, encapsulations and lengths."""
    dscp = ROCE if roce else Dscp()
    seen = 0
    for path in CAPTURES:
        if ("roce" in path.name) is roce:
            size = PayloadSize(dscp)
            with open_capture(path) as records:
                for frame in (bytes(record.data) for record in records):
                    expected = len(decode(frame).payload) if dscp.is_data(frame) else 0
                    assert size(frame) == size(frame) == expected, (path, decode(frame))
                    seen += expected > 0
    assert seen > 100


def test_what_is_no_packet_has_none() -> None:
    size = PayloadSize(Dscp())
    for frame in (b"", bytes(14), bytes(12) + b"\x08\x00\x45\x20" + bytes(60)):
        assert size(frame) == 0
