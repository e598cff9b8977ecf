# SPDX-License-Identifier: GPL-2.0-only
"""This module reads the text of a filter: words, and the tree that they make.

The grammar is that of Wireshark 4.0: `and` binds tighter than `or`, `not` tighter than both and looser than a
comparison. A comparison has a field on its left side.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, NoReturn, TypeVar

from uetproto.errors import LocalError, shown

_LONGEST = 65_536
"""Characters of a filter at most."""
_DEEPEST = 50
"""Nested parentheses and negations at most."""


class Quantifier(Enum):
    """This enumeration says of how many values of a field a comparison has to hold."""

    ANY = "any"
    ALL = "all"


class Token(NamedTuple):
    """A token is a word of a filter: its kind, its text, and where it begins."""

    kind: str
    """One of name, text (quoted), operator, slice, end."""
    text: str
    at: int


@dataclass(frozen=True, slots=True)
class FieldRef:
    """A reference to a field: its name, which bytes of it, and a mask that is applied to it."""

    name: str
    at: int
    slices: tuple[tuple[int, int | None], ...] = ()
    """Offset and length of each part; a length of None goes to the end."""
    mask: "Literal | None" = None


@dataclass(frozen=True, slots=True)
class Literal:
    """A value as it is written."""

    text: str
    quoted: bool
    at: int


@dataclass(frozen=True, slots=True)
class Exists:
    """The field is there; with a mask, a bit of it is set."""

    field: FieldRef


@dataclass(frozen=True, slots=True)
class Comparison:
    """A field is compared with a value, or with another field."""

    field: FieldRef
    operator: str
    """One of ==, !=, <, <=, >, >=, contains, matches."""
    quantifier: Quantifier
    right: Literal | FieldRef


@dataclass(frozen=True, slots=True)
class Membership:
    """A value of the field is in a set of values and ranges."""

    field: FieldRef
    quantifier: Quantifier
    members: tuple[tuple[Literal, Literal | None], ...]
    """A member is a value, or the two ends of a range."""


@dataclass(frozen=True, slots=True)
class Not:
    """The part does not hold."""

    part: "Node"


@dataclass(frozen=True, slots=True)
class Joined:
    """All parts hold, or any of them."""

    parts: tuple["Node", ...]
    every: bool


Node = Exists | Comparison | Membership | Not | Joined

_ANY, _ALL = Quantifier.ANY, Quantifier.ALL
COMPARISONS: dict[str, tuple[str, Quantifier]] = {
    "==": ("==", _ANY), "eq": ("==", _ANY), "any_eq": ("==", _ANY), "===": ("==", _ALL), "all_eq": ("==", _ALL),
    "!=": ("!=", _ALL), "ne": ("!=", _ALL), "all_ne": ("!=", _ALL), "!==": ("!=", _ANY), "~=": ("!=", _ANY),
    "any_ne": ("!=", _ANY), ">": (">", _ANY), "gt": (">", _ANY), "<": ("<", _ANY), "lt": ("<", _ANY),
    ">=": (">=", _ANY), "ge": (">=", _ANY), "<=": ("<=", _ANY), "le": ("<=", _ANY),
    "contains": ("contains", _ANY), "matches": ("matches", _ANY), "~": ("matches", _ANY),
}  # fmt: skip
"""Operators as they are written: what they compare, and of how many values it has to hold."""
_OPERATORS = frozenset({"and", "or", "not", "in", "any", "all", *COMPARISONS})
_WORDS = {"&&": "and", "||": "or", "!": "not"}
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<text>r?"(?:[^"\\]|\\.)*")
  | (?P<char>'(?:[^'\\]|\\.[^']{0,3})')
  | (?P<operator>===|!==|==|!=|~=|>=|<=|&&|\|\||\.\.|[><!~&(){}\[,])
  | (?P<name>(?:[A-Za-z0-9_:/\-]|\.(?!\.))+)
  | (?P<other>\S)
  )""",
    re.VERBOSE | re.DOTALL,
)
_UNSUPPORTED = {
    "+": "arithmetic", "*": "arithmetic", "/": "arithmetic", "%": "arithmetic", "-": "arithmetic", "^": "exclusive or",
    "@": "raw fields", "#": "layers", "$": "references and macros", "=": "=",
}  # fmt: skip
_ESCAPES = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92, '"': 34, "'": 39}
T = TypeVar("T")


def parse(text: str) -> Node:
    """Return the tree of a filter. Raises `LocalError` that says what is wrong, and where."""
    if not isinstance(text, str):
        raise LocalError("filter", f"{shown(text)} is not legal", 'a text, such as "uetp.psn == 7"', id="wrong-type")
    if len(text) > _LONGEST:
        raise LocalError("filter", f"has {len(text)} characters", f"at most {_LONGEST}", id="filter-syntax")
    return _Parser(text).whole()


class _Parser:
    """This class reads one filter from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._token = self._next()

    # Words ------------------------------------------------------------------------------------------------------------

    def _next(self) -> Token:
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            return Token("end", "", len(self._text))
        kind, start = str(found.lastgroup), found.start(str(found.lastgroup))
        word = found[kind]
        self._at = found.end()
        if kind == "other":
            what = _UNSUPPORTED.get(word)
            if word == "=":
                self.refuse("= is no operator (did you mean ==?)", start)
            if word in "\"'":
                self.refuse("a text has no end", start)
            if word == "]":
                self.refuse("] without [", start)
            self.refuse(f"{what or shown(word)} is not supported", start)
        if kind == "name" and word in _OPERATORS:
            return Token("operator", word, start)
        if kind == "char":
            kind, word = "name", str(ord(_unescaped(word[1:-1], self, start)[:1] or "\0"))
        return Token(kind, _WORDS.get(word, word) if kind == "operator" else word, start)

    def _take(self, *texts: str) -> bool:
        """Go on behind the next word if it is one of these operators, and return whether it was."""
        if self._token.kind == "operator" and self._token.text in texts:
            self._token = self._next()
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            self.refuse(f"{self._said} where {text} is expected", self._token.at)

    @property
    def _said(self) -> str:
        return "the end" if self._token.kind == "end" else shown(self._token.text)

    def refuse(self, what: str, at: int, legal: str = "") -> NoReturn:
        """Raise the error about the character `at`."""
        raise LocalError("filter", f"{what}, at character {at + 1} of {shown(self._text)}", legal, id="filter-syntax")

    # The tree ---------------------------------------------------------------------------------------------------------

    def whole(self) -> Node:
        if self._token.kind == "end":
            self.refuse("is empty", 0, 'a text, such as "uetp.psn == 7"')
        found = self._or()
        if self._token.kind != "end":
            self.refuse(f"{self._said} is not expected here", self._token.at)
        return found

    def _or(self) -> Node:
        return self._joined(self._and, "or", False)

    def _and(self) -> Node:
        return self._joined(self._not, "and", True)

    def _joined(self, part: Callable[[], Node], word: str, every: bool) -> Node:
        parts = [part()]
        while self._take(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Joined(tuple(parts), every)

    def _deeper(self, part: Callable[[], T]) -> T:
        self._depth += 1
        if self._depth > _DEEPEST:
            self.refuse("is nested too deep", self._token.at, f"at most {_DEEPEST} levels")
        found = part()
        self._depth -= 1
        return found

    def _not(self) -> Node:
        if self._take("not"):
            return Not(self._deeper(self._not))
        if self._take("("):
            found = self._deeper(self._or)
            self._expect(")")
            return found
        return self._test()

    def _test(self) -> Node:
        quantifier = None
        for one in Quantifier:
            if self._take(one.value):
                quantifier = one
        field = self._field()
        token = self._token
        if token.kind == "operator" and token.text in COMPARISONS:
            self._token = self._next()
            operator, usual = COMPARISONS[token.text]
            right = self._right(operator)
            if self._token.kind == "operator" and self._token.text in COMPARISONS:
                self.refuse("a chain of comparisons is not supported", self._token.at, "comparisons joined by and")
            return Comparison(field, operator, quantifier or usual, right)
        negated = self._take("not")
        if self._take("in"):
            members = self._members()
            found = Membership(field, quantifier or Quantifier.ANY, members)
            return Not(found) if negated else found
        if negated:
            self.refuse(f"{self._said} where in is expected", self._token.at)
        if quantifier is not None:
            self.refuse(f"{self._said} where a comparison is expected", self._token.at)
        return Exists(field)

    def _field(self) -> FieldRef:
        token = self._token
        if token.kind != "name":
            self.refuse(f"{self._said} where a field is expected", token.at)
        self._token = self._next()
        if self._token == Token("operator", "(", self._token.at):
            self.refuse(f"functions, such as {token.text}(), are not supported", token.at)
        slices: tuple[tuple[int, int | None], ...] = ()
        if self._token == Token("operator", "[", self._token.at):
            slices = self._slices()
        mask = None
        if self._take("&"):
            mask = self._literal()
        return FieldRef(token.text, token.at, slices, mask)

    def _slices(self) -> tuple[tuple[int, int | None], ...]:
        start = self._token.at
        end = self._text.find("]", start)
        if end < 0:
            self.refuse("[ without ]", start)
        found: list[tuple[int, int | None]] = []
        for part in self._text[start + 1 : end].split(","):
            fits = re.fullmatch(r"\s*(-?\d{1,9})?\s*([:\-]?)\s*(-?\d{1,9})?\s*", part)
            if fits is None or (fits[1] is None and (fits[2] != ":" or fits[3] is None)) or (fits[3] and not fits[2]):
                self.refuse(f"{shown(part)} are no bytes", start, "[offset:length], [first-last], [offset], [:n], [n:]")
            first = int(fits[1] or 0)
            if fits[2] == "-":
                last = first if fits[3] is None else int(fits[3])
                if last <= first or first < 0:
                    self.refuse(f"{shown(part)}: the end is not behind the start", start, "[first-last]")
                found.append((first, last - first + 1))
            elif fits[2] == ":" and fits[3] is None:
                found.append((first, None))
            else:
                length = 1 if fits[3] is None else int(fits[3])
                if length <= 0:
                    self.refuse(f"{shown(part)}: the length is not above 0", start, "[offset:length]")
                found.append((first, length))
        self._at = end + 1
        self._token = self._next()
        return tuple(found)

    def _right(self, operator: str) -> Literal | FieldRef:
        token = self._token
        if operator != "matches" and token.kind == "name" and is_name(token.text):
            return self._field()
        return self._literal()

    def _literal(self) -> Literal:
        token = self._token
        if token.kind not in ("name", "text"):
            self.refuse(f"{self._said} where a value is expected", token.at)
        self._token = self._next()
        if token.kind == "name":
            return Literal(token.text, False, token.at)
        if token.text.startswith("r"):
            return Literal(token.text[2:-1], True, token.at)
        return Literal(_unescaped(token.text[1:-1], self, token.at), True, token.at)

    def _members(self) -> tuple[tuple[Literal, Literal | None], ...]:
        self._expect("{")
        found: list[tuple[Literal, Literal | None]] = []
        while True:
            first = self._literal()
            found.append((first, self._literal() if self._take("..") else None))
            if self._take("}"):
                return tuple(found)
            if not self._take(","):
                self.refuse(f"{self._said} where , or }} is expected", self._token.at)


def is_name(text: str) -> bool:
    """Return whether a word is the name of a field and no value: it has a dot between letters, and begins with one."""
    return re.fullmatch(r"[A-Za-z_][\w\-]*(\.[A-Za-z_][\w\-]*)+", text) is not None


def _unescaped(text: str, parser: _Parser, at: int) -> str:
    """Return a quoted text with its escape sequences resolved; a character stands for a byte."""

    def one(found: re.Match[str]) -> str:
        if found[1]:
            return chr(int(found[1], 16))
        if found[2]:
            return chr(int(found[2], 8) & 0xFF)
        if found[3] not in _ESCAPES:
            parser.refuse(f"\\{found[3]} is no escape sequence", at, 'those of C; r"…" has none')
        return chr(_ESCAPES[found[3]])

    return re.sub(r"\\(?:x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|(.))", one, text, flags=re.DOTALL)
