# SPDX-License-Identifier: GPL-2.0-only
"""This module knows when the packets of a train are sealed together and taken without being opened, and does so.

The packets of a train that have the same key, epoch and SSI are sealed in one loop, with ascending counters. Their
receiver has the frames as they were sealed, so they open if it would derive the same packet key and accept the header
(tss.md §9): `SecureDomain.opens` says so for all of them at once. TSS has no replay window, so nothing else depends on
the counter of a packet. All else is opened packet by packet (`Split.KEYS`): what arrives when a change of keys or of
the epoch is due, and packets sealed with a key or an epoch that the receiver does not have. A packet for which no
counter is left is not sent (`Split.COUNTERS`).
"""

from typing import TYPE_CHECKING, NamedTuple

from uetproto.engine.train import ArrivingRun, Train, TrainAck
from uetproto.engine.tss.cipher import PacketToSeal, Seal

if TYPE_CHECKING:
    from uetproto.framing.tss import SealingFramer


class TrainSeal(NamedTuple):
    """A train seal says how successive packets of a train were sealed."""

    end: int
    """Index behind the last of these packets."""
    seal: Seal


def seal_train(framer: "SealingFramer", train: Train) -> list[bytes]:
    """Return the frames of a train (`TrainFramer.frames`), and note in the train how they were sealed.

    Keys and epoch change between two packets as they do between two calls of `SealingFramer.frame`. A packet that is
    refused changes nothing on which the next one depends, so that all behind it are refused too.
    """
    domain, lowers = framer.domain, framer.lower_of_train(train)
    below = {lower: framer.authenticated(lower, train.dst) for lower in set(lowers)}
    inner = train.fix([b"".join(parts) for parts in zip(train.heads, train.payloads, strict=True)], 0)
    packets: list[PacketToSeal] = list(zip(lowers, [below[lower].run for lower in lowers], inner, strict=True))
    frames: list[bytes] = []
    seals: list[TrainSeal] = []
    train.seals = seals
    at, count = 0, len(packets)
    while at < count:
        most = count - at
        if framer.is_timed:
            framer.keep_time()
            sealed, time = framer.next_change()
            most = 1 if time <= framer.now() else min(most, sealed - domain.counters.out_auth_pkts)
        run = domain.seal_run(below[lowers[at]], packets[at : at + most])
        if run is None:
            at += 1
            continue
        frames += run.frames
        at += len(run.frames)
        seals.append(TrainSeal(at, run.seal))
    assert len(frames) == (seals[-1].end if seals else 0)
    return frames


class OpenedRun:
    """An opened run takes the packets of a sealed train without opening them (`train.ArrivingRun`)."""

    __slots__ = ("_end", "_framer", "_run", "_train", "answers", "apart", "place", "quiet_to")

    def __init__(self, framer: "SealingFramer", run: ArrivingRun, train: Train) -> None:
        self._framer = framer
        self._run = run
        self._train = train
        self._end = 0
        """Index behind the last packet that would open now."""
        self.answers = self.apart = False
        self.quiet_to = 0

    def settle(self, index: int, count: int, now: int) -> None:
        self._framer.domain.counters.in_auth_pkts += count
        self._run.settle(index, count, now)

    def answer(self, index: int) -> TrainAck | None:
        ack = self._run.answer(index)
        if ack is not None:
            self._limit()
        return ack

    def due(self, index: int, count: int, now: int) -> TrainAck:
        self._framer.domain.counters.in_auth_pkts += count
        ack = self._run.due(index, count, now)
        self._limit()
        return ack

    def renew(self, index: int, polled: bool) -> bool:
        return self._run.renew(index, polled) and self.accept(index)

    def extend(self, train: Train) -> bool:
        return False

    def accept(self, index: int) -> bool:
        """Find out again which packets from `index` on would open. Return False if packet `index` must be opened."""
        framer, self._end = self._framer, index
        if framer.next_turn() > framer.now():
            for end, seal in self._train.seals:
                if end > self._end:
                    if not opens(framer, seal):
                        break
                    self._end = end
        self._limit()
        return self._end > index

    def _limit(self) -> None:
        """Let no packet be quiet or due that must be opened."""
        run, end = self._run, self._end
        self.place = run.place
        self.apart = run.apart
        self.quiet_to = min(run.quiet_to, end)
        self.answers = run.answers and run.quiet_to < end


def take_ack(framer: "SealingFramer", ack: TrainAck) -> bool:
    """Count a sealed ACK as opened (`TrainFramer.takes_ack`), if it would open."""
    if not (framer.next_turn() > framer.now() and opens(framer, ack.seal)):
        return False
    framer.domain.counters.in_auth_pkts += 1
    return True


def opens(framer: "SealingFramer", seal: Seal) -> bool:
    """Return whether `SealingFramer.packet` would open a packet that arrives as it was sealed, and those behind it in
    its run."""
    domain = framer.domain
    return (
        seal.header.sdi == domain.domain.sdi
        and framer.port.domains.get(seal.header.sdi) is domain
        and domain.opens(seal)
    )
