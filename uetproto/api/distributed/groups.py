# SPDX-License-Identifier: GPL-2.0-only
"""This module makes process groups, describes them, and finds the group that a call names (collectives.md §1.1)."""

import warnings
from collections.abc import Iterable
from datetime import timedelta
from numbers import Integral

from uetproto.api.distributed.errors import ArgumentError, invalid, wrong_type
from uetproto.api.distributed.process_group import ProcessGroup
from uetproto.api.distributed.rank_threads import is_rank
from uetproto.api.distributed.work import Timeout, picoseconds
from uetproto.api.distributed.world import current_state, current_world

DEFAULT_TIMEOUT = timedelta(minutes=30)
NCCL_TIMEOUT = timedelta(minutes=10)
"""Default time-out of the backend "nccl" (collectives.md §1.1)."""


class GroupMember:
    """This class has the attribute `NON_GROUP_MEMBER`, as in torch.distributed: `new_group` returns this value to a
    rank that is no member."""

    NON_GROUP_MEMBER = -100


class group:  # noqa: N801 (torch.distributed.group.WORLD)
    """This class has the attribute `WORLD`, as in torch.distributed: `group.WORLD` stands for the default group."""

    WORLD = None


Group = ProcessGroup | int | None
"""Type of the argument `group` of a call: a process group, None for the default group, or NON_GROUP_MEMBER."""


def init_process_group(
    backend: str | None = None, init_method: str | None = None, timeout: Timeout | None = None, world_size: int = -1,
    rank: int = -1,
) -> None:  # fmt: skip
    """Make the default group, which has all ranks. `backend` is None, "gloo" or "nccl"; "nccl" has a shorter default
    time-out.

    `init_method` is ignored. Raises `ArgumentError` for a second call, and for a wrong backend, rank or size.
    """
    state = current_state()
    if state.group is not None:
        raise invalid("init_process_group", "called twice", "once, or after destroy_process_group", id="in-use")
    if backend not in (None, "gloo", "nccl"):
        raise invalid("backend", repr(backend), "gloo, nccl, None", id="unknown-name")
    if rank not in (-1, state.number):
        raise invalid("rank", rank, f"{state.number}, which this rank is, or -1", id="not-in-group")
    if world_size not in (-1, current_world().size):
        raise invalid("world_size", world_size, f"{current_world().size}, or -1", id="inconsistent-values")
    usual = NCCL_TIMEOUT if backend == "nccl" else DEFAULT_TIMEOUT
    limit = picoseconds("timeout", usual if timeout is None else timeout)
    state.group = current_world().make_group(state, range(current_world().size), limit)


def destroy_process_group(group: Group = None) -> None:
    """End the use of a group by this rank. If `group` is None or the default group, end the use of all groups of this
    rank. Later calls of this rank that name such a group raise `ArgumentError`.

    Operations in progress continue.
    """
    state, found = current_state(), find_group(group)
    if found is state.group:
        state.destroyed.update(current_world().groups_made_by(state))
        state.group = None
    elif found is not None:
        state.destroyed.add(found)


def is_initialized() -> bool:
    """Return whether there is a default group."""
    return is_rank() and current_state().group is not None


def new_group(ranks: Iterable[int] | None = None, timeout: Timeout | None = None) -> ProcessGroup | int:
    """Make a group of the given global ranks, or of all ranks if `ranks` is None. Every rank of the world, member or
    not, calls this function for the same groups in the same order.

    Members get their group ranks in ascending order of their global ranks. Return NON_GROUP_MEMBER to a rank that is no
    member.
    """
    state, default = current_state(), default_group()
    given = default.ranks if ranks is None else tuple(ranks) if isinstance(ranks, Iterable) else ()
    members = sorted({int(rank) for rank in given if default.has(rank)})
    if not members or len(members) != len(given):
        are_numbers = given and all(isinstance(rank, Integral) for rank in given)
        legal = f"ranks 0 … {current_world().size - 1}, each once, one at least"
        raise (
            invalid("ranks", repr(ranks), legal, id="not-in-group")
            if are_numbers
            else wrong_type("ranks", repr(ranks), legal)
        )
    limit = default.timeout if timeout is None else picoseconds("timeout", timeout)
    made = current_world().make_group(state, members, limit)
    return made if state.number in made.places else GroupMember.NON_GROUP_MEMBER


def get_rank(group: Group = None) -> int:
    """Return the rank of the caller in a group, or -1 if the caller is no member."""
    return -1 if (found := find_group(group)) is None else found.places.get(current_state().number, -1)


def get_world_size(group: Group = None) -> int:
    """Return the number of ranks of a group, or -1 if the caller is no member."""
    return -1 if (found := find_group(group)) is None else found.size()


def get_process_group_ranks(group: Group = None) -> list[int]:
    """Return the global ranks of a group in the order of its group ranks, or [] if the caller is no member."""
    return [] if (found := find_group(group)) is None else list(found.ranks)


def get_global_rank(group: Group, group_rank: int) -> int:
    """Return the global rank of the member whose rank in the group is `group_rank`."""
    return _ranked("group_rank", group_rank, group)


def get_group_rank(group: Group, global_rank: int) -> int:
    """Return the group rank of the member whose global rank is `global_rank`. Raises `ArgumentError` if `global_rank`
    is no member of the group."""
    found = find_group(group)
    if found is None or not found.has(global_rank):
        raise invalid("global_rank", global_rank, "a rank of the group", id="not-in-group")
    return found.places[global_rank]


def not_of_group(name: str, rank: object, found: ProcessGroup) -> ArgumentError:
    """Return the error for an argument that is no global rank of a group."""
    legal = f"a global rank of the group: {', '.join(map(str, found.ranks))}"
    if rank is None or isinstance(rank, Integral):
        return invalid(name, repr(rank), legal, id="not-in-group")
    return wrong_type(name, repr(rank), legal)


def named_rank(name: str, rank: int | None, group_rank: int | None, group: Group) -> int | None:
    """Return the global rank that a call names, either by the global rank `rank` or by the group rank `group_rank`.
    Raises `ArgumentError` if both or neither are given."""
    if (rank is None) == (group_rank is None):
        raise invalid(name, f"{rank}, group_{name} {group_rank}", f"one of {name} and group_{name}", id="not-in-group")
    if group_rank is None or find_group(group) is None:
        return rank
    return _ranked(f"group_{name}", group_rank, group)


def _ranked(name: str, group_rank: object, group: Group) -> int:
    ranks = get_process_group_ranks(group)
    if not isinstance(group_rank, Integral) or not 0 <= int(group_rank) < len(ranks):
        raise invalid(name, repr(group_rank), f"0 … {len(ranks) - 1}", id="not-in-group")
    return ranks[int(group_rank)]


# Finding the group that a call names


def default_group() -> ProcessGroup:
    """Return the default group. Raises `ArgumentError` before `init_process_group`."""
    found = current_state().group
    if found is None:
        raise invalid("group", "there is no default group yet", "after dist.init_process_group()", id="wrong-state")
    return found


def find_group(group: Group) -> ProcessGroup | None:
    """Return the group that a call names, or None if the caller is no member of it. Raises `ArgumentError` for a group
    that was destroyed, and for a value that names no group."""
    default = default_group()
    if group is None:
        return default
    if isinstance(group, ProcessGroup):
        if group in current_state().destroyed:
            raise invalid("group", f"{group!r} was destroyed", "what new_group returned, or None", id="closed")
        return group if current_state().number in group.places else None
    if isinstance(group, int) and group == GroupMember.NON_GROUP_MEMBER:
        return None
    raise invalid("group", repr(group), "what new_group returned, or None", id="not-in-group")


def member_group(op: str, group: Group) -> ProcessGroup | None:
    """Return the group that a call names. If the caller is no member, warn that the operation `op` does nothing, and
    return None."""
    found = find_group(group)
    if found is None:
        warnings.warn(f"{op}: rank {current_state().number} is no member of the group: nothing is done", stacklevel=4)
    return found
