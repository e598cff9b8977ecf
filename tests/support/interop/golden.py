# SPDX-License-Identifier: GPL-2.0-only
"""This module has the paths of the golden captures, over UET and over RoCE, and reads their packets."""

from collections.abc import Iterator
from pathlib import Path

from tests.support import paths
from uetproto import Packet, decode
from uetproto.wire.capture.pcap import open_capture

ROOT = paths.ROOT
GOLDEN = sorted((ROOT / "pcaps").glob("*.pcapng"))
BY_SHARP = ROOT / "pcaps/collective-sharp-uet.pcapng"
"""tshark shows more of it than `decode` without `sharp` does (`test_collective_golden`)."""
OVER_UET = [path for path in GOLDEN if "roce" not in path.stem and not path.stem.startswith("collective")]
OVER_ROCE = [path for path in GOLDEN if path not in (*OVER_UET, BY_SHARP)]


def packets(path: Path) -> Iterator[tuple[bytes, Packet]]:
    with open_capture(path) as capture:
        for record in capture:
            yield record.data, decode(record.data, length=record.length)
    assert not capture.damage
