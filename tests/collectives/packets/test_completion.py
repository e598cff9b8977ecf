# SPDX-License-Identifier: GPL-2.0-only
"""What tells a target that a message has come: completion data and immediates on the wire (collectives.md §5)."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.collectives.packets_bench import Frame, captured, settle
from uetproto.api.distributed.networks import uet as distributed_uet
from uetproto.collectives.algorithms.catalogue import schedule
from uetproto.collectives.algorithms.schedule import Schedule
from uetproto.collectives.transport import Purpose, Tag, TransportError

LOSSY = {"drop": 0.1, "reorder": 0.1, "duplicate": 0.1}


def plan_of(name: str) -> Schedule:
    return schedule("all_reduce", name, 5, 60, slices=3 if name == "double_tree" else 1)


def writes(frames: list[Frame]) -> Iterator[tuple[int, int, int, bytes]]:
    """Of each WRITE that a rank sends: resource index, initiator, completion data, payload."""
    for frame in frames:
        for layer in frame.packet.layers:
            if frame.leaves and layer.form == "ses.request_std.som":
                values = layer.values
                yield values["resource_index"], values["initiator"], values["header_data"], bytes(frame.packet.payload)


@pytest.mark.parametrize("name", ["ring", "double_tree", "recursive_doubling", "naive_exchange"])
def test_completion_data_is_the_tag(name: str) -> None:
    """§5: (seq, phase, step, chunk); of each message of the schedule once, from its rank, and none for grants."""
    plan = plan_of(name)
    _, frames = captured(plan, [np.arange(60) for _ in range(5)], "uet")
    seen = list(writes(frames))
    data = [(initiator, Tag.unpack(told)) for index, initiator, told, _ in seen if index == 15]
    columns = plan.arrays()
    wanted = Counter(zip(columns["src"].tolist(), columns["step"].tolist(), strict=True))
    assert Counter((initiator, tag.step) for initiator, tag in data) == wanted
    assert {tag[:3] for _, tag in data} == {(Purpose.COLLECTIVE, 0, 0)}
    granted = [told for index, _, told, _ in seen if index == 14]
    assert len(granted) == len(data)
    assert max(granted) < 5 * 128  # the number of a record


def test_a_message_is_told_by_origin_and_tag() -> None:
    """Two ranks send with the same tag at once; when a receive is told its own bytes are there, whatever is lost."""
    network = distributed_uet.network(3, faults=LOSSY, seed=4)
    into = [bytearray(9000) for _ in range(4)]
    told: list[tuple[int, bytes]] = []

    def done(number: int) -> object:
        def end(failure: TransportError | None) -> None:
            assert failure is None
            told.append((number, bytes(into[number])))

        return end

    tags = [Tag(Purpose.POINT_TO_POINT, 3, 77, 5, piece) for piece in (1, 2)]
    for number, (peer, tag) in enumerate([(0, tags[0]), (1, tags[0]), (0, tags[1]), (1, tags[1])]):
        network.end(2).receive(peer, tag, memoryview(into[number]), done(number))  # type: ignore[arg-type]
        network.end(peer).send(2, tag, memoryview(bytes([number + 1]) * 9000), lambda failure: None)
    settle(network)
    network.close(drain=True)
    assert sorted(told) == [(number, bytes([number + 1]) * 9000) for number in range(4)]


def test_immediates_are_numbers_of_receives() -> None:
    """RoCE has 32 bits for them: the grant told number and tag together, and each number is of one receive."""
    plan = plan_of("ring")
    _, frames = captured(plan, [np.arange(60) for _ in range(5)], "roce")
    told = Counter(
        (frame.rank, layer.values["immdt"])
        for frame in frames for layer in frame.packet.layers if not frame.leaves and "immdt" in layer.values
    )  # fmt: skip
    assert told == Counter({(rank, number): 1 for rank in range(5) for number in range(1, 9)})
