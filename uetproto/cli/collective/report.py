# SPDX-License-Identifier: GPL-2.0-only
"""This module prints the results of `uetproto collective`: one collective in full, several in a table, or a table by
number of ranks.
"""

from collections.abc import Iterator, Sequence

from uetproto.api.distributed.networks.hosts import PREFER_SAME_NIC
from uetproto.cli.collective.offload import SHARP, Offer
from uetproto.cli.collective.run import DELAY, RATE, WAYS, CollectiveCase, PreparedCase
from uetproto.cli.terminal import Paint
from uetproto.collectives.costs.measure import AggregationPort, InNetwork, LinkCount, MeasuredCollective
from uetproto.emulator.congestion import OFF
from uetproto.engine.train_splits import summed, words

MOST_LINES = 16
"""Largest number of ranks, links or other entries that a list shows."""

MOST_PORTS = 4
"""Largest number of ports of aggregation nodes that the report shows."""

_MESSAGE_BYTES = ("hba_received_bytes", "rcds_sent_bytes")
_TROUBLE = ("retry_packets_sent", "rnr_events", "rnr_naks", "out_of_sequence_naks", "timeout_events", "sharp_discards")

NONE = "–"

_HALVED = {("all_reduce", "sharp"), ("all_gather", "multicast")}
"""Algorithms that need fewer bytes than the ring, which moves 2(N−1)/N times as many (collectives.md §3.9, §3.10.7)."""


def how(case: CollectiveCase) -> str:
    """Return transport, congestion control and path selection as text."""
    if case.cc == OFF:
        return case.transport
    return f"{case.transport} {case.cc}" + (f" {case.lb}" if case.transport == "uet" else "")


def heading(prepared: PreparedCase, over: bool = True) -> str:
    """Return the parameters of a run as text, except algorithm and number of ranks; if `over` is False, also without
    transport and congestion control, in which runs differ."""
    case = prepared.case
    parts = [f"{case.length:,} bytes of {case.dtype.name}" if case.op != "barrier" else "no bytes"]
    if case.op in ("all_reduce", "reduce", "reduce_scatter"):
        parts.append(str(case.reduce_op))
    if over:
        parts.append("without packets" if case.transport == "model" else f"over {how(case)}")
    gpus = prepared.topology.gpus_per_node
    parts += [case.kind, *([f"{gpus} GPUs a host"] if gpus > 1 else [])]
    parts += [f"{case.ports} ports a NIC"] if case.ports > 1 else []
    parts += [f"{name} {value}" for name, value in case.options.items()]
    parts += [f"cross-NIC {case.cross_nic}"] if case.cross_nic != PREFER_SAME_NIC else []
    parts += [f"{name}={value}" for name, value in (*case.sharp.items(), *case.multicast.items())]
    parts += [f"{case.rate / 10**9:g} Gb/s"] if case.rate != RATE else []
    parts += [f"{case.delay / 10**6:g} µs"] if case.delay != DELAY else []
    parts += [f"MTU {case.mtu}"] if case.mtu is not None else []
    parts += [f"{case.loss:g} of the frames lost"] if case.loss else []
    parts.append(f"seed {case.seed}")
    return ", ".join(parts)


def one(found: MeasuredCollective, prepared: PreparedCase, paint: Paint) -> Iterator[str]:
    """Yield the report of one collective."""
    ranks = f"{found.ranks} rank{'s' * (found.ranks != 1)}"
    yield f"{paint(f'{found.op} by {found.algorithm}', 'bold')}: {ranks}, {heading(prepared)}"
    theory = found.formula
    yield paint(f"  {'':24} {'measured':>20} {'formula':>20}", "bold")
    rows = (
        ("steps", str(found.steps), str(theory.steps) if theory else NONE),
        ("bytes a rank sends", f"{found.busiest:,}", f"{theory.bytes_per_rank:,.0f}" if theory else NONE),
        ("time", microseconds(found.time), microseconds(theory.time) if theory else NONE),
    )
    for name, measured, promised in rows:
        yield f"  {name:24} {measured:>20} {promised:>20}"
    if theory is None and not prepared.offloaded:
        yield f"  no formula for {found.op} by {found.algorithm}: the right column is empty"
    if found.links is not None and prepared.nic_bytes is not None:
        yield f"  {'bytes a NIC sends':24} {found.busiest_nic:20,} {prepared.nic_bytes:20,.0f}"
    if found.algbw:
        yield f"  {'algbw, GB/s':24} {found.algbw / 1e9:20.3f}"
        yield f"  {'busbw, GB/s':24} {found.busbw / 1e9:20.3f}"
    yield f"  {'bytes all ranks send':24} {found.injected:20,}"
    by_ranks = prepared.algorithm in SHARP and prepared.sharp is None
    by = "schedule" if found.network is None or by_ranks else "formula"
    trav = NONE if found.promised is None else f"{found.promised:,}"
    yield f"  {'payload on all links':24} {found.payload:20,} {trav:>20}  by the {by}"
    if found.wire is not None:
        yield f"  {'with headers and answers':24} {found.wire:20,}"
    yield from _losses([found], paint, "  ")
    yield from _costs(prepared)
    if found.choice is not None:
        yield from (f"  {line}" for line in found.choice.text().splitlines())
    yield from _ranks(found.sent)
    if found.links is not None:
        yield from _links(found.links)
    if found.network is not None:
        yield from _in_network(found.network)
    if found.trains:
        sharp = "; messages of SHARP are not counted" if prepared.offloaded else ""
        yield f"  {words(summed(found.trains.values()))}{sharp}"
    yield f"  result {verdict(found, paint)}"


def _costs(prepared: PreparedCase) -> Iterator[str]:
    if prepared.algorithm in SHARP and prepared.sharp is not None:
        yield from _sharp_costs(prepared.sharp)
        return
    costs, inside = prepared.between, prepared.inside
    how = "" if prepared.case.transport == "model" else f": {WAYS} times through the fabric, and its rate"
    if len(prepared.hosts) > 1:
        yield f"  alpha {costs.alpha * 1e6:g} µs a message, beta {costs.beta * 1e9:g} ns a byte{how}"
    if max(map(len, prepared.hosts)) > 1:
        yield f"  within a host alpha {inside.alpha * 1e6:g} µs, beta {inside.beta * 1e9:.3g} ns"


def _sharp_costs(offer: Offer) -> Iterator[str]:
    costs = offer.costs
    yield (
        f"  {costs.levels} level{'s' * (costs.levels != 1)} of aggregation nodes, {offer.edges} edges;"
        f" {costs.hop * 1e6:g} µs a cable and its switch: up and down {costs.latency * 1e6:g} µs"
    )
    streams = "none is streamed"
    if offer.threshold is not None:
        where = f", on {costs.trees} of {offer.trees} trees" if offer.trees > 1 else ""
        streams = f"streamed from {offer.threshold:,} bytes on{where}, {offer.window:,} in flight"
        streams += " on each" if costs.trees > 1 else ""
    yield f"  vectors: {costs.osts} operations of {costs.user_data} bytes at once; {streams}"


def _in_network(found: InNetwork) -> Iterator[str]:
    """Yield lines with the counters of switches and aggregation nodes."""
    if found.made:
        yield f"  {'group made before, in':24} {microseconds(found.made):>20}"
    yield from (f"  {note}" for note in found.notes)
    yield from (f"  trap: {trap}" for trap in found.traps)
    yield from (f"  {line}" for line in found.log)
    nodes = {name: counts for name, counts in found.counters.items() if name.startswith("an.")}
    if nodes:
        yield "  by aggregation node"
    for name, counts in list(nodes.items())[:MOST_LINES]:
        yield f"    {name:24} " + ", ".join(f"{what.replace('_', ' ')} {count:,}" for what, count in counts.items())
    yield from _more(len(nodes), "aggregation node")
    yield from _aggregation_ports(found.ports)
    if found.groups:
        yield f"  {'copies of multicast, to':24} {'frames':>20} {'bytes':>20}"
    for port in found.groups[:MOST_LINES]:
        yield f"    {f'{port.switch} > {port.port}':24} {port.frames:18,} {port.bytes:20,}"
    yield from _more(len(found.groups), "port")


def _aggregation_ports(ports: Sequence[AggregationPort]) -> Iterator[str]:
    """Yield the busiest ports, with bytes of messages."""
    by_load = sorted(ports, key=lambda port: -sum(port.counters.get(name, 0) for name in _MESSAGE_BYTES))
    if ports:
        yield f"  {'busiest ports of them':24} {'received':>20} {'sent':>20}"
    for port in by_load[:MOST_PORTS]:
        received, sent = (port.counters.get(name, 0) for name in _MESSAGE_BYTES)
        wrong = {name: port.counters[name] for name in _TROUBLE if name in port.counters}
        trouble = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in wrong.items())
        yield f"    {f'{port.node} {port.port}':24} {received:18,} {sent:20,}  {trouble}".rstrip()


def _ranks(sent: Sequence[int]) -> Iterator[str]:
    if len(set(sent)) == 1:
        yield f"  every rank sends {sent[0]:,} bytes"
        return
    yield "  sent by rank"
    for rank, length in enumerate(sent[:MOST_LINES]):
        yield f"    {rank:<24} {length:20,}"
    yield from _more(len(sent), "rank")


def _links(links: Sequence[LinkCount]) -> Iterator[str]:
    """Yield lines with the bytes of the links, the busiest first; links with equal bytes share a line."""
    alike: dict[tuple[int, int], list[LinkCount]] = {}
    for link in links:
        alike.setdefault((link.payload, link.wire), []).append(link)
    groups = sorted(alike.items(), reverse=True)
    yield f"  {'by link':24} {'payload':>20} {'on the wire':>20}"
    for (payload, wire), same in groups[:MOST_LINES]:
        name = same[0].link if len(same) == 1 else f"{same[0].link} … {len(same)} links"
        yield f"    {name:24} {payload:18,} {wire:20,}"
    yield from _more(len(groups), "kind")


def _more(number: int, what: str) -> Iterator[str]:
    if number > MOST_LINES:
        yield f"    and {number - MOST_LINES:,} more {what}s"


def table(found: Sequence[MeasuredCollective], prepared: PreparedCase, paint: Paint) -> Iterator[str]:
    """Yield a table with a row for each algorithm."""
    yield f"{paint(found[0].op, 'bold')}: {found[0].ranks} ranks, {heading(prepared)}"
    wide = max(len("algorithm"), *(len(one.algorithm) for one in found))
    yield paint(
        f"{'algorithm':{wide}}  {'steps':>5} {'formula':>7}  {'bytes a rank':>15} {'formula':>15}"
        f"  {'on all links':>15} {'with headers':>15}  {'time, µs':>12} {'formula':>12}", "bold",
    )  # fmt: skip
    for one in found:
        theory = one.formula
        yield (
            f"{one.algorithm:{wide}}  {one.steps:5} {theory.steps if theory else NONE:>7}"
            f"  {one.busiest:15,} {f'{theory.bytes_per_rank:,.0f}' if theory else NONE:>15}"
            f"  {one.payload:15,} {NONE if one.wire is None else f'{one.wire:,}':>15}"
            f"  {number(one.time):>12} {number(theory.time) if theory else NONE:>12}"
        ) + _wrong(one, paint)
    missing = [one.algorithm for one in found if one.formula is None and one.network is None]
    if missing:
        yield f"no formula for {found[0].op} by {', '.join(missing)}"
    yield from _losses(found, paint)
    yield from _ratios(found)
    for one in found:
        if one.choice is not None:
            yield from one.choice.text().splitlines()
        if one.network is not None:
            yield from (
                f"{one.algorithm}: {note}" for note in (*one.network.notes, *one.network.traps, *one.network.log)
            )


def congestion_table(
    found: Sequence[MeasuredCollective], prepared: PreparedCase, paint: Paint
) -> Iterator[str]:  # fmt: skip
    """Yield a table with a row for each algorithm, transport and congestion control: time, messages, losses."""
    several = len({one.ranks for one in found}) > 1
    where = heading(prepared, over=False)
    yield f"{paint(found[0].op, 'bold')}: {'' if several else f'{found[0].ranks} ranks, '}{where}; times in µs"
    names = [f"{one.algorithm}{f', {one.ranks} ranks' if several else ''}" for one in found]
    ways = [f"{one.transport} {one.cc}{f' {one.lb}' if one.lb else ''}" for one in found]
    wide, way = max(map(len, (*names, "algorithm"))), max(map(len, (*ways, "over")))
    heads = ("time", "formula", "message p50", "p99", "max", "dropped", "trimmed", "marked", "sent again")
    yield paint(f"{'algorithm':{wide}}  {'over':{way}}" + "".join(f"  {head:>11}" for head in heads), "bold")
    for name, over, one in zip(names, ways, found, strict=True):
        theory, times, counts = one.formula, one.message_times, one.counts
        cells = [number(one.time), number(theory.time) if theory else NONE]
        cells += [NONE] * 3 if times is None else [number(time) for time in times]
        if counts is None:
            cells += [NONE] * 4
        else:
            again = sum(counts.retransmissions.values())
            cells += [f"{count:,}" for count in (counts.drops, counts.trims, counts.marks, again)]
        yield f"{name:{wide}}  {over:{way}}" + "".join(f"  {cell:>11}" for cell in cells) + _wrong(one, paint)


def _losses(found: Sequence[MeasuredCollective], paint: Paint, indent: str = "") -> Iterator[str]:
    """Yield a line for each run that lost something, which no formula includes."""
    for one in found:
        if one.losses is not None:
            what = f"{one.algorithm}, {one.ranks} ranks: " if len(found) > 1 else ""
            yield f"{indent}{paint(f'{what}{one.losses}', 'alarm')}: no formula includes losses"


def _ratios(found: Sequence[MeasuredCollective]) -> Iterator[str]:
    """Yield the ratios between algorithms of ranks and algorithms of the network."""
    offloaded = [one for one in found if one.network is not None]
    for by_ranks in found:
        for one in offloaded if by_ranks.network is None else ():
            pairs = (
                ("bytes a rank", by_ranks.busiest, one.busiest), ("on all links", by_ranks.payload, one.payload),
                ("with headers", by_ranks.wire or 0, one.wire or 0), ("time", by_ranks.time, one.time),
            )  # fmt: skip
            ratios = ", ".join(f"{what} {a / b:.3f}" for what, a, b in pairs if b)
            halves = by_ranks.algorithm == "ring" and (one.op, one.algorithm) in _HALVED
            limit = f"; 2(N−1)/N = {2 - 2 / one.ranks:.3f}" if halves else ""
            yield f"{by_ranks.algorithm} / {one.algorithm}: {ratios}{limit}"


def sweep(found: Sequence[MeasuredCollective], prepared: PreparedCase, paint: Paint) -> Iterator[str]:
    """Yield a table with a row for each number of ranks. Its columns are the steps, the bytes of the busiest rank, the
    measured time, and the time by the formula."""
    names = list(dict.fromkeys(one.algorithm for one in found))
    yield f"{paint(found[0].op, 'bold')}: {heading(prepared)}; bytes that a rank sends, time in µs"
    yield paint("       " + "".join(f"  {name:^38}" for name in names).rstrip(), "bold")
    yield paint("  ranks" + f"  {'steps':>6} {'a rank':>9} {'time':>10} {'formula':>10}" * len(names), "bold")
    for ranks in dict.fromkeys(one.ranks for one in found):
        line = f"{ranks:7}"
        for name in names:
            one = next(one for one in found if one.ranks == ranks and one.algorithm == name)
            theory = number(one.formula.time) if one.formula else NONE
            line += f"  {one.steps:6} {one.busiest:9,} {number(one.time):>10} {theory:>10}"
        wrong = [one for one in found if one.ranks == ranks and not one.correct]
        yield line + (_wrong(wrong[0], paint) if wrong else "")
    yield from _losses(found, paint)


def verdict(found: MeasuredCollective, paint: Paint) -> str:
    """Return a text that says whether every rank has the right result."""
    return paint("equals NumPy's", "green") if found.correct else paint("differs from NumPy's", "alarm")


def _wrong(found: MeasuredCollective, paint: Paint) -> str:
    return "" if found.correct else f"  {paint(f'{found.algorithm} differs from NumPy', 'alarm')}"


def number(picoseconds: float) -> str:
    """Return a time in picoseconds as a text in microseconds, without the unit."""
    return f"{picoseconds / 1e6:,.2f}"


def microseconds(picoseconds: float) -> str:
    return f"{number(picoseconds)} µs"
