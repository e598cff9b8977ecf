"""The command `uetproto fabric`: its words, its JSON, its capture, and what it refuses."""

import json
from pathlib import Path

from tests.support.cli.frames import invoke
from tests.support.each import each

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


def test_lists_are_separate_runs_and_compare_is_a_table() -> None:
    options = ("--cc", "off,nscc,nscc+rccc", "--lb", "mixed,reps", "--seeds", "1,3-4")
    told = [json.loads(line) for line in invoke("fabric", "incast", *SMALL, *options, "--json").stdout.splitlines()]
    assert len(told) == 18
    assert {(one["cc"], one["lb"], one["seed"]) for one in told} == {
        (cc, lb, seed) for cc in ("off", "nscc", "nscc+rccc") for lb in ("mixed", "reps") for seed in (1, 3, 4)
    }
    table = invoke("fabric", "incast", *SMALL, *options, "--compare").stdout
    assert "nscc+rccc reps" in table
    assert "…" not in table, "a column is cut"


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
    (("incast", "--seeds", "5-1"), "no seed"), (("incast", "--seeds", "x"), "'x' is not legal"),
    (("incast", "--rate", "fast"), "--rate fast"), (("incast", "--queue", "-1"), "--queue -1"),
    (("incast", "--seeds", "1-2", "-o", "x.pcapng"), "one run"), (("incast", "-o", "-", "--json"), "standard output"),
    (("incast", "--topology", "ring"), "no such topology"), (("incast", "--topology", "fat-tree:k=2"), "do not fit"),
])  # fmt: skip
def test_what_cannot_be_is_refused(arguments: tuple[str, ...], words: str) -> None:
    done = invoke("fabric", *arguments)
    assert done.exit_code == 2
    assert words in done.stderr
