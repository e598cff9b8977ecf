# SPDX-License-Identifier: GPL-2.0-only
"""Errors carry fields; their text is made from the fields, and no code reads it back."""

import ast
import pickle
import tomllib
from collections.abc import Iterable, Iterator

import pytest

from tests.support import source
from tests.support.paths import ROOT
from uetproto.api.fi import Errno, FiError
from uetproto.engine.pds.messages import parse
from uetproto.errors import LocalError, Location, RemoteError, UetError, listed, missing_package, similar
from uetproto.wire.headers.uet_pds import PdsType

READS = {"split", "rsplit", "partition", "rpartition", "removeprefix", "removesuffix", "find", "index", "replace",
         "startswith", "endswith", "strip", "lstrip", "rstrip"}  # fmt: skip
"""Methods of a text that look into it. Splitting at a line break is a matter of display."""


def test_the_text_is_made_from_the_fields() -> None:
    error = LocalError("mtu", 10, "68 … 65535", place=Location("a.toml", 3))
    assert (error.name, error.value, error.legal, error.place) == ("mtu", 10, "68 … 65535", ("a.toml", 3, ""))
    assert str(error) == "a.toml:3: mtu: 10; legal: 68 … 65535"
    assert str(LocalError("mtu", "missing")) == "mtu: missing"
    assert str(LocalError("no way")) == "no way"
    assert str(LocalError("no way", place=Location("a.toml", 3, "step.0"))) == "a.toml:3: step.0: no way"
    assert str(LocalError("no way", place=Location("a.toml"))) == "a.toml: no way"
    assert str(FiError(Errno.FI_EINVAL, "tag", 1, 2)) == "tag: 1; legal: 2 [FI_EINVAL]"
    remote = RemoteError("cut short", 7, name="ACK", legal="12 bytes")
    assert (str(remote), remote.code) == ("ACK: cut short; legal: 12 bytes", 7)


def test_many_names_are_counted_and_the_field_has_all() -> None:
    names = [f"name-{number}" for number in range(13)]
    error = LocalError("kind", "x", f"{', '.join(names)}; or a path")
    assert str(error) == "kind: x; legal: name-0, name-1, name-2, … (13 in all); or a path"
    assert str(LocalError("kind", "x", f"{', '.join(names)}, and not y")).endswith("… (13 in all), and not y")
    assert error.legal.startswith(", ".join(names))
    assert str(LocalError("kind", "x", ", ".join(names[1:]))).endswith(", ".join(names[1:]))
    assert str(LocalError("kind", "x", ", ".join(["a few words"] * 20))).count("a few words") == 20
    assert listed(names, "x --list") == "name-0, name-1, name-2, … (13 in all: x --list)"


@pytest.mark.parametrize(
    "error", [LocalError("mtu", 10, 11, place=Location("a", 3)), RemoteError("short", 7, name="x")]
)
def test_a_copy_has_the_same_fields(error: UetError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), vars(copy)) == (str(error), vars(error))


def ours(nodes: Iterable[ast.AST], names: set[str]) -> Iterator[ast.ExceptHandler]:
    """The handlers that catch an error of this library, under some name."""
    for node in nodes:
        if isinstance(node, ast.ExceptHandler) and node.name and node.type is not None:
            caught = {one.id for one in ast.walk(node.type) if isinstance(one, ast.Name)}
            if caught & names:
                yield node


def parses(handler: ast.ExceptHandler) -> Iterator[int]:
    """The lines of a handler that look into the text of its error."""
    texts: set[str] = set()

    def is_text(node: ast.AST) -> bool:
        match node:
            case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=name)]):
                return name == handler.name
            case ast.Subscript(value=ast.Attribute(value=ast.Name(id=name), attr="args")):
                return name == handler.name
            case ast.JoinedStr(values=[ast.FormattedValue(value=ast.Name(id=name))]):
                return name == handler.name
            case ast.Name(id=name):
                return name in texts
        return False

    for node in (inner for one in handler.body for inner in ast.walk(one)):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if is_text(value):
                texts.add(name)
    for node in (inner for one in handler.body for inner in ast.walk(one)):
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=attr), args=args):
                lines = [getattr(one, "value", None) for one in args] == ["\n"]
                matched = (isinstance(value, ast.Name) and value.id == "re") or attr in ("sub", "search", "fullmatch")
                if (attr in READS and is_text(value) and not lines) or (matched and any(map(is_text, args))):
                    yield node.lineno
            case ast.Subscript(value=value) if is_text(value):
                yield node.lineno
            case ast.Compare(comparators=[value]) if is_text(value):
                yield node.lineno


def test_no_parse_of_an_errors_text() -> None:
    classes = [node for path in source.files() for node in source.nodes(path) if isinstance(node, ast.ClassDef)]
    bases = {one: {ast.unparse(base).partition("[")[0] for base in one.bases} for one in classes}
    names = {"UetError"}
    while more := {one.name for one in classes if bases[one] & names} - names:
        names |= more
    assert {"LocalError", "RemoteError", "FiError", "VerbsError", "ArgumentError"} <= names
    wrong = [f"{path.relative_to(source.PACKAGE)}:{line}" for path in source.files()
             for handler in ours(source.nodes(path), names) for line in parses(handler)]  # fmt: skip
    assert wrong == []


@pytest.mark.parametrize(
    "body",
    [
        'name, _, rest = str(error).partition(": ")', 'text = str(error)\n    text.split("; legal: ")',
        'error.args[0].removeprefix("x")', 're.match("x", str(error))', 'print(str(error)[3:])',
        'f"{error}".split(":")',
        'if "legal" in str(error): pass', 'PATTERN.sub("", str(error))',
    ],
)  # fmt: skip
def test_every_kind_of_parse_is_seen(body: str) -> None:
    tree = ast.parse(f"try:\n    pass\nexcept (OSError, LocalError) as error:\n    {body}\n")
    assert [line for handler in ours(ast.walk(tree), {"LocalError"}) for line in parses(handler)] != []


@pytest.mark.parametrize(
    ("word", "names", "hint"),
    [
        ("rankk", ("rank0", "rank2", "other"), " (did you mean rank2 or rank0?)"),
        ("psn", ("start_psn", "mode"), " (did you mean start_psn?)"),
        ("RODD", ("rod", "uud"), " (did you mean rod?)"),
        (7, ("8", "seven"), ""),
        ("nothing", ("a", "b"), ""),
        ("", ("a",), ""),
        ("x" * 300, ("x" * 301,), ""),
    ],
)
def test_similar_names(word: object, names: tuple[object, ...], hint: str) -> None:
    assert similar(word, names) == hint


def test_what_is_missing_is_installed_by_an_extra() -> None:
    """Each message names an extra of pyproject.toml, in a command that works wherever uetproto is installed."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = set()
    for path in source.files():
        for node in source.nodes(path):
            match node:
                case ast.Call(func=ast.Name(id="missing_package"), args=[_, _, ast.Constant(extra)]):
                    named.add(extra)
    assert named == set(known) - {"all", "docs", "release", "test"}
    assert str(missing_package("--plot a.svg", "matplotlib", "plot")) == (
        "--plot a.svg: needs the package matplotlib; pip install 'uetproto[plot]'"
    )


def test_errors_of_the_peer_have_fields() -> None:
    """No call gives one text: each names the part of the packet that is wrong."""
    found = ((path.name, node) for path in source.files() for node in source.nodes(path))
    calls = [
        (name, call) for name, call in found if isinstance(call, ast.Call) and ast.unparse(call.func) == "RemoteError"
    ]
    assert len(calls) > 8
    assert [name for name, call in calls if {one.arg for one in call.keywords} != {"id", "name", "legal"}] == []
    with pytest.raises(RemoteError) as caught:
        parse(bytes([PdsType.ACK << 3, 0]))
    assert (caught.value.name, caught.value.value, caught.value.legal) == (
        "ACK",
        "cut short: 2 bytes",
        "12 bytes and more",
    )
