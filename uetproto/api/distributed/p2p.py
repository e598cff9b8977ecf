# SPDX-License-Identifier: GPL-2.0-only
"""This module implements the point-to-point operations: `send`, `recv` and their asynchronous forms (collectives.md
§1.3)."""

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from uetproto.api.distributed.errors import invalid, refused, wrong_type
from uetproto.api.distributed.groups import Group, find_group, member_group, named_rank, not_of_group
from uetproto.api.distributed.p2p_match import Post
from uetproto.api.distributed.process_group import ProcessGroup
from uetproto.api.distributed.rank_state import RankState
from uetproto.api.distributed.tensor import span
from uetproto.api.distributed.tensors import tensor as checked_tensor
from uetproto.api.distributed.work import Work
from uetproto.api.distributed.world import World, current_state, current_world
from uetproto.collectives.dtypes import Array
from uetproto.errors import shown

MOST_TAG = 2**31 - 1
"""Largest legal tag of a message."""


def send(
    tensor: Any, dst: int | None = None, group: Group = None, tag: int = 0, group_dst: int | None = None
) -> None:  # fmt: skip
    """Send a tensor to a peer, and return when the peer has received it. A tensor of at most `eager_threshold` bytes is
    copied, and the call returns at once.

    The peer is named either by its global rank `dst` or by its rank in the group, `group_dst`.
    """
    _point("send", tensor, _peer("dst", dst, group_dst, group), group, tag, wait=True)


def recv(
    tensor: Any, src: int | None = None, group: Group = None, tag: int = 0, group_src: int | None = None
) -> int:  # fmt: skip
    """Receive into a tensor, and return the global rank of the sender, or -1 if the caller is no member of the group.

    The sender is named either by its global rank `src` or by its rank in the group, `group_src`; if neither is given,
    the message may come from any rank. A receive from any rank waits for the data even in stream mode.
    """
    peer = _peer("src", src, group_src, group)
    work = _point("recv", tensor, peer, group, tag, wait=True)
    if work is None:
        return -1
    if peer is None and not work.done:
        current_world().scheduler.block(work)
    return work.source if peer is None else peer


def isend(
    tensor: Any, dst: int | None = None, group: Group = None, tag: int = 0, group_dst: int | None = None
) -> Work | None:  # fmt: skip
    """Begin to send a tensor, which must not change before `wait()`."""
    return _point("isend", tensor, _peer("dst", dst, group_dst, group), group, tag, wait=False)


def irecv(
    tensor: Any, src: int | None = None, group: Group = None, tag: int = 0, group_src: int | None = None
) -> Work | None:  # fmt: skip
    """Begin to receive into a tensor, which must not be read before `wait()`. `src` and `group_src` mean the same as
    for `recv`."""
    return _point("irecv", tensor, _peer("src", src, group_src, group), group, tag, wait=False)


class P2POp:
    """A `P2POp` has the arguments of one operation of `batch_isend_irecv`."""

    def __init__(
        self, op: Callable[..., Any], tensor: Any, peer: int | None = None, group: Group = None, tag: int = 0,
        group_peer: int | None = None,
    ) -> None:  # fmt: skip
        if op is not isend and op is not irecv:
            raise invalid("op", getattr(op, "__name__", repr(op)), "dist.isend, dist.irecv", id="unknown-name")
        self.op = op
        self.tensor = tensor
        self.peer = _peer("peer", peer, group_peer, group)
        self.group = group
        self.tag = tag


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Begin all sends and receives of a list, and return a `Work` for each. Ranks that exchange data in this way cannot
    deadlock, even if their lists name the peers in different orders."""
    if not isinstance(p2p_op_list, list) or not p2p_op_list:
        raise invalid("p2p_op_list", repr(p2p_op_list), "a list of P2POp, one at least", id="wrong-count")
    if not all(isinstance(item, P2POp) for item in p2p_op_list):
        raise invalid("p2p_op_list", "an item that is no P2POp", "a list of P2POp", id="wrong-type")
    if any(find_group(item.group) is not find_group(p2p_op_list[0].group) for item in p2p_op_list):
        raise invalid("p2p_op_list", "items of several groups", "one group for all", id="foreign-object")
    # All are checked first: an item that is refused leaves no other in progress.
    arrays = [_checked_tensor(o.op.__name__, o.tensor, o.peer, find_group(o.group), o.tag) for o in p2p_op_list]
    _check_apart(arrays, [item.op is irecv for item in p2p_op_list])
    works = [_point(o.op.__name__, o.tensor, o.peer, o.group, o.tag, wait=False, batch=True) for o in p2p_op_list]
    return [work for work in works if work is not None]


def _check_apart(arrays: Sequence[Array], receives: Sequence[bool]) -> None:
    """Raise `ArgumentError` if an item of a batch receives into memory that another item uses."""
    sent = received = 0
    items = [(*span(array), into) for array, into in zip(arrays, receives, strict=True) if array.size]
    for start, end, receive in sorted(items):
        if start < received or (receive and start < sent):
            raise invalid(
                "p2p_op_list", "an item receives into memory that another one uses", "memory of its own for each",
                id="memory-overlaps"
            )  # fmt: skip
        if receive:
            received = max(received, end)
        else:
            sent = max(sent, end)


def _peer(name: str, rank: int | None, group_rank: int | None, group: Group) -> int | None:
    return rank if group_rank is None else named_rank(name, rank, group_rank, group)


def _checked_tensor(op: str, value: Any, peer: int | None, found: ProcessGroup | None, tag: int) -> Array:
    sends = op.endswith("send")
    array = checked_tensor("tensor", value, writable=not sends)
    name = "dst" if sends else "src"
    if not isinstance(tag, Integral) or tag > MOST_TAG:
        raise wrong_type("tag", shown(tag), f"a whole number, 0 … {MOST_TAG}")
    if tag < 0:
        raise refused("tag", tag, f"0 … {MOST_TAG}", id="out-of-range")
    if found is not None and not (peer is None and not sends):
        if not found.has(peer):
            raise not_of_group(name, peer, found)
        if peer == current_state().number:
            raise invalid(name, f"{peer}, the rank itself", "another rank", id="same-node")
    return array


def _point(
    op: str, value: Any, peer: int | None, group: Group, tag: int, wait: bool, batch: bool = False
) -> Work | None:
    world, state, found = current_world(), current_state(), member_group(op, group)
    array = _checked_tensor(op, value, peer, find_group(group), tag)
    if found is None:
        return None
    sends = op.endswith("send")
    world.scheduler.check_free(state, [array] if sends else [], [] if sends else [array], wait)
    place = found.places[state.number]
    whom = f"{'dst' if sends else 'src'}={'any' if peer is None else peer}"
    work = Work(world.scheduler, state.number, found, f"{op}({whom}, tag={tag})", found.posts[place])
    found.posts[place] += 1
    work.keeps = (value,)
    post = Post(work, sends, peer, tag, array.view())
    eager = sends and array.nbytes <= world.eager_threshold

    def begin() -> None:
        if eager:
            post.eager = array.copy()
        elif not sends and world.poison:
            post.array.reshape(-1).view(np.uint8)[...] = 0xFF
        found.p2p.post(post)
        if eager:
            work.finish()

    if world.streams and not batch:
        _connect(world, state, found, peer, work)
    world.scheduler.issue(work, begin, wait=wait, watched=[(array, sends)])
    return work


def _connect(world: World, state: RankState, found: ProcessGroup, peer: int | None, work: Work) -> None:
    """Wait for the peer at the first call between two ranks in stream mode (collectives.md §1.2).

    A receive from any rank waits for none of them, but releases a peer that waits for this rank.
    """
    scheduler, number = world.scheduler, state.number
    peers = found.ranks if peer is None else (peer,)
    state.linked.update(peers)
    for other in peers:
        for link in [work for work in scheduler.states[other].open if work.op == f"connect(peer={number})"]:
            link.finish()
    if peer is None or number in scheduler.states[peer].linked:
        return
    link = Work(scheduler, number, found, f"connect(peer={peer})", work.sequence)
    link.needs = lambda: ((peer,), f"waits for rank {peer} to call send or recv with rank {number}")
    scheduler.block(link)
