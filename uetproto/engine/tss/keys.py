# SPDX-License-Identifier: GPL-2.0-only
"""This module has the parameters and keys of secure domains (tss.md §3–5), and reads key files (interfaces.md §9).

No `repr`, message or error shows the value of a key: an error names the entry of the TOML file only.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from os import PathLike
from pathlib import Path
from string import hexdigits
from typing import Any

from uetproto.errors import LocalError, Location, shown, similar, typed
from uetproto.knobs import BOOL, REQUIRED, check, check_knobs, knob, knobs_of
from uetproto.textfile import read_bounded
from uetproto.wire.headers.uet_tss import ICV_SIZE, TSS, TSS_SSI

MODES = ("direct", "cluster", "client-server")
KEY_SIZE = 32
MASK_SIZE = 12
DERIVED_SIZE = KEY_SIZE + MASK_SIZE  # a client in mode client-server gets packet key and IV mask (tss.md §4)
_SHORT = 24
"""Limit of characters of a text that errors may show; a key is much longer."""

_MOST = 1 << 22
"""Limit of the bytes of a key file; a larger file was given by mistake, a capture for instance."""


@dataclass(frozen=True, slots=True, repr=False)
class DomainKey:
    """A key of a domain has 32 bytes; a client in mode client-server gets a derived key of 44 bytes (tss.md §4)."""

    value: bytes
    epoch: int | None = None
    """Epoch in which the key is valid; None if it is valid in all epochs."""

    def __post_init__(self) -> None:
        if len(self.value) not in (KEY_SIZE, DERIVED_SIZE):
            raise LocalError(
                "key", f"{len(self.value)} bytes", f"{KEY_SIZE}, or a client's {DERIVED_SIZE}", id="wrong-key"
            )
        if self.epoch is not None:
            check("epoch", self.epoch, range(2**16), _harmless)

    def __repr__(self) -> str:
        return f"<Key of {len(self.value)} bytes>"

    @property
    def derived(self) -> bool:
        """Tell whether the key is a packet key with its IV mask. No other keys are derived from such a key."""
        return len(self.value) == DERIVED_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainConfig:
    """A secure domain has these parameters, which are equal at all its members (tss.md §3).

    An illegal value raises `LocalError`, which names the parameter and its legal values.
    """

    sdi: int = knob(REQUIRED, range(2**24), "", "The secure domain identifier.", "tss.md §3")
    mode: str = knob(REQUIRED, MODES, "", "How keys are derived from the key of the domain.", "tss.md §4")
    keys: tuple[tuple[DomainKey, ...], tuple[DomainKey, ...]] = ((), ())
    """Keys, indexed by AN. If an AN has several keys, an endpoint uses the first key, and a reader of captures tries
    all keys."""
    ssis: Mapping[int, int] = field(default_factory=dict)
    """Maps the address of each member to its SSI; if it is empty, packets carry no SSI."""
    servers: frozenset[int] = frozenset()
    """Addresses of the servers in mode client-server; all other members are clients."""
    # fmt: off
    rekey_mask: int = knob(0, range(2**64), "",
        "The bits of the counter that give a new key, in mode cluster; 0: no rekey.", "tss.md §5.4")
    rekey_shift: int = knob(0, range(64), "bits",
        "The masked bits of the counter are shifted right by so many.", "tss.md §5.4")
    crypto_offset: int | str = knob("header", ("header", range(TSS.size, 2**16)), "bytes",
        "The bytes from the first of the security header to the first that is encrypted; header: all of the packet"
        " behind that header is encrypted.", "tss.md §7.2")
    ipv6_ssi_context: str = knob("large", ("large", "small"), "",
        "The identity of a sender in key derivation, over IPv6 with SSI: its address (large) or its SSI (small).",
        "tss.md §5.2")
    strict_tsc_halves: bool = knob(True, BOOL, "",
        "Mode client-server: counters of servers have bit 47 set, and those of clients have not.", "tss.md §4")
    rx_max_epoch_lifetime: int = knob(16, range(2**15), "epochs",
        "Packets are accepted if their epoch is at most so many epochs old.", "tss.md §9")
    auth_fail_threshold: int = knob(1000, range(2**48), "",
        "After more authentication failures than this an endpoint drops all packets of the domain.", "tss.md §9")
    invoke_fatal_threshold: int = knob(2**48 - 1, range(2**48), "",
        "A member seals at most so many packets under one key.", "tss.md §8")
    # fmt: on

    def __post_init__(self) -> None:
        check_knobs(self, _harmless)
        if self.rekey_mask and self.mode != "cluster":
            raise LocalError("rekey_mask", f"mode {self.mode} has no rekey", "0, or mode cluster", id="not-with-mode")
        if self.rekey_mask >> self.rekey_shift >= 2**32:
            raise LocalError("rekey_mask", "more than 32 bits after rekey_shift", "up to 32", id="out-of-range")
        if self.servers and self.mode != "client-server":
            raise LocalError("servers", f"mode {self.mode} has none", "mode client-server", id="not-with-mode")
        if self.mode != "client-server" and any(key.derived for slot in self.keys for key in slot):
            raise LocalError("key", f"{DERIVED_SIZE} bytes in mode {self.mode}", f"{KEY_SIZE} bytes", id="wrong-key")
        if any(not 0 <= ssi < 2**32 for ssi in self.ssis.values()):
            raise LocalError("ssis", "an SSI of more than 32 bits", f"0 … {2**32 - 1}", id="out-of-range")
        if len(set(self.ssis.values())) < len(self.ssis):
            raise LocalError("ssis", "two members have the same one", "one for each member", id="ssi-needed")

    @property
    def clear_bytes(self) -> int:
        """Return the `crypto_offset` in bytes, counted from the start of the security header; 0 for "header"."""
        return self.crypto_offset if isinstance(self.crypto_offset, int) else 0

    @property
    def overhead(self) -> int:
        """Return the number of bytes that sealing adds: security header and ICV (tss.md §7.4)."""
        return (TSS_SSI if self.ssis else TSS).size + ICV_SIZE

    def ssi_of(self, src: int, dst: int) -> int | None:
        """Return the SSI of the sender of a packet, or in mode client-server the SSI of the client (tss.md §4); None if
        the member has no SSI."""
        return self.ssis.get(self.client(src, dst) if self.mode == "client-server" else src)

    def client(self, src: int, dst: int) -> int:
        """Return the address of the client, which is one of the two addresses of a packet in mode client-server."""
        return dst if src in self.servers else src


def _harmless(value: object) -> str:
    """Return the text of a value for errors; a long value, which could be a misplaced key, is not shown."""
    is_short = isinstance(value, str | int | None) and len(str(value)) <= _SHORT
    return shown(value) if is_short else f"a {type(value).__name__}"


# Files (interfaces.md §9) ---------------------------------------------------------------------------------------------

_OF_SDI = ("id", "mode", "keys", "rekey_mask", "rekey_shift", "crypto_offset", "ipv6_ssi_context", "servers")
_OF_KEY = ("an", "key", "epoch")
_LEGAL_HEX = f"{2 * KEY_SIZE} hexadecimal digits, or a client's {2 * DERIVED_SIZE}"
_LEGAL_KEYS = f'[{{an = 0, key = "{2 * KEY_SIZE} hexadecimal digits"}}, …]'


class KeyRing(Mapping[int, DomainConfig]):
    """A key ring maps each SDI to its secure domain, as a key file lists them."""

    def __init__(self, domains: Mapping[int, DomainConfig]) -> None:
        self._domains = dict(domains)

    def __getitem__(self, sdi: int) -> DomainConfig:
        return self._domains[sdi]

    def __iter__(self) -> Iterator[int]:
        return iter(self._domains)

    def __len__(self) -> int:
        return len(self._domains)

    def __repr__(self) -> str:
        return f"KeyRing of SDI {', '.join(map(str, self._domains)) or 'none'}"

    @classmethod
    def read(cls, path: str | Path) -> "KeyRing":
        """Return the key ring of a key file.

        Raises `LocalError`, which names the file and its illegal entry, or `OSError` if the file cannot be read.
        """
        typed("path", path, (str, PathLike), "the path of a key file")
        place = Location(str(path))
        try:
            text = read_bounded(path, _MOST).decode()
        except UnicodeDecodeError as error:
            raise LocalError(
                "", f"byte {error.start} is not UTF-8", "TOML in UTF-8", place=place, id="not-utf8"
            ) from None
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, name: str = "keys") -> "KeyRing":
        """Return the key ring of the text of a key file. Raises `LocalError`, which gives `name` as the name of the
        file."""
        if not isinstance(text, str):
            raise LocalError("text", f"{type(text).__name__} is not legal", "the text of a key file", id="wrong-type")
        try:
            data = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            line = re.search(r"at (line \d+)", str(error))  # only its number, as the line may contain a key
            at = line[1] if line else "its end"
            raise LocalError(at, "no TOML", "TOML, each key once", place=Location(name), id="broken-toml") from None
        try:
            return cls(_domains(data))
        except LocalError as error:
            raise LocalError(*error.args, place=Location(name), id=error.id) from None


def _domains(data: Mapping[str, Any]) -> dict[int, DomainConfig]:
    _check_names(data, ("sdi",))
    found: dict[int, DomainConfig] = {}
    for index, row in enumerate(_tables("sdi", data.get("sdi"), "[[sdi]], once for each secure domain")):
        with _inside(f"sdi.{index}"):
            domain = _domain(row)
            if domain.sdi in found:
                raise LocalError("id", f"{domain.sdi} stands twice", "each SDI once", id="duplicate")
        found[domain.sdi] = domain
    return found


def _domain(row: Mapping[str, Any]) -> DomainConfig:
    _check_names(row, _OF_SDI)
    for key, name in (("id", "sdi"), ("mode", "mode")):
        knobs_of(DomainConfig)[name].check(key, row.get(key), _harmless)
    as_they_are = ("rekey_mask", "rekey_shift", "crypto_offset", "ipv6_ssi_context")
    return DomainConfig(
        sdi=row["id"],
        mode=row["mode"],
        keys=_keys(row.get("keys")),
        servers=_servers(row.get("servers", [])),
        strict_tsc_halves=False,  # a reader of captures accepts the counters of all implementations
        **{name: row[name] for name in as_they_are if name in row},
    )


def _keys(rows: object) -> tuple[tuple[DomainKey, ...], tuple[DomainKey, ...]]:
    slots: tuple[list[DomainKey], list[DomainKey]] = ([], [])
    for index, row in enumerate(_tables("keys", rows, _LEGAL_KEYS)):
        with _inside(f"keys.{index}"):
            _check_names(row, _OF_KEY)
            check("an", row.get("an"), range(2), _harmless)
            slots[row["an"]].append(DomainKey(key_bytes(row.get("key")), row.get("epoch")))
    return tuple(slots[0]), tuple(slots[1])


def key_bytes(text: object) -> bytes:
    """Return the bytes of a hexadecimal key. Raises `LocalError`, which does not show the key."""
    if not isinstance(text, str):
        raise LocalError("key", "no text", _LEGAL_HEX, id="wrong-key")
    try:
        return bytes.fromhex(text)
    except ValueError:
        what = "digits" if set(text) <= set(hexdigits) else "characters, not all hexadecimal"
        raise LocalError("key", f"{len(text)} {what}", _LEGAL_HEX, id="wrong-key") from None


def _servers(rows: object) -> frozenset[int]:
    if not isinstance(rows, list):
        raise LocalError("servers", "no list", "a list of IPv4 and IPv6 addresses", id="wrong-type")
    try:
        return frozenset(int(ip_address(str(row))) for row in rows)
    except ValueError:
        raise LocalError("servers", "not all are addresses", "IPv4 and IPv6 addresses", id="wrong-address") from None


def _tables(name: str, rows: object, legal: str) -> list[dict[str, Any]]:
    """Return an array of tables of a key file. Raises `LocalError` unless it has at least one table."""
    if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
        return rows
    raise LocalError(name, "no tables", legal, id="not-a-table")


def _check_names(row: Mapping[str, object], legal: tuple[str, ...]) -> None:
    for name in row:
        if name not in legal:
            told = name if len(name) <= _SHORT else "a long name"
            raise LocalError(told, f"no such key{similar(told, legal)}", ", ".join(legal), id="unknown-key")


@contextmanager
def _inside(place: str) -> Iterator[None]:
    """Add the place in the file to errors."""
    try:
        yield
    except LocalError as error:
        raise LocalError(f"{place}.{error.name}", error.value, error.legal, id=error.id) from None
