# SPDX-License-Identifier: GPL-2.0-only
"""This module exports several captures at a time, each in a process of its own.

A process writes the tables of one capture to a temporary folder, as Arrow; then the tables of all captures are joined,
in the order of the captures. The result is that of `files.export`.
"""

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from uetproto.analysis.capture import open_captures
from uetproto.analysis.sources import SourceDamage
from uetproto.arrow import pyarrow_for
from uetproto.tables.files import FORMATS, PACKETS, TableFile, export


class ExportTask(NamedTuple):
    """A task is what a process needs to export one capture."""

    file: str
    settings: dict[str, Any]
    """Arguments of `open_captures`."""
    filter: str | None
    columns: Sequence[str]


def export_in_parallel(
    tasks: Sequence[ExportTask], jobs: int, path: str, format: str, folder: bool, progress: Callable[[int, float], None]
) -> tuple[dict[str, int], list[SourceDamage]]:
    """Write the tables of captures to a file or a folder, and return the number of rows of each file, and what could
    not be read. `jobs` processes work at a time; `progress` is called with the number of packets
    written so far, and the part of the captures."""
    pa = pyarrow_for("a table")
    counts: dict[str, int] = {}
    damage: list[SourceDamage] = []
    files: dict[str, TableFile] = {}
    if folder:
        Path(path).mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")  # a fork would copy the locks of threads
    with (
        TemporaryDirectory(prefix="uetproto-export-") as place,
        ProcessPoolExecutor(jobs, mp_context=context) as pool,
    ):
        folders = [str(Path(place) / str(number)) for number in range(len(tasks))]
        found = [pool.submit(_one, task, at, folder) for task, at in zip(tasks, folders, strict=True)]
        try:
            for number, (at, one) in enumerate(zip(folders, found, strict=True), 1):
                damage += one.result()
                for table in sorted(Path(at).iterdir(), key=lambda table: (table.stem != PACKETS, table.name)):
                    target = str(Path(path) / f"{table.stem}{FORMATS[format]}") if folder else path
                    with pa.ipc.open_file(table) as reader:
                        if target not in files:
                            files[target] = TableFile(target, format, reader.schema)
                        for group in range(reader.num_record_batches):
                            batch = reader.get_batch(group)
                            files[target].write(batch)
                            counts[target] = counts.get(target, 0) + batch.num_rows
                        counts.setdefault(target, 0)
                    table.unlink()
                progress(max(counts.values(), default=0), number / len(tasks))
        finally:
            for one in found:
                one.cancel()
            for file in files.values():
                file.close()
    return counts, damage


def _one(task: ExportTask, at: str, folder: bool) -> list[SourceDamage]:
    """Export one capture to a folder of Arrow files, in a process of its own. Return what could not be read."""
    capture = open_captures(task.file, **task.settings)
    if task.filter is not None:
        capture = capture.filter(task.filter)
    table = capture.table(task.columns)
    Path(at).mkdir()
    export(table, at if folder else str(Path(at) / f"{PACKETS}.arrow"), "arrow", folder, lambda packets: None)
    return list(table.damage)
