# SPDX-License-Identifier: GPL-2.0-only
"""The profile for Wireshark: tshark takes it as it is, colours packets by it, and has every field that it names."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import paths
from tests.support.interop.tshark import folder, needs_tshark, run, write_pcap
from uetproto.wire.capture.pcap import open_capture
from uetproto.wireshark import profile

pytestmark = needs_tshark

CAPTURES = ("gradient-lossy", "ladder-L08", "ses-fail-at-perm", "roce-fail-key")


@pytest.fixture
def home() -> Iterator[Path]:
    """A home with the profile, and a capture of packets of all kinds."""
    with folder() as path:
        place = path / ".config" / "wireshark" / "profiles" / profile.NAME
        place.mkdir(parents=True)
        for name, text in profile.files().items():
            (place / name).write_text(text, encoding="utf-8")
        frames: list[bytes] = []
        for name in CAPTURES:
            with open_capture(paths.PCAPS / f"{name}.pcapng") as capture:
                frames += (record.data for record in capture)
        trimmed = bytearray(frames[0][:80])
        trimmed[15] = 16 << 2  # the DSCP
        write_pcap(path / "all.pcap", [*frames, bytes(trimmed)])
        yield path


def test_every_packet_has_its_colour_and_columns(home: Path) -> None:
    arguments = ("-C", profile.NAME, "-r", home / "all.pcap", "--color", "-T", "fields", "-E", "separator=|")
    out, err = run([*arguments, "-e", "frame.coloring_rule.name", "-e", "_ws.col.Info"], home)
    assert err == "", "no rule, column or button is refused"
    pairs = [tuple(line.split("|", 1)) for line in out.splitlines()]
    expected = {
        "UET NACK": r"^NACK",
        "UET retransmission": r"^(ROD_REQ|RUD_REQ|CP) .*retx",
        "UET acknowledgement": r"^ACK",
        "UET trimmed": r"^[A-Z]+_REQ .*trimmed",
        "UET control": r"^CP ",
        "UET error response": r"AT_PERM|ACCESS",
        "UET": r"^(ROD_REQ|RUD_REQ|RUDI_REQ|UUD_REQ) ",
        "RoCE": r"^RC ",
        "RoCE NAK": r"^RC Acknowledge",
    }
    assert {colour for colour, _ in pairs} == set(expected)
    assert [pair for pair in pairs if not re.search(expected[pair[0]], pair[1])] == []


def test_the_columns_are_shown(home: Path) -> None:
    arguments = ("-C", profile.NAME, "-r", home / "all.pcap", "-c", "20", "-T", "tabs")
    rows = [line.replace("→\t", "").split("\t") for line in run(arguments, home)[0].splitlines()]
    titles = [column.title for column in profile.COLUMNS]
    assert {len(row) for row in rows} == {len(titles)}
    shown = [dict(zip(titles, row, strict=True)) for row in rows]
    assert [shown[10][title] for title in ("PDC", "PSN", "Rel PSN", "Message")] == ["0", "73738", "10", "0"]


def test_every_field_exists(home: Path) -> None:
    tables = (profile.COLOURS, profile.BUTTONS, profile.GRAPHS)
    texts = [row.filter for table in tables for row in table]
    texts += [column.format for column in profile.COLUMNS] + [graph.y_field for graph in profile.GRAPHS]
    named = {name for text in texts for name in re.findall(r"(?<![%.\w])[a-z]\w*(?:\.\w+)*", text)} - {"or"}
    assert {"uetp.pdc", "uetp.trimmed", "uetp.analysis.rtt", "infiniband"} < named
    filters = " || ".join(sorted(named))  # a name that is no field is refused
    assert len(run(["-r", home / "all.pcap", "-Y", filters, "-c", "9"], home)[0].splitlines()) == 9
