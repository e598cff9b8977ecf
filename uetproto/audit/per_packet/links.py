# SPDX-License-Identifier: GPL-2.0-only
"""This module links requests of different messages: a READ to its rendezvous, a restart to what it restarts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from uetproto.audit.per_packet.sender import KnownPsn
from uetproto.wire.headers.uet_ses import Opcode
from uetproto.wire.packet import Layer

MOST = 4_096
"""Number of requests that are remembered for each pair of hosts; the oldest are forgotten."""

Hosts = tuple[int, int]
Key = tuple[str, int, int]


class LinkedRequests:
    """This class remembers requests that a later request of the other end names by a key or a token."""

    def __init__(self) -> None:
        self._known: dict[Hosts, dict[Key, KnownPsn]] = {}
        """Maps sender and receiver to the records of the requests."""

    def find(self, hosts: Hosts, ses: Mapping[str, Any]) -> int | None:
        """Return the number of the packet of the other end that a request names, or None."""
        known = self._known.get(hosts[::-1], {})
        return next((known[key].number for key in _names(ses) if key in known), None)

    def note(self, hosts: Hosts, layers: Sequence[Layer], ses: Mapping[str, Any], record: KnownPsn) -> None:
        """Remember the first packet of a message if a later request of the other end names it."""
        for key in _offers(layers, ses):
            known = self._known.setdefault(hosts, {})
            known.pop(key, None)
            if len(known) >= MOST:
                del known[next(iter(known))]
            known[key] = record


def _names(ses: Mapping[str, Any]) -> Iterator[Key]:
    """Yield what a request names of a request of the other end."""
    if ses["opcode"] == Opcode.READ and "memory_key" in ses:
        yield "rendezvous", ses["memory_key"], ses["buffer_offset"]
    if "receiver_token" in ses:
        yield "deferrable", ses["receiver_token"], 0
    if ses.get("target_restart_token"):
        yield "restart", ses["target_restart_token"], 0


def _offers(layers: Sequence[Layer], ses: Mapping[str, Any]) -> Iterator[Key]:
    """Yield what a later request of the other end names of this one."""
    for form, values, _ in layers:
        if form == "ses.ext.rendezvous":
            yield "rendezvous", values["read_memory_key"], values["read_offset"]
    if "sender_token" in ses:
        yield "restart", ses["sender_token"], 0
    if ses.get("initiator_restart_token") and not ses["target_restart_token"]:
        yield "deferrable", ses["initiator_restart_token"], 0
