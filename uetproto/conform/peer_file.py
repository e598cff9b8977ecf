# SPDX-License-Identifier: GPL-2.0-only
"""This module reads and writes PEER.toml: what is known of a peer that is tested, and what it says that it has."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from uetproto.conform.packets import OPTIONAL, PeerFacts
from uetproto.conform.questions import PeerAnswer
from uetproto.errors import LocalError, Location, shown, similar
from uetproto.knobs import KeyType
from uetproto.toml.file import TomlFile
from uetproto.toml.values import ADDRESS, BOOLEAN, MEMORY_KEY, integer
from uetproto.wire.headers.uet_ses import PAYLOAD_MTUS


def _payload_mtu(value: Any) -> int:
    if type(value) is not int or value not in PAYLOAD_MTUS:
        raise ValueError
    return value


_ADDRESS_64 = integer(0, 2**64 - 1)
SECTIONS: Mapping[str, Mapping[str, KeyType]] = {
    "peer": {"address": ADDRESS.says("Address of the peer; --peer names it otherwise.")},
    "link": {
        "udp_port": integer(1, 65535).says("UDP port of the peer."),
        "ip_protocol": integer(1, 255).says("IP protocol, in place of a UDP port: native IP."),
        "crc": BOOLEAN.says("Whether packets have a CRC32C."),
        "payload_mtu": KeyType(_payload_mtu, ", ".join(map(str, PAYLOAD_MTUS))).says("Largest payload of a packet."),
        "rto_ms": integer(1, 60_000).says("First retransmission time-out of the peer as initiator, in milliseconds."),
    },
    "endpoint": {
        "job_id": integer(0, 2**24 - 1).says("JobID."),
        "pid_on_fep": integer(0, 4095).says("PIDonFEP."),
        "resource_index": integer(1, 4095).says("Resource index."),
        "initiator_id": integer(0, 2**32 - 1).says("Initiator id of our side."),
        "relative": BOOLEAN.says("Whether addressing is relative (ses.md §2.2)."),
    },
    "memory": {
        "key": MEMORY_KEY.says("Memory key, of memory that we may read and write."),
        "address": _ADDRESS_64.says("Address of its first byte."),
        "length": _ADDRESS_64.says("Number of its bytes; the tests need 16 KiB."),
    },
    "receive": {"count": integer(0, 2**32).says("Number of receives that are posted.")},
    "capabilities": {name: BOOLEAN.says(f"{words[0].upper()}{words[1:]}.") for name, words in OPTIONAL.items()},
}
"""Tables of PEER.toml and their keys."""


@dataclass(frozen=True, slots=True)
class KnownPeer:
    """This record has what PEER.toml says."""

    address: str | None
    told: Mapping[str, Any]
    """Facts in the form in which a rendezvous tells them (live.md)."""
    options: Mapping[str, Any]
    """Values of options of the link, by their names."""
    rto_ms: int | None
    lacking: frozenset[str]
    claims: Mapping[str, Location]
    """Capabilities that the peer is said to have, with file and line."""


class SectionedFile(TomlFile):
    """This base class reads a TOML file of tables with declared keys."""

    def table_of(self, name: str, key: str) -> dict[str, Any]:
        """Raise `LocalError`, as no key is set from the command line."""
        raise LocalError(name, "is not to be set", "keys of the file", id="wrong-peer-file")

    def sections(
        self, declared: Mapping[str, Mapping[str, KeyType]], others: tuple[str, ...] = ()
    ) -> dict[str, dict[str, Any]]:  # fmt: skip
        """Return the values of all declared tables by their names. Raises `LocalError` with file and line for a table
        that is neither declared nor one of `others`, and for a key or a value that is not legal."""
        legal = (*declared, *others)
        for name in self.data:
            if name not in legal:
                raise self.refuse(name, f"is not legal{similar(name, legal)}", ", ".join(legal), id="wrong-peer-file")
        return {name: self.values(name, self.data.get(name, {}), keys) for name, keys in declared.items()}

    def values(self, name: str, table: Any, keys: Mapping[str, KeyType]) -> dict[str, Any]:
        """Return the values of a table. Raises `LocalError` with file and line for what is not legal."""
        if not isinstance(table, dict):
            raise self.refuse(name, shown(table), f"a table [{name}]", id="wrong-peer-file")
        found = {}
        for key, value in table.items():
            if key not in keys:
                raise self.refuse(
                    f"{name}.{key}", f"is not legal{similar(key, keys)}", ", ".join(keys), id="wrong-peer-file"
                )
            try:
                found[key] = keys[key].check(value)
            except (ValueError, LocalError):
                raise self.refuse(
                    f"{name}.{key}", f"{shown(value)} is not legal", keys[key].legal, id="wrong-peer-file"
                ) from None
        return found

    def claims(self, capabilities: Mapping[str, bool]) -> dict[str, Location]:
        """Return the capabilities that the peer is said to have, with file and line."""
        return {
            name: Location(str(self.path), self.lines.get(f"capabilities.{name}", 1))
            for name, has in capabilities.items() if has
        }  # fmt: skip


class PeerFile(SectionedFile):
    """This class reads one PEER.toml of a peer of UET."""

    def known(self) -> KnownPeer:
        """Return what the file says. Raises `LocalError` with file and line for a key or a value that is not legal."""
        found = self.sections(SECTIONS)
        link, end, memory = found["link"], found["endpoint"], found["memory"]
        if "udp_port" in link and "ip_protocol" in link:
            raise self.refuse(
                "link.ip_protocol", "goes without udp_port", "one of udp_port, ip_protocol", id="wrong-peer-file"
            )
        if "key" not in memory:
            raise self.refuse("memory.key", "is missing", SECTIONS["memory"]["key"].legal, id="wrong-peer-file")
        if memory["key"] and memory.get("address", 0) + memory.get("length", 0) > 2**64:
            raise self.refuse(
                "memory.length", "is beyond the last address", "address + length up to 2^64", id="wrong-peer-file"
            )
        address = found["peer"].get("address")
        capabilities = found["capabilities"]
        return KnownPeer(
            address=None if address is None else str(ip_address(self.data["peer"]["address"])),
            told={
                "udp_port": link.get("udp_port"), "crc": link.get("crc", True),
                **({"payload_mtu": link["payload_mtu"]} if "payload_mtu" in link else {}),
                "memory": {"address": 0, "length": 1 << 16, **memory},
                "endpoint": {key: value for key, value in end.items() if key != "initiator_id"},
                "receive": {"count": 1, **found["receive"]},
            },
            options={
                **({"udp_port": link["udp_port"]} if "udp_port" in link else {}),
                **({"ip_protocol": link["ip_protocol"]} if "ip_protocol" in link else {}),
                **({"initiator_id": end["initiator_id"]} if "initiator_id" in end else {}),
            },
            rto_ms=link.get("rto_ms"),
            lacking=frozenset(name for name, has in capabilities.items() if not has),
            claims=self.claims(capabilities),
        )  # fmt: skip


def peer_toml(
    address: str, facts: PeerFacts, rtt: int, answers: Iterable[PeerAnswer], mtu: tuple[int, str], rto_ms: int
) -> str:
    """Return the text of PEER.toml, with what the peer answered as comments. `mtu` is the payload MTU and where it is
    from."""
    how = facts.how
    place = {"udp_port": how.udp_port} if how.udp else {"ip_protocol": how.ip_protocol}
    sections: dict[str, list[tuple[str, Any, str]]] = {
        "peer": [("address", address, f"answers in {rtt // 1_000_000:,} µs")],
        "link": [
            *((name, value, "as it was asked") for name, value in place.items()),
            ("crc", how.crc, "asked: it answers packets of this kind"), ("payload_mtu", *mtu),
            ("rto_ms", rto_ms, "not asked: of the peer as initiator"),
        ],
        "endpoint": [
            ("job_id", facts.job_id, ""), ("pid_on_fep", facts.pid_on_fep, ""),
            ("resource_index", facts.resource_index, ""), ("initiator_id", facts.initiator_id, "of our side"),
            ("relative", facts.relative, "addressing (ses.md §2.2)"),
        ],
        "memory": [
            ("key", facts.key, ""), ("address", facts.base, "of its first byte"),
            ("length", facts.length, "bytes; the tests need 16384"),
        ],
        "receive": [("count", facts.receives, "posted receives; 0 leaves out the tests that need them")],
    }  # fmt: skip
    lines = [
        f"# What `uetproto conform --init` found out about {address}, and what it was told. Mend what is wrong.",
        "# docs/howto/conform.md explains the keys; `uetproto conform --peer-file FILE` uses them.",
    ]
    for name, rows in sections.items():
        lines += ["", f"[{name}]", *(toml_row(key, value, note) for key, value, note in rows)]
    lines += ["", "[capabilities]", "# true: the tests that need it are played; false: they are left out"]
    told = {answer.name: answer for answer in answers}
    for name, words in OPTIONAL.items():
        answer = told.get(name)
        if answer is None or answer.has is None:
            note = f"{words}: cannot be asked, by hand" if answer is None else answer.words
            lines.append(toml_row(name, name not in facts.without, note))
        else:
            lines.append(toml_row(name, answer.has, answer.words))
    return "\n".join([*lines, ""])


def toml_row(key: str, value: Any, note: str) -> str:
    """Return a line of a TOML file: a key with its value, and a comment."""
    text = (
        ("false", "true")[value] if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)
    )
    safe = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in note)
    return f"{key} = {text}" + (f"  # {safe}" if note else "")
