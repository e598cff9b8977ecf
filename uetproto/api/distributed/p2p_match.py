# SPDX-License-Identifier: GPL-2.0-only
"""This module matches sends with receives, by their ranks and their tag, and in the order in which they were posted
(collectives.md §1.1, §1.4)."""

from dataclasses import dataclass

from uetproto.api.distributed.errors import SizeMismatchError
from uetproto.api.distributed.planner import RankGroup
from uetproto.api.distributed.work import Work
from uetproto.collectives.dtypes import Array, bytes_of
from uetproto.collectives.transport import Purpose, Tag, TransportError
from uetproto.errors import UetError


@dataclass(slots=True, eq=False)
class Post:
    """This record describes a send or a receive, which is one half of a point-to-point message."""

    work: Work
    sends: bool
    peer: int | None
    """Global rank of the peer, or None for a receive from any rank."""
    tag: int
    array: Array
    eager: Array | None = None
    """Copy of the data of an eager send, or None for any other send. The program may change the buffer of an eager send
    at once."""

    @property
    def rank(self) -> int:
        """Return the global rank that posted this half."""
        return self.work.rank

    def matches(self, other: "Post") -> bool:
        """Return whether two halves have the same tag and each accepts the other's rank as its peer."""
        return self.tag == other.tag and self.peer in (None, other.rank) and other.peer in (None, self.rank)

    def __str__(self) -> str:
        return f"{self.array.size} {self.array.dtype.name}"


class P2PMatching:
    """This class holds the sends and receives of a group that wait for a match. It matches a new send with the oldest
    waiting receive that fits, and a new receive with the oldest waiting send that fits."""

    def __init__(self, group: RankGroup) -> None:
        self._group = group
        self._waiting: list[Post] = []
        self._moving: list[tuple[Post, Post]] = []
        self._count: dict[tuple[int, int], int] = {}

    def post(self, post: Post) -> None:
        """Match a new half with the oldest waiting half that fits. If none fits, the new half waits, or fails if a rank
        that it needs has failed."""
        others = (o for o in self._waiting if o.sends is not post.sends and o.matches(post))
        other = next(others, None)
        if other is not None:
            self._waiting.remove(other)
            self._begin(*((post, other) if post.sends else (other, post)))
            return
        dead = self._group.world.dead(self._group.ranks if post.peer is None else (post.peer,))
        if dead is not None:
            post.work.fail(dead)
            return
        self._waiting.append(post)
        post.work.needs = lambda: self._needs(post)
        post.work.withdraw = lambda _: self._withdraw(post)

    def lost(self, rank: int, error: UetError) -> None:
        """Fail all sends and receives that need the failed rank `rank`."""
        for post in tuple(self._waiting):
            if rank in (post.rank, post.peer):
                post.work.fail(error)
        for pair in tuple(self._moving):
            if rank in (pair[0].rank, pair[1].rank):
                for post in pair:
                    post.work.fail(error)

    def _withdraw(self, post: Post) -> None:
        self._waiting = [other for other in self._waiting if other is not post]

    def _needs(self, post: Post) -> tuple[tuple[int, ...], str]:
        me = post.rank
        needs = tuple(rank for rank in self._group.ranks if rank != me) if post.peer is None else (post.peer,)
        whom = "any rank" if post.peer is None else f"rank {post.peer}"
        call = f"recv(src={me}, tag={post.tag})" if post.sends else f"send(dst={me}, tag={post.tag})"
        text = f"waits for {whom} to call {call}"
        near = [o for o in self._waiting if o.sends is not post.sends and o.rank in needs and o.peer in (None, me)]
        return needs, text + "".join(f"; rank {other.rank} has tag {other.tag} there" for other in near[:1])

    def _begin(self, send: Post, receive: Post) -> None:
        receive.work.source = send.rank
        if send.array.size != receive.array.size or send.array.dtype != receive.array.dtype:
            text = f"rank {send.rank} sends {send}, rank {receive.rank} awaits {receive} (tag {send.tag})"
            error = SizeMismatchError("", text, "the same number of elements of the same type", id="size-mismatch")
            send.work.fail(error)
            receive.work.fail(error)
            return
        pair = (send.rank, receive.rank)
        number = self._count[pair] = self._count.get(pair, 0) + 1
        tag = Tag(Purpose.POINT_TO_POINT, self._group.mark, number)
        moving = (send, receive)
        self._moving.append(moving)
        open_ = [True, True]

        def ended(half: int, failure: TransportError | None) -> None:
            open_[half] = False
            if not any(open_):
                self._moving.remove(moving)
            moving[half].work.finish(failure)
            if failure is not None:  # the transport may never end the other half
                moving[1 - half].work.fail(failure)

        for half in moving:
            half.work.needs = lambda: ((), "is under way")
            half.work.withdraw = lambda _: None
        data = send.array if send.eager is None else send.eager
        end = self._group.world.network.end
        end(receive.rank).receive(send.rank, tag, bytes_of(receive.array).data, lambda f: ended(1, f))
        end(send.rank).send(receive.rank, tag, bytes_of(data).data, lambda f: ended(0, f))
