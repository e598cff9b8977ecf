# SPDX-License-Identifier: GPL-2.0-only
"""This check accounts for every block of code of the pages, by `blocks.toml`: a test runs it, or this check does, or it
says why neither can.

What this check runs, it runs in an empty folder, one block after the other: shell by bash, Python in one scope; TOML is
written to mine.toml. A block of text has to be what was printed; `…` stands for anything. Values in comments are true.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import stage

from checks.report import Report

LISTS = tomllib.loads((Path(__file__).parent / "blocks.toml").read_text(encoding="utf-8"))
CODE = ("sh", "python", "toml", "c")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_VALUE = re.compile(r"\d+|True|False|None|'[^']*'")
_BESIDE = ("pcaps", "LICENSE")


def languages(page: str) -> set[str]:
    """Return the languages of the blocks of code of a page."""
    return {language for language, _ in _BLOCK.findall((stage.ROOT / page).read_text(encoding="utf-8"))} & {*CODE}


def check(_: Path) -> Report:
    """Hold the lists against the pages, and run what no test runs."""
    faults: list[str] = []
    ran = 0
    pages = {page: found for page in [*stage.pages(), "README.md"] if (found := languages(page))}
    for page, found in pages.items():
        tested, here, left = (LISTS[name].get(page, {}) for name in ("tests", "run", "not_run"))
        if missing := found - {*tested} - {*here} - {*left}:
            faults.append(f"{page}: nothing says what runs its blocks of {', '.join(sorted(missing))} (blocks.toml)")
        faults += [f"{page}: there is no {test}" for each in tested.values() for test in each if not exists(test)]
        if here:
            wrong, count = played(page, here)
            faults += wrong
            ran += count
    listed = {page for name in LISTS for page in LISTS[name]}
    faults += [f"blocks.toml names {page}, which has no blocks of code" for page in sorted(listed - {*pages})]
    return Report(f"{len(pages)} pages with code; {ran} commands and blocks of Python ran here", faults)


def exists(test: str) -> bool:
    """Return whether the file of a test is there."""
    return (stage.ROOT / test.partition("::")[0]).is_file()


def played(page: str, wanted: list[str]) -> tuple[list[str], int]:
    """Run the blocks of a page. Returns what went wrong, and how many commands and blocks of Python ran."""
    faults: list[str] = []
    ran = 0
    scope: dict[str, object] = {}
    text = (stage.ROOT / page).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        for beside in _BESIDE:
            (Path(name) / beside).symlink_to(stage.ROOT / beside)
        printed: str | None = None
        for block in _BLOCK.finditer(text):
            line = text.count("\n", 0, block.start()) + 1
            if block[1] == "text" and printed is not None:
                faults += [f"{page}:{line}: {difference}" for difference in differences(block[2], printed)]
            elif block[1] == "sh" and "sh" in wanted:
                printed = ""
                for command in re.sub(r"\\\n\s*", "", block[2]).splitlines():
                    status, told = shell(command)
                    printed += told
                    ran += 1
                    if status:
                        faults.append(f"{page}:{line}: exit status {status} of {command}: {told.strip()[-200:]}")
            elif block[1] == "toml" and "toml" in wanted:
                Path("mine.toml").write_text(block[2], encoding="utf-8")
            elif block[1] == "python" and "python" in wanted:
                output = io.StringIO()
                try:
                    with contextlib.redirect_stdout(output):
                        exec(compile(block[2], page, "exec"), scope)
                        faults += [f"{page}:{line}: {untrue}" for untrue in values(block[2], scope)]
                except Exception as error:
                    faults.append(f"{page}:{line}: {type(error).__name__}: {error}")
                printed = output.getvalue()
                ran += 1
            else:
                printed = None
    return faults, ran


def shell(command: str) -> tuple[int, str]:
    """Run a command. Returns its exit status and what it printed."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "120"}
    done = subprocess.run(
        ["bash", "-c", f"exec 2>&1; {command}"], env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    return done.returncode, done.stdout


def differences(said: str, printed: str) -> Iterator[str]:
    """Yield the first line of a block that was not printed so."""
    pattern = "".join(".*?" if piece == "…" else re.escape(piece) for piece in re.split("(…)", said.rstrip()))
    if not re.fullmatch(pattern, printed.rstrip(), re.DOTALL):
        seen, lines = {*printed.splitlines()}, said.splitlines()
        line = next((one for one in lines if "…" not in one and one not in seen), lines[0])
        yield f"the command does not print: {line.strip()[:100]}"


def values(block: str, scope: dict[str, object]) -> Iterator[str]:
    """Yield each `expression  # value` of a block that is not true."""
    for line in block.splitlines():
        expression, _, said = line.partition("  # ")
        if _VALUE.fullmatch(said.strip()) and not line.startswith((" ", "from", "import")):
            found = repr(eval(expression, scope))
            if found != said.strip():
                yield f"{expression.strip()} is {found}, not {said.strip()}"
