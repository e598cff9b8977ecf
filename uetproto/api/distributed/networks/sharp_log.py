# SPDX-License-Identifier: GPL-2.0-only
"""This module keeps the log of SHARP: it has lines in the format of libsharp, up to the level that
`SHARP_COLL_LOG_LEVEL` sets (sharp.md §10)."""

from enum import IntEnum

from uetproto.engine.sharp.manager.grants import JobGrant
from uetproto.engine.sharp.options import SharpOptions


class LogLevel(IntEnum):
    """This enumeration has the levels of log lines; a log has the lines of its own level and of all levels with lower
    numbers."""

    FATAL = 0
    ERROR = 1
    WARN = 2
    INFO = 3
    DEBUG = 4
    TRACE = 5


class SharpLog:
    """This class holds the log lines that the first rank of each job writes."""

    def __init__(self, options: SharpOptions) -> None:
        self.lines: list[str] = []
        self._options = options

    def write(self, level: LogLevel, rank: int, where: str, text: str) -> None:
        """Add a line, unless its level is above the level of the log. `where` names the place in the source of libsharp
        that writes such a text: the file and, in most cases, the line number, such as "context.c:485"."""
        if level <= self._options.log_level:
            self.lines.append(f"rank{rank}:{rank}:0 - {where} {level.name} {text}")

    def job(self, rank: int, members: int, grant: JobGrant) -> None:
        """Add the lines of a job that begins: its request, its trees and its groups."""
        asked = self._options
        self.write(
            LogLevel.INFO, rank, "context.c:485",
            f"job (ID: {grant.job_id}) resource request quota: ( osts:{asked.quota_osts} user_data_per_ost:"
            f"{asked.user_data} max_groups:{asked.quota_groups} max_qps:{asked.quota_qps or 1} max_group_channels:1,"
            f" num_trees:{len(grant.rails)})",
        )  # fmt: skip
        for index, rail in enumerate(grant.rails):
            self.write(
                LogLevel.INFO, rank, "context.c:628",
                f"tree_info: type:LLT tree idx:{index} treeID:{rail.tree.tree_id:#x} quota: ( osts:{rail.osts}"
                f" user_data_per_ost:{grant.user_data} max_groups:{rail.groups} max_qps:1 max_group_channels:1)",
            )  # fmt: skip
            if rail.sat:
                text = f"tree_info: type:SAT tree idx:{index} treeID:{rail.tree.sat_id:#x}"
                self.write(LogLevel.INFO, rank, "context.c:628", text)
            self.write(
                LogLevel.INFO, rank, "comm.c:417",
                f"[group#:{index}] group id:{grant.job_id * len(grant.rails) + index} tree idx:{index} rail_idx:{index}"
                f" group size:{members} quota: (osts:{asked.osts_of(rail.osts, rail.groups)} user_data_per_ost:"
                f"{grant.user_data})",
            )  # fmt: skip
