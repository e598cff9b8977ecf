# SPDX-License-Identifier: GPL-2.0-only
"""This module writes the report of `uetproto conform` as one HTML page that needs nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from uetproto.cli.conform.report import decoding_of
from uetproto.cli.ladder.rows import Arrow, LadderChoice, LadderTally, arrows
from uetproto.cli.terminal import many
from uetproto.conform.packets import PeerFacts
from uetproto.conform.player import ConformanceVerdict, Outcome
from uetproto.conform.roce.packets import RoceFacts
from uetproto.report.frame import framed, plain
from uetproto.wire.capture.pcap import open_capture

_MOST_ARROWS = 200
"""Number of packets of a test that are drawn."""


@dataclass(frozen=True, slots=True)
class PagePart:
    """This record is what the page has of one test."""

    outcome: Outcome
    again: str
    """Command that plays the test again."""
    drawn: tuple[Arrow, ...] = ()
    capture: str | None = None
    """Name of the capture, if it is kept."""


def part_of(
    outcome: Outcome, again: str, peer: PeerFacts | RoceFacts, file: str | None, *, kept: bool
) -> PagePart:  # fmt: skip
    """Return what the page has of one test. `file` is its capture, and `kept` whether it stays."""
    if file is None:
        return PagePart(outcome, again)
    with open_capture(file) as reader:
        found = arrows(file, reader, decoding_of(peer), LadderChoice(), LadderTally())
        drawn = tuple(islice(found, _MOST_ARROWS))
    return PagePart(outcome, again, drawn, file if kept else None)


def page(parts: list[PagePart], facts: Mapping[str, str]) -> str:
    """Return the page. `facts` are lines about the run, by their names."""
    counts = {verdict.value: sum(one.outcome.verdict is verdict for one in parts) for verdict in ConformanceVerdict}
    failed = [one for one in parts if one.outcome.verdict is ConformanceVerdict.FAIL]
    first = failed[0] if failed else None
    title = f"uetproto conform: {counts['fail']} of {many(len(parts), 'test')} fail" if failed else (
        f"uetproto conform: {counts['pass']} of {many(len(parts), 'test')} pass"
    )  # fmt: skip
    buttons = "".join(
        f'<button type="button" class="{name}" data-show="{name}" aria-pressed="false">{count} {name}</button>'
        for name, count in (("all", len(parts)), *counts.items())
    )
    lines = "".join(f"<dt>{plain(name)}</dt><dd>{plain(value)}</dd>" for name, value in facts.items())
    tests = "\n".join(_test(one, opened=one is first) for one in sorted(parts, key=_order))
    body = _BODY.format(title=plain(title), facts=lines, buttons=buttons, tests=tests)
    return framed(title, _STYLE, body, _SCRIPT)


def _order(part: PagePart) -> int:
    """Return the place of a test: what failed comes first, then what is inconclusive."""
    return (ConformanceVerdict.FAIL, ConformanceVerdict.INCONCLUSIVE, ConformanceVerdict.PASS).index(
        part.outcome.verdict
    )


def _test(part: PagePart, *, opened: bool) -> str:
    outcome = part.outcome
    test, verdict = outcome.test, outcome.verdict.value
    told = ""
    if outcome.reason:
        at = f"Step {outcome.step}: " if outcome.step else ""
        told = f'<p class="finding">{plain(at + outcome.reason)}</p>'
    act = f"<p>The peer has to: <code>{plain(test.act)}</code></p>" if test.act else ""
    tries = f"<p>Played {outcome.tries} times.</p>" if outcome.tries > 1 else ""
    capture = f"<p>Capture: <code>{plain(part.capture)}</code></p>" if part.capture else ""
    return (
        f'<details class="test {verdict}" id="{plain(test.id)}"{" open" if opened else ""}>'
        f'<summary><span class="badge">{verdict}</span> <b>{plain(test.id)}</b> <span>{plain(test.purpose)}</span>'
        f"</summary>"
        f'<div class="inside"><p class="section">{plain(test.section)}</p>{told}{act}{tries}'
        f"<h3>Steps</h3>{_steps(outcome)}{_ladder(part)}{capture}"
        f"<h3>Again</h3><pre>{plain(part.again)} -o report</pre></div></details>"
    )


def _steps(outcome: Outcome) -> str:
    rows = []
    for number, step in enumerate(outcome.test.steps, 1):
        wrong = ' class="here"' if number == outcome.step else ""
        rows.append(f"<li{wrong}><code>{_step(step)}</code></li>")
    return f"<ol>{''.join(rows)}</ol>"


def _step(step: Mapping[str, Any]) -> str:
    for kind in ("any", "all"):
        if kind in step:
            return f"{kind} of: " + "; ".join(_step(one) for one in step[kind])
    words = [
        f"{name} = {' or '.join(map(str, value)) if isinstance(value, list) else value}" for name, value in step.items()
    ]
    return plain(", ".join(words))


def _ladder(part: PagePart) -> str:
    outcome = part.outcome
    if not part.drawn:
        return "<h3>Packets</h3><p>None.</p>"
    rows = []
    for one in part.drawn:
        sent = outcome.frames[one.index].sent
        here = one.index == outcome.packet
        words = f'<p class="finding">{plain(outcome.reason)}</p>' if here else ""
        rows.append(
            f'<li class="{"out" if sent else "in"} {plain(one.tone)}{" here" if here else ""}">'
            f'<time>{one.time_ns / 1e6:,.3f} ms</time><span class="arrow">{"us → peer" if sent else "peer → us"}</span>'
            f'<span class="packet">{plain(one.text)}</span>{words}</li>'
        )
    if (left := len(outcome.frames) - len(part.drawn)) > 0:
        rows.append(f"<li>… and {left:,} more packets</li>")
    if outcome.silent:
        rows.append(f'<li class="here"><p class="finding">{plain(outcome.reason)}</p></li>')
    return f'<h3>Packets</h3><ul class="ladder">{"".join(rows)}</ul>'


_STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1a1a1a; --dim: #555; --line: #c8c8c8; --box: #f3f3f3;
  --pass: #0b6b2e; --fail: #b00020; --inconclusive: #7a5200; --here: #fde7e9; }
@media (prefers-color-scheme: dark) { :root { --back: #16181c; --text: #e8e8e8; --dim: #b0b0b0; --line: #444;
  --box: #22252b; --pass: #6fd08c; --fail: #ff8a95; --inconclusive: #f0c060; --here: #4a1f26; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 70rem; background: var(--back); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; } h3 { font-size: 1rem; margin: .8rem 0 .2rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; } dt { color: var(--dim); } dd { margin: 0; }
nav { display: flex; flex-wrap: wrap; gap: .5rem; margin: 1rem 0; }
button, input { font: inherit; color: inherit; background: var(--box); border: 1px solid var(--line);
  border-radius: .4rem; padding: .3rem .7rem; }
button[aria-pressed=true] { outline: 2px solid currentColor; } input { flex: 1 1 10rem; min-width: 0; }
.pass .badge, button.pass { color: var(--pass); } .fail .badge, button.fail { color: var(--fail); }
.inconclusive .badge, button.inconclusive { color: var(--inconclusive); }
details { border-top: 1px solid var(--line); padding: .3rem 0; } summary { cursor: pointer; }
.badge { display: inline-block; min-width: 3.2rem; font-weight: 700; } .section { color: var(--dim); }
.inside { padding: 0 0 .5rem 1rem; } p { margin: .3rem 0; } .finding { color: var(--fail); font-weight: 600; }
.inconclusive .finding { color: var(--inconclusive); }
pre, .ladder, ol { background: var(--box); border-radius: .4rem; padding: .5rem; margin: 0; }
pre { white-space: pre-wrap; } ol { padding-left: 2.2rem; } code, pre { font: .88rem/1.5 ui-monospace, monospace; }
.ladder { list-style: none; }
.ladder li { display: grid; grid-template-columns: 7.5rem 6rem 1fr; gap: 0 .6rem; padding: .1rem .3rem; }
.ladder time { color: var(--dim); text-align: right; } .ladder .finding { grid-column: 1 / -1; }
.in .arrow { color: var(--inconclusive); } .here { background: var(--here); border-radius: .3rem; }
@media (max-width: 40rem) { .ladder li { grid-template-columns: 1fr 1fr; } .ladder .packet { grid-column: 1 / -1; }
  .ladder time { text-align: left; } .inside { padding-left: .2rem; } }
"""
_SCRIPT = """
const buttons = document.querySelectorAll("nav button"), word = document.querySelector("nav input");
let shown = "all";
function filter() {
  const text = word.value.toLowerCase();
  for (const one of document.querySelectorAll("details.test"))
    one.hidden = !((shown === "all" || one.classList.contains(shown)) && one.textContent.toLowerCase().includes(text));
  for (const one of buttons) one.setAttribute("aria-pressed", String(one.dataset.show === shown));
}
for (const one of buttons) one.addEventListener("click", () => { shown = one.dataset.show; filter(); });
word.addEventListener("input", filter);
if (location.hash) { const one = document.getElementById(location.hash.slice(1)); if (one) one.open = true; }
filter();
"""
_BODY = """\
<h1>{title}</h1>
<dl>{facts}</dl>
<nav aria-label="Filter">{buttons}<input type="search" aria-label="Text in a test" placeholder="Text in a test"></nav>
<main>
{tests}
</main>"""
