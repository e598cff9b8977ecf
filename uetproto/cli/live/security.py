# SPDX-License-Identifier: GPL-2.0-only
"""This module has the secure domain of a command on a real link: a key file, and which member this end is."""

from dataclasses import replace
from ipaddress import ip_address
from typing import Any

from uetproto import LocalError
from uetproto.engine.tss.domain import SecureDomain
from uetproto.engine.tss.keys import DomainConfig, KeyRing
from uetproto.engine.tss.port import CLEAR_NACKS
from uetproto.framing.security import Security, SecurityMember, tx_an

_HERE = "local"


def domain_of_file(file: str, sdi: int | None) -> DomainConfig:
    """Return the secure domain of a key file: the only one, or that with an SDI. Raises `LocalError` without one."""
    ring = KeyRing.read(file)
    if sdi is None and len(ring) > 1:
        raise LocalError(
            "--sdi", "is missing", f"one of {', '.join(map(str, ring))}, which {file} has", id="missing-keys"
        )
    if sdi is not None and sdi not in ring:
        raise LocalError("--sdi", f"{sdi} is not in {file}", ", ".join(map(str, ring)), id="unknown-domain")
    found = ring[next(iter(ring)) if sdi is None else sdi]
    if found.mode == "client-server" and not found.servers:
        raise LocalError(
            "--keys",
            f"SDI {found.sdi} has no servers in {file}",
            'servers = ["10.0.0.2"], its address',
            id="unknown-domain",
        )
    return replace(found, strict_tsc_halves=True)


def member_at(local: str, domain: DomainConfig, ssi: int | None, habits: dict[str, Any]) -> Security:
    """Return the secure domain with one member, this end at a local address. `habits` are those of a personality.

    Raises `LocalError` if nonces would repeat, or if this end has no key.
    """
    address = ip_address(local)
    if ssi is not None and domain.mode == "client-server":
        raise LocalError(
            "--ssi",
            "does not go with mode client-server here",
            "mode direct or cluster, or a scenario",
            id="not-with-mode",
        )
    if ssi is None and domain.mode == "direct" and address.version == 6:
        raise LocalError(
            "--ssi", "is missing: mode direct over IPv6 needs one of each end", "0 … 2^32 - 1", id="ssi-needed"
        )
    habits = dict(habits)
    of_member: dict[str, Any] = {name: habits.pop(name) for name in ("plain", "epoch") if name in habits}
    if "clear_nacks" in habits:
        of_member["clear_nacks"] = frozenset(CLEAR_NACKS[name] for name in habits.pop("clear_nacks"))
    own = replace(domain, ssis={} if ssi is None else {int(address): ssi}, **habits)
    SecureDomain(own, int(address), address.version, tx_an=tx_an(own))
    return Security(members={_HERE: SecurityMember(domain=own, **of_member)})
