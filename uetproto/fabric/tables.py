# SPDX-License-Identifier: GPL-2.0-only
"""This module writes the tables of studies as Parquet files: flows, windows, queues and links of each run.

SELECT cc, lb, avg(fct_ps) / 1e6 FROM 'flows.parquet' GROUP BY cc, lb;
SELECT time_ps, max(bytes) FROM 'queues.parquet' WHERE cc = 'nscc' GROUP BY time_ps ORDER BY time_ps;
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

from uetproto.fabric.samples import SampleSet
from uetproto.fabric.study import Study
from uetproto.parquet import Column, ParquetTable

RUN = (
    Column("pattern", "string", "pattern, or stem of the matrix file"),
    Column("cc", "string", "congestion control"),
    Column("lb", "string", "path selection"),
    Column("seed", "uint64", ""),
)
"""Columns that every table begins with. Times are in picoseconds, sizes in bytes."""

TABLES: dict[str, tuple[Column, ...]] = {
    "flows": (
        Column("part", "string", "pattern of the flow"),
        Column("flow", "uint64", "number"),
        Column("source", "string", ""),
        Column("target", "string", ""),
        Column("start_ps", "int64", ""),
        Column("size", "uint32", ""),
        Column("fct_ps", "int64", "from the start to the ACK of the last packet; null: it did not end"),
    ),
    "windows": (
        Column("time_ps", "int64", ""),
        Column("source", "string", ""),
        Column("target", "string", ""),
        Column("window", "int64", "bytes that may be in flight; with RCCC alone MaxWnd"),
        Column("in_flight", "int64", "packets"),
    ),
    "queues": (
        Column("time_ps", "int64", ""),
        Column("source", "string", "switch that the queue is in"),
        Column("target", "string", "where it leads to"),
        Column("bytes", "int64", "that wait"),
    ),
    "links": (
        Column("source", "string", ""),
        Column("target", "string", ""),
        Column("frames", "uint64", ""),
        Column("bytes", "uint64", ""),
        Column("lost", "uint64", "frames that were sent after the link was cut"),
    ),
}


class StudyTables:
    """This class writes a Parquet file for each of `TABLES`. It is a context manager."""

    def __init__(self, directory: str) -> None:
        """Open the files. The directory is made if it does not exist."""
        folder = Path(directory)
        folder.mkdir(exist_ok=True)
        self._tables = {
            name: ParquetTable(folder / f"{name}.parquet", (*RUN, *columns), f"{name} of uetproto fabric")
            for name, columns in TABLES.items()
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for table in self._tables.values():
            table.close()

    def add(self, study: Study) -> None:
        """Add the rows of a study that has run."""
        config = study.config
        run = (study.matrix.name, config.cc, config.lb, config.seed)
        rows: dict[str, Iterable[tuple[Any, ...]]] = {
            "flows": _flows(study), "windows": _windows(study), "queues": _queues(study), "links": _links(study),
        }  # fmt: skip
        for name, found in rows.items():
            for row in found:
                self._tables[name].add((*run, *row))


def _flows(study: Study) -> Iterator[tuple[Any, ...]]:
    for flow in study.matrix.flows:
        end = study.ended.get(flow.number)
        fct = None if end is None else end - flow.start
        yield flow.part, flow.number, f"h{flow.source}", f"h{flow.target}", flow.start, flow.size, fct


def _windows(study: Study) -> Iterator[tuple[Any, ...]]:
    if study.sampler is None:
        return
    flying = {(time, name): count for time, name, count in study.sampler.flying.rows()}
    for time, name, window in study.sampler.windows.rows():
        yield time, *name.split(" > "), window, flying.get((time, name), 0)


def _queues(study: Study) -> Iterator[tuple[Any, ...]]:
    samples = SampleSet(1) if study.sampler is None else study.sampler.queues
    for time, name, length in samples.rows():
        yield time, *name.split(" > "), length


def _links(study: Study) -> Iterator[tuple[Any, ...]]:
    for hop in study.network.hops:
        yield hop.source, hop.target, hop.link.frames, hop.link.bytes, hop.link.lost
