# SPDX-License-Identifier: GPL-2.0-only
"""This module puts data, style and program into one HTML file."""

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from uetproto.audit.finding import Finding
from uetproto.cli.ladder.svg import COLOURS
from uetproto.report.data import listed
from uetproto.report.frame import framed, plain
from uetproto.wire.words.summary import duration

Table = tuple[Sequence[str], Sequence[Sequence[object]], int]
"""Type of a table: its head, its rows, and how many more rows there are."""


def page(
    title: str, facts: Sequence[str], data: Mapping[str, Any], findings: Iterable[Finding], verdict: str,
    flows: Iterable[Mapping[str, Any]], messages: Iterable[Mapping[str, Any]],
) -> str:  # fmt: skip
    """Return the page. `facts` are short texts about the capture; `data` is what `collect` returned; `verdict` is what
    an audit says as a whole; `flows` and `messages` are measurements, as `uetproto stats --json` has them."""
    told, more = listed(findings)
    body = _BODY.format(
        title=plain(title), facts=" · ".join(map(plain, facts)), verdict=plain(verdict),
        findings=_findings(told, more), flows=_table(*_flows(flows)), messages=_table(*_messages(messages)),
    )  # fmt: skip
    content = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    for letter in "<>&\u2028\u2029":  # nothing of a capture ends the element
        content = content.replace(letter, f"\\u{ord(letter):04x}")
    resources = files("uetproto.report")
    style = _tones(0) + resources.joinpath("page.css").read_text("utf-8")
    style += f"@media (prefers-color-scheme: dark) {{ {_tones(1)} }}\n"
    program = resources.joinpath("page.js").read_text("utf-8")
    body += f'<script type="application/json" id="data">{content}</script>'
    return framed(title, style, body, program)


def _tones(column: int) -> str:
    return ":root {" + "".join(f" --{tone}: {pair[column]};" for tone, pair in COLOURS.items()) + " }\n"


def _jump(index: int) -> str:
    return f'<a class="jump" data-number="{index + 1}" role="button" tabindex="0">#{index + 1}</a>'


def _findings(found: list[Finding], more: int) -> str:
    if not found:
        return "<p>None.</p>"
    rows = [
        f'<tr><td class="{one.severity.value}">{one.severity.value}</td><td>{_jump(one.packet)}</td>'
        f'<td>{plain(one.rule.id)}</td><td class="wide">{plain(one.text)}</td><td>{plain(one.rule.cite)}</td></tr>'
        for one in found
    ]
    head = "<tr><th></th><th>packet</th><th>rule</th><th>what</th><th>source</th></tr>"
    return f'<div class="scroll"><table class="list">{head}{"".join(rows)}</table></div>{_rest(more)}'


def _table(head: Sequence[str], rows: Sequence[Sequence[object]], more: int) -> str:
    if not rows:
        return "<p>None.</p>"
    line = "".join(f"<th>{plain(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{plain(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table class="list"><tr>{line}</tr>{body}</table></div>{_rest(more)}'


def _rest(more: int) -> str:
    return f"<p>… and {more:,} more.</p>" if more else ""


def _flows(flows: Iterable[Mapping[str, Any]]) -> Table:
    found, more = listed(flows)
    head = ("flow", "packets", "payload", "sent again", "duplicates", "trimmed", "ECN", "reordered", "window", "to ACK")
    rows = [
        (
            _ends(one["flow"], one["kind"]), one["packets"], one["payload"], _causes(one["resent"]), one["duplicates"],
            one["trimmed"], one["marked"], one["reordered"], f"{one['window_packets']} / {one['window_bytes']} B",
            _median(one["request_to_ack"]),
        )
        for one in found
    ]  # fmt: skip
    return head, rows, more


def _messages(messages: Iterable[Mapping[str, Any]]) -> Table:
    slowest = sorted(messages, key=lambda one: -(one["latency_ns"] or 0))
    found, more = listed(slowest)
    head = ("message", "opcode", "id", "bytes", "packets", "sent again", "latency")
    rows = [
        (
            _ends(one["flow"], ""), one["opcode"], "" if one["message_id"] is None else one["message_id"],
            one["length"], one["packets"], _causes(one["resent"]),
            "" if one["latency_ns"] is None else duration(one["latency_ns"]),
        )
        for one in found
    ]  # fmt: skip
    return head, rows, more


def _ends(flow: Mapping[str, Any], kind: str) -> str:
    numbers = [f"{name} {value}" for name, value in flow.items() if name not in ("src", "dst") and value is not None]
    return " ".join((f"{flow.get('src')} → {flow.get('dst')}", kind.upper(), *numbers)).strip()


def _causes(resent: Mapping[str, int]) -> str:
    return ", ".join(f"{cause} {number}" for cause, number in resent.items())


def _median(times: Mapping[str, Any]) -> str:
    return "" if not times.get("count") else f"{duration(times['p50_ns'])}, p99 {duration(times['p99_ns'])}"


NOTHING = "no packets of UET or RoCE: the page has no ladder"
"""What is said of a capture that has nothing to draw."""


def facts_of(packets: int, size: int, span_ns: int | None, cut: int | None) -> list[str]:
    """Return what stands below the title: packets, bytes, duration, and how many rows the page has if not all."""
    if not packets:
        return [NOTHING]
    told = [f"{packets:,} packet{'s' * (packets != 1)}", f"{size:,} bytes"]
    if span_ns is not None:
        told.append(duration(span_ns))
    return [*told, *([] if cut is None else [f"the page has the first {cut:,} rows"])]


_BODY = """\
<h1>{title}</h1>
<p class="facts">{facts}</p>
<div class="bar" id="tones" role="group" aria-label="Kinds of packets"></div>
<div class="bar">
<input type="search" id="filter" aria-label="Filter" placeholder="Filter: words, -word, host:10.0.0.1, tone:nack, #5-90"
 title="All words have to be in a row; -word: not. host:, tone:, flow: and #5-90 choose hosts, kinds, flows, numbers.">
<select id="flow" aria-label="Flow"></select>
<span class="count" id="count" aria-live="polite"></span>
<button type="button" id="all" hidden>whole time</button>
</div>
<div class="bar">
<input type="search" id="search" aria-label="Find" placeholder="Find (press /): next with Enter">
<button type="button" id="before" aria-label="Previous match">↑</button>
<button type="button" id="next" aria-label="Next match">↓</button>
<span class="count" id="found" aria-live="polite"></span>
<button type="button" id="fold" aria-pressed="false" title="Runs of similar packets as one row">fold</button>
<button type="button" id="smaller" aria-label="Smaller">−</button>
<button type="button" id="larger" aria-label="Larger">+</button>
</div>
<div class="columns">
<div id="ladder" tabindex="0" role="group" aria-label="Ladder"><div id="heads"></div><div id="rows"></div></div>
<aside id="detail" aria-label="Packet"></aside>
</div>
<h2>PSN over time</h2>
<figure><div class="plot"><canvas id="psns" role="img" aria-label="PSN over time"></canvas>
<span class="sight"></span></div>
<figcaption>From the first PSN of each flow on; answers at the PSN that they name. Drag: choose a time, for both plots
and the ladder. Double click: the whole time. Click: go there. Ctrl and wheel: zoom.</figcaption></figure>
<h2>In flight and queued</h2>
<div class="bar"><select id="series" aria-label="Series"></select></div>
<figure><div class="plot"><canvas id="queues" role="img" aria-label="Bytes over time"></canvas>
<span class="sight"></span></div>
<figcaption>Bytes that a sender has in flight, at its packets; with several interfaces also bytes between two of them,
on links and in queues.</figcaption></figure>
<h2>Findings</h2>
<p>{verdict}</p>
{findings}
<h2>Flows</h2>
{flows}
<h2>Messages, the slowest first</h2>
{messages}
"""
