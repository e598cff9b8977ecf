# SPDX-License-Identifier: GPL-2.0-only
"""This module reads and writes PEER.toml of a peer of RoCE: where it is, what it has, and its queue pairs, if somebody
made them by hand."""

import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from uetproto.conform.catalogue import ConformanceTest
from uetproto.conform.peer_file import SectionedFile, toml_row
from uetproto.conform.questions import PeerAnswer
from uetproto.conform.roce.hand import HandPairs, needed
from uetproto.conform.roce.pairs import KINDS, NEEDS, OPTIONAL, SETTINGS, OpenPair, PeerMemory
from uetproto.errors import LocalError, Location, shown
from uetproto.knobs import KeyType
from uetproto.live.interface import address_of
from uetproto.toml.values import BOOLEAN, TEXT, integer, one_of
from uetproto.wire.headers.roce import MULTICAST_QP, PMTUS


def _path_mtu(value: Any) -> int:
    if type(value) is not int or value not in PMTUS:
        raise ValueError
    return value


def _memory(words: str) -> dict[str, KeyType]:
    return {
        "key": integer(0, 2**32 - 1).says(f"r_key of {words}."),
        "address": integer(0, 2**64 - 1).says("Address of its first byte."),
        "length": integer(1, 2**62).says("Number of its bytes."),
    }


_OTHERS = ("read_only", "write_only", "other_domain")
"""Further memory that tests may need."""
_PSN = integer(0, 2**24 - 1)
_PSNS = ("start", "first")
"""Settings of a wish that are PSNs, which have keys of their own."""
_OF_PAIRS = (*_PSNS, "again", "path_mtu")
"""Settings that a queue pair of the file does not have."""
_PAIR: Mapping[str, KeyType] = {
    "kind": one_of(KINDS).says("Service."),
    "qpn": integer(2, MULTICAST_QP - 1).says("Number of our queue pair, to which that of the peer is connected."),
    "psn": _PSN.says("Our first PSN, which the peer expects (rq_psn)."),
    "peer_qpn": integer(0, MULTICAST_QP - 1).says("Number of the peer's queue pair; 0: nobody knows it yet."),
    "peer_psn": _PSN.says("First PSN of the peer (sq_psn)."),
    "q_key": integer(0, 2**32 - 1).says("Q_Key of the peer's queue pair, of UD."),
    **{name: integer(*bounds) for name, bounds in SETTINGS.items() if name not in _OF_PAIRS},
}
"""Keys of a queue pair in [pairs]; settings make it one for the tests that need it."""
_CAPABILITIES = (*OPTIONAL, "cnp", "own_memory")
ROCE_SECTIONS: Mapping[str, Mapping[str, KeyType]] = {
    "peer": {
        "address": TEXT.says("Address or GID of the peer; --peer names it otherwise."),
        "transport": one_of(KINDS).says("What is tested: rc is RoCEv2 with all services, uc and ud are one of them."),
        "rendezvous": TEXT.says("TCP port of its rendezvous, which makes queue pairs for each test, or ADDRESS:PORT."),
    },
    "link": {
        "udp_port": integer(1, 65535).says("UDP port of the peer."),
        "path_mtu": KeyType(_path_mtu, ", ".join(map(str, PMTUS))).says("Path MTU of the queue pairs."),
        "p_key": integer(1, 0xFFFF).says("P_Key of the partition."),
        "rto_ms": integer(1, 60_000).says("Local ACK time-out of the peer as requester, in milliseconds."),
    },
    "memory": _memory("memory that we may read, write and reach by atomics"),
    **{name: _memory(NEEDS[name]) for name in _OTHERS},
    "reports": {"file": TEXT.says("File to which the peer appends a line for each message of a receive.")},
    "capabilities": {name: BOOLEAN.says(f"The peer has {(OPTIONAL | NEEDS)[name]}.") for name in _CAPABILITIES},
}
"""Tables of PEER.toml of RoCE and their keys, beside [pairs], which has a table for each queue pair."""


@dataclass(frozen=True, slots=True)
class KnownRocePeer:
    """This record has what PEER.toml says of a peer of RoCE."""

    address: str | None
    transport: str
    rendezvous: str | None
    """TCP port of the rendezvous, or ADDRESS:PORT, or None: the queue pairs were made by hand."""
    told: Mapping[str, Any]
    """Facts in the form in which a rendezvous tells them."""
    p_key: int
    rto_ms: int | None
    hand: HandPairs | None
    lacking: frozenset[str]
    claims: Mapping[str, Location]
    """Capabilities that the peer is said to have, with file and line."""
    names: Mapping[int, str] = field(default_factory=dict)
    """Names of the queue pairs by our numbers."""


def is_of_roce(file: SectionedFile) -> bool:
    """Return whether a PEER.toml is one of a peer of RoCE."""
    peer = file.data.get("peer")
    return "pairs" in file.data or (isinstance(peer, dict) and "transport" in peer)


class RocePeerFile(SectionedFile):
    """This class reads one PEER.toml of a peer of RoCE."""

    def known(self, *, filled: bool = True) -> KnownRocePeer:
        """Return what the file says. Raises `LocalError` with file and line for a key or a value that is not legal, and
        for a queue pair of the peer without a number, unless the file need not be `filled` yet."""
        found = self.sections(ROCE_SECTIONS, ("pairs",))
        peer, link, capabilities = found["peer"], found["link"], found["capabilities"]
        by_hand = "rendezvous" not in peer
        if by_hand is not ("pairs" in self.data):
            wrong = "is missing: nobody makes queue pairs" if by_hand else "goes without pairs, which it makes"
            raise self.refuse("peer.rendezvous", wrong, "one of peer.rendezvous, [pairs]", id="wrong-peer-file")
        address = peer.get("address")
        if address is not None:
            try:
                address = str(address_of("peer.address", address))
            except LocalError:
                raise self.refuse(
                    "peer.address", f"{shown(address)} is not legal", "an address or a GID", id="wrong-peer-file"
                ) from None
        pairs = self._pairs(filled) if by_hand else {}
        return KnownRocePeer(
            address=address, transport=peer.get("transport", "rc"), rendezvous=peer.get("rendezvous"),
            told={
                **({"udp_port": link["udp_port"]} if "udp_port" in link else {}),
                **({"payload_mtu": link["path_mtu"]} if "path_mtu" in link else {}),
            },
            p_key=link.get("p_key", 0xFFFF), rto_ms=link.get("rto_ms"),
            hand=self._hand(found, pairs) if by_hand else None,
            lacking=frozenset(name for name, has in capabilities.items() if not has),
            claims=self.claims(capabilities), names={pair.number: name for name, pair in pairs.items()},
        )  # fmt: skip

    def _hand(self, found: Mapping[str, Mapping[str, Any]], pairs: Mapping[str, OpenPair]) -> HandPairs:
        memory = {}
        for name in ("memory", *_OTHERS):
            place = found[name]
            if "key" not in place and (place or name == "memory"):
                raise self.refuse(f"{name}.key", "is missing", ROCE_SECTIONS[name]["key"].legal, id="wrong-peer-file")
            if place:
                where = PeerMemory(place["key"], place.get("address", 0), place.get("length", 1 << 16))
                memory["" if name == "memory" else name] = where
        reports = found["reports"].get("file")
        has = {name for name, is_there in found["capabilities"].items() if is_there} | {*memory}
        has |= set() if reports is None else {"reports"}
        return HandPairs(
            [*pairs.values()], memory, tuple(name for name in NEEDS if name not in has),
            None if reports is None else self.path.parent / reports,
        )  # fmt: skip

    def _pairs(self, filled: bool) -> dict[str, OpenPair]:
        """Return the queue pairs of [pairs] by their names."""
        table = self.data["pairs"]
        if not isinstance(table, dict) or not table:
            raise self.refuse("pairs", "has no queue pair", "a table for each queue pair", id="wrong-peer-file")
        found: dict[str, OpenPair] = {}
        for name, row in table.items():
            at = f"pairs.{name}"
            values = self.values(at, row, _PAIR)
            needs = ["kind", "qpn", "peer_qpn", *(["q_key"] if values.get("kind") == "ud" else [])]
            for key in needs:
                if key not in values or (key == "peer_qpn" and filled and values[key] < 2):
                    raise self.refuse(f"{at}.{key}", "is missing", _PAIR[key].doc, id="wrong-peer-file")
            pair = OpenPair(
                values["kind"], values["qpn"], values["peer_qpn"], values.get("psn", 0),
                q_key=values.get("q_key", 0), first=values.get("peer_psn", 0),
                settings={key: value for key, value in values.items() if key in SETTINGS},
            )  # fmt: skip
            for other, one in found.items():
                if one.number == pair.number or (pair.theirs and one.theirs == pair.theirs):
                    key = "qpn" if one.number == pair.number else "peer_qpn"
                    raise self.refuse(
                        f"{at}.{key}", f"is that of pairs.{other}", "a number for each queue pair", id="wrong-peer-file"
                    )
            found[name] = pair
        return found


_NO_NUMBER = re.compile(r"\bpeer_qpn\s*=\s*(?:0|0x0+)(?=\s*[,}])")


def with_numbers(text: str, numbers: Mapping[str, int]) -> str:
    """Return the text of PEER.toml with numbers of the peer's queue pairs, by their names, where it has none."""
    lines = text.splitlines(keepends=True)
    for at, line in enumerate(lines):
        name = line.partition("=")[0].strip()
        if name in numbers:
            lines[at] = _NO_NUMBER.sub(f"peer_qpn = {numbers[name]:#x}", line, count=1)
    return "".join(lines)


# Writing --------------------------------------------------------------------------------------------------------------

_HEAD = (
    "# docs/conform.md explains the keys; `uetproto conform --peer-file FILE` uses them.",
    "",
)
_FIRST_QPN = 0x101


def _sections(sections: Mapping[str, list[tuple[str, Any, str]]]) -> list[str]:
    lines: list[str] = []
    for name, rows in sections.items():
        lines += [f"[{name}]", *(toml_row(key, value, note) for key, value, note in rows), ""]
    return lines


def asked_toml(
    address: str, transport: str, rendezvous: str, rtt: int, rto_ms: int, answers: Iterable[PeerAnswer]
) -> str:
    """Return the text of PEER.toml for a peer whose rendezvous makes the queue pairs."""
    sections: dict[str, list[tuple[str, Any, str]]] = {
        "peer": [
            ("address", address, f"answers in {rtt // 1_000_000:,} µs"), ("transport", transport, ""),
            ("rendezvous", rendezvous, "TCP port; it makes queue pairs and memory for each test"),
        ],
        "link": [("rto_ms", rto_ms, "not asked: local ACK time-out of the peer as requester")],
        "capabilities": [(one.name, one.has is not False, one.words) for one in answers],
    }  # fmt: skip
    head = f"# What `uetproto conform --init` found out about {address}. Mend what is wrong."
    return "\n".join([head, *_HEAD, *_sections(sections)])


def hand_toml(
    address: str, transport: str, link: Mapping[str, Any], memory: PeerMemory, tests: Iterable[ConformanceTest],
    seed: str,
) -> str:  # fmt: skip
    """Return the text of PEER.toml for a peer whose queue pairs are to be made by hand: with all that the tests need,
    and our numbers and PSNs, but without those of the peer."""
    sections: dict[str, list[tuple[str, Any, str]]] = {
        "peer": [("address", address, ""), ("transport", transport, "")],
        "link": [
            ("udp_port", link["udp_port"], ""), ("path_mtu", link["path_mtu"], "of all queue pairs"),
            ("p_key", 0xFFFF, "the default partition"),
            ("rto_ms", link["rto_ms"], "local ACK time-out of the peer as requester"),
        ],
        "memory": [
            ("key", memory.key, "r_key of memory with all rights"), ("address", memory.address, "of its first byte"),
            ("length", memory.length, "bytes; the tests need 65536"),
        ],
    }  # fmt: skip
    lines = [
        f"# What the tests need of {address}. Make this memory and these queue pairs, and write what they got into it.",
        *_HEAD, *_sections(sections),
    ]  # fmt: skip
    for name in _OTHERS:
        lines += [f"# [{name}]  # {NEEDS[name]}; without it some tests are inconclusive", "# key = 0", "# address = 0"]
        lines += ["# length = 65536", ""]
    lines += [
        "[reports]", "# a line for each message that a receive has taken, such as",
        '# {"qp_num": 18, "data": "00ff", "length": 2, "immdt": null, "se": 0, "srcqp": 257}',
        '# file = "received.jsonl"', "", "[capabilities]",
        "# true: the tests that need it are played; false: they are left out",
        *(toml_row(name, True, words) for name, words in OPTIONAL.items()),
        toml_row("cnp", False, NEEDS["cnp"]),
        toml_row("own_memory", False, "nothing is before the first byte of [memory], nor behind its last one"),
        "", "[pairs]",
        "# one queue pair a line, connected to qpn and psn of ours; each needs peer_qpn, the number that it got.",
        "# Unless a line says otherwise: 32 receives of two path MTUs or more, posted again when they are taken, and",
        "# all rights (access as of roce.md §10; receives, receive_size, min_rnr_timer, max_dest_rd_atomic, …)",
        *_pair_lines(tests, seed), "",
    ]  # fmt: skip
    return "\n".join(lines)


def _pair_lines(tests: Iterable[ConformanceTest], seed: str) -> Iterable[str]:
    rng, counts = random.Random(f"{seed}/pairs"), Counter[str]()
    for number, wish in enumerate(needed(tests), _FIRST_QPN):
        kind = wish["kind"]
        counts[kind] += 1
        row = {
            "qpn": f"{number:#x}", "psn": wish.get("start", rng.getrandbits(24)), "peer_qpn": 0,
            "peer_psn": wish.get("first", rng.getrandbits(24)), **({"q_key": "0x11111111"} if kind == "ud" else {}),
            **{name: value for name, value in wish.items() if name not in ("kind", *_PSNS)},
        }  # fmt: skip
        told = ", ".join(f"{name} = {value}" for name, value in row.items())
        yield f'{kind}{counts[kind]} = {{ kind = "{kind}", {told} }}'
