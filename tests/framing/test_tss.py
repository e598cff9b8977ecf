# SPDX-License-Identifier: GPL-2.0-only
"""Sealed frames of a NIC (tss.md §7, §9): what they hold, what comes back, what is refused, and why."""

from dataclasses import replace

import pytest

from tests.support.pds.headers import build_nack
from uetproto.emulator.scenario.settings import Scenario, load
from uetproto.engine.contract import Datagram, TrafficClass, Trim
from uetproto.framing.dscp import Dscp
from uetproto.framing.tss import SealingFramer, Secured
from uetproto.framing.uet import Encapsulation, UetFramer
from uetproto.impair.trim import trim
from uetproto.wire.headers.uet_pds import NackCode

A, B = 0x0A00000B, 0x0A00010B
PACKET = Datagram(A, B, b"\x11\x8c" + bytes(range(10)), bytes(200), entropy=0x4242)
HOW = Encapsulation()
V6 = ("nodes.rank0.address=fd00::a00:b", "nodes.rank2.address=fd00::a00:10b", "nodes.rank0.ssi=1", "nodes.rank2.ssi=2")


def ends(*settings: str, how: Encapsulation = HOW) -> tuple[SealingFramer, SealingFramer, Scenario]:
    scenario = load("gradient-sealed-direct", settings)
    assert scenario.security is not None
    secured = Secured(scenario.security, lambda: 0)
    return *(secured.framer(node, how) for node in scenario.nodes.values()), scenario  # type: ignore[return-value]


@pytest.mark.parametrize("udp", [True, False])
@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("offset", ['"header"', "28"])
def test_there_and_back(udp: bool, version: int, offset: str) -> None:
    how = replace(HOW, udp=udp)
    a, b, scenario = ends(f"security.crypto_offset={offset}", *(V6 if version == 6 else ()), how=how)
    src, dst = (node.address for node in scenario.nodes.values())
    packet = replace(PACKET, src=src, dst=dst, ip_version=version)
    frame = a.frame(packet)
    plain = UetFramer(src, version, how).frame(packet)
    assert len(frame) == len(plain) - 4 + (28 if version == 4 else 32)  # no CRC32C, but header and ICV (§7.4)
    assert bytes(packet.payload) not in frame
    there = b.packet(frame)
    assert there is not None
    assert (bytes(there.header), there.src, there.entropy) == (packet.header + packet.payload, src, 0x4242)


def test_what_routers_change_is_not_authenticated() -> None:
    """§7.1: TTL with its checksum, ECN; but not the entropy."""
    a, b, _ = ends()
    routed = bytearray(a.frame(PACKET))
    routed[22] -= 1  # TTL 64 → 63: the checksum is 0x100 more
    routed[24:26] = (int.from_bytes(routed[24:26], "big") + 0x100).to_bytes(2, "big")
    assert b.packet(bytes(routed)) is not None
    routed[35] ^= 1
    assert b.packet(bytes(routed)) is None
    assert b.refused == {"does not open": 1}


def test_the_udp_checksum_counts_as_zero() -> None:
    """§7.3: it is ignored on receipt."""
    a, b, _ = ends()
    frame = bytearray(a.frame(PACKET))
    frame[40:42] = b"\x12\x34"
    assert b.packet(bytes(frame)) is not None


def test_forged_headers_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uetproto.framing.tss.CACHE", 4)
    a, b, _ = ends()
    frame = bytearray(a.frame(PACKET))
    for source_port in range(20):
        frame[34:36] = source_port.to_bytes(2, "big")
        assert b.packet(bytes(frame)) is None
        assert len(b._authenticated) <= 4
    assert b.refused == {"does not open": 20}


def test_each_damaged_byte_is_found() -> None:
    """§14 item 2: from the source address on."""
    a, b, _ = ends("security.crypto_offset=24")
    frame = a.frame(PACKET)
    for at in range(26, len(frame)):
        damaged = bytearray(frame)
        damaged[at] ^= 1
        if at not in (40, 41):  # the UDP checksum
            assert b.packet(bytes(damaged)) is None, at


@pytest.mark.parametrize("crc", [True, False])
def test_plain_packets_are_dropped(crc: bool) -> None:
    how = replace(HOW, crc=crc)
    _, b, _ = ends(how=how)
    assert b.packet(UetFramer(A, 4, how).frame(PACKET)) is None
    assert b.refused == {"not sealed": 1}
    assert b.port.in_rx_encryption_bypass == 1


@pytest.mark.parametrize("crc", [True, False])
def test_plain_packets_may_pass(crc: bool) -> None:
    """§15; with a CRC32C that does not match they do not."""
    how = replace(HOW, crc=crc)
    _, b, _ = ends("security.plain=pass", how=how)
    frame = UetFramer(A, 4, how).frame(PACKET)
    there = b.packet(frame)
    assert there is not None
    assert there.header == bytes(PACKET.header) + bytes(PACKET.payload)
    damaged = b.packet(frame[:-1] + bytes([frame[-1] ^ 1]))
    assert (damaged is None, b.bad_crc) == (crc, int(crc))


def nack(code: int) -> Datagram:
    header = build_nack(code, False, 0, 5000, 0, 7, 9000)
    return Datagram(A, B, header, b"", TrafficClass.CONTROL)


@pytest.mark.parametrize("crc", [True, False])
@pytest.mark.parametrize("code", [NackCode.NEW_START_PSN, NackCode.INV_DPDCID])
def test_some_nacks_may_travel_in_clear(code: NackCode, crc: bool) -> None:
    """§11, observed.md: only these, and only where both ends say so; with a CRC32C, if the network has."""
    how = replace(HOW, crc=crc)
    a, b, _ = ends(f'security.clear_nacks=["{code.name}"]', how=how)
    frame = a.frame(nack(code))
    assert frame == UetFramer(A, 4, how).frame(nack(code))
    there = b.packet(frame)
    assert there is not None
    assert there.header == nack(code).header
    assert (a.port.out_rx_encryption_bypass, b.port.in_rx_encryption_bypass) == (1, 1)
    damaged = b.packet(frame[:-1] + bytes([frame[-1] ^ 1]))
    assert (damaged is None, b.bad_crc) == (crc, int(crc))
    _, strict, _ = ends(how=how)
    assert strict.packet(frame) is None
    assert strict.refused == {"not sealed": 1}


def test_all_other_packets_are_sealed() -> None:
    a, b, _ = ends('security.clear_nacks=["NEW_START_PSN"]')
    for packet in (nack(NackCode.INV_DPDCID), nack(NackCode.ROD_OOO), PACKET, replace(PACKET, header=b"\x50")):
        inner = bytes(packet.header) + bytes(packet.payload)
        assert inner not in a.frame(packet)
        assert b.packet(UetFramer(A, 4, HOW).frame(packet)) is None
    assert b.refused == {"not sealed": 4}
    assert a.port.out_rx_encryption_bypass == 0


def test_without_a_counter_nothing_leaves() -> None:
    """§8."""
    a, b, _ = ends("security.invoke_fatal_threshold=1")
    assert b.packet(a.frame(PACKET)) is not None
    assert a.frame(PACKET) == b""
    assert a.domain.counters.out_invoke_fail == 1


def test_another_domain_is_refused() -> None:
    a, _, _ = ends("security.sdi=2")
    _, b, _ = ends()
    assert b.packet(a.frame(PACKET)) is None
    assert b.refused == {"an SDI that is not known": 1}


def test_a_pdc_belongs_to_one_domain() -> None:
    """§9: a packet that opens, but under another SDI, is not for any PDC here."""
    a, other, _ = ends("security.sdi=2")
    _, b, _ = ends()
    b.port.domains[2] = other.domain
    assert b.packet(a.frame(PACKET)) is None
    assert other.domain.counters.in_auth_pkts == other.domain.counters.in_binding_failure_pkts == 1
    assert b.refused == {"another domain than that of its PDC": 1}


def test_a_trimmed_packet_shows_its_clear_bytes_only() -> None:
    """§7.2: with a PDS in clear the PSN is left to see; by default nothing."""
    for offset, clear in (("24", bytes(PACKET.header)), ('"header"', None)):
        a, b, _ = ends(f"security.crypto_offset={offset}")
        whole = a.frame(PACKET)
        short = trim(whole, Dscp(), last_hop=False)
        assert short is not None
        ip = bytearray(short[14:34])
        size = 28 + 24  # as a switch that leaves a whole PDS cuts it
        ip[2:4] = size.to_bytes(2, "big")
        ip[10:12] = bytes(2)
        total = sum(int.from_bytes(ip[at : at + 2], "big") for at in range(0, 20, 2))
        total = (total & 0xFFFF) + (total >> 16)
        ip[10:12] = (0xFFFF - ((total & 0xFFFF) + (total >> 16))).to_bytes(2, "big")
        there = b.packet(short[:14] + bytes(ip) + whole[34 : 14 + size])
        assert (None if there is None else (there.header, there.trimmed)) == (clear and (clear, Trim.TRIMMED))
        assert b.domain.counters.in_trimmed == (clear is None)
