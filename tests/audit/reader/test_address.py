# SPDX-License-Identifier: GPL-2.0-only
"""Addresses keep apart what has the same number: IPv4, IPv6, LIDs."""

from collections.abc import Iterable

import pytest

from tests.support.audit import frames as f
from tests.support.audit.build import A, B, head, packet
from uetproto.audit.auditor import Auditor
from uetproto.audit.reader.address import IPV6, LID, MAC, address_text, bits_of
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.reader.options import Options
from uetproto.engine.tss.keys import DomainConfig, DomainKey, KeyRing

TEXTS = {
    0x0A000001: "10.0.0.1", 1: "0.0.0.1", IPV6 | 1: "::1", IPV6 | 0x0A000001: "::a00:1", IPV6: "::",
    IPV6 | 0xFD00 << 112 | 5: "fd00::5", LID | 1: "LID 1", LID | 0xFFFF: "LID 65535", MAC | 0x0200_0000_0001:
    "02:00:00:00:00:01",
}  # fmt: skip
LOOPBACK = f.changed(f.V6, src=1, dst=2)


@pytest.mark.parametrize("address", TEXTS)
def test_texts(address: int) -> None:
    assert address_text(address) == TEXTS[address]
    assert bits_of(address) < 1 << 128


def ends_of(frames: Iterable[bytes], **options: object) -> set[tuple[str, str]]:
    return {(finding.flow["src"], finding.flow["dst"]) for finding in f.audited(frames, **options).findings}


@pytest.mark.parametrize("quickly", [0, 8])
def test_findings_name_small_ipv6_addresses(quickly: int) -> None:
    """Of a PDC and of a packet alone, whether the packets went the quick way or not."""
    other = f.changed(f.REQUEST, psn=8)
    good = [f.frame(f.MAC_V6, LOOPBACK, f.UDP, other, f.WRITE) for _ in range(quickly)]
    twice = [f.frame(f.MAC_V6, LOOPBACK, f.UDP, f.REQUEST, f.WRITE, payload=bytes([fill] * 24)) for fill in (0, 1)]
    assert ends_of([*good, *twice], rules=("PDS-PSN-TWO-CONTENTS",)) == {("::1", "::2")}
    reserved = f.frame(f.MAC_V6, LOOPBACK, f.UDP, f.changed(f.REQUEST, rsvd=1), f.WRITE)
    assert ends_of([*good, reserved], rules=("WIRE-RESERVED-BIT",)) == {("::1", "::2")}


def test_pdcs_of_ipv4_and_ipv6_are_two() -> None:
    """The same PSN of the same PDCID carries different things."""
    small = f.changed(f.V4, src=1, dst=2)
    one = f.frame(f.MAC, small, f.UDP, f.REQUEST, f.WRITE)
    other = f.frame(f.MAC_V6, LOOPBACK, f.UDP, f.REQUEST, f.WRITE, payload=bytes([1] * 24))
    assert f.found(f.audited([one, other], rules=("PDS-PSN-TWO-CONTENTS",))) == []
    twice = f.frame(f.MAC, small, f.UDP, f.REQUEST, f.WRITE, payload=bytes([1] * 24))
    assert f.found(f.audited([one, other, twice], rules=("PDS-PSN-TWO-CONTENTS",))) == [("PDS-PSN-TWO-CONTENTS", 2)]


def test_what_belongs_to_no_pdc_has_addresses_as_text() -> None:
    request = f.frame(f.MAC, f.V4, f.UDP, f.changed(f.REQUEST, spdcid=0), f.WRITE)
    assert ends_of([request], rules=("PDS-SPDCID-*",)) == {("10.0.0.1", "10.0.0.2")}


def sealed(src: int, dst: int, tsc: int) -> ObservedPacket:
    return packet(0, src, dst, head("tss", sdi=2, tsc=tsc))


@pytest.mark.parametrize("mark", [0, IPV6])
def test_servers_are_known_by_either_address(mark: int) -> None:
    keys = KeyRing(
        {2: DomainConfig(sdi=2, mode="client-server", keys=((DomainKey(bytes(32)),), ()), servers=frozenset({B}))}
    )
    auditor = Auditor(Options(keys=keys, rules=("TSS-TSC-HALF",)))
    there, back = (mark | A, mark | B), (mark | B, mark | A)
    for number, (ends, tsc) in enumerate([(there, 5), (back, 1 << 47 | 5), (back, 6)]):
        auditor.see(sealed(*ends, tsc)._replace(number=number))
    assert [(one.packet, one.flow["src"]) for one in auditor.judge.findings] == [(2, address_text(mark | B))]
