# SPDX-License-Identifier: GPL-2.0-only
"""The rows emulator and scale of `uetproto bench`: what they measure is real, whatever the machine."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli.frames import invoke
from uetproto.bench.emulator import earlier, floor, measure, runs, scale
from uetproto.bench.emulator.before import BEFORE
from uetproto.errors import LocalError


def test_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floor, "_LOOPS", 1000)
    monkeypatch.setattr(measure, "_FLOOR", 128)
    monkeypatch.setattr(runs, "_TOUCHED", 1)
    monkeypatch.setattr(measure, "ROWS", tuple(row._replace(size=4 << 20) for row in measure.ROWS[:5:2]))

    def here(arguments: list[str], folder: Path | None = None) -> tuple[dict[str, Any], int]:
        return runs.run(arguments[2], int(arguments[3]), arguments[4]), 0

    found = list(measure.measure(True, False, here))
    assert len(found) == 2 + 3 + 2
    assert all(figure.value > 0 for figure in found)
    assert found[4].what.startswith("two fi_writes into one port: before ")
    assert found[-1].what.startswith("fi_write, sealed, one tap: packet by packet ")
    assert set(BEFORE) == set(runs.RUNS) - {"sealed"}


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a clone whose first commit has a module and other benchmarks, and whose files have changed since."""
    package = tmp_path / "uetproto"
    (package / "bench").mkdir(parents=True)
    for name in ("code.py", "bench/old.py"):
        (package / name).write_text("then = 1\n")
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-q", "-m", "first"), ("tag", "first")):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    (package / "code.py").write_text("now = 1\n")
    (package / "bench" / "old.py").rename(package / "bench" / "new.py")
    monkeypatch.setattr(earlier, "_PACKAGE", package)
    return tmp_path


def test_an_earlier_version_has_the_benchmarks_of_now(clone: Path) -> None:
    with earlier.earlier(earlier.full_name("first")) as folder:
        assert (folder / "uetproto" / "code.py").read_text() == "then = 1\n"
        assert [path.name for path in (folder / "uetproto" / "bench").iterdir()] == ["new.py"]
    assert not folder.exists()
    for wrong in ("second", "--all", ""):
        with pytest.raises(LocalError, match="no such commit"):
            earlier.full_name(wrong)


def test_in_turns(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floor, "_LOOPS", 1000)
    monkeypatch.setattr(measure, "_FLOOR", 128)
    monkeypatch.setattr(measure, "ROWS", tuple(row for row in measure.ROWS if row.name in ("write", "ring", "sharp")))
    ran = []

    def here(arguments: list[str], folder: Path | None = None) -> tuple[dict[str, Any], int]:
        name, trains = arguments[2], arguments[4]
        ran.append((name, trains))
        if name == "sharp" and trains == "before":
            raise LocalError("bench: runs sharp: Traceback:\nKeyError: 'SAT'\n4711")
        seconds = {"before": 4.0, "auto": 2.0}[trains]
        where = Path("/elsewhere") if folder is None or name == "ring" else folder
        return {"packets": 8, "seconds": seconds, "peak": 3 << 20, "package": str(where / "uetproto")}, 0

    monkeypatch.setattr(measure, "sealed", lambda *_: iter(()))
    figures = measure.measure(False, False, here, "first")
    write = list(zip(range(3), figures, strict=False))[2][1]
    assert write.what.endswith("one tap: first 2, now 2.00 × (medians 2.00), 3 and 3 MiB")
    assert (write.value, write.asked, write.wanted) == (4.0, 0, None)
    assert ran == [("write", "before"), ("write", "auto")] * 3
    monkeypatch.setattr(measure, "BEFORE_AT", "")  # as if this were the commit before trains
    (*_, limited) = zip(range(3), measure.measure(False, False, here, "first"), strict=False)
    assert (limited[1].asked, limited[1].wanted) == (3.0, 6.0)
    with pytest.raises(LocalError, match="not first was measured, but /elsewhere/uetproto"):
        next(figures)
    monkeypatch.setattr(measure, "ROWS", measure.ROWS[2:])
    (*_, sharp) = measure.measure(False, False, here, "first")
    assert sharp.what.endswith("not compared, as first does not run it (KeyError: 'SAT')")
    assert (sharp.value, sharp.asked) == (4.0, 0)


def test_another_row_compares_with_no_commit() -> None:
    found = invoke("bench", "--only", "decode", "--against", "HEAD")
    assert (found.exit_code, "legal: with the row emulator" in found.stderr) == (2, True)


@pytest.mark.parametrize(("name", "size", "packets"), [("ring", 1 << 16, 480), ("generate", 200, 200)])
def test_runs(name: str, size: int, packets: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floor, "_LOOPS", 1000)
    monkeypatch.setattr(runs, "_TOUCHED", 1)
    monkeypatch.setattr(runs, "_PEAK", tmp_path / "clear_refs")
    assert runs.run(name, size, "auto")["packets"] == packets


def test_many(monkeypatch: pytest.MonkeyPatch) -> None:
    assert scale.mesh(4, 40) > 0
    assert scale.flows(8) > 0
    monkeypatch.setattr(scale, "FLOWS_EACH", 1)
    monkeypatch.setattr(scale.Study, "matches", lambda study: False)
    with pytest.raises(LocalError, match="did not arrive"):
        scale.flows(4)


def test_the_start() -> None:
    assert 0 < scale.seconds_of(["-c", "pass"], 1) < 10
    with pytest.raises(Exception, match="returned non-zero"):
        scale.seconds_of(["-c", "import nothing_of_the_kind"], 1)
