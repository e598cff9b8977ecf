# SPDX-License-Identifier: GPL-2.0-only
"""What the README and the guide show runs as it stands: Python, scenarios, commands. Their links lead somewhere."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import uetproto.cli.run  # noqa: F401 (its help names LENGTH as it is when it is imported)
from tests.support.effort import effort
from tests.support.live import addresses
from uetproto.cli import compare
from uetproto.cli.main import cli

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/tutorials/guide.md")
"""Pages whose blocks of code run, one after the other."""
LINKED = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
each_page = pytest.mark.parametrize("page", effort(PAGES[1:], PAGES, PAGES))
SHORTER = (
    ("fuzz --seconds 60", "fuzz --steps 600 --seed 1 --jobs 1"),
    ("fuzz tss --seconds 10", "fuzz tss --steps 300 --seed 1 --jobs 1"),
    ("--ranks 2,4,8,16,32,64", "--ranks 2,4,8"),
    ("--ranks 64 --algorithm linear --bytes 4MiB", "--ranks 8 --algorithm linear --bytes 64KiB"),
    ("--cc off,nscc,nscc+rccc --plot", "--flow-size 20000 --cc off,nscc,nscc+rccc --plot"),
    ("--seeds 1-5", "--flow-size 60000"),
    ("--hosts 128", "--hosts 16 --flow-size 60000"),
    ("--no-trim", "--no-trim --flow-size 60000"),
    ("--seed 4 --html", "--seed 4 --only UET-PDS-020 --html"),
    ('--flow-size "1 MB"', "--flow-size 60000"),
)
"""Parts of commands, and what is run in their place."""
QUICKER = (
    ("frame.show2()", "pass"),
    (
        "find(scenarios(spoilt=True),",
        "find(scenarios(spoilt=True), settings=settings(phases=[Phase.generate]), condition=",
    ),
    ("import find, given", "import Phase, find, given"),
    (
        'find(messages(opcode="READ", mtu=4096),',
        'find(messages(opcode="READ", mtu=4096), settings=settings(phases=[Phase.generate]), condition=',
    ),
)
"""Parts of blocks of Python, likewise: how a scenario is shrunk makes no difference to what is said."""
QUICKER += effort((("find(packets(), lambda", 'find(packets(form="pds.cp"), lambda'),), (), ())
"""`ci` shrinks to the smallest packet of the smallest form; `full` finds that form among all."""


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the commands before have left there, and a home of its own."""
    (tmp_path / "LICENSE").write_bytes((ROOT / "LICENSE").read_bytes())
    (tmp_path / "pcaps").symlink_to(ROOT / "pcaps")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert cli.status(["run", "gradient", "-o", "g.pcapng"]) == 0
    return tmp_path


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 8 * 1024


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings give, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    broken = []
    for page in LINKED:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            file, _, anchor = target.partition("#")
            path = page.parent / file if file else page
            if "://" not in target and not (path.exists() and (not anchor or anchor in anchors(path))):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


def test_the_architecture_names_files_that_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    names = {path.relative_to(ROOT / "uetproto").as_posix() for path in (ROOT / "uetproto").rglob("*.py")}
    names |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py")}
    named = set(re.findall(r"`([a-z_/]+\.py)`", text))
    assert len(named) > 30, "the page is not read"
    assert {name for name in named if not any(f"/{full}".endswith(f"/{name}") for full in names)} == set()


@each_page
def test_python(page: str, here: Path) -> None:
    """The blocks one after the other, in one process, with warnings as errors."""
    code = "\n".join(blocks(page, "python"))
    assert "packet[" in code
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=here, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if "show2" in code:
        assert "crc" in done.stdout


@pytest.mark.parametrize(
    "page",
    [*PAGES, "docs/howto/construct.md", "docs/howto/scapy.md", "docs/howto/testing.md", "docs/howto/machines.md"],
)
def test_values_said_in_comments(page: str, tmp_path: Path) -> None:
    """`expression    # value` in a block is true."""
    if page == "docs/howto/machines.md" and shutil.which("cc") is None:
        pytest.skip("there is no C compiler (cc)")
    checked = 0
    own = dict(zip(("127.0.0.1", "127.0.0.2"), addresses(), strict=True))  # others may listen at those of the pages
    with pytest.MonkeyPatch.context() as patch:
        (tmp_path / "g.pcapng").write_bytes((ROOT / "pcaps" / "gradient.pcapng").read_bytes())
        (tmp_path / "pcaps").symlink_to(ROOT / "pcaps")
        patch.chdir(tmp_path)
        scope: dict[str, object] = {}
        for block in blocks(page, "python"):
            for long, short in [*QUICKER, *own.items()]:
                block = block.replace(long, short)
            exec(compile(block, page, "exec"), scope)
            for line in block.splitlines():
                expression, _, said = line.partition("  # ")
                said = said.strip()
                if re.fullmatch(r"\d+|True|Trailer\(.*\)", said) and not line.startswith((" ", "from", "import")):
                    assert str(eval(expression, scope)) == said, line
                    checked += 1
    assert checked >= 4


def test_toml(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Scenarios, which have nodes, are run; profiles are generated."""
    profiles = 0
    for block in blocks("docs/tutorials/guide.md", "toml"):
        (here / "mine.toml").write_text(block, encoding="utf-8")
        if "nodes" in tomllib.loads(block):
            assert cli.status(["run", "mine.toml"]) == 0
            assert "match" in capsys.readouterr().out
        else:
            profiles += 1
            assert cli.status(["generate", "mine.toml", "-o", "mine.pcapng", "--packets", "500"]) == 0
            assert "mine: 500 packets" in capsys.readouterr().out
    assert (profiles, len(blocks("docs/tutorials/guide.md", "toml"))) == (1, 3)


@pytest.mark.parametrize("page", [*PAGES, "docs/howto/fabric.md"])
def test_commands(page: str, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every `uetproto …` line of the shell blocks. One that ends with `&` is a process, which runs until the end."""
    monkeypatch.setattr(compare, "LENGTH", 1 << 20)
    own = dict(zip(("127.0.0.1", "127.0.0.2"), addresses(), strict=True))
    ran = 0
    with ExitStack() as beside:
        for block in blocks(page, "sh"):
            for line in block.splitlines():
                line = line.partition("  #")[0]
                for long, short in [*SHORTER, *own.items()]:
                    line = line.replace(long, short)
                words = shlex.split(line) if line.startswith("uetproto") else []
                if words[-1:] == ["&"]:
                    beside.enter_context(running(words[1:-1]))
                elif words[:1] == ["uetproto"] and (page == "README.md" or words[1] != "wireshark"):
                    wanted = 1 if words[1] == "conform" else 0  # it finds the faults of its peer
                    assert cli.status(words[1:]) == wanted, (line, capsys.readouterr().err)
                    ran += 1
    assert ran >= 4


@contextmanager
def running(arguments: list[str]) -> Iterator[None]:
    """Run a command of uetproto until the end of the block; it is ready when it has printed a line."""
    command = [sys.executable, "-u", "-m", "uetproto", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield
        finally:
            process.terminate()
            process.communicate()


def test_every_key_of_stats_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """docs/reference/metrics.md has each key of `stats --json`, under the heading of its object."""
    sections = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8").split("\n## ")
    headings = {"pdc": "Flows", "message": "Messages", "summary": "The summary"}
    explained = {section.partition("\n")[0]: {*re.findall(r"`(\w+)`", section)} for section in sections}
    assert cli.status(["stats", "--json", str(ROOT / "pcaps/gradient-lossy.pcapng")]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["kind"] for row in told} == {*headings}
    for row in told:
        assert {*row} - {"file", "interface"} <= explained[headings[row["kind"]]], row["kind"]
