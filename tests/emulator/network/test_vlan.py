# SPDX-License-Identifier: GPL-2.0-only
"""VLAN tags of frames on cables, whose priority tells the classes of traffic apart (IEEE 802.1Q)."""

from collections import Counter
from pathlib import Path

import pytest

from uetproto import LocalError, decode
from uetproto.api import fi, verbs
from uetproto.emulator.run.play import run
from uetproto.emulator.scenario.settings import load
from uetproto.wire.capture.pcap import open_capture


def captured(path: Path, name: str, *settings: str) -> Counter[tuple[int | None, int | None]]:
    """The priority and the DSCP of each frame of a run that `--check` judges; None: there is none."""
    result = run(load(name, settings), check=True, output=str(path))
    assert result.ok, (result.failure, result.findings)
    with open_capture(path) as reader:
        packets = [decode(record.data) for record in reader]
    assert all(packet.error is None for packet in packets)
    assert {packet["vlan"]["vid"] for packet in packets if "vlan" in packet} == {100}
    return Counter(
        (packet["vlan"]["pcp"] if "vlan" in packet else None, packet["ipv4"]["dscp"] if "ipv4" in packet else None)
        for packet in packets
    )


def test_each_class_has_its_priority(tmp_path: Path) -> None:
    found = captured(tmp_path / "x.pcapng", "uet-incast", "fabric.vlan=100", "fabric.vlan_control=7", "tap.nodes=all")
    assert {dscp: priority for priority, dscp in found} == {8: 3, 10: 3, 16: 4, 18: 4, 46: 7}


def test_the_tag_takes_time_on_the_wire_and_changes_nothing_else() -> None:
    plain, tagged = (run(load("gradient", more)) for more in ((), ("fabric.vlan=100",)))
    assert tagged.ok
    assert tagged.sha256_target == plain.sha256_target
    assert tagged.packets == plain.packets
    assert tagged.wire_bytes == plain.wire_bytes + 4 * plain.packets
    assert tagged.virtual_time_ps > plain.virtual_time_ps


def test_pfc_pauses_the_priority_of_data(tmp_path: Path) -> None:
    """MAC control frames have no tag; data has the priority that they name."""
    settings = ("fabric.vlan=100", "fabric.pfc_priority=5", "tap.nodes=all")
    found = captured(tmp_path / "x.pcapng", "incast-roce", *settings)
    assert {priority for priority, _ in found} == {None, 5}
    assert found[None, None] > 0


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (("fabric.vlan=4095",), "settings fabric.vlan: 4095 is not legal; legal: 1 … 4094"),
        (("fabric.vlan=7", "fabric.vlan_priority=8"), "settings fabric.vlan_priority: 8 is not legal; legal: 0 … 7"),
        (("fabric.vlan_control=1",), "settings fabric.vlan_control: has no effect without fabric.vlan"),
        (("fabric.vlan=7", "fabric.vlan_priority=4", "fabric.pfc=true"), "PFC pauses the priority 3, and data has 4"),
    ],
)
def test_refusals(settings: tuple[str, ...], text: str) -> None:
    with pytest.raises(LocalError) as caught:
        load("uet-incast", settings)
    assert text in str(caught.value)


def test_programs_have_tags_too(tmp_path: Path) -> None:
    path = tmp_path / "x.pcapng"
    with fi.Fabric(vlan={"id": 9, "priority": 2}, capture=str(path)) as fabric:
        a, b = (fabric.endpoint(name) for name in ("a", "b"))
        region = b.domain.mr_reg(memory := bytearray(100))
        a.write(bytes(range(100)), b.address, 0, region.key)
        assert a.cq.sread(1)[0].ok
        assert memory == bytes(range(100))
    with open_capture(path) as reader:
        assert {decode(record.data)["vlan"]["pcp"] for record in reader} == {2, 6}
    for wrong, text in (({"id": 0}, "vlan.id"), ({}, "vlan: "), ({"pcp": 1, "id": 2}, "vlan.pcp"), (7, "vlan: 7")):
        with pytest.raises(fi.FiError, match=text):
            fi.Fabric(vlan=wrong)  # type: ignore[arg-type]
    with pytest.raises(verbs.VerbsError, match=r"vlan.priority: 4 .* legal: 3, the priority that PFC pauses"):
        verbs.Network(vlan={"id": 1, "priority": 4}, pfc=verbs.Pfc())
