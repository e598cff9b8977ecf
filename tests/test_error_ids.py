# SPDX-License-Identifier: GPL-2.0-only
"""Every error that the library raises on purpose has an id, and the table of ids says what it means and what to do."""

import ast
import importlib.util
import re
import shlex
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support import source
from tests.support.effort import effort
from tests.support.paths import PCAPS, ROOT
from uetproto.cli.explain import explanations
from uetproto.cli.main import _IDS, cli
from uetproto.errors import RemoteError, UetError, unfit

_SPEC = importlib.util.spec_from_file_location("error_sites", ROOT / "tools/site/reference/error_sites.py")
assert _SPEC is not None
assert _SPEC.loader is not None
error_sites = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(error_sites)

OTHERS = {"ConstructError", "MappingError", "StringError", "IntegerError", "SizeofError", "StreamError",
          "_AnotherFormError", "UnknownFormError", "InvalidArgument", "UsageError", "BadParameter"}  # fmt: skip
"""Errors of Construct, Hypothesis and click that the library raises on purpose."""
NAMES = {path: str(path.relative_to(source.PACKAGE)) for path in source.files()}
SITES = [(NAMES[path], site) for path in source.files() for site in error_sites.sites(source.nodes(path))]
TABLE = explanations()
EXAMPLES = [(id, parts["example"]) for id, parts in TABLE.items() if "example" in parts]


def classes() -> dict[str, ast.ClassDef]:
    """The classes of errors of the library, those that choose their id themselves aside."""
    every = [node for path in source.files() for node in source.nodes(path) if isinstance(node, ast.ClassDef)]
    found: dict[str, ast.ClassDef] = {}
    while more := [
        one
        for one in every
        if one.name not in found
        and (one.name == "UetError" or any(ast.unparse(base).partition("[")[0] in found for base in one.bases))
    ]:
        found |= {one.name: one for one in more}
    return found


def chooses(kind: ast.ClassDef) -> bool:
    """Whether a class takes no id, as all its errors are of one kind."""
    made = [one for one in kind.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
    return bool(made) and all(one.arg != "id" for one in made[-1].args.kwonlyargs)


def test_no_error_is_made_without_an_id() -> None:
    found = classes()
    own = {name for name, kind in found.items() if chooses(kind)}
    assert own == {"DeadlockError", "SharpError", "SharpRefusedError"}
    assert {"LocalError", "RemoteError", "FiError", "LayerError", "OperationFailedError"} <= found.keys()
    assert [
        f"{NAMES[path]}:{line}: {name}"
        for path in source.files()
        for name, line in error_sites.without_id(source.nodes(path), found.keys() - own | OTHERS)
    ] == []


def test_the_table_has_the_ids_of_the_sources_and_no_other() -> None:
    used = {site.id for _, site in SITES} | {*_IDS.values()}
    assert used == TABLE.keys()
    assert list(TABLE) == sorted(TABLE)
    for id, parts in TABLE.items():
        assert parts.keys() in ({"means", "do", "example"}, {"means", "do", "seen"}), id
        assert parts["means"].endswith("."), id
        assert parts["do"].endswith("."), id
        named = re.findall(r"(?:docs|uetproto)/[\w/]+\.\w+", parts["do"])
        assert all((ROOT / path).exists() for path in named), (id, named)


def test_no_id_is_a_catch_all() -> None:
    often = Counter(site.id for _, site in SITES)
    assert len(SITES) > 1400
    assert often.most_common(1)[0][1] < len(SITES) / 8


def test_an_unfit_value_has_one_of_four_ids() -> None:
    assert [unfit("x", ("y",)), unfit("x"), unfit(7, ("y",)), unfit(None)] == [
        "unknown-name", "wrong-format", "out-of-range", "wrong-type",
    ]  # fmt: skip
    assert unfit(True) == "wrong-type"
    assert {unfit("x", ("y",)), unfit("x"), unfit(7), unfit(None)} == {*error_sites.UNFIT}


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the examples name."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "pcaps").symlink_to(PCAPS)
    (folder / "README.md").write_text("# No capture\n")
    gradient = (source.PACKAGE / "emulator/scenarios/gradient.toml").read_text()
    (folder / "mine.toml").write_text(gradient)
    (folder / "broken.toml").write_text("[run\n")
    (folder / "latin1.toml").write_bytes(b"# \xe9\n")
    (folder / "nokey.toml").write_text("[nodes.a]\n[nodes.b]\naddress = '10.0.0.2'\n[run]\ninput = 'x.bin'\n")
    nodes = "".join(f"[nodes.{name}]\naddress = '10.0.0.{number}'\n" for number, name in enumerate("ab", 1))
    script = f"{nodes}[run]\nses = 'scripted'\n[[step]]\nsubmit = 1\n"
    (folder / "script.toml").write_text(script + "[faults]\ndrop = 0.1\n")
    (folder / "lost.toml").write_text(script + "[[step]]\nlose = 9\n")
    return folder


@pytest.mark.parametrize(("id", "example"), EXAMPLES[:: effort(4, 1, 1)], ids=lambda one: str(one).split()[0])
def test_an_example_ends_in_its_error(id: str, example: str, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    if example.startswith("uetproto "):
        result = CliRunner().invoke(cli, shlex.split(example)[1:])
        assert result.exit_code == 2, result.output
        assert f" [{id}]\n" in result.stderr, result.stderr
        return
    with pytest.raises(Exception) as caught:  # noqa: PT011 - errors of several libraries have ids
        exec(compile(example, id, "exec"), {})
    assert getattr(caught.value, "id", caught.value) == id


def test_explain_prints_what_the_table_has() -> None:
    known = CliRunner().invoke(cli, ["explain", "[unknown-key]"], env={"COLUMNS": "400"})
    assert [line.split(maxsplit=1)[0] for line in known.stdout.splitlines()] == [
        "unknown-key",
        "means",
        "do",
        "example",
    ]
    assert all(part in known.stdout for part in TABLE["unknown-key"].values())
    every = CliRunner().invoke(cli, ["explain"], env={"COLUMNS": "80"}).stdout
    assert [line.split()[0] for line in every.splitlines()] == list(TABLE)
    lines = CliRunner().invoke(cli, ["explain", "--json"]).stdout.splitlines()
    assert len(lines) == len(TABLE)
    wrong = CliRunner().invoke(cli, ["explain", "unknown-kye"])
    assert (wrong.exit_code, "did you mean unknown-key" in wrong.stderr) == (2, True)
    for empty in ("", "[]"):
        result = CliRunner().invoke(cli, ["explain", empty])
        assert (result.exit_code, "[unknown-id]" in result.stderr) == (2, True)


def test_users_may_raise_errors_without_an_id(capsys: pytest.CaptureFixture[str]) -> None:
    assert (UetError("no way").id, RemoteError("no way", 1).id) == ("", "")
