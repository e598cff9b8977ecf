# SPDX-License-Identifier: GPL-2.0-only
"""Deliberate faults of a peer with keys: our endpoint, and a copy of a part of its TSS that is wrong.

`SEALED_FAULTS` lists each one with the tests of sealed packets that have to fail. The others have to pass.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tests.support.conform_tss import SealedEngine, SealedLink, domain
from uetproto.engine.contract import Datagram
from uetproto.engine.tss.domain import OpenedPacket, SecureDomain
from uetproto.engine.tss.keys import DomainConfig
from uetproto.wire.headers.ethernet import Ecn
from uetproto.wire.headers.uet_pds import NackCode, PdsType


class _Domain(SecureDomain):
    """Looks at packets before it opens them."""

    last_bit = any_epoch = any_ssi = never_newer = one_counter = False

    def seal(self, below: Any, inner: bytes) -> bytes | None:
        if self.one_counter:
            self.tx_counter = 5
        return super().seal(below, inner)

    def receive(self, header: Any, below: Any, sealed: bytes, *, is_trimmed: bool = False) -> Any:
        if self.never_newer and 0 < (header.epoch - self.tx_epoch) & 0xFFFF < 0x8000:
            return super().receive(header, below, sealed[:-1])
        found = super().receive(header, below, sealed, is_trimmed=is_trimmed)
        cipher = self._slots[header.an]
        if isinstance(found, OpenedPacket) or cipher is None:
            return found
        again = sealed[:-1] + bytes((sealed[-1] ^ 1,)) if self.last_bit else sealed
        inner = cipher.open(header, below, again)
        age = (self.tx_epoch - header.epoch) & 0xFFFF
        taken = self.last_bit or (self.any_epoch and 16 < age < 0x8000) or (self.any_ssi and header.ssi is None)
        return found if inner is None or not taken else OpenedPacket(inner, header)


class _Peer(SealedEngine):
    """Our endpoint with faults at the port."""

    faults: Mapping[str, bool] = {}
    plain = False
    any_domain = False
    clear: Callable[[bytes], bool] = staticmethod(lambda header: False)
    """Whether a packet leaves in clear, by its PDS header."""
    drops: Callable[[bytes], bool] = staticmethod(lambda frame: False)
    demands: int = 0
    """What is added to each further demand of a Start_PSN."""

    def make_framer(self, config: Any) -> Any:
        framer = super().make_framer(config)
        faulty = _Domain(self.domain.domain, self.address, 4, epoch=self.epoch)
        for name, value in self.faults.items():
            setattr(faulty, name, value)
        self.domain = framer.domain = faulty
        port = framer.port
        domains: dict[int, SecureDomain] = _Any(faulty) if self.any_domain else {faulty.domain.sdi: faulty}
        port.domains = domains
        port._passes = self.plain
        if self.any_domain:
            port.is_bound = lambda header, sdi: True
        frame, packet, demanded = framer.frame, framer.packet, [0]

        def leaves(datagram: Datagram) -> bytes:
            header = bytes(datagram.header)
            if self.demands and header[0] >> 3 == PdsType.NACK and header[2] == NackCode.NEW_START_PSN:
                demanded[0] += self.demands
                payload = int.from_bytes(header[12:16], "big") + demanded[0] & 0xFFFFFFFF
                datagram.header = header[:12] + payload.to_bytes(4, "big") + header[16:]
            found: bytes = framer._plain.frame(datagram) if self.clear(header) else frame(datagram)
            return found

        framer.frame = leaves
        framer.packet = lambda frame: None if self.drops(frame) else packet(frame)
        return framer


class _Any(dict[int, SecureDomain]):
    """Has the one domain for each SDI."""

    def __init__(self, only: SecureDomain) -> None:
        super().__init__({only.domain.sdi: only})
        self.only = only

    def get(self, sdi: int, default: Any = None) -> Any:
        return self.only


ACKS = (PdsType.ACK, PdsType.ACK_CC, PdsType.ACK_CCX)


class SealedFault(NamedTuple):
    """A fault of a peer with keys, and the tests that it makes fail."""

    failing: tuple[str, ...]
    at_domain: tuple[str, ...] = ()
    """Faults of `_Domain`."""
    at_port: Mapping[str, Any] = {}
    told: DomainConfig | None = None
    """Domain of the peer, if it is not that of our side."""
    knobs: Mapping[str, Any] = {}


def ids(*numbers: int) -> tuple[str, ...]:
    return tuple(f"UET-TSS-{number:03}" for number in numbers)


SEALED_FAULTS: dict[str, SealedFault] = {
    "the last bit of the ICV is not looked at": SealedFault(ids(2), ("last_bit",)),
    "packets in clear are taken": SealedFault(ids(10, 11), at_port={"plain": True}),
    "old epochs are taken": SealedFault(ids(7), ("any_epoch",)),
    "newer epochs are refused": SealedFault(ids(8), ("never_newer",)),
    "packets without SSI are taken": SealedFault(ids(9), ("any_ssi",)),
    "packets of any domain are taken": SealedFault(ids(4), at_port={"any_domain": True}),
    "the key of the other AN is missing": SealedFault(ids(5), told=domain(both=False, ssis=True)),
    "one counter seals all": SealedFault(ids(*range(2, 10), *range(11, 21)), ("one_counter",)),
    "NACKs leave in clear": SealedFault(ids(14), at_port={"clear": lambda header: header[0] >> 3 == PdsType.NACK}),
    "responses of RUDI leave in clear": SealedFault(
        ids(20), at_port={"clear": lambda header: header[0] >> 3 == PdsType.RUDI_RESP}
    ),
    "another Start_PSN is demanded each time": SealedFault(ids(15), at_port={"demands": 3}),
    "each Start_PSN is taken": SealedFault(ids(15, 16), knobs={"secure_start": "off"}),
    "ACKs leave in clear": SealedFault(
        ids(*range(1, 10), 11, 12, 13, *range(15, 20)), at_port={"clear": lambda header: header[0] >> 3 in ACKS}
    ),
    "marked packets do not open": SealedFault(ids(18), at_port={"drops": lambda frame: frame[15] & 3 == Ecn.CE}),
}


def sealed_link_with(fault: SealedFault) -> SealedLink:
    """Return the link to a peer with a fault."""
    told = {name: staticmethod(value) if callable(value) else value for name, value in fault.at_port.items()}
    kind = type("FaultySealed", (_Peer,), {"faults": dict.fromkeys(fault.at_domain, True), **told})
    knobs = {"secure_start": "expected", **fault.knobs}
    link = SealedLink(kind, domain(ssis=True), knobs=knobs)
    if fault.told is not None:
        link.adapter.reset({**link.config, "domain": fault.told})
    return link
