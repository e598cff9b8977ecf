# SPDX-License-Identifier: GPL-2.0-only
"""This module writes a comparison as JUnit XML. Each conversation that differs is a test case that fails."""

from collections import defaultdict

from uetproto.cli.junit import JunitCase, junit_text
from uetproto.diff.result import Difference, DiffResult, golden_lines
from uetproto.wire.words.summary import count

_MOST = 100  # differences of a conversation that are listed


def junit(result: DiffResult, names: tuple[str, str]) -> str:
    """Return the XML. A comparison without a difference is one test case, which passes."""
    found: defaultdict[str, list[Difference]] = defaultdict(list)
    for one in result.differences:
        found[one.conversation].append(one)
    cases = [_case(conversation, group) for conversation, group in found.items()]
    told = f"{names[0]}, {names[1]}: {count(result.same, 'packet')} are the same"
    return junit_text("uetproto diff", [JunitCase("uetproto.diff", told), *cases])


def _case(conversation: str, found: list[Difference]) -> JunitCase:
    lines = [line for one in found[:_MOST] for line in golden_lines(one)]
    lines += [f"and {len(found) - _MOST} more"] if len(found) > _MOST else []
    return JunitCase(
        "uetproto.diff", conversation, "failure", count(len(found), "difference"), "\n".join(lines), "difference"
    )  # fmt: skip
