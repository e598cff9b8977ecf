# SPDX-License-Identifier: GPL-2.0-only
"""This module reads conformance tests from TOML files: those of the package (`uet/`, `tss/`, `roce/`) and of the
user."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from uetproto.conform.packets import KINDS, MEDIUM, NOTHING, OPTIONAL, PeerFacts
from uetproto.conform.roce import packets as roce
from uetproto.conform.roce import pairs as roce_pairs
from uetproto.errors import LocalError, Location, shown, similar
from uetproto.toml.file import TomlFile

SHIPPED, ROCE, TSS = (Path(__file__).parent / name for name in ("uet", "roce", "tss"))
"""Folders of the tests of the package: of UET, of RoCE, and of UET with keys."""
_KEYS = {"id", "section", "covers", "purpose", "needs", "act", "ends", "result", "audited", "pairs", "steps"}
_NEEDED = ("id", "section", "purpose", "steps")
_KINDS_OF_STEPS = ("send", "expect", "any", "all", "allow", "forbid")
MODES = ("rud", "rod", "rudi", "uud")
"""Modes of acts of a peer of UET; those of RoCE are `roce.pairs.KINDS`."""
ACTS = {
    "write": "write", "read": "read", "send": "send", "tagged": "send (tagged)", "atomic": "add (ATOMIC, SUM, UINT64)",
    "fetch": "fetch and add (FETCHING_ATOMIC, SUM, UINT64)", "deferrable": "send (DEFERRABLE_SEND)",
    "rendezvous": "send (RENDEZVOUS_SEND)",
}  # fmt: skip
"""What a test may want a peer of UET to do, in words."""
ROCE_ACTS = {
    "write": "RDMA WRITE", "write_imm": "RDMA WRITE with immediate", "read": "RDMA READ", "send": "SEND",
    "send_imm": "SEND with immediate", "send_inv": "SEND with invalidate", "fetch": "FETCH_ADD", "cas": "COMPARE_SWAP",
}  # fmt: skip
"""What a test may want a peer of RoCE to do, in words."""
ENDS = ("ok", "error")
INITIATOR, TARGET = "initiator", "target"
"""Our side of a test."""
_OF_ROCE: dict[str, tuple[str, tuple[str, ...]]] = {
    "received": ("reports", roce_pairs.REPORTED), "completed": ("posts", roce_pairs.COMPLETED),
    "post": ("posts", roce_pairs.POSTED),
}  # fmt: skip
"""Kinds of steps of RoCE alone, each with what it needs of the peer and with its keys."""
_NUMBERS = {"ecn": (0, 3), "entropy": (1, 65535), "cut": (0, 16384), "pad": (0, 7)}
"""Keys of a step that are numbers, with their least and greatest values."""
KEYS = "keys"
"""What tests of sealed packets need of a peer."""
_KEYS_OF = {
    "trimmed": "trimming", "start": "any_start", **dict.fromkeys(("tss", "changed", "icv", "keep", "copy"), KEYS)
}  # fmt: skip
"""What the peer has to offer for a key of a step."""
_ID = re.compile(r"[A-Z0-9]+(?:-[A-Z0-9]+)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformanceTest:
    """This record is one test."""

    id: str
    section: str
    """Section of the pages that says what is tested, such as "pds.md §8.1"."""
    covers: tuple[str, ...]
    """Rows of the coverage table that the test covers (`coverage.py`)."""
    purpose: str
    needs: tuple[str, ...]
    """What the peer has to offer (`PeerFacts.offers`)."""
    steps: tuple[Mapping[str, Any], ...]
    place: Location
    """File and line of the test."""
    act: str = ""
    """What the peer has to do, such as "rud write 8": mode, operation and length; empty if we are the initiator."""
    ends: str = ""
    """How the act has to end at the peer: one of `ENDS`; empty if it does not matter."""
    result: str = ""
    """Data that the peer has to have read, such as "@NAME"."""

    pairs: tuple[Mapping[str, Any], ...] = ()
    """Queue pairs of the peer, each with its kind and settings (`roce/pairs.py`); none if the test is one of UET."""
    audited: bool = True
    """Whether `uetproto audit` judges the packets of the peer; not where our own ones mislead it."""

    @property
    def role(self) -> str:
        """Return our side of the test."""
        return TARGET if self.act else INITIATOR


class ConformanceFile(TomlFile):
    """This class reads the tests of one file."""

    def table_of(self, name: str, key: str) -> dict[str, Any]:
        """Raise `LocalError`, as no key of a test is set from the command line."""
        raise LocalError(name, "is not to be set", "keys of the file", id="test-file")

    def tests(self) -> list[ConformanceTest]:
        """Return the tests. Raises `LocalError` for what is no test."""
        for name in self.data:
            if name != "test":
                raise self.refuse(name, "is not legal", "[[test]]", id="test-file")
        rows = self.data.get("test")
        if not isinstance(rows, list) or not rows:
            raise self.refuse("test", "is missing", "[[test]] once for each test", id="test-file")
        return [self._test(f"test.{number}", row) for number, row in enumerate(rows)]

    def _test(self, at: str, row: Mapping[str, Any]) -> ConformanceTest:
        for name in row:
            if name not in _KEYS:
                raise self.refuse(
                    f"{at}.{name}", f"is not legal{similar(name, _KEYS)}", ", ".join(sorted(_KEYS)), id="test-file"
                )
        for name in _NEEDED:
            if not row.get(name):
                raise self.refuse(f"{at}.{name}", "is missing", ", ".join(_NEEDED), id="test-file")
        for name in ("id", "section", "purpose", "act", "ends", "result"):
            if not isinstance(row.get(name, ""), str):
                raise self.refuse(f"{at}.{name}", shown(row[name]), "a text", id="test-file")
        if not isinstance(row.get("audited", True), bool):
            raise self.refuse(f"{at}.audited", shown(row["audited"]), "true, false", id="test-file")
        if not _ID.fullmatch(row["id"]):
            raise self.refuse(
                f"{at}.id", shown(row["id"]), "capitals, digits and hyphens, such as UET-PDS-014", id="test-file"
            )
        lists = {name: self._texts(f"{at}.{name}", row.get(name, [])) for name in ("covers", "needs")}
        pairs = self._pairs(f"{at}.pairs", row["pairs"]) if "pairs" in row else ()
        known = {**roce_pairs.NEEDS, **roce_pairs.OPTIONAL} if pairs else PeerFacts(address=0, local=0).offers
        for name in lists["needs"]:
            if name not in known:
                raise self.refuse(f"{at}.needs", f"{name!r}{similar(name, known)}", ", ".join(known), id="test-file")
        steps = row["steps"]
        if not isinstance(steps, list):
            raise self.refuse(f"{at}.steps", shown(steps), "a list of steps", id="test-file")
        for number, step in enumerate(steps, 1):
            self._check(f"{at}.steps", f"step {number}", step, len(pairs))
        act, ends = row.get("act", ""), row.get("ends", "")
        words = act.split(maxsplit=2)
        modes, acts = ((pairs[0]["kind"],), ROCE_ACTS) if pairs else (MODES, ACTS)
        if act and (len(words) < 3 or words[0] not in modes or words[1] not in acts):
            legal = f"{' | '.join(modes)}, {' | '.join(acts)} and a length, such as {modes[0]} write 8"
            raise self.refuse(f"{at}.act", shown(act), legal, id="test-file")
        if ends and ends not in ENDS:
            raise self.refuse(f"{at}.ends", shown(ends), ", ".join(ENDS), id="test-file")
        if not act and not any("send" in step or "post" in step for step in steps):
            raise self.refuse(f"{at}.steps", "sends nothing", "a step with send", id="test-file")
        used = [need for name, (need, _) in _OF_ROCE.items() if any(name in step for step in steps)]
        used += _used_of_roce(steps, pairs, words) if pairs else [*_used(steps), *words[:2]]
        lists["needs"] += tuple(name for name in used if name in known and name not in lists["needs"])
        line = self.lines.get(at, 1)
        return ConformanceTest(
            id=row["id"], section=row["section"], purpose=row["purpose"],
            steps=tuple(steps), place=Location(str(self.path), line), act=act, ends=ends,
            result=row.get("result", ""), audited=row.get("audited", True), pairs=pairs, **lists,
        )  # fmt: skip

    def _texts(self, key: str, found: Any) -> tuple[str, ...]:
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise self.refuse(key, shown(found), "a list of texts", id="test-file")
        return tuple(found)

    def _pairs(self, key: str, found: Any) -> tuple[Mapping[str, Any], ...]:
        """Return the queue pairs of a test: a list of kinds, or of tables of a kind and settings."""
        legal = f"a list of {', '.join(roce_pairs.KINDS)}, or of tables {{ kind, {', '.join(roce_pairs.SETTINGS)} }}"
        if not isinstance(found, list) or not 1 <= len(found) <= roce_pairs.MOST:
            raise self.refuse(key, shown(found), legal, id="test-file")
        pairs = [one if isinstance(one, dict) else {"kind": one} for one in found]
        for pair in pairs:
            for name, value in pair.items():
                least, most = roce_pairs.SETTINGS.get(name, (1, 0))
                is_kind = name == "kind" and value in roce_pairs.KINDS
                if not is_kind and not (type(value) is int and least <= value <= most):
                    raise self.refuse(
                        key, f"{name} {shown(value)}", f"{least} … {most}" if most else legal, id="test-file"
                    )
            if "kind" not in pair:
                raise self.refuse(key, "a table without kind", legal, id="test-file")
        return tuple(pairs)

    def _check(self, key: str, where: str, step: Any, pairs: int) -> None:
        """Raise `LocalError` for a step that is none. `pairs` is the number of queue pairs, which is 0 for UET."""
        legal = (*_KINDS_OF_STEPS, *_OF_ROCE) if pairs else _KINDS_OF_STEPS
        kinds = [name for name in legal if name in step] if isinstance(step, dict) else []
        if len(kinds) != 1:
            raise self.refuse(key, f"{where}: {shown(step)}", f"one of {', '.join(legal)} in each step", id="test-file")
        kind = kinds[0]
        if "on" in step and not (type(step["on"]) is int and 1 <= step["on"] <= pairs):
            raise self.refuse(
                key, f"{where}: on {shown(step['on'])}", f"1 … {pairs}" if pairs else "a test with pairs",
                id="test-file"
            )  # fmt: skip
        if kind in _OF_ROCE:
            if kind == "post" and step[kind] not in roce_pairs.POSTS:
                raise self.refuse(
                    key, f"{where}: {kind} {shown(step[kind])}", ", ".join(roce_pairs.POSTS), id="test-file"
                )
            if kind != "post" and (type(step[kind]) is not int or not 0 <= step[kind] <= 64):
                raise self.refuse(key, f"{where}: {kind} {shown(step[kind])}", "0 … 64", id="test-file")
            for name in step:
                if name not in _OF_ROCE[kind][1]:
                    raise self.refuse(key, f"{where}: {name}", ", ".join(_OF_ROCE[kind][1]), id="test-file")
            return
        if kind in ("any", "all"):
            parts = step[kind]
            if len(step) > 1 or not isinstance(parts, list) or not parts:
                raise self.refuse(key, f"{where}: {kind}", "a list of expectations, and no other key", id="test-file")
            for part in parts:
                if not isinstance(part, dict) or "expect" not in part:
                    raise self.refuse(key, f"{where}: {shown(part)}", "a table with expect", id="test-file")
                self._check(key, where, part, pairs)
            return
        for name, (least, most) in _NUMBERS.items():
            if kind == "send" and name in step and not (type(step[name]) is int and least <= step[name] <= most):
                raise self.refuse(key, f"{where}: {name} {shown(step[name])}", f"{least} … {most}", id="test-file")
        if step.get("header", MEDIUM) != MEDIUM:
            raise self.refuse(key, f"{where}: header {shown(step['header'])}", MEDIUM, id="test-file")
        save, sack = step.get("save", {}), step.get("sack", [])
        if not isinstance(save, dict) or not all(isinstance(name, str) for name in save.values()):
            raise self.refuse(
                key, f"{where}: save {shown(save)}", 'a table of variables and fields, { gap = "psn" }', id="test-file"
            )
        if not isinstance(sack, list):
            raise self.refuse(key, f"{where}: sack {shown(sack)}", "a list of PSNs", id="test-file")
        if not isinstance(step[kind], str):
            raise self.refuse(key, f"{where}: {kind} {shown(step[kind])}", "a text", id="test-file")
        known = roce.KINDS if pairs else KINDS
        if kind != "send" and step[kind] not in (*known, NOTHING):
            wrong = f"{where}: {kind} {step[kind]!r}{similar(step[kind], known)}"
            raise self.refuse(key, wrong, ", ".join((*known, NOTHING)), id="test-file")


def _used(steps: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """Return what steps use that not every profile has, such as reads, each once."""
    words = (word for step in steps for word in (*str(step.get("send", "")).split(), step.get("header")))
    keys = (_KEYS_OF[key] for step in steps if "send" in step for key in step if key in _KEYS_OF)
    return dict.fromkeys((*(word for word in words if word in OPTIONAL), *keys))


_ROCE_WORDS = {
    "read": ("rdma_read", "rdma_read_request"),
    "atomic": ("atomic_cmp_and_swp", "atomic_fetch_and_add", "compare_swap", "fetch_add", "fetch", "cas"),
    "invalidate": ("send_only_with_invalidate", "send_last_with_invalidate", "send_with_inv", "send_inv"),
    "immediate": (
        "send_only_with_immediate", "send_last_with_immediate", "rdma_write_only_with_immediate",
        "rdma_write_last_with_immediate", "send_with_imm", "rdma_write_with_imm", "send_imm", "write_imm",
    ),
}  # fmt: skip
"""Operations, work and acts of what not every adapter of RoCE has."""


def _used_of_roce(
    steps: Iterable[Mapping[str, Any]], pairs: Iterable[Mapping[str, Any]], act: Sequence[str]
) -> Iterable[str]:  # fmt: skip
    """Return what a test of RoCE uses that not every adapter has."""
    words = {pair["kind"] for pair in pairs} | {
        step[name] for step in steps for name in ("send", "post") if name in step
    }
    words |= {*act[1:2]}
    return [name for name in roce_pairs.OPTIONAL if name in words or words & {*_ROCE_WORDS.get(name, ())}]


def load(files: Iterable[Path] = (), shipped: Path = SHIPPED) -> list[ConformanceTest]:
    """Return the tests of files, or of a folder of the package if there are none, by their ids. Raises `LocalError` for
    what is no test, and for an id that two tests have."""
    paths = list(files) or sorted(shipped.glob("*.toml"))
    found: dict[str, ConformanceTest] = {}
    for path in paths:
        for test in ConformanceFile(path).tests():
            if test.id in found:
                raise LocalError(
                    "id", f"{test.id} is also in {found[test.id].place}", "an id once", place=test.place, id="test-file"
                )
            found[test.id] = test
    return [found[name] for name in sorted(found)]


def of_role(tests: Iterable[ConformanceTest], role: str) -> list[ConformanceTest]:
    """Return the tests in which our side is the initiator, the target, or both of them for any other `role`."""
    return [test for test in tests if role not in (INITIATOR, TARGET) or test.role == role]


def chosen(tests: Iterable[ConformanceTest], globs: Iterable[str]) -> list[ConformanceTest]:
    """Return the tests whose ids match one of the globs; all if there are none. Raises `LocalError` for a glob that
    matches nothing."""
    tests, globs = list(tests), list(globs)
    for glob in globs:
        if not any(fnmatchcase(test.id, glob) for test in tests):
            names = [test.id for test in tests]
            legal = f"a glob, such as {names[0].rpartition('-')[0]}-*" if names else "a test"
            raise LocalError("--only", f"{glob!r} matches no test{similar(glob, names)}", legal, id="unknown-test")
    return [test for test in tests if not globs or any(fnmatchcase(test.id, glob) for glob in globs)]
