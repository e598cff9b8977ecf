# SPDX-License-Identifier: GPL-2.0-only
"""Rules of docs/architecture.md §4 that keep the package in order, read from its files: one test a rule."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.support import docstrings, source
from tests.test_arrows import dotted, imported
from uetproto.api import distributed, fi, verbs

PACKAGE = source.PACKAGE
FILES = source.files()
PUBLIC = {*fi.__all__, *verbs.__all__, *distributed.__all__}
"""Names that users of libfabric, libibverbs and torch know; they may stand elsewhere too."""
SOURCES = {".py", ".pyi", ".lua", ".js", ".css", ".c", ".h", ".sh", ".1"}
LICENCE = "SPDX-License-" + "Identifier: GPL-2.0-only"  # in two parts: tools that look for licences read this line


def test_at_most_20_files_a_folder() -> None:
    counts: dict[Path, int] = defaultdict(int)
    for path in FILES:
        counts[path.parent] += path.name != "__init__.py"
    assert {str(folder): count for folder, count in counts.items() if count > 20} == {}


def test_at_most_900_lines_a_file() -> None:
    long = [str(path) for path in FILES if len(path.read_text(encoding="utf-8").splitlines()) > 900]
    assert long == []


def test_no_file_repeats_the_name_of_its_folder() -> None:
    assert [str(path) for path in FILES if path.stem == path.parent.name] == []


def test_class_names_are_unique() -> None:
    places = defaultdict(set)
    for path in FILES:
        for node in source.nodes(path):
            if isinstance(node, ast.ClassDef):
                places[node.name].add(str(path.relative_to(PACKAGE)))
    assert {name: found for name, found in places.items() if len(found) > 1 and name not in PUBLIC} == {}


def type_checking_imports(path: Path) -> Iterator[ast.ImportFrom]:
    for node in source.nodes(path):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from (part for part in ast.walk(node) if isinstance(part, ast.ImportFrom))


def test_type_checking_imports_stay_within_a_sub_package() -> None:
    across = [
        f"{path.relative_to(PACKAGE)}: {node.module}"
        for path in FILES
        for node in type_checking_imports(path)
        if (node.module or "").startswith("uetproto")
        and not (node.module or "").startswith(f"uetproto.{dotted(str(path.parent.relative_to(PACKAGE)))}")
    ]
    assert across == []


def test_no_dispatch_by_the_name_of_a_method() -> None:
    """`getattr(self, action)(…)` and `getattr(self, f"_do_{action}")`: tables are compiled and checked at import."""
    found = []
    for path in FILES:
        calls = [node for node in source.nodes(path) if isinstance(node, ast.Call)]
        own = [call for call in calls if is_name(call.func, "getattr") and is_name(call.args[0], "self", "cls")]
        at_once = [call.func for call in calls]
        found += [f"{path.relative_to(PACKAGE)}:{call.lineno}" for call in own
                  if isinstance(call.args[1], ast.JoinedStr)
                  or (call in at_once and not isinstance(call.args[1], ast.Constant))]  # fmt: skip
    assert found == []


def is_name(node: ast.expr, *names: str) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def test_nothing_imports_in_a_circle() -> None:
    """Imports that run when a module is loaded; those within functions and for types alone do not count."""
    modules = {f"uetproto.{dotted(str(path.relative_to(PACKAGE)))}".rstrip("."): path for path in FILES}
    wanted = {name: set(top_level(path)) & modules.keys() - {name} for name, path in modules.items()}
    left = {name: needs for name, needs in wanted.items() if modules[name].name != "__init__.py"}
    left = {name: needs & left.keys() for name, needs in left.items()}
    while free := {name for name, needs in left.items() if not needs}:
        left = {name: needs - free for name, needs in left.items() if name not in free}
    assert left == {}


def top_level(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports when it is loaded."""
    early = [node for node in source.tree(path).body if isinstance(node, ast.Import | ast.ImportFrom)]
    yield from imported(early)


def test_first_sentences_stand_alone() -> None:
    found = docstrings.public()
    assert len(found) > 5000, "the scan misses docstrings"
    assert [str(one) for one in found if docstrings.FRAGMENT.match(one.sentence)] == []


def test_first_sentences_have_a_verb() -> None:
    """Of modules, classes and functions; an attribute may be described by a noun: "Bytes of a fragment."."""
    assert [
        str(one) for one in docstrings.public() if not one.attribute and not docstrings.has_verb(one.sentence)
    ] == []


def test_the_verb_check_itself() -> None:
    for sentence in (
        "Return the children's indices in ascending order.",
        "A link carries frames.",
        "Packets are whole.",
    ):
        assert docstrings.has_verb(sentence)
    for sentence in ("Those children, ascending.", "The later of two tokens.", "The steps of a ring."):
        assert not docstrings.has_verb(sentence)
    assert re.fullmatch(docstrings.FRAGMENT, "As the newest.")


def test_tests_read_no_clock() -> None:
    """What depends on how fast or how busy the machine is belongs to `uetproto bench`."""
    clocks = re.compile(r"\b(perf_counter|process_time|monotonic|timeit)(_ns)?\b|\btime\.time\(")
    tests = Path(__file__).parent
    found = [
        str(path.relative_to(tests))
        for path in tests.rglob("*.py")
        if path != Path(__file__) and clocks.search(path.read_text("utf-8"))
    ]
    assert found == []


def test_every_source_file_states_its_licence() -> None:
    """In its first lines, after `#!` or what a generated file is. REUSE.toml has pages, captures and data."""
    root = PACKAGE.parent
    own = [root / ".ci" / "run", root / "Dockerfile", *(root / "tools").iterdir()]
    folders = (PACKAGE, root / "tests", root / "tools", root / "docs")
    own += [path for folder in folders for path in folder.rglob("*") if path.suffix in SOURCES]
    assert len(own) > 1500, "the scan misses files"
    texts = {path: path.read_text(encoding="utf-8") for path in [*own, *root.glob("*.md")] if path.is_file()}
    assert [
        f"{path.relative_to(root)}: its first line has to be a comment, {LICENCE}"
        for path in own
        if LICENCE not in texts.get(path, LICENCE)[:240]
    ] == []
    more = re.compile(rf"{LICENCE}(?!( \*/)?$)", re.MULTILINE)  # the tool reuse takes it for another licence
    assert [str(path.relative_to(root)) for path, text in texts.items() if more.search(text)] == []
