# SPDX-License-Identifier: GPL-2.0-only
"""Files of keys, and that no key shows anywhere (tss.md §3–5, interfaces.md §9)."""

import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.tss.flows import Flow
from uetproto.engine.tss.cipher import Cipher
from uetproto.engine.tss.domain import SecureDomain
from uetproto.engine.tss.keys import DomainConfig, DomainKey, KeyRing
from uetproto.engine.tss.ledger import NonceLedger
from uetproto.engine.tss.opener import Opener
from uetproto.engine.tss.port import SecurePort
from uetproto.errors import LocalError

SECRET = "07e9724958d9e1f710f594e18e11fd8d4a3582c256ccfecfc5eb1902e556bed4"
OTHER = "d4c3a2cfb3c1067fddcf9fe2e1428a29c8d31bfb2a970264900f16df7c36db6f"

FILE = f"""
[[sdi]]
id = 1
mode = "cluster"
keys = [
    {{an = 0, key = "{SECRET}"}},
    {{an = 1, key = "{OTHER}", epoch = 3}},
    {{an = 1, key = "{SECRET}"}},
]
rekey_mask = 0xFF00
rekey_shift = 8
crypto_offset = 28
ipv6_ssi_context = "small"

[[sdi]]
id = 0xFFFFFF
mode = "client-server"
keys = [{{an = 0, key = "{SECRET}{OTHER[:24]}"}}]
crypto_offset = "header"
servers = ["10.1.0.1", "fd00:1::1"]
"""


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(FILE)
    first, second = (bytes.fromhex(key) for key in (SECRET, OTHER))
    assert dict(KeyRing.read(path)) == {
        1: DomainConfig(
            sdi=1, mode="cluster", keys=((DomainKey(first),), (DomainKey(second, 3), DomainKey(first))),
            rekey_mask=0xFF00, rekey_shift=8, crypto_offset=28, ipv6_ssi_context="small", strict_tsc_halves=False,
        ),
        0xFFFFFF: DomainConfig(
            sdi=0xFFFFFF, mode="client-server", keys=((DomainKey(first + second[:12]),), ()),
            servers=frozenset({0x0A010001, 0xFD000001 << 96 | 1}), strict_tsc_halves=False,
        ),
    }  # fmt: skip


# Bad input ------------------------------------------------------------------------------------------------------------

NAMES = "id, mode, keys, rekey_mask, rekey_shift, crypto_offset, ipv6_ssi_context, servers"
HEX = "64 hexadecimal digits, or a client's 88"


def row(**changes: str) -> str:
    """A file of one domain with other values for some keys; an empty one leaves the key out."""
    values = {"id": "1", "mode": '"cluster"', "keys": f'[{{an = 0, key = "{SECRET}"}}]', **changes}
    return "[[sdi]]\n" + "".join(f"{name} = {value}\n" for name, value in values.items() if value)


def of_key(**changes: str) -> str:
    values = {"an": "0", "key": f'"{SECRET}"', **changes}
    text = ", ".join(f"{name} = {value}" for name, value in values.items() if value)
    return row(keys="[{" + text + "}]")


BAD = {
    "": "sdi: no tables; legal: [[sdi]], once for each secure domain",
    "sdi = 1": "sdi: no tables; legal: [[sdi]], once for each secure domain",
    "sdi = [1]": "sdi: no tables; legal: [[sdi]], once for each secure domain",
    "[[sid]]": "sid: no such key (did you mean sdi?); legal: sdi",
    "[[sdi]]\nid = ": "its end: no TOML; legal: TOML, each key once",
    "[[sdi]": "line 1: no TOML; legal: TOML, each key once",
    "[[sdi]]\n": "sdi.0.id: None is not legal; legal: 0 … 16777215",
    row(id="16777216"): "sdi.0.id: 16777216 is not legal; legal: 0 … 16777215",
    row(id="true"): "sdi.0.id: True is not legal; legal: 0 … 16777215",
    row(id='"1"'): "sdi.0.id: '1' is not legal; legal: 0 … 16777215",
    row() + row(): "sdi.1.id: 1 stands twice; legal: each SDI once",
    row(mode=""): "sdi.0.mode: None is not legal; legal: direct, cluster, client-server",
    row(mode='"clutser"'):
        "sdi.0.mode: 'clutser' is not legal (did you mean cluster?); legal: direct, cluster, client-server",
    row(mode=f'"{SECRET}"'): "sdi.0.mode: a str is not legal; legal: direct, cluster, client-server",
    row(secret="1"): f"sdi.0.secret: no such key; legal: {NAMES}",
    row(**{SECRET: "1"}): f"sdi.0.a long name: no such key; legal: {NAMES}",
    row(keys=""): 'sdi.0.keys: no tables; legal: [{an = 0, key = "64 hexadecimal digits"}, …]',
    row(keys="[]"): 'sdi.0.keys: no tables; legal: [{an = 0, key = "64 hexadecimal digits"}, …]',
    row(keys=f'"{SECRET}"'): 'sdi.0.keys: no tables; legal: [{an = 0, key = "64 hexadecimal digits"}, …]',
    row(keys=f'["{SECRET}"]'): 'sdi.0.keys: no tables; legal: [{an = 0, key = "64 hexadecimal digits"}, …]',
    of_key(an=""): "sdi.0.keys.0.an: None is not legal; legal: 0 … 1",
    of_key(an="2"): "sdi.0.keys.0.an: 2 is not legal; legal: 0 … 1",
    of_key(epoch="1.0"): "sdi.0.keys.0.epoch: a float is not legal; legal: 0 … 65535",
    of_key(epoch="65536"): "sdi.0.keys.0.epoch: 65536 is not legal; legal: 0 … 65535",
    of_key(name='"x"'): "sdi.0.keys.0.name: no such key; legal: an, key, epoch",
    of_key(key=""): f"sdi.0.keys.0.key: no text; legal: {HEX}",
    of_key(key="7"): f"sdi.0.keys.0.key: no text; legal: {HEX}",
    of_key(key=f'"{SECRET[:-2]}"'): "sdi.0.keys.0.key: 31 bytes; legal: 32, or a client's 44",
    of_key(key=f'"{SECRET[:-1]}x"'): f"sdi.0.keys.0.key: 64 characters, not all hexadecimal; legal: {HEX}",
    of_key(key=f'"{SECRET}0"'): f"sdi.0.keys.0.key: 65 digits; legal: {HEX}",
    of_key(key=f'"{SECRET}{OTHER[:24]}"'): "sdi.0.key: 44 bytes in mode cluster; legal: 32 bytes",
    row(rekey_mask="0x10000000000000000"): (
        "sdi.0.rekey_mask: 18446744073709551616 is not legal; legal: 0 … 18446744073709551615"
    ),
    row(rekey_mask="-1"): "sdi.0.rekey_mask: -1 is not legal; legal: 0 … 18446744073709551615",
    row(rekey_mask="0x100000000"): "sdi.0.rekey_mask: more than 32 bits after rekey_shift; legal: up to 32",
    row(rekey_shift="64"): "sdi.0.rekey_shift: 64 is not legal; legal: 0 … 63",
    row(mode='"direct"', rekey_mask="1"): "sdi.0.rekey_mask: mode direct has no rekey; legal: 0, or mode cluster",
    row(crypto_offset="11"): "sdi.0.crypto_offset: 11 is not legal; legal: header, 12 … 65535",
    row(crypto_offset='"head"'):
        "sdi.0.crypto_offset: 'head' is not legal (did you mean header?); legal: header, 12 … 65535",
    row(ipv6_ssi_context='"tiny"'): "sdi.0.ipv6_ssi_context: 'tiny' is not legal; legal: large, small",
    row(servers='["10.0.0.1"]'): "sdi.0.servers: mode cluster has none; legal: mode client-server",
    row(mode='"client-server"', servers='"10.0.0.1"'):
        "sdi.0.servers: no list; legal: a list of IPv4 and IPv6 addresses",
    row(mode='"client-server"', servers='["ten"]'):
        "sdi.0.servers: not all are addresses; legal: IPv4 and IPv6 addresses",
}  # fmt: skip


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = " + "1" * 5000])
def test_what_is_too_deep_or_too_long_to_be_read(text: str) -> None:
    with pytest.raises(LocalError, match=r"^keys: its end: no TOML; legal: TOML, each key once$"):
        KeyRing.parse(text)


def test_a_file_too_large_for_keys_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "capture.pcap"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # it takes no room on the disk, but would in memory
    with pytest.raises(LocalError) as error:
        KeyRing.read(path)
    assert str(error.value) == f"{path}: more than 4 MiB; legal: a text file of less"


@pytest.mark.parametrize("text", BAD)
def test_errors_name_file_and_key(text: str) -> None:
    with pytest.raises(LocalError) as error:
        KeyRing.parse(text, "keys.toml")
    assert str(error.value) == f"keys.toml: {BAD[text]}"
    assert_secret("".join(traceback.format_exception(error.value)))


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_bytes(f'key = "{SECRET}"'.encode() + b"\xff")
    with pytest.raises(LocalError) as error:
        KeyRing.read(path)
    assert str(error.value) == f"{path}: byte 72 is not UTF-8; legal: TOML in UTF-8"
    assert_secret("".join(traceback.format_exception(error.value)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: DomainKey(bytes(31)), "key: 31 bytes; legal: 32, or a client's 44"),
        (lambda: DomainKey(bytes(32), -1), "epoch: -1 is not legal; legal: 0 … 65535"),
        (lambda: domain(ssis={1: 2**32}), "ssis: an SSI of more than 32 bits; legal: 0 … 4294967295"),
        (lambda: domain(ssis={1: 5, 2: 5}), "ssis: two members have the same one; legal: one for each member"),
        (lambda: domain(strict_tsc_halves=1), "strict_tsc_halves: 1 is not legal; legal: True, False"),
        (lambda: domain(rx_max_epoch_lifetime=2**15), "rx_max_epoch_lifetime: 32768 is not legal; legal: 0 … 32767"),
        (lambda: domain(auth_fail_threshold=-1), "auth_fail_threshold: -1 is not legal; legal: 0 … 281474976710655"),
        (lambda: domain(invoke_fatal_threshold=-1), f"invoke_fatal_threshold: -1 is not legal; legal: 0 … {2**48 - 1}"),
    ],
)  # fmt: skip
def test_misuse(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(LocalError) as error:
        wrong()
    assert str(error.value) == message


# Keys never show ------------------------------------------------------------------------------------------------------


def domain(**values: Any) -> DomainConfig:
    return DomainConfig(**{"sdi": 1, "mode": "cluster", "keys": ((DomainKey(bytes.fromhex(SECRET)),), ()), **values})


def assert_secret(text: str) -> None:
    """No eight bytes of a key in a row, in hexadecimal or as Python or a list shows them."""
    for key in (SECRET, OTHER):
        data = bytes.fromhex(key)
        for at in range(len(data) - 8):
            piece = data[at : at + 8]
            shapes = piece.hex(), piece.hex(" "), repr(piece)[2:-1], str(list(piece))[1:-1]
            assert not any(shape in text.lower() for shape in shapes)
        assert str(int.from_bytes(data, "big")) not in text


def test_no_key_in_any_repr(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    how = domain()
    ledger = NonceLedger()
    member = SecureDomain(how, Flow().src, 4, ledger=ledger)
    member.seal(Flow().below(0), b"inner")
    port = SecurePort()
    port.domains[1] = member
    ring = KeyRing.parse(FILE)
    objects = [how.keys[0][0], how, member, port, ring, Opener(ring), ledger, Cipher(how, how.keys[0][0])]
    for thing in objects:
        for text in (repr(thing), str(thing), f"{thing}", repr([thing]), repr({"key": thing})):
            assert_secret(text)
    assert repr(how.keys[0][0]) == "<Key of 32 bytes>"
    assert repr(ring) == "KeyRing of SDI 1, 16777215"
    assert repr(ledger) == "<NonceLedger: 1 nonces under 1 keys, 0 repeated>"
    assert_secret(caplog.text)


def test_no_key_in_errors_of_rotation() -> None:
    member = SecureDomain(domain(), Flow().src, 4)
    with pytest.raises(LocalError) as error:
        member.install(1, DomainKey(bytes.fromhex(SECRET)))
    assert_secret("".join(traceback.format_exception(error.value)))


def test_the_check_itself() -> None:
    for text in (SECRET, repr(bytes.fromhex(SECRET)), str(list(bytes.fromhex(OTHER)))):
        with pytest.raises(AssertionError):
            assert_secret(text)
