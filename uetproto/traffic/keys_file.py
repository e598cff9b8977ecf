# SPDX-License-Identifier: GPL-2.0-only
"""This module writes the keys of a capture to a file, which other commands read with `--keys` (interfaces.md §9).

No other module writes keys. Only the owner of the file may read it.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

from uetproto.engine.tss.keys import DomainConfig, KeyRing

SUFFIX = ".keys.toml"
MODE = 0o600


def write(path: str, ring: KeyRing, capture: str) -> None:
    """Write the keys in `ring` to the file `path`. Comments in it name the capture to which the keys belong.

    An existing file is deleted and not overwritten, as it may be open elsewhere, or be a link to another file. Raises
    `OSError` if the file cannot be written.
    """
    with suppress(FileNotFoundError):
        os.unlink(path)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE), "w", encoding="utf-8") as file:
        file.write("\n".join(_lines(ring, Path(capture).name)) + "\n")


def _lines(ring: KeyRing, capture: str) -> Iterator[str]:
    yield f"# Keys of {capture}:"
    yield f"# uetproto open {capture} --keys {capture}{SUFFIX} -o plain.pcapng"
    for domain in ring.values():
        yield ""
        yield "[[sdi]]"
        yield from _domain(domain)


def _domain(domain: DomainConfig) -> Iterator[str]:
    yield f"id = {domain.sdi}"
    yield f'mode = "{domain.mode}"'
    yield "keys = ["
    for an, keys in enumerate(domain.keys):
        for key in keys:
            epoch = "" if key.epoch is None else f", epoch = {key.epoch}"
            yield f'  {{ an = {an}, key = "{key.value.hex()}"{epoch} }},'
    yield "]"
    if domain.rekey_mask:
        yield f"rekey_mask = 0x{domain.rekey_mask:X}"
        yield f"rekey_shift = {domain.rekey_shift}"
    if domain.clear_bytes:
        yield f"crypto_offset = {domain.crypto_offset}"
    yield f'ipv6_ssi_context = "{domain.ipv6_ssi_context}"'
    if domain.servers:
        servers = ", ".join(f'"{ip_address(server)}"' for server in sorted(domain.servers))
        yield f"servers = [{servers}]"
