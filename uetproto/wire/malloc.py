# SPDX-License-Identifier: GPL-2.0-only
"""This module gives a hint to the C library's allocator, for work that allocates and frees many buffers."""

_LARGE = 31 << 20  # bytes; glibc adapts its threshold to the blocks that are freed, up to 32 MiB


def keep_freed_memory() -> None:
    """Make glibc keep freed memory for reuse. Otherwise it returns memory to the system, and new memory costs page
    faults.

    Glibc keeps the memory of blocks up to the size of the largest block that was freed. Other allocators are not
    affected.
    """
    bytes(_LARGE)  # costs no time: the system provides a page only when it is touched, and no page of this block is
