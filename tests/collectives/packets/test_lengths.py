# SPDX-License-Identifier: GPL-2.0-only
"""A receive has room for exactly the bytes sent, or both ends fail and nothing is written (`transport.Transport`)."""

from functools import partial

from tests.support.collectives.packets_bench import NETWORKS, settle
from tests.support.each import each
from uetproto.collectives.transport import Purpose, Tag, TransportError

TAG = Tag(Purpose.COLLECTIVE, 0, 0)


@each("sender_first", [True, False])
@each("sent, awaited", [(8, 4), (4, 8), (8, 0), (0, 8), (9000, 8), (8, 9000), (9000, 8999)])
@each("hosts", [[[0], [1]], [[0, 1]]])
@each("transport", sorted(NETWORKS))
def test_lengths_that_differ(
    transport: str, hosts: list[list[int]], sent: int, awaited: int, sender_first: bool
) -> None:
    network = NETWORKS[transport](2, hosts=hosts)
    told: dict[str, list[TransportError | None]] = {"send": [], "receive": []}
    memory = bytearray(b"\x07" * (awaited + 64))
    data, into = memoryview(bytes(sent)), memoryview(memory)[32 : 32 + awaited]
    calls = [
        partial(network.end(0).send, 1, TAG, data, told["send"].append),
        partial(network.end(1).receive, 0, TAG, into, told["receive"].append),
    ]
    for call in calls if sender_first else reversed(calls):
        call()
    settle(network)
    network.close(drain=True)
    failures = [*told["receive"], *told["send"]]
    assert len(failures) == 2
    assert f"{sent} bytes sent, {awaited} awaited" in str(failures[0])
    if transport != "uet-send" or len(hosts) == 1:  # there it is the receiver that finds out
        assert f"{sent} bytes sent, {awaited} awaited" in str(failures[1])
        assert set(memory) == {7}
    assert set(memory[:32] + memory[32 + awaited :]) == {7}
