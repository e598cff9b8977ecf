# SPDX-License-Identifier: GPL-2.0-only
"""The golden captures over RoCEv2 as others read them: tshark every header, `scapy.contrib.roce` BTH, AETH and ICRC.

What `dissect --json`, Construct, our own Scapy layers and columns say of them is compared in `test_golden`. tshark is
no judge of CNPs and checks no ICRC (roce.md §16).
"""

from functools import cache
from itertools import islice
from pathlib import Path

from scapy.contrib import roce as contrib
from scapy.layers.l2 import Ether

from tests.support.each import each
from tests.support.interop import tshark
from tests.support.interop.golden import OVER_ROCE, packets
from tests.support.interop.roce_tshark import JUDGED, read, same
from tests.support.interop.tshark import needs_tshark
from uetproto import Packet
from uetproto import layers as uet
from uetproto.wire.headers.roce import SEQUENCES, BthOpcode, Operation

MOST = 1000
"""Frames of a capture that are looked at: those of the long ones are much the same."""

NEVER_SENT = (Operation.FLUSH, Operation.ATOMIC_WRITE)
"""Their effect is not covered (roce.md §17)."""


@cache
def frames() -> list[tuple[str, bytes, Packet]]:
    """Of all captures: name and number, bytes, and what they are; but pause frames."""
    return [
        (f"{path.stem}, packet {number}", data, packet)
        for path in OVER_ROCE
        for number, (data, packet) in enumerate(islice(packets(path), MOST))
        if "bth" in packet
    ]


def transport_of(packet: Packet) -> int:
    return packet["bth"]["opcode"] >> 5


def test_every_opcode_is_in_some_capture() -> None:
    legal = {o for o in SEQUENCES if o >> 5 in JUDGED and o & 0x1F not in NEVER_SENT}
    there = {packet["bth"]["opcode"] for _, _, packet in frames() if transport_of(packet) in JUDGED}
    assert {BthOpcode(o).name for o in legal - there} == set()


@needs_tshark
def test_tshark_agrees_and_finds_nothing_malformed() -> None:
    judged = [one for one in frames() if transport_of(one[2]) in JUDGED]
    with tshark.folder() as home:
        found = read([data for _, data, _ in judged], home)
    compared = sum(same(packet, shown, what) for (what, _, packet), shown in zip(judged, found, strict=True))
    assert compared > 8 * len(judged)


BTH = {
    "opcode": "opcode", "se": "solicited", "m": "migreq", "padcnt": "padcount", "tver": "version", "p_key": "pkey",
    "fecn": "fecn", "becn": "becn", "destqp": "dqpn", "a": "ackreq", "psn": "psn",
}  # fmt: skip
"""Names of a field: ours, and that of `scapy.contrib.roce`."""


@each("path", OVER_ROCE)
def test_scapy_agrees_and_computes_the_same_icrc(path: Path) -> None:
    uet.unbind_roce()
    for what, data, packet in frames():
        if not what.startswith(f"{path.stem}, "):
            continue
        built = Ether(data)
        theirs = built[contrib.BTH]
        assert {name: getattr(theirs, other) for name, other in BTH.items()} == {
            name: packet["bth"][name] for name in BTH
        }, what
        if packet["bth"]["opcode"] & 0x1F == Operation.ACKNOWLEDGE and "aeth" in packet:
            aeth = theirs[contrib.AETH]
            assert (aeth.syndrome, aeth.msn) == (packet["aeth"]["syndrome"], packet["aeth"]["msn"]), what
        del theirs.icrc
        built.clear_cache()
        assert packet.trailer is not None
        assert (bytes(built) == data) is packet.trailer.ok, what
