# SPDX-License-Identifier: GPL-2.0-only
"""The command `uetproto fabric`: its words, its JSON, its capture, and what it refuses."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.cli.frames import invoke
from tests.support.each import each
from uetproto.cli.fabric import command
from uetproto.fabric.result import summarize
from uetproto.wire.capture.pcap import open_capture

SMALL = ("--hosts", "8", "--flow-size", "60000")


def test_words_and_json_say_the_same() -> None:
    words = invoke("fabric", "incast", *SMALL)
    told = invoke("fabric", "incast", *SMALL, "--json")
    assert (words.exit_code, told.exit_code) == (0, 0), words.output
    (one,) = map(json.loads, told.stdout.splitlines())
    assert (one["pattern"], one["hosts"], one["cc"], one["lb"]) == ("incast", 8, "nscc", "mixed")
    assert (one["flows"], one["match"], one["failure"], one["trim"]) == (4, True, None, True)
    assert f"max {one['fct']['max'] / 10**6:,.1f}" in words.stdout
    assert f"trimmed {one['trims']:,}" in words.stdout


def test_a_run_is_within_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    @contextmanager
    def huge_pages() -> Iterator[None]:
        told.append("begins")
        yield
        told.append("ends")

    monkeypatch.setattr(command, "huge_pages", huge_pages)
    monkeypatch.setattr(command.Study, "run", lambda study, progress: told.append("runs") or summarize(study))
    invoke("fabric", "incast", "--hosts", "3", "--flow-size", "4kB")
    assert told == ["begins", "runs", "ends"]


def test_lists_are_separate_runs_and_compare_is_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    options = ("--cc", "off,nscc,nscc+rccc", "--lb", "mixed,reps", "--seeds", "1,3-4")
    told = [json.loads(line) for line in invoke("fabric", "incast", *SMALL, *options, "--json").stdout.splitlines()]
    assert len(told) == 18
    assert {(one["cc"], one["lb"], one["seed"]) for one in told} == {
        (cc, lb, seed) for cc in ("off", "nscc", "nscc+rccc") for lb in ("mixed", "reps") for seed in (1, 3, 4)
    }
    table = invoke("fabric", "incast", *SMALL, *options, "--compare").stdout
    assert "nscc+rccc reps" in table
    assert "…" not in table, "a column is cut"


def test_set_changes_parameters_of_all_three_sections() -> None:
    changed = ("--set", "cc.base_rtt=4 us", "--set", "switch.ecn=deterministic", "--set", "pds.ack_gen_min_pkt_add=0",
               "--set", "cc.host_rate=20 Gb/s")  # fmt: skip
    plain, told = (invoke("fabric", "incast", *SMALL, *more, "--json") for more in ((), changed))
    assert (plain.exit_code, told.exit_code) == (0, 0), told.output
    assert json.loads(plain.stdout)["fct"] != json.loads(told.stdout)["fct"]


def test_frames_that_are_not_encoded_give_the_same_results() -> None:
    encoded, plain = (invoke("fabric", "incast", *SMALL, "--wire", wire, "--json") for wire in ("bytes", "objects"))
    assert (plain.exit_code, plain.stdout) == (0, encoded.stdout), plain.output


def test_a_capture_with_credits_is_right(tmp_path: Path) -> None:
    path = tmp_path / "incast.pcapng"
    done = invoke("fabric", "incast", *SMALL, "--cc", "nscc+rccc", "-o", str(path))
    assert done.exit_code == 0, done.output
    judged = invoke("audit", str(path))
    assert (judged.exit_code, "no findings" in judged.stdout) == (0, True), judged.stdout
    shown = invoke("dissect", str(path)).stdout
    assert "credit_target" in shown
    assert "CREDIT" in shown
    assert "rcvd_bytes" in shown


@each("arguments, words", [
    (("incas",), "did you mean incast?"), (("incast", "--hosts", "1"), "2 … 8192"), (("missing.cm",), "missing.cm"),
    (("incast", "--cc", "dcqcn"), "off, nscc, rccc"), (("incast", "--lb", "ecmp"), "oblivious, bitmap, reps, mixed"),
    (("incast", "--set", "cc.entropy_values=17"), "--set cc.entropy_values: 17 is not legal; legal: 1, 2, 4"),
    (("incast", "--set", "cc.entropy=1"), "did you mean cc.entropy_values"),
    (("incast", "--set", "cc.lb=reps"), "has an argument of its own; legal: --lb"),
    (("incast", "--set", "cc.rate=50 Gbps"), "'50 Gbps' is not legal; legal: a rate such as"),
    (("incast", "--set", "cc.base_rtt=5"), "5 has no unit"), (("incast", "--set", "switch.ecn"), "has no value"),
    (("incast", "--set", "switch.ecn_min=0.9"), "--set switch.ecn_min: 0.9 is above ecn_max"),
    (("incast", "--set", "switch.shared_buffer=1KiB"), "shared_buffer: 1024 bytes are less than one queue holds"),
    (("incast", "--seeds", "5-1"), "no seed"), (("incast", "--seeds", "x"), "'x' is not legal"),
    (("incast", "--rate", "fast"), "--rate fast"), (("incast", "--queue", "-1"), "--queue -1"),
    (("incast", "--seeds", "1-2", "-o", "x.pcapng"), "one run"), (("incast", "-o", "-", "--json"), "standard output"),
    (("incast", "--tap", "h0"), "with -o FILE"), (("incast", "--wire", "objects", "-o", "x.pcapng"), "--wire bytes"),
    (("incast", "-o", "x.pcapng", "--tap", "leaf0.spine0"), "there is no leaf0"),
    (("incast", "-o", "x.pcapng", "--tap", "pod0.edge2"), "did you mean pod0.edge1"),
    (("incast", "--fail", "h0.leaf0"), "there is no h0.leaf0"), (("incast", "--fail", "core0.pod0.agg0@x"), "agg0@ x"),
    (("incast", "--plot", "fct,cwn", "x.png"), "did you mean cwnd?"),
    (("incast", "--plot", "fct", "x.gif"), ".png, .svg"), (("incast", "--sample", "0"), "--sample 0"),
    (("incast", "--flow-size", "1,2"), "one, or 1: one for each of incast"),
    (("incast", "--topology", "ring"), "no such topology"), (("incast", "--topology", "fat-tree:k=2"), "do not fit"),
])  # fmt: skip
def test_what_cannot_be_is_refused(arguments: tuple[str, ...], words: str) -> None:
    done = invoke("fabric", *arguments)
    assert done.exit_code == 2
    assert words in done.stderr


def test_taps_show_hosts_and_cables_between_switches(tmp_path: Path) -> None:
    path = tmp_path / "tapped.pcapng"
    options = ("--topology", "leaf-spine:hosts_per_leaf=4,spines=2", "--tap", "spine1.leaf0,h0")
    done = invoke("fabric", "incast", *SMALL, *options, "-o", str(path))
    assert done.exit_code == 0, done.output
    with open_capture(str(path)) as capture:
        counts = Counter(capture.interfaces[record.interface].name for record in capture)
    assert list(counts) == ["leaf0.spine1", "h0"], "frames pass the cable before they come to h0"
    assert 0 < counts["leaf0.spine1"] < counts["h0"], "half of what h0 gets and sends takes this cable"
    judged = invoke("audit", str(path))
    assert "no findings" in judged.stdout, judged.stdout


def test_a_tap_at_a_switch_shows_all_its_cables(tmp_path: Path) -> None:
    """What comes in goes out: the spines pass on each frame that is neither theirs to keep nor dropped."""
    path = tmp_path / "tapped.pcapng"
    options = ("--topology", "leaf-spine:hosts_per_leaf=4,spines=2", "--tap", "spine0,leaf0")
    done = invoke("fabric", "incast", *SMALL, *options, "-o", str(path))
    assert done.exit_code == 0, done.output
    with open_capture(str(path)) as capture:
        records = [(capture.interfaces[record.interface].name, record.data) for record in capture]
        names = [one.name for one in capture.interfaces]
    assert names == ["leaf0.spine0", "leaf1.spine0", "h0", "h1", "h2", "h3", "leaf0.spine1"]
    counts = Counter(name for name, _ in records)
    assert counts["leaf0.spine0"] == counts["leaf1.spine0"]
    assert counts["leaf0.spine0"] + counts["leaf0.spine1"] == counts["h0"]


def test_a_picture_and_tables(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    picture, tables = tmp_path / "incast.svg", tmp_path / "runs"
    options = ("--cc", "off,nscc", "--seeds", "1-2", "--plot", "fct,cwnd,queue", str(picture), "--parquet", str(tables))
    done = invoke("fabric", "incast", *SMALL, *options, "--compare")
    assert done.exit_code == 0, done.output
    assert f"drawn in {picture}" in done.stdout
    text = picture.read_text()
    assert all(words in text for words in ("nscc mixed: windows", "longest queues", "share of the flows", "h4 &gt; h0"))
    flows, windows, queues, links = (
        pq.read_table(tables / f"{name}.parquet").to_pylist() for name in ("flows", "windows", "queues", "links")
    )
    assert len(flows) == 16
    told = [json.loads(line) for line in invoke("fabric", "incast", *SMALL, *options[:4], "--json").stdout.splitlines()]
    for one in told:
        these = [row["fct_ps"] for row in flows if (row["cc"], row["seed"]) == (one["cc"], one["seed"])]
        assert (min(these), max(these)) == (one["fct"]["min"], one["fct"]["max"])
    assert {row["cc"] for row in windows} == {"nscc"}
    assert max(row["bytes"] for row in queues) > 4096
    assert sum(row["lost"] for row in links) == 0
    first, nic = [row for row in links if (row["cc"], row["seed"]) == ("nscc", 1)], "h4"
    assert sum(row["bytes"] for row in first if row["source"] == nic) > 60_000
