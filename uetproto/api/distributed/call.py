"""What all collectives have in common: one rank issues its call, with a fingerprint that all ranks compare (§1.4)."""

import numpy as np

from uetproto.api.distributed.arguments import check_op, check_root
from uetproto.api.distributed.choice import check_one, choose
from uetproto.api.distributed.groups import Group, member_group, seat_here
from uetproto.api.distributed.match import Call
from uetproto.api.distributed.tensors import same_type
from uetproto.api.distributed.vectors import is_vector, joined, room, shapes
from uetproto.api.distributed.work import Work
from uetproto.collectives.algorithms.schedule import IN_PLACE, REDUCING
from uetproto.collectives.dtypes import Array
from uetproto.collectives.reduce_ops import ReduceOp


def collective(
    name: str, group: Group, async_op: bool, algorithm: str | None, inputs: list[Array], outputs: list[Array], *,
    catalogue: str | None = None, count: int | None = None, root: tuple[str, int] | None = None,
    op: ReduceOp | None = None, sizes: tuple[int, ...] | None = None,
    splits: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
) -> Work | None:  # fmt: skip
    """Issues a collective: each list of tensors is one vector."""
    found = member_group(name, group)
    if found is None:
        return None
    seat, kind = seat_here(), name if catalogue is None else catalogue
    all_, dtype = [*inputs, *outputs], same_type(inputs, outputs)
    if kind in REDUCING:
        check_op(op, dtype)
    if root is not None:
        check_root(*root, found)
    total = sum(array.size for array in inputs) if count is None else count
    uneven = sizes is not None and len(set(sizes)) > 1
    uneven = uneven or (splits is not None and len(set(splits[0]) | set(splits[1])) > 1)
    chosen = algorithm if algorithm is not None else seat.world.algorithms.get(kind)
    bytes_ = total * dtype.itemsize
    # The fingerprint names the choice only where the program made it: by itself it follows from what is compared.
    asked = check_one(kind, chosen, seat.world.network.offload) if chosen is not None else None
    loose = splits is not None or (uneven and kind == "all_gather")
    shown = {
        "op": name,
        "root": None if root is None else root[1],
        "reduce op": None if op is None else str(op),
        "dtype": dtype.name if all_ else None,
        "sizes": sizes,
        "shape": None if loose or kind in ("scatter", "gather") else shapes(inputs),
        "block": shapes(outputs if kind == "scatter" else inputs) if kind in ("scatter", "gather") else None,
        "algorithm": asked,
    }
    seat.world.operations.check_free(seat, outputs)
    place = found.places[seat.number]
    work = Work(seat, found, name, found.calls[place])
    found.calls[place] += 1
    work.keeps = tuple(all_)
    in_place = bool(inputs) and inputs is not outputs and len(inputs) == len(outputs) == 1 and inputs[0] is outputs[0]

    # Views of our own: they stay writable while the program's are locked.
    sources, targets = [array.view() for array in inputs], [array.view() for array in outputs]

    def prepare() -> tuple[Array, Array]:
        source = joined(sources, dtype)
        target = source if in_place else room(targets, dtype)
        if kind not in IN_PLACE and np.may_share_memory(source, target):
            source = source.copy()  # what arrives must not change what is yet to be sent
        return source, target

    def finish(output: Array) -> None:
        start = 0
        for array in () if is_vector(targets, dtype) else targets:
            array.reshape(-1)[...] = output[start : start + array.size]
            start += array.size

    call = Call(
        op=kind, dtype=dtype, count=total, prepare=prepare, shown=shown, finish=finish,
        root=None if root is None else found.places[root[1]], reduce_op=op, sizes=sizes if uneven else None,
        algorithm=asked or choose(kind, bytes_, not uneven),
        sends=None if splits is None else splits[0], takes=None if splits is None else splits[1],
    )  # fmt: skip
    # An input that shares memory with an output, as the own block of all_gather may, changes by right.
    read = [not any(np.may_share_memory(array, output) for output in outputs) for array in inputs]
    watched = [*zip(inputs, read, strict=True), *((array, False) for array in outputs)]
    return seat.world.operations.issue(
        work, lambda: found.meeting(work.sequence).join(work, call), wait=not async_op, watched=watched
    )


__all__ = ["collective"]
