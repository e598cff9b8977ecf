# SPDX-License-Identifier: GPL-2.0-only
"""A member of a secure domain: nonces, epochs, the latch, rotation, the order of checks (tss.md §8–10, §14)."""

from dataclasses import replace
from typing import Any, NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.support.effort import examples
from tests.support.pds.headers import build_nack
from tests.support.tss.flows import Flow
from uetproto.engine.tss.cipher import AssociatedData, Refused, SecurityHeader, context, derive
from uetproto.engine.tss.domain import OpenedPacket, SecureDomain, TrimmedPart, TssCounters
from uetproto.engine.tss.keys import MODES, DomainConfig, DomainKey
from uetproto.engine.tss.ledger import NonceLedger
from uetproto.engine.tss.port import SecurePort
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_pds import NackCode, PdsType

A, B = Flow().src, Flow().dst
BELOW = Flow().below(0)
INNER = bytes.fromhex("118c00000001234500010000") + bytes(44)
HALF = 1 << 47


def key(number: int) -> DomainKey:
    return DomainKey(number.to_bytes(32, "big"))


def domain(mode: str = "cluster", **values: Any) -> DomainConfig:
    return DomainConfig(**{"sdi": 1, "mode": mode, "keys": ((key(1),), ()), **values})


def member(at: int = A, how: DomainConfig | None = None, **values: Any) -> SecureDomain:
    return SecureDomain(how or domain(), at, 4, **values)


def port(how: DomainConfig | None = None, **values: Any) -> SecurePort:
    """The port of the receiver."""
    found = SecurePort(**values)
    found.domains[1] = member(B, how)
    return found


def counted(counters: TssCounters) -> dict[str, int]:
    values = {name: getattr(counters, name) for name in TssCounters.__slots__}
    return {name: value for name, value in values.items() if value}


def sealed_by(sender: SecureDomain, below: AssociatedData = BELOW, inner: bytes = INNER) -> bytes:
    sealed = sender.seal(below, inner)
    assert sealed is not None
    return sealed


def header_of(sealed: bytes) -> SecurityHeader:
    header = SecurityHeader.of(sealed)
    assert header is not None
    return header


# Sending (§8) ---------------------------------------------------------------------------------------------------------


class Members:
    """Four members of a domain, and a key manager who rotates when all have followed the last rotation."""

    addresses = (0x0A000001, 0x0A000002, 0x0A000003, 0x0A000004)

    def __init__(self, mode: str, version: int, with_ssi: bool) -> None:
        ssis = {address: 100 + n for n, address in enumerate(self.addresses)} if with_ssi else {}
        self.servers = 0 if mode != "client-server" else 1 if with_ssi or version == 6 else 2
        how = domain(mode, ssis=ssis, servers=frozenset(self.addresses[: self.servers]))
        self.ledger = NonceLedger()
        self.all = [SecureDomain(how, address, version, ledger=self.ledger) for address in self.addresses]
        self.has = [1] * 4
        """The number of the key that each seals with."""
        self.newest = 1

    def peer(self, i: int, j: int) -> int:
        """The j-th of those that `i` talks to: clients talk to servers, and back."""
        there = range(self.servers) if i >= self.servers > 0 else range(self.servers, 4)
        return self.addresses[there[j % len(there)]]

    def install(self) -> None:
        if set(self.has) == {self.newest}:
            self.newest += 1
            for one in self.all:
                one.install(1 - one.tx_an, key(self.newest))

    def switch(self, i: int) -> None:
        if self.has[i] < self.newest:
            self.all[i].switch(1 - self.all[i].tx_an)
            self.has[i] = self.newest


STEP = st.tuples(
    st.sampled_from(("seal", "seal", "seal", "seal", "seal", "install", "switch", "epoch")),
    st.integers(0, 3),
    st.integers(0, 3),
)


@given(
    mode=st.sampled_from(MODES),
    version=st.sampled_from((4, 6)),
    with_ssi=st.booleans(),
    steps=st.lists(STEP, max_size=80),
)
@examples(200)
def test_no_nonce_comes_twice(mode: str, version: int, with_ssi: bool, steps: list[tuple[str, int, int]]) -> None:
    """Properties 4 and 5."""
    members = Members(mode, version, with_ssi or (mode, version) == ("direct", 6))
    following: dict[tuple[int, int], int] = {}  # counters, by member and key
    for what, i, j in steps:
        one, address = members.all[i], members.addresses[i]
        if what == "seal":
            header = header_of(sealed_by(one, AssociatedData(version, address, members.peer(i, j), bytes(4))))
            first = HALF if i < members.servers else 0
            assert header.tsc == following.get((i, members.has[i]), first)
            following[i, members.has[i]] = header.tsc + 1
        elif what == "install":
            members.install()
        elif what == "switch":
            members.switch(i)
        else:
            one.move_epoch((one.tx_epoch + 1 + j) & 0xFFFF)
    assert members.ledger.repeated == 0
    assert len(members.ledger) == sum(what == "seal" for what, _, _ in steps)


@pytest.mark.parametrize(("at", "half"), [(A, 0), (B, HALF)])
def test_a_counter_to_begin_with(at: int, half: int) -> None:
    """A member that may have lost its counter begins above it, in its half, under each key."""
    sender = member(at, domain("client-server", servers=frozenset({B}), keys=((key(1),), (key(2),))), counter=77)
    below = Flow(src=at, dst=A + B - at).below(0)
    assert [header_of(sealed_by(sender, below)).tsc - half for _ in range(2)] == [77, 78]
    sender.switch(1)
    assert header_of(sealed_by(sender, below)).tsc == half + 77


def test_the_counter_is_0_only_after_a_change_of_key() -> None:
    """Property 5."""
    sender = member(how=domain(keys=((key(1),), (key(2),))))
    assert [header_of(sealed_by(sender)).tsc for _ in range(3)] == [0, 1, 2]
    sender.move_epoch(1)
    header = header_of(sealed_by(sender))
    assert (header.epoch, header.tsc) == (1, 3)
    sender.switch(1)
    assert header_of(sealed_by(sender)) == (1, 1, None, 0, 0)


def test_the_ledger_sees_a_nonce_that_comes_twice() -> None:
    """Both directions of client-server with SSI, if they share their counters (§4)."""
    how = domain("client-server", ssis={A: 2, B: 1}, servers=frozenset({B}))
    for strict, repeated in ((True, 0), (False, 1)):
        ledger = NonceLedger()
        both = replace(how, strict_tsc_halves=strict)
        sealed_by(member(A, both, ledger=ledger))
        sealed_by(member(B, both, ledger=ledger), Flow().back().below(0))
        assert ledger.repeated == repeated


@pytest.mark.parametrize(
    ("mode", "at", "threshold", "first", "count"),
    [
        ("cluster", A, 3, 0, 3),
        ("cluster", A, 0, 0, 0),
        ("client-server", A, 3, 0, 3),
        ("client-server", B, 3, HALF, 3),
    ],
)
def test_no_counter_above_the_threshold(mode: str, at: int, threshold: int, first: int, count: int) -> None:
    """§10: the sender stops until there is another key."""
    servers = frozenset({B}) if mode == "client-server" else frozenset[int]()
    keys = ((key(1),), (key(2),))
    sender = member(at, domain(mode, keys=keys, servers=servers, invoke_fatal_threshold=threshold))
    below = Flow(src=at, dst=A + B - at).below(0)
    sealed = [sender.seal(below, INNER) for _ in range(count + 2)]
    assert [header_of(one).tsc for one in sealed if one] == list(range(first, first + count))
    assert counted(sender.counters) == ({"out_auth_pkts": count} if count else {}) | {"out_invoke_fail": 2}
    sender.switch(1)
    assert (sender.seal(below, INNER) is None) is (count == 0)


@pytest.mark.parametrize(
    ("at", "strict", "end"), [(A, True, HALF), (B, True, 2**48 - 1), (A, False, 2**48 - 1), (B, False, 2**48 - 1)]
)
def test_the_last_counter(at: int, strict: bool, end: int) -> None:
    """A half ends where the other begins; 2^48 − 1 is used by nobody."""
    sender = member(at, domain("client-server", servers=frozenset({B}), strict_tsc_halves=strict))
    sender.tx_counter = end - 1
    below = Flow(src=at, dst=A + B - at).below(0)
    assert header_of(sealed_by(sender, below)).tsc == end - 1
    assert sender.seal(below, INNER) is None


@pytest.mark.parametrize(("ssis", "overhead"), [({}, 28), ({A: 1, B: 2}, 32)])
def test_how_much_longer_packets_get(ssis: dict[int, int], overhead: int) -> None:
    """§7.4."""
    how = domain(ssis=ssis)
    assert how.overhead == overhead
    assert len(sealed_by(member(how=how))) == len(INNER) + overhead


def test_what_is_not_sent() -> None:
    sender = member(how=domain(ssis={A: 1}))
    sender.enabled = False
    assert sender.seal(BELOW, INNER) is None
    sender.enabled = True
    sender.empty(0)
    assert sender.seal(BELOW, INNER) is None
    sender.install(0, key(2))
    assert sender.seal(Flow().back().below(0), INNER) is None  # B has no SSI
    assert counted(sender.counters) == {"out_errored_pkts": 3}
    assert header_of(sealed_by(sender)) == (1, 0, 1, 0, 0)


# Receiving (§9) -------------------------------------------------------------------------------------------------------


def test_what_opens() -> None:
    receiver = port()
    sealed = sealed_by(member())
    assert receiver.receive(BELOW, sealed) == OpenedPacket(INNER, SecurityHeader(1, 0, None, 0, 0))
    assert counted(receiver.domains[1].counters) == {"in_auth_pkts": 1}


@pytest.mark.parametrize(("plain", "passes"), [("drop", False), ("pass", True)])
def test_what_is_not_sealed(plain: str, passes: bool) -> None:
    """Check 1."""
    receiver = port(plain=plain)
    assert receiver.receive(BELOW, INNER) == (OpenedPacket(INNER, None) if passes else Refused("not sealed"))
    assert receiver.receive(BELOW, b"") == (OpenedPacket(b"", None) if passes else Refused("not sealed"))
    assert receiver.in_rx_encryption_bypass == 2
    assert receiver.in_errored == 0


def test_half_a_header_and_unknown_domains() -> None:
    """Check 2."""
    receiver = port()
    for sealed in (sealed_by(member())[:11], sealed_by(member(how=domain(ssis={A: 1})))[:15], b"\x08"):
        assert receiver.receive(BELOW, sealed) == Refused("half a security header")
    other = member(how=domain(sdi=7))
    assert receiver.receive(BELOW, sealed_by(other)) == Refused("an SDI that is not known", 7)
    assert receiver.in_errored == 4
    assert counted(receiver.domains[1].counters) == {}


def test_the_order_of_checks() -> None:
    """Of a packet that fails all of them, the first counts; mended one by one, the next does."""
    how = domain(ssis={A: 1, B: 2}, auth_fail_threshold=10)
    receiver = port(how)
    at_b = receiver.domains[1]
    at_b.move_epoch(17)
    at_b.enabled, at_b.domain_dropping = False, True
    bad = bytearray(sealed_by(member(how=domain())))
    bad[-1] ^= 1

    def counts(name: str) -> None:
        before = counted(at_b.counters)
        result = receiver.receive(BELOW, bytes(bad))
        assert isinstance(result, Refused)
        assert result.sdi == 1
        assert counted(at_b.counters) == before | {name: before.get(name, 0) + 1}

    counts("in_invalid_sa")
    at_b.enabled = True
    counts("in_invalid")
    at_b.clear_dropping()
    counts("in_invalid")  # no SSI
    bad[:] = sealed_by(member(how=how))
    bad[-1] ^= 1
    counts("in_late_pkts")
    bad[:] = sealed_by(member(how=how, epoch=1))
    bad[-1] ^= 1
    counts("in_auth_fail")
    bad[-1] ^= 1
    assert isinstance(receiver.receive(BELOW, bytes(bad)), OpenedPacket)


def test_only_nacks_pass_as_clear_nacks() -> None:
    """§11: another type with the same bytes behind it is a packet in clear like any other."""
    receiver = SecurePort(clear_nacks={NackCode.NEW_START_PSN})
    nack = build_nack(NackCode.NEW_START_PSN, 0, 0, 5, 0, 7, 9)
    for type_ in range(32):
        packet = bytes([type_ << 3 | nack[0] & 7]) + nack[1:]
        assert isinstance(receiver.receive(BELOW, packet), OpenedPacket) is (type_ == PdsType.NACK), type_


def test_a_counter_from_the_wrong_half() -> None:
    """§4: what one side sealed is nothing that the other could have sealed."""
    how = domain("client-server", ssis={A: 2, B: 1}, servers=frozenset({B}))
    receiver = port(how)
    bad = sealed_by(member(A, replace(how, strict_tsc_halves=False)))
    assert isinstance(receiver.receive(BELOW, bad), OpenedPacket)
    sender = member(A, replace(how, strict_tsc_halves=False))
    sender.tx_counter = HALF
    assert isinstance(receiver.receive(BELOW, sealed_by(sender)), Refused)
    assert counted(receiver.domains[1].counters) == {"in_auth_pkts": 1, "in_invalid": 1}


EDGES = st.sampled_from((0, 1, 15, 16, 17, 0x7FFF, 0x8000, 0xFFFF))


@given(current=st.integers(0, 2**16 - 1), age=st.one_of(EDGES, st.integers(0, 2**16 - 1)))
@examples(300)
def test_epochs(current: int, age: int) -> None:
    """Property 10: 0 … 16 pass, 17 … 0x7fff fail, newer ones pass; across the wrap."""
    receiver = member(B, epoch=current)
    sealed = sealed_by(member(A, epoch=(current - age) % 2**16))
    result = receiver.receive(header_of(sealed), BELOW, sealed)
    assert isinstance(result, OpenedPacket) is (age <= 16 or age >= 0x8000)
    assert counted(receiver.counters) == {"in_auth_pkts" if isinstance(result, OpenedPacket) else "in_late_pkts": 1}


@given(threshold=st.integers(0, 5), more=st.integers(0, 3))
def test_the_latch(threshold: int, more: int) -> None:
    """Property 11."""
    receiver = port(domain(auth_fail_threshold=threshold))
    receiver.domains[2] = member(B, domain(sdi=2))
    good, other = sealed_by(member()), sealed_by(member(how=domain(sdi=2)))
    at_b = receiver.domains[1]
    for _ in range(threshold):
        receiver.receive(BELOW, good[:-1] + bytes([good[-1] ^ 1]))
    assert isinstance(receiver.receive(BELOW, good), OpenedPacket)
    for _ in range(1 + more):
        receiver.receive(BELOW, good[:-1] + bytes([good[-1] ^ 1]))
    assert at_b.domain_dropping
    assert isinstance(receiver.receive(BELOW, good), Refused)
    assert isinstance(receiver.receive(BELOW, other), OpenedPacket)
    assert (at_b.counters.in_auth_fail, at_b.counters.in_invalid) == (threshold + 1, 1 + more)
    at_b.clear_dropping()
    for _ in range(threshold):
        receiver.receive(BELOW, good[:-1] + bytes([good[-1] ^ 1]))
    assert isinstance(receiver.receive(BELOW, good), OpenedPacket)


@pytest.mark.parametrize(
    ("ssis", "offset", "kept", "clear"),
    [
        ({}, "header", 60, 0),
        ({}, 23, 60, 0),  # 11 bytes: the PSN is there, but not all of the PDS
        ({}, 24, 60, 12),
        ({}, 24, 24, 12),
        ({}, 24, 23, 0),
        ({A: 1, B: 2}, 28, 60, 12),
        ({A: 1, B: 2}, 27, 60, 0),
        ({}, 30, 40, 18),
    ],
)
def test_trimmed_packets(ssis: dict[int, int], offset: int | str, kept: int, clear: int) -> None:
    """§7.2: good for a PSN, if the PDS header travels in clear."""
    how = domain(ssis=ssis, crypto_offset=offset)
    receiver = port(how)
    sealed = sealed_by(member(how=how))[:kept]
    result = receiver.receive(BELOW, sealed, is_trimmed=True)
    if clear:
        assert result == TrimmedPart(INNER[:clear], header_of(sealed))
        assert counted(receiver.domains[1].counters) == {}
    else:
        assert isinstance(result, Refused)
        assert counted(receiver.domains[1].counters) == {"in_trimmed": 1}


def test_a_packet_belongs_to_the_domain_of_its_pdc() -> None:
    receiver = port()
    opened = receiver.receive(BELOW, sealed_by(member()))
    assert isinstance(opened, OpenedPacket)
    assert opened.header is not None
    assert receiver.is_bound(opened.header, 1)
    assert not receiver.is_bound(opened.header, 2)
    assert counted(receiver.domains[1].counters) == {"in_auth_pkts": 1, "in_binding_failure_pkts": 1}


@given(packet=st.binary(max_size=80), is_trimmed=st.booleans())
@examples(300)
def test_no_bytes_raise(packet: bytes, is_trimmed: bool) -> None:
    for data in (packet, b"\x08\0\0\1" + packet, b"\x0d\0\0\1" + packet):
        result = port(plain="drop").receive(BELOW, data, is_trimmed=is_trimmed)
        assert isinstance(result, Refused)


# Rotation (§10) -------------------------------------------------------------------------------------------------------


class InFlight(NamedTuple):
    sealed: bytes
    src: int
    dst: int


@given(
    epoch=st.sampled_from((0, 5, 20, 0x7FFF, 0x9000, 0xFFFF)),
    steps=st.lists(st.tuples(st.sampled_from(("seal", "deliver", "switch")), st.integers(0, 2)), max_size=60),
)
@examples(200)
def test_make_before_break(epoch: int, steps: list[tuple[str, int]]) -> None:
    """Property 12: members switch when they like, packets arrive when they like; then the old key is gone."""
    addresses = Members.addresses[:3]
    members = {address: member(address, epoch=epoch) for address in addresses}
    flight: list[InFlight] = []
    flight += [send(members, addresses, i) for i in range(3)]
    for one in members.values():
        one.install(1, key(2))
    for what, i in steps:
        one = members[addresses[i]]
        if what == "seal":
            flight.append(send(members, addresses, i))
        elif what == "deliver" and flight:
            assert arrives(members, flight.pop(i % len(flight)))
        elif what == "switch" and one.tx_an == 0:
            one.switch(1)
    for one in members.values():
        if one.tx_an == 0:
            one.switch(1)
    flight += [send(members, addresses, i) for i in range(3)]
    assert all(arrives(members, packet) for packet in flight)
    for one in members.values():
        one.empty(0)
    for packet in flight:
        assert arrives(members, packet) is (header_of(packet.sealed).an == 1)


def send(members: dict[int, SecureDomain], addresses: tuple[int, ...], i: int) -> InFlight:
    src, dst = addresses[i], addresses[(i + 1) % len(addresses)]
    return InFlight(sealed_by(members[src], AssociatedData(4, src, dst, bytes(4))), src, dst)


def arrives(members: dict[int, SecureDomain], packet: InFlight) -> bool:
    sealed, src, dst = packet
    result = members[dst].receive(header_of(sealed), AssociatedData(4, src, dst, bytes(4)), sealed)
    return isinstance(result, OpenedPacket)


def test_a_key_that_has_sealed_never_comes_back() -> None:
    one = member(how=domain(keys=((key(1),), (key(2),))))
    with pytest.raises(LocalError, match=r"an: 0 is in use; legal: 1"):
        one.install(0, key(3))
    one.move_epoch(5)
    one.switch(1)
    with pytest.raises(LocalError, match=r"an: 0 has no new key; legal: the idle one, 0, after `install`"):
        one.switch(0)
    with pytest.raises(LocalError, match="key: it has sealed packets; legal: a new one"):
        one.install(0, DomainKey(key(1).value, 7))
    one.empty(0)
    with pytest.raises(LocalError, match="an: 0 has no new key"):
        one.switch(0)
    one.install(0, key(3))
    one.switch(0)
    assert (one.tx_an, one.tx_epoch, one.tx_counter) == (0, 0, 0)


def test_a_key_installed_where_there_was_none_has_sealed() -> None:
    """§10: it begins with counter 0 at once, and never again."""
    one = member()
    sealed_by(one)
    one.empty(0)
    assert one.seal(BELOW, INNER) is None
    one.install(0, key(2))
    assert header_of(sealed_by(one)).tsc == 0
    with pytest.raises(LocalError, match="it has sealed packets"):
        one.install(1, key(2))


def test_a_client_has_a_key_for_each_epoch() -> None:
    """§4: packet key and mask, derived for it."""
    how = domain("client-server", ssis={A: 100, B: 1}, servers=frozenset({B}))
    keys = [
        DomainKey(b"".join(derive(key(1).value, b"U2", context(epoch, 0, bytes.fromhex("00000064")))), epoch)
        for epoch in (3, 4)
    ]
    client, server = member(how=replace(how, keys=((keys[0],), ()))), member(B, how, epoch=3)
    sealed = sealed_by(client)
    assert header_of(sealed).epoch == 3
    assert isinstance(server.receive(header_of(sealed), BELOW, sealed), OpenedPacket)
    client.install(1, keys[1])
    client.switch(1)
    assert header_of(sealed_by(client)) == (1, 1, 100, 4, 0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: member().install(2, key(2)), "an: 2; legal: 0, 1"),
        (lambda: member().switch(1), "an: 1 has no new key; legal: the idle one, 1, after `install`"),
        (lambda: member(tx_an=2), "tx_an: 2; legal: 0, 1"),
        (lambda: member(epoch=65536), "epoch: 65536; legal: 0 … 65535"),
        (lambda: member(epoch=5).move_epoch(5), "epoch: 5 is not newer than 5; legal: up to 32767 further"),
        (lambda: member(epoch=5).move_epoch(4), "epoch: 4 is not newer than 5; legal: up to 32767 further"),
        (
            lambda: SecureDomain(domain("direct"), 1, 6),
            "ssis: none; legal in mode direct over IPv6: one for each member",
        ),
        (
            lambda: member(how=domain("client-server", servers=frozenset({A, B}), ssis={A: 1})),
            "servers: 2, with one prefix of nonces; legal: one, with SSI or over IPv6",
        ),
        (
            lambda: SecureDomain(domain("client-server", servers=frozenset({A, B})), A, 6),
            "servers: 2, with one prefix of nonces; legal: one, with SSI or over IPv6",
        ),
        (
            lambda: member(how=domain("client-server", keys=((DomainKey(bytes(44)),), ()))).move_epoch(1),
            "epoch: the key was derived for another; legal: a rotation to one of the new epoch",
        ),
        (lambda: SecurePort(plain="maybe"), "plain: 'maybe'; legal: drop, pass"),
        (
            lambda: SecurePort(clear_nacks={NackCode.TRIMMED.value}),
            "clear_nacks: [1]; legal: some of NEW_START_PSN, INV_DPDCID",
        ),
    ],
)
def test_misuse(wrong: Any, message: str) -> None:
    with pytest.raises(LocalError) as error:
        wrong()
    assert str(error.value) == message
