# SPDX-License-Identifier: GPL-2.0-only
"""This module puts links into the running text of a page: what the extensions of Sphinx beside it have in common."""

import re
from collections.abc import Callable

from docutils import nodes

_NOT_IN = (nodes.reference, nodes.title, nodes.literal, nodes.literal_block, nodes.rubric, nodes.image)


def slug(heading: str) -> str:
    """Return the anchor of a heading, as MyST and forges make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def in_text(
    tree: nodes.Element, pattern: re.Pattern[str], link: Callable[[re.Match[str]], tuple[str, str] | None], kind: str
) -> None:
    """Replace what matches a pattern in the running text by links. `link` returns the address and the title of one, or
    None where there is to be none."""
    for node in list(tree.findall(nodes.Text)):
        if _within(node):
            continue
        text, at, pieces = node.astext(), 0, []
        for found in pattern.finditer(text):
            if (made := link(found)) is None:
                continue
            pieces.append(nodes.Text(text[at : found.start()]))
            reference = nodes.reference("", found[0], refuri=made[0], internal=True, classes=[kind])
            if made[1]:
                reference["reftitle"] = made[1]
            pieces.append(reference)
            at = found.end()
        if pieces:
            node.parent.replace(node, [*pieces, nodes.Text(text[at:])])


def _within(node: nodes.Node) -> bool:
    while node is not None:
        if isinstance(node, _NOT_IN):
            return True
        node = node.parent
    return False
