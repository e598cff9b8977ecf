# SPDX-License-Identifier: GPL-2.0-only
"""`Recogniser` tells by the packets of a peer whether it is the reference provider: in all captures of it, in none of
ours.

The tests over its captures are skipped where those are absent.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import paths
from tests.support.audit.build import GOLDEN
from tests.support.effort import effort
from tests.support.interop.refprov_packets import keys_of
from uetproto import decode
from uetproto.engine.personality import SIGNS, Recogniser
from uetproto.engine.tss.keys import KeyRing
from uetproto.engine.tss.opener import Opened, Opener
from uetproto.wire.capture.pcap import open_capture
from uetproto.wire.headers.uet_pds import AckReq, CtlType, NextHdr
from uetproto.wire.tuples import PdsAckHeader, PdsCpHeader, PdsRodReqHeader, SesRequestStdSomHeader

CAPTURES = paths.SHARED / "captures"
REFPROV, INTEROP = CAPTURES / "refprov", CAPTURES / "interop"
needs_captures = pytest.mark.skipif(not REFPROV.is_dir(), reason=f"no captures of the reference provider in {CAPTURES}")


def packets(path: Path, keys: KeyRing | None = None) -> Iterator[tuple[int, bytes, int | None, int]]:
    """Yield the source of each packet of UET, its bytes from the PDS header on, its entropy value and its ECN field."""
    opener = Opener(keys or KeyRing({}))
    with open_capture(path) as records:
        for record in records:
            data, packet = record.data, decode(record.data)
            if "sealed" in packet.notes and isinstance(opened := opener.open(data, packet), Opened):
                data, packet = opened.plain_frame, decode(opened.plain_frame)
            pds = next((layer for layer in packet.layers if layer.form.startswith("pds.")), None)
            ip: Any = next((packet[name] for name in ("ipv4", "ipv6") if name in packet), None)
            if pds is not None and ip is not None and "sealed" not in packet.notes:
                entropy = packet["entropy"]["entropy"] if "entropy" in packet else None
                yield ip["src"], data[pds.offset :], entropy, ip["ecn"]


def told(path: Path, keys: KeyRing | None = None) -> dict[int, list[str | None]]:
    """Return what is told of each sender after each of its packets."""
    known: dict[int, Recogniser] = {}
    found: dict[int, list[str | None]] = {}
    for src, data, entropy, ecn in packets(path, keys):
        verdict = known.setdefault(src, Recogniser()).see(data, entropy=entropy, ecn=ecn)
        found.setdefault(src, []).append(verdict)
    return found


@needs_captures
@pytest.mark.parametrize("path", sorted(REFPROV.glob("*.pcap")), ids=lambda path: path.stem)
def test_the_provider_talking_to_itself(path: Path) -> None:
    """Nothing speaks against it; and as soon as an end sends a message of its own, that is told."""
    for verdicts in told(path, keys_of(path)).values():
        assert "default" not in verdicts
        datagrams = path.stem == "uud_send_100"
        assert (verdicts[-1] == "refprov") is not datagrams, "datagrams may have message_id 0"


@needs_captures
@pytest.mark.parametrize("path", sorted(INTEROP.glob("*.pcap")), ids=lambda path: path.stem)
def test_the_provider_and_our_engines(path: Path) -> None:
    """Ours are not taken for it, even where they had its personality."""
    ours, theirs = (1, 2) if path.stem.startswith("server") else (2, 1)
    found = {src & 0xFF: verdicts for src, verdicts in told(path).items()}
    assert found[theirs][-1] == "refprov"
    assert "default" not in found[theirs]
    assert "refprov" not in found[ours]


@needs_captures
def test_its_first_packet_is_enough_for_a_server() -> None:
    for path in INTEROP.glob("server_*.pcap"):
        found = {src & 0xFF: verdicts for src, verdicts in told(path).items()}
        assert found[2][0] == "refprov", path.stem


def test_our_own_captures() -> None:
    """But those of nodes with its personality, which are made to look so."""
    paths_of_ours = sorted(path for path in GOLDEN.glob("*.pcapng") if "clear-nack" not in path.stem)
    taken = {path.stem for path in paths_of_ours if any("refprov" in verdicts for verdicts in told(path).values())}
    assert len(paths_of_ours) > 150
    assert taken == set()


# Each sign ------------------------------------------------------------------------------------------------------------


def request(message_id: int = 5) -> bytes:
    header = PdsRodReqHeader.pack(NextHdr.REQUEST_STD, 0, 1, -1, 100, 7, 3)
    ses = SesRequestStdSomHeader.pack(5, 0, 0, 1, 0, 1, 1, message_id, 0, 1, 0, 15, 0, 16, 0, 0, 0)
    return header + ses


def control(kind: CtlType, isrod: int, ar: int) -> bytes:
    return PdsCpHeader.pack(kind, isrod, 0, ar, 0, 0, 7, 3, 0)


def closing(offset: int) -> bytes:
    return PdsAckHeader.pack(NextHdr.NONE, 0, 0, AckReq.NONE, offset, 100, 7, 3)


CASES: dict[str, tuple[list[tuple[bytes, int | None, int | None]], str]] = {
    "message_id 0 in a first packet": ([(request(0), 0, 0)], "refprov"),
    "isrod 0 in a control packet of a ROD PDC": (
        [(request(), 0, 0), (control(CtlType.CLEAR_CMD, 0, 0), 0, 0)], "refprov"),
    "ACK_REQ without ar": ([(control(CtlType.ACK_REQ, 0, 0), 0, 0)], "refprov"),
    "CACK_PSN before CLOSE_CMD in its ACK": ([(closing(1), 0, 0)], "refprov"),
    "an entropy value in a request": ([(request(), 9, 0)], "default"),
    "ECT in a request": ([(request(), None, 2)], "default"),
    "isrod 1 in a control packet of a ROD PDC": (
        [(request(), 0, 0), (control(CtlType.CLEAR_CMD, 1, 0), 0, 0)], "default"),
    "CACK_PSN at CLOSE_CMD in its ACK": ([(closing(0), 0, 0)], "default"),
}  # fmt: skip


def test_each_sign_has_a_case() -> None:
    assert list(CASES) == [sign.name for sign in SIGNS]


@pytest.mark.parametrize("name", CASES)
def test_a_sign(name: str) -> None:
    seen, verdict = CASES[name]
    recogniser = Recogniser()
    for data, entropy, ecn in seen:
        found = recogniser.see(data, entropy=entropy, ecn=ecn)
    assert (found, list(recogniser.seen)) == (verdict, [name])


def test_what_tells_nothing() -> None:
    recogniser = Recogniser()
    for data in (request(), control(CtlType.CLEAR_CMD, 0, 0), control(CtlType.ACK_REQ, 1, 1)):
        known = Recogniser()
        assert known.see(data) is None, "over UDP, from an IP header that is not known"
    assert recogniser.personality is None


def test_what_speaks_against_it_outweighs() -> None:
    recogniser = Recogniser()
    assert recogniser.see(request(0), entropy=0, ecn=0) == "refprov"
    assert recogniser.see(request(1), entropy=0, ecn=2) == "default"


def test_hostile_bytes() -> None:
    """They raise nothing, and their PDCIDs are not kept without bound."""
    recogniser, rng = Recogniser(), random.Random(5)
    for _ in range(effort(20_000, 200_000, 1_000_000)):
        recogniser.see(rng.randbytes(rng.choice((0, 1, 12, 16, 40, 60))), entropy=rng.choice((None, 0, 7)), ecn=0)
    assert len(recogniser._modes) <= 4096
