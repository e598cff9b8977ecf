# SPDX-License-Identifier: GPL-2.0-only
"""This module makes the commented scenario file that `uetproto scenario new` writes, from the declared keys."""

import json
import textwrap
import tomllib
from collections.abc import Iterator, Mapping

from uetproto.emulator.scenario.settings import SECTIONS
from uetproto.knobs import KeyType

_HEAD = """\
# A scenario of uetproto: two nodes, and a write of 12,288 bytes from one to the other.
#
#   uetproto run FILE.toml -o out.pcapng       play it and capture it
#   uetproto ladder out.pcapng                 look at what happened
#   uetproto run FILE.toml --check             judge every frame
#
# A line that begins with "#" and a name has a key with its default; remove the "#" to set it.
# uetproto scenario list names examples of operations, faults and security; docs/reference/keys.md explains every key.
"""
_SET: dict[str, dict[str, str]] = {
    "run": {
        "description": '"A write of 12,288 bytes"',
        "seed": "1",
        "mode": '"rod"',
        "initiator": '"a"',
        "target": '"b"',
    },
    "fabric": {"rate": '"400 Gb/s"', "delay": '"1 us"'},
    "pds": {},
    "ses": {"payload_mtu": "4096"},
    "cc": {},
    "faults": {},
    "tap": {},
}
"""Sections of the file, in order, with the keys that are set."""
_NONE = "…"
_NODES = {"a": "10.0.0.1", "b": "10.0.0.2"}
_OPERATIONS = """\
# What is done, in order: a region of memory at the target, and a write into it.
[[operation]]
do = "region"
length = 16384

[[operation]]
do = "write"
length = 12288
"""


def template() -> str:
    """Return the text of the file."""
    keys = {section.name: section for section in SECTIONS}
    parts = [_HEAD]
    for name, given in _SET.items():
        section = keys[name]
        parts.append("\n".join([*_comment(section.words), f"[{name}]", *_lines(section.keys, given)]) + "\n")
        if name == "run":
            for node, address in _NODES.items():
                lines = _lines(keys["nodes.NAME"].keys, {"address": f'"{address}"'})
                parts.append("\n".join([f"[nodes.{node}]", *lines]) + "\n")
    return "\n".join([*parts, _OPERATIONS])


def _lines(keys: Mapping[str, KeyType], given: Mapping[str, str]) -> Iterator[str]:
    for name, value in given.items():
        yield f"{name} = {value}"
    for name, key in keys.items():
        if name not in given:
            value = _default(key)
            words = f" Default: {key.default}." if value == _NONE and key.default else ""
            yield ""
            yield from _comment(f"{key.doc} Legal: {key.legal}.{words}")
            yield f"#{name} = {value}"


def _comment(text: str) -> Iterator[str]:
    for line in textwrap.wrap(text, 110, break_long_words=False, break_on_hyphens=False):
        yield f"# {line}"


def _default(key: KeyType) -> str:
    """Return the default of a key as TOML; an ellipsis if it has none, or one in words."""
    for text in (key.default, json.dumps(key.default, ensure_ascii=False)):
        try:
            key.check(tomllib.loads(f"x = {text}")["x"])
        except (ValueError, KeyError):  # no TOML, or not legal
            continue
        in_words = " " in key.default and not key.default[0].isdigit()
        return text if key.default and not in_words else _NONE
    return _NONE
