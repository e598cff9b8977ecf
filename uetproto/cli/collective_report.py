"""The results of `uetproto collective` for people: one collective in full, several side by side, a sweep over ranks."""

from collections.abc import Iterator, Sequence

from uetproto.api.distributed_hosts import PREFER_SAME_NIC
from uetproto.cli.collective_run import WAYS, Prepared
from uetproto.cli.terminal import Paint
from uetproto.collectives.measure import LinkCount, Measured

MOST_LINES = 16
"""Of ranks or links that are listed."""

NONE = "–"


def heading(prepared: Prepared) -> str:
    """What was asked for, but algorithm and ranks."""
    case = prepared.case
    parts = [f"{case.length:,} bytes of {case.dtype.name}" if case.op != "barrier" else "no bytes"]
    if case.op in ("all_reduce", "reduce", "reduce_scatter"):
        parts.append(str(case.reduce_op))
    parts.append("without packets" if case.transport == "model" else f"over {case.transport}")
    gpus = prepared.topology.gpus_per_node
    parts += [case.kind, *([f"{gpus} GPUs a host"] if gpus > 1 else [])]
    parts += [f"{name} {value}" for name, value in case.options.items()]
    parts += [f"cross-NIC {case.cross_nic}"] if case.cross_nic != PREFER_SAME_NIC else []
    parts.append(f"seed {case.seed}")
    return ", ".join(parts)


def one(found: Measured, prepared: Prepared, paint: Paint) -> Iterator[str]:
    """Everything about one collective."""
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
    if found.links is not None and prepared.nic_bytes is not None:
        yield f"  {'bytes a NIC sends':24} {found.busiest_nic:20,} {prepared.nic_bytes:20,.0f}"
    if found.algbw:
        yield f"  {'algbw, GB/s':24} {found.algbw / 1e9:20.3f}"
        yield f"  {'busbw, GB/s':24} {found.busbw / 1e9:20.3f}"
    yield f"  {'bytes all ranks send':24} {found.injected:20,}"
    yield f"  {'payload on all links':24} {found.payload:20,} {found.promised:20,}  by the schedule"
    if found.wire is not None:
        yield f"  {'with headers and answers':24} {found.wire:20,}"
    yield from _costs(prepared)
    yield from _ranks(found.sent)
    if found.links is not None:
        yield from _links(found.links)
    yield f"  result {verdict(found, paint)}"


def _costs(prepared: Prepared) -> Iterator[str]:
    costs, inside = prepared.between, prepared.inside
    how = "" if prepared.case.transport == "model" else f": {WAYS} times through the fabric, and its rate"
    if len(prepared.hosts) > 1:
        yield f"  alpha {costs.alpha * 1e6:g} µs a message, beta {costs.beta * 1e9:g} ns a byte{how}"
    if max(map(len, prepared.hosts)) > 1:
        yield f"  within a host alpha {inside.alpha * 1e6:g} µs, beta {inside.beta * 1e9:.3g} ns"


def _ranks(sent: Sequence[int]) -> Iterator[str]:
    if len(set(sent)) == 1:
        yield f"  every rank sends {sent[0]:,} bytes"
        return
    yield "  sent by rank"
    for rank, length in enumerate(sent[:MOST_LINES]):
        yield f"    {rank:<24} {length:20,}"
    yield from _more(len(sent), "rank")


def _links(links: Sequence[LinkCount]) -> Iterator[str]:
    """The busiest first; those that are alike in one line."""
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


def table(found: Sequence[Measured], prepared: Prepared, paint: Paint) -> Iterator[str]:
    """Algorithms below each other."""
    yield f"{paint(found[0].op, 'bold')}: {found[0].ranks} ranks, {heading(prepared)}"
    wide = max(len("algorithm"), *(len(one.algorithm) for one in found))
    yield paint(
        f"{'algorithm':{wide}}  {'steps':>5} {'formula':>7}  {'bytes a rank':>15} {'formula':>15}"
        f"  {'on all links':>15}  {'time, µs':>12} {'formula':>12}", "bold",
    )  # fmt: skip
    for one in found:
        theory = one.formula
        on_links = one.payload if one.wire is None else one.wire
        yield (
            f"{one.algorithm:{wide}}  {one.steps:5} {theory.steps if theory else NONE:>7}"
            f"  {one.busiest:15,} {f'{theory.bytes_per_rank:,.0f}' if theory else NONE:>15}"
            f"  {on_links:15,}  {number(one.time):>12} {number(theory.time) if theory else NONE:>12}"
        ) + _wrong(one, paint)


def sweep(found: Sequence[Measured], prepared: Prepared, paint: Paint) -> Iterator[str]:
    """Ranks below each other, algorithms side by side: steps, most bytes of a rank, time beside that of the formula."""
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


def verdict(found: Measured, paint: Paint) -> str:
    """Whether every rank has what it should have."""
    return paint("equals NumPy's", "green") if found.correct else paint("differs from NumPy's", "alarm")


def _wrong(found: Measured, paint: Paint) -> str:
    return "" if found.correct else f"  {paint(f'{found.algorithm} differs from NumPy', 'alarm')}"


def number(picoseconds: float) -> str:
    """Microseconds."""
    return f"{picoseconds / 1e6:,.2f}"


def microseconds(picoseconds: float) -> str:
    return f"{number(picoseconds)} µs"


__all__ = ["heading", "microseconds", "one", "sweep", "table"]
