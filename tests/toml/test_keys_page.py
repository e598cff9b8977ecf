# SPDX-License-Identifier: GPL-2.0-only
"""The keys of TOML files: every key says what it means, and the page of all keys names each of them."""

from uetproto.emulator.scenario.settings import SECTIONS
from uetproto.knobs import TIME, UNITS, KeyType, Knob, default_text, fits, legal_text
from uetproto.toml.page import KeySection, keys_markdown
from uetproto.traffic import profile


def test_every_key_says_what_it_means() -> None:
    silent = [f"{section.name}.{name}" for section in (*SECTIONS, *profile.SECTIONS) if not section.rows
              for name, key in section.keys.items() if not key.doc.endswith((".", ":")) or not key.check]  # fmt: skip
    assert silent == []
    assert [section.name for section in SECTIONS if section.rows] == ["operation"] * 2 + ["step"] * 3


def test_each_unit_of_a_time_rate_or_size_is_one_that_texts_may_have() -> None:
    """A parameter with a unit that is written differently would take no text such as "100 Gb/s"."""
    units = {unit: {unit, *names} for unit, (names, _) in UNITS.items()}
    wrong = [
        f"{section.name}.{name}" for section in (*SECTIONS, *profile.SECTIONS) for name, key in section.keys.items()
        for unit, names in units.items() for said in (key.doc.rpartition(" Unit: ")[2].removesuffix("."),)
        if said in names and said != unit
    ]  # fmt: skip
    assert wrong == []


def test_the_page() -> None:
    key = Knob(5 * 10**6, range(10**7), TIME, "The wait.", "pds.md §1").key
    page = keys_markdown(
        {"Files": [KeySection("a", "Words.", {"wait": key}), KeySection("row", "R.", {"x": key}, "T")]}
    )
    assert "## Files\n\n### [a]\n\nWords.\n" in page
    assert "| `wait` | `5 us` | a time, 0 ps … 9999999 ps | The wait. | pds.md §1 |" in page
    assert "```text\nT\n```\n\n| key | legal |\n|---|---|\n| `x` | a time, 0 ps … 9999999 ps |" in page


def test_each_heading_stands_once() -> None:
    page = keys_markdown({"Scenarios": SECTIONS, "Profiles": profile.SECTIONS})
    headings = [line for line in page.splitlines() if line.startswith("#")]
    assert len(set(headings)) == len(headings)


def test_what_is_legal() -> None:
    one = KeyType(int, "a number")
    legal = ("off", 0, range(3, 5))
    assert [value for value in ("off", "on", 0, 1, 3, 4, 5, True, 3.0, None) if fits(value, legal)] == ["off", 0, 3, 4]
    assert (legal_text(legal), legal_text(range(0, 33, 16)), legal_text(one)) == (
        "off, 0, 3 … 4", "0 … 32 in steps of 16", "a number",
    )  # fmt: skip
    assert (default_text(True), default_text(7), default_text(10**9, TIME)) == ("true", "7", "1 ms")
