# SPDX-License-Identifier: GPL-2.0-only
"""This module plays one test of UET with sealed packets."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from uetproto.conform.catalogue import ConformanceTest
from uetproto.conform.packets import AnswerPacket, PeerFacts, read
from uetproto.conform.player import LIVENESS, ConformanceVerdict, Link, Outcome, Patience, Suite, UetPlay
from uetproto.conform.tss.sealing import FIELDS, NONE, Sealing
from uetproto.engine.tss.cipher import Refused
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_pds import NackCode
from uetproto.wire.packet import Packet

_NEAR = 1 << 16
"""Largest distance of the first PSN of a test from the lowest one that the peer accepts."""
_KEYS = ("tss", "changed", "icv", "keep", "copy")
_NOTHING = Packet()


class SealedPlay(UetPlay):
    """This class plays one test of UET whose packets are sealed."""

    told = (*UetPlay.told, "sdi", "an", "epoch", "tsc", "ssi")

    def __init__(self, test: ConformanceTest, link: Link, peer: PeerFacts, seed: str, patience: Patience) -> None:
        assert isinstance(peer.security, Sealing)
        self.sealing: Sealing = peer.security
        plain = replace(peer, how=replace(peer.how, crc=False))
        super().__init__(test, link, plain, seed, patience)
        start = self.sealing.floor + self.variables["start"] % _NEAR & 0xFFFFFFFF
        self.variables |= self.sealing.variables() | {"start": start}
        self._clear = replace(peer, how=replace(peer.how, crc=True))
        self._kept: dict[str, bytes] = {}

    def frame(self, step: Mapping[str, Any]) -> bytes:
        if "copy" in step:  # the same bytes again, as a network or somebody else may send them
            if step["copy"] not in self._kept:
                raise LocalError("copy", f"{step['copy']!r} is not known", ", ".join(self._kept), id="test-file")
            return self._kept[step["copy"]]
        plain = {name: value for name, value in step.items() if name not in _KEYS}
        if step.get("tss") == NONE:
            facts, self.craft.peer = self.craft.peer, self._clear
            try:
                return super().frame(plain)
            finally:
                self.craft.peer = facts
        frame = self.sealing.seal(super().frame(plain), self.peer.settings, step, self.variables)
        if "keep" in step:
            self._kept[str(step["keep"])] = frame
        return frame

    def read(self, frame: bytes) -> AnswerPacket | None:
        settings = {**self.peer.settings, "udp_port": _port_of(frame, self.peer)}
        opened = self.sealing.open(frame, settings)
        if opened is None:  # not sealed
            found = read(frame, self._clear.how)
            if found is None or found.values.get("nack_code") == NackCode.NEW_START_PSN:
                return found  # tss.md §11 leaves open whether this NACK is sealed
            if found.values.get("dpdcid", 0) not in (0, self.variables["us"], self.variables["other"]):
                return found  # a late answer to the test before
            return replace(found, fault=found.fault or "it is not sealed (tss.md §1)")
        if isinstance(opened, Refused):
            return AnswerPacket("unknown", {}, {}, b"", _NOTHING, f"it does not open: {opened.reason}")
        found = read(opened.plain_frame, self._clear.how)
        if found is None:
            return None
        return replace(
            found, values={**found.values, **opened.header}, rows={**found.rows, **FIELDS},
            fault=found.fault or opened.fault,
        )  # fmt: skip

    def matters(self, found: AnswerPacket) -> bool:
        if found.values.get("nack_code") == NackCode.NEW_START_PSN:
            self.sealing.floor = found.values["nack_payload"]
        return super().matters(found)

    def leave(self) -> None:
        super().leave()
        start = self.variables["start"]
        psns = (found.values["psn"] for found in self._ours() if "psn" in found.values)
        above = max((psn - start & 0xFFFFFFFF for psn in psns if psn - start & 0xFFFFFFFF < _NEAR), default=0)
        if (start - self.sealing.floor) & 0xFFFFFFFF < 1 << 31:  # a close raises the lowest PSN
            self.sealing.floor = start + above + 1 & 0xFFFFFFFF


def _port_of(frame: bytes, peer: PeerFacts) -> int:
    """Return the UDP port to which a frame goes, as it is ours or the peer's; without UDP any."""
    if not peer.how.udp:
        return peer.how.udp_port
    at = 36 if peer.ip_version == 4 else 56
    return max(int.from_bytes(frame[at : at + 2], "big"), 1)


def play(test: ConformanceTest, link: Link, peer: PeerFacts, seed: str, patience: Patience) -> Outcome:
    """Play a test and return its outcome, as `player.play` does, with sealed packets."""
    offers = peer.offers
    for name in test.needs:
        if offers[name]:
            return Outcome(test, ConformanceVerdict.INCONCLUSIVE, offers[name])
    return SealedPlay(test, link, peer, seed, patience).outcome()


SEALED = Suite(play, LIVENESS)
