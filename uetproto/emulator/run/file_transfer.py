# SPDX-License-Identifier: GPL-2.0-only
"""This module has the two ends of a transfer: the input file, and the target's memory, in RAM or a temporary file."""

import tempfile
from contextlib import ExitStack

from uetproto.emulator.run.files import Extent, compare, data_extent
from uetproto.emulator.run.result import Memories
from uetproto.emulator.scenario.settings import RunConfig
from uetproto.engine.memory import BufferMemory, FileMemory, Memory
from uetproto.errors import LocalError
from uetproto.wire.malloc import keep_freed_memory

IN_MEMORY = 64 << 20
"""Number of bytes up to which the target's memory is in RAM. Larger memory is in a temporary file."""


class FileTransfer:
    """A file transfer has an input file, and the memory of the target to which the run writes the file."""

    def __init__(self, run: RunConfig, owned: ExitStack) -> None:
        """Open the files; `owned` closes them. Raises `LocalError` for an input that cannot be read."""
        assert run.input is not None
        keep_freed_memory()
        name, place = run.input_told
        try:
            self.file = owned.enter_context(run.input.open("rb"))
            self.extent = data_extent(self.file)
        except OSError as error:
            raise LocalError(
                name, f"{run.input}: {error.strerror}", "the path of a file", place=place, id="wrong-input-file"
            ) from error
        except LocalError as error:
            raise LocalError(name, f"{run.input}: {error.value}", error.legal, place=place, id=error.id) from error
        self.memory: Memory
        if self.extent.length > IN_MEMORY:
            self.memory = FileMemory(owned.enter_context(tempfile.TemporaryFile()), self.extent.length)  # noqa: SIM115
        else:
            self.memory = BufferMemory(bytearray(self.extent.length))

    def places(self, run: RunConfig, extent: Extent) -> dict[str, int]:
        """Return a dictionary that says where the part `extent` of the input lies. `source_base` and `target_base` are
        the addresses at which the memories of source and target begin. `offset` is where the part begins in the memory
        of the target, and `length` is its size; both are in bytes.
        """
        return {
            "source_base": run.source_base, "target_base": run.base,
            "offset": 0 if run.offset is None else run.offset - run.base, "length": extent.length,
        }  # fmt: skip

    def memories(self, extent: Extent) -> Memories:
        """Compare the part `extent` of the input file with the target's memory."""
        return compare(self.file, extent, self.memory)
