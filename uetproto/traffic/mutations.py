# SPDX-License-Identifier: GPL-2.0-only
"""This module mutates a share of the captured frames. The endpoints get the unchanged frames (interfaces.md §7)."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import TextIO

from uetproto.engine.contract import Rng
from uetproto.errors import LocalError, argument, similar
from uetproto.wire.forms import ROCE_PORT
from uetproto.wire.mutate.frame import Mutation
from uetproto.wire.mutate.mutation import ALL, MUTATIONS_OF_HISTORY, FrameHistory, mutate

SUFFIX = ".mutations.jsonl"


def parse(asked: tuple[str, ...]) -> dict[str, float]:
    """Return the shares of mutations, by name, from texts "NAME=SHARE".

    Raises `LocalError` for an unknown or repeated name, for an illegal share, and for a sum above 1.
    """
    shares: dict[str, float] = {}
    for text in asked:
        name, equals, value = text.partition("=")
        if name not in ALL:
            raise LocalError(
                argument("mutate", text), f"{name!r} is no mutation{similar(name, ALL)}", ", ".join(ALL),
                id="unknown-mutation"
            )  # fmt: skip
        try:
            share = float(value) if equals else -1.0
        except ValueError:
            share = -1.0
        if not 0 <= share <= 1:
            raise LocalError(argument("mutate", text), f"legal is {name}=SHARE, a share 0 … 1", id="wrong-format")
        if name in shares:
            raise LocalError(argument("mutate", text), f"{name} is there twice", "each mutation once", id="duplicate")
        shares[name] = share
    if sum(shares.values()) > 1:
        raise LocalError(
            argument("mutate"), f"the shares add up to {sum(shares.values()):g}", "at most 1, a packet has one",
            id="inconsistent-values"
        )  # fmt: skip
    return shares


class Mutator:
    """This class mutates frames before they are written to a capture, and lists the mutated records in the file `side`.

    A mutation whose share is 0.1 is applied to a tenth of the records to which it can be applied.
    """

    def __init__(self, shares: Mapping[str, float], rng: Rng, side: TextIO, *, roce_port: int = ROCE_PORT) -> None:
        self._shares = tuple(shares.items())
        self._rng = rng
        self._side = side
        self._roce_port = roce_port
        self._history = FrameHistory()
        self._watches = not MUTATIONS_OF_HISTORY.keys().isdisjoint(shares)
        self._index = 0
        self.done: Counter[str] = Counter(dict.fromkeys(shares, 0))
        """Number of times that each mutation was applied."""

    def __call__(self, frames: list[bytes]) -> list[bytes]:
        written = []
        for frame in frames:
            found = self._mutated(frame)
            written.append(frame if found is None else found.frame)
            self._index += 1
        return written

    def _mutated(self, frame: bytes) -> Mutation | None:
        name = self._drawn()
        found = None if name is None else self._changed(name, frame)
        if self._watches:
            self._watch(frame)
        if name is not None and found is not None:
            self.done[name] += 1
            row = {"index": self._index, "mutation": name, **found._asdict()}
            del row["frame"]
            self._side.write(json.dumps(row) + "\n")
        return found

    def _changed(self, name: str, frame: bytes) -> Mutation | None:
        return mutate(name, frame, self._rng, self._history, roce_port=self._roce_port)

    def _watch(self, frame: bytes) -> None:
        self._history.note(frame, roce_port=self._roce_port)

    def _drawn(self) -> str | None:
        """Return the name of a mutation, drawn by the shares; None: the frame stays as it is."""
        at = self._rng.random()
        for name, share in self._shares:
            if at < share:
                return name
            at -= share
        return None
