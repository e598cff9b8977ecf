"""Groups of ranks, and which one a call means (collectives.md §1.1)."""

import warnings
from collections.abc import Iterable
from datetime import timedelta
from numbers import Integral

from uetproto.api.distributed.errors import invalid
from uetproto.api.distributed.group import ProcessGroup
from uetproto.api.distributed.rank_state import Seat
from uetproto.api.distributed.ranks import current, is_rank
from uetproto.api.distributed.work import Timeout, picoseconds
from uetproto.api.distributed.world import World

DEFAULT_TIMEOUT = timedelta(minutes=30)
NCCL_TIMEOUT = timedelta(minutes=10)
"""Of the backend "nccl" (§1.1)."""


class GroupMember:
    """What `new_group` returns to a rank that is no member."""

    NON_GROUP_MEMBER = -100


class group:  # noqa: N801 (torch.distributed.group.WORLD)
    """`group.WORLD` is the default group."""

    WORLD = None


Group = ProcessGroup | int | None
"""A group; NON_GROUP_MEMBER; None for the default group."""


def init_process_group(
    backend: str | None = None, init_method: str | None = None, timeout: Timeout | None = None, world_size: int = -1,
    rank: int = -1,
) -> None:  # fmt: skip
    """Makes the default group of all ranks. `backend`: None, "gloo", or "nccl", which is less patient.

    `init_method` is not needed. Raises `ArgumentError` the second time, and for a rank or size that is not so.
    """
    seat = seat_here()
    if seat.group is not None:
        raise invalid("init_process_group", "called twice", "once, or after destroy_process_group")
    if backend not in (None, "gloo", "nccl"):
        raise invalid("backend", repr(backend), "gloo, nccl, None")
    if rank not in (-1, seat.number):
        raise invalid("rank", rank, f"{seat.number}, which this rank is, or -1")
    if world_size not in (-1, seat.world.size):
        raise invalid("world_size", world_size, f"{seat.world.size}, or -1")
    usual = NCCL_TIMEOUT if backend == "nccl" else DEFAULT_TIMEOUT
    limit = picoseconds("timeout", usual if timeout is None else timeout)
    seat.group = seat.world.make_group(seat, range(seat.world.size), limit)


def destroy_process_group(group: Group = None) -> None:
    """This rank uses it no more: calls that name it are refused. Without a group: all, the default group too.

    What is under way goes on.
    """
    seat, found = seat_here(), find_group(group)
    if found is seat.group:
        seat.destroyed.update(seat.world.made[: seat.groups_made])
        seat.group = None
    elif found is not None:
        seat.destroyed.add(found)


def is_initialized() -> bool:
    """Whether there is a default group."""
    return is_rank() and seat_here().group is not None


def new_group(ranks: Iterable[int] | None = None, timeout: Timeout | None = None) -> ProcessGroup | int:
    """A group of some ranks; None: all. Every rank of the world calls it, members or not, in the same order.

    Its rank in the group is its place in the sorted list. Returns NON_GROUP_MEMBER to a rank that is no member.
    """
    seat, default = seat_here(), default_group()
    given = default.ranks if ranks is None else tuple(ranks) if isinstance(ranks, Iterable) else ()
    members = sorted({int(rank) for rank in given if default.has(rank)})
    if not members or len(members) != len(given):
        raise invalid("ranks", repr(ranks), f"ranks 0 … {seat.world.size - 1}, each once, one at least")
    limit = default.timeout if timeout is None else picoseconds("timeout", timeout)
    made = seat.world.make_group(seat, members, limit)
    return made if seat.number in made.places else GroupMember.NON_GROUP_MEMBER


def get_rank(group: Group = None) -> int:
    """The rank of the caller in a group; -1 if it is no member."""
    return -1 if (found := find_group(group)) is None else found.places.get(seat_here().number, -1)


def get_world_size(group: Group = None) -> int:
    """How many ranks a group has; -1 if the caller is no member."""
    return -1 if (found := find_group(group)) is None else found.size()


def get_process_group_ranks(group: Group = None) -> list[int]:
    """The global ranks of a group."""
    return [] if (found := find_group(group)) is None else list(found.ranks)


def get_global_rank(group: Group, group_rank: int) -> int:
    """The global rank of a rank of a group."""
    ranks = get_process_group_ranks(group)
    if not isinstance(group_rank, Integral) or not 0 <= group_rank < len(ranks):
        raise invalid("group_rank", repr(group_rank), f"0 … {len(ranks) - 1}")
    return ranks[group_rank]


def get_group_rank(group: Group, global_rank: int) -> int:
    """The rank in a group of a global rank."""
    found = find_group(group)
    if found is None or not found.has(global_rank):
        raise invalid("global_rank", global_rank, "a rank of the group")
    return found.places[global_rank]


# Which one a call means


def seat_here() -> Seat:
    rank = current()
    world = rank.owner
    assert isinstance(world, World)
    return world.seats[rank.number]


def default_group() -> ProcessGroup:
    found = seat_here().group
    if found is None:
        raise invalid("group", "there is no default group yet", "after dist.init_process_group()")
    return found


def find_group(group: Group) -> ProcessGroup | None:
    """The group meant; None: one that the caller is no member of."""
    default = default_group()
    if group is None:
        return default
    if isinstance(group, ProcessGroup):
        if group in seat_here().destroyed:
            raise invalid("group", f"{group!r} was destroyed", "what new_group returned, or None")
        return group if seat_here().number in group.places else None
    if isinstance(group, int) and group == GroupMember.NON_GROUP_MEMBER:
        return None
    raise invalid("group", repr(group), "what new_group returned, or None")


def member_group(op: str, group: Group) -> ProcessGroup | None:
    """The group meant; None, with a warning, if the caller is no member (§1.1)."""
    found = find_group(group)
    if found is None:
        warnings.warn(f"{op}: rank {seat_here().number} is no member of the group: nothing is done", stacklevel=4)
    return found
