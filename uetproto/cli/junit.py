# SPDX-License-Identifier: GPL-2.0-only
"""This module writes JUnit XML, which programs that run tests read."""

import re
from collections.abc import Sequence
from typing import NamedTuple
from xml.etree import ElementTree

_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in XML 1.0


class JunitCase(NamedTuple):
    """This record is a test case."""

    classname: str
    name: str
    outcome: str | None = None
    """Element that says how it ended: "failure", "skipped" or "system-out"; None: it passed, and says nothing."""
    message: str = ""
    text: str = ""
    type: str = ""
    """Kind of a failure."""


def junit_text(name: str, cases: Sequence[JunitCase]) -> str:
    """Return a test suite as XML. What XML cannot hold is replaced."""
    outcomes = [case.outcome for case in cases]
    suite = ElementTree.Element(
        "testsuite", name=name, tests=str(len(cases)), failures=str(outcomes.count("failure")), errors="0",
        skipped=str(outcomes.count("skipped")),
    )  # fmt: skip
    for one in cases:
        case = ElementTree.SubElement(suite, "testcase", classname=_legal(one.classname), name=_legal(one.name))
        if one.outcome is not None:
            told = {"message": _legal(one.message), "type": one.type}
            outcome = ElementTree.SubElement(case, one.outcome, {key: value for key, value in told.items() if value})
            outcome.text = _legal(one.text) or None
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _legal(text: str) -> str:
    return _ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", text)
