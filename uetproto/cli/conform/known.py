# SPDX-License-Identifier: GPL-2.0-only
"""This module reads the PEER.toml of `uetproto conform`, and takes what it says in place of options."""

from collections.abc import Mapping
from dataclasses import fields, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

from uetproto import LocalError
from uetproto.cli.live.options import OFF, UET, LinkOptions
from uetproto.conform.peer_file import KnownPeer, PeerFile
from uetproto.conform.roce.peer_file import KnownRocePeer, RocePeerFile, is_of_roce


def known_of(path: Path, options: LinkOptions) -> KnownPeer | KnownRocePeer:
    """Return what a PEER.toml says. Raises `LocalError` for a file of another transport than that of --transport, and
    for what is not legal in it."""
    file = PeerFile(path)
    if not is_of_roce(file):
        if options.is_roce:
            told = f"{options.transport} is not what {path} says, which has neither peer.transport nor [pairs]"
            raise LocalError("--transport", told, UET, id="not-with-protocol")
        return file.known()
    known = RocePeerFile(path).known()
    if "transport" in options.given and options.transport != known.transport:
        raise LocalError(
            "--transport", f"{options.transport} is not what {path} says", known.transport, id="peer-differs"
        )
    return known


def filled_from(
    known: KnownPeer | KnownRocePeer, file: str, options: LinkOptions, peer: str | None, lacking: frozenset[str]
) -> tuple[str | None, LinkOptions, frozenset[str]]:
    """Return address, options and what is lacking, as a file says, too. Raises `LocalError` for an option that says
    otherwise."""
    told = _of_roce(known) if isinstance(known, KnownRocePeer) else _of_uet(known)
    for name in sorted(options.given & {*told}):
        ours = {"key": options.memory_key, "addr": options.address}.get(name, getattr(options, name))
        if told[name] not in (None, ours):
            raise LocalError(
                f"--{name.replace('_', '-')}", f"{ours} is not what {file} says", str(told[name]), id="peer-differs"
            )
    if None not in (peer, known.address) and ip_address(str(peer)) != ip_address(str(known.address)):
        raise LocalError("--peer", f"{peer} is not the peer of {file}", str(known.address), id="peer-differs")
    filled = {name: value for name, value in told.items() if value is not None and name in _NAMES_OF_OPTIONS}
    filled |= {name: str(told[name]) for name in ("key", "addr") if name in told}
    return peer or known.address, replace(options, **filled), lacking | known.lacking


class Tested(NamedTuple):
    """This tuple says who is asked, and what is known of it."""

    peer: str
    options: LinkOptions
    lacking: frozenset[str]
    known: KnownPeer | KnownRocePeer | None


def tested(options: LinkOptions, peer: str | None, file: str | None, lacking: frozenset[str]) -> Tested:
    """Return who is asked, with what PEER.toml says, if there is one. Raises `LocalError` without an address, and as
    `known_of` and `filled_from` do."""
    known = None if file is None else known_of(Path(file), options)
    if known is not None:
        if isinstance(known, KnownRocePeer):
            options = replace(options, transport=known.transport)
        peer, options, lacking = filled_from(known, str(file), options, peer, lacking)
    if peer is None:
        raise LocalError(
            "--peer", "is missing", "the address of the live peer, or --peer-file with it", id="missing-argument"
        )
    return Tested(peer, options, lacking, known)


def _of_uet(known: KnownPeer) -> Mapping[str, Any]:
    return {
        **known.options, **known.told["endpoint"], "pid": known.told["endpoint"].get("pid_on_fep"),
        "crc": ("off", "on")[known.told["crc"]], "payload_mtu": known.told.get("payload_mtu"),
        "key": known.told["memory"]["key"], "addr": known.told["memory"]["address"],
    }  # fmt: skip


def _of_roce(known: KnownRocePeer) -> Mapping[str, Any]:
    rendezvous = OFF if known.rendezvous is None else known.rendezvous
    found = {"rendezvous": rendezvous, "payload_mtu": known.told.get("payload_mtu")}
    return found | ({"udp_port": known.told["udp_port"]} if "udp_port" in known.told else {})


_NAMES_OF_OPTIONS = frozenset(one.name for one in fields(LinkOptions))
