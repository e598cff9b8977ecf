# SPDX-License-Identifier: GPL-2.0-only
"""PEER.toml: what a peer is asked, how its answers are written and read, and what is refused."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conform.faulty_peers import FaultyPeer, PeerFault, altered, peer_with
from tests.support.conform import FACTS, AdapterLink, facts
from uetproto.cli.conform.peer import Claims
from uetproto.conform.catalogue import chosen, load
from uetproto.conform.packets import OPTIONAL
from uetproto.conform.peer_file import SECTIONS, PeerFile, peer_toml
from uetproto.conform.player import ConformanceVerdict, Patience, play
from uetproto.conform.questions import ask, askable, crc_of, payload_mtu_of
from uetproto.errors import LocalError, Location
from uetproto.wire.headers.uet_ses import Opcode
from uetproto.wire.packet import Packet


def answers(link: AdapterLink) -> dict[str, bool | None]:
    return {name: ask(name, link, FACTS, "1", Patience()).has for name in askable()}


def opcode_of(packet: Packet) -> int:
    return next((layer.values["opcode"] for layer in packet.layers if layer.form.startswith("ses.")), -1)


def without(*opcodes: Opcode) -> type[FaultyPeer]:
    """A peer that refuses opcodes, as one whose profile lacks them."""

    def change(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
        unknown = 0x3F  # an opcode that nobody has
        yield altered(packet, opcode=unknown) if opcode_of(packet) in opcodes else packet

    return peer_with(PeerFault((), change))


def mute(*opcodes: Opcode) -> type[FaultyPeer]:
    """A peer that drops requests with some opcodes."""

    def change(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
        if opcode_of(packet) not in opcodes:
            yield packet

    return peer_with(PeerFault((), change))


def test_a_peer_says_what_it_has() -> None:
    assert answers(AdapterLink()) == dict.fromkeys(askable(), True)
    assert {*askable()} == {*OPTIONAL} - {"uud", "data"}
    lacking = answers(AdapterLink(without(Opcode.READ, Opcode.TAGGED_SEND)))
    assert {name for name, has in lacking.items() if not has} == {"read", "returns", "tagged"}
    data = ask("returns", AdapterLink(knobs={"max_ack_data_size": 4096}), FACTS, "1", Patience())
    assert (data.has, data.words) == (False, "asked: the data of a read of 64 bytes comes in the ACK")
    silent = answers(AdapterLink(mute(Opcode.FETCHING_ATOMIC)))
    assert {name for name, has in silent.items() if has is False} == {"fetch", "cas"}


def test_what_does_not_tell_is_not_known() -> None:
    wrong = replace(FACTS, key=77)
    answer = ask("read", AdapterLink(), wrong, "1", Patience())
    assert (answer.has, "BAD_MKEY" in answer.words) == (None, True)
    assert payload_mtu_of(AdapterLink(), wrong, "1", Patience()) is None
    assert ask("read", AdapterLink(), replace(FACTS, length=0), "1", Patience()).has is None


def test_crc_and_payload_mtu_are_asked() -> None:
    assert crc_of(AdapterLink(crc=False), FACTS, "1", Patience()) == (False, 5_000_000)
    assert payload_mtu_of(AdapterLink(payload_mtu=2048), facts(payload_mtu=8192), "1", Patience()) == 2048


def test_what_is_written_is_read(tmp_path: Path) -> None:
    link = AdapterLink(without(Opcode.READ))
    told = [ask(name, link, FACTS, "1", Patience()) for name in askable()]
    peer = replace(FACTS, key=2**63 + 5, without=frozenset(("uud",)))
    path = tmp_path / "PEER.toml"
    path.write_text(peer_toml("10.0.0.2", peer, 5_000_000, told, (4096, "asked"), 300), encoding="utf-8")
    known = PeerFile(path).known()
    assert known.lacking == {"read", "returns", "uud"}
    assert {*known.claims} == {*OPTIONAL} - {"read", "returns", "uud"}
    assert known.claims["fetch"].line == path.read_text(encoding="utf-8").splitlines().index(
        "fetch = true  # asked: FETCHING_ATOMIC, SUM of UINT64"
    ) + 1  # fmt: skip
    assert (known.address, known.rto_ms, known.told["memory"]["key"]) == ("10.0.0.2", 300, 2**63 + 5)
    assert {*known.told["endpoint"]} == {"job_id", "pid_on_fep", "resource_index", "relative"}
    text = path.read_text(encoding="utf-8")
    assert [key for section in SECTIONS.values() for key in section if f"\n{key} = " not in text] == ["ip_protocol"]


def test_a_claim_that_is_not_true_is_the_reason_of_the_failure() -> None:
    """The test fails, and its reason names file and line of what the peer is said to have."""
    link, patience = AdapterLink(without(Opcode.READ)), Patience()
    bench: Any = SimpleNamespace(link=link, facts=FACTS, seed="1", patience=patience)
    claims = Claims({"read": Location("PEER.toml", 30), "fetch": Location("PEER.toml", 31)}, bench)
    [test] = chosen(load(), ["UET-SES-003"])
    outcome = play(test, link, FACTS, "1", patience)
    assert outcome.verdict is ConformanceVerdict.FAIL
    told = "PEER.toml:30 says that the peer has read, and it has not (asked: READ is refused with UNSUPPORTED_OP); "
    assert claims.checked(outcome) == told + outcome.reason
    assert Claims({"fetch": Location("PEER.toml", 31)}, bench).checked(outcome) == outcome.reason


WRONG = {
    "[memory]\nkey = 1": None,
    "": r"PEER.toml:1: memory.key: is missing",
    "[memroy]\nkey = 1": r"PEER.toml:1: memroy: is not legal \(did you mean memory\?\)",
    "[memory]\nkey = 1\nlenght = 5": r"PEER.toml:3: memory.lenght: is not legal \(did you mean length\?\); legal: key",
    "[memory]\nkey = -1": r"PEER.toml:2: memory.key: -1 is not legal; legal: a whole number of 64 bits",
    '[memory]\nkey = "0x7"': "PEER.toml:2: memory.key",
    "[memory]\nkey = 1\naddress = 18446744073709551615\nlength = 2": "PEER.toml:4: memory.length: is beyond",
    "[memory]\nkey = 1\n[capabilities]\nreed = true": r"PEER.toml:4: capabilities.reed: .*did you mean read",
    "[memory]\nkey = 1\n[capabilities]\nread = 1": "PEER.toml:4: capabilities.read: 1 .* legal: true, false",
    "[memory]\nkey = 1\n[link]\npayload_mtu = 1500": r"PEER.toml:4: link.payload_mtu: 1500 .* legal: .*4096",
    "[memory]\nkey = 1\n[link]\nudp_port = 4793\nip_protocol = 253": "PEER.toml:5: link.ip_protocol: goes without",
    "[memory]\nkey = 1\n[endpoint]\nresource_index = 0": r"PEER.toml:4: endpoint.resource_index: 0 .* 1 … 4095",
    '[memory]\nkey = 1\n[peer]\naddress = "nowhere"': "PEER.toml:4: peer.address",
    "[memory]\nkey = 1\nkey = 2": "PEER.toml:3",
    "memory = 3": "PEER.toml:1: memory",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_key_or_value_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    path, told = tmp_path / "PEER.toml", WRONG[text]
    path.write_text(text, encoding="utf-8")
    if told is None:
        assert PeerFile(path).known().told["memory"] == {"key": 1, "address": 0, "length": 1 << 16}
    else:
        with pytest.raises(LocalError, match=told):
            PeerFile(path).known()
