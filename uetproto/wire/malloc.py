"""One hint to the C library's allocator, for work that takes and frees buffers of many sizes a million times."""

_LARGE = 31 << 20  # glibc adapts to what it sees freed, up to 32 MiB


def keep_freed_memory() -> None:
    """Have glibc reuse what was freed instead of handing it back to the system and faulting it in again, page by page.

    It does so up to the size of the largest block that it has seen freed. Other allocators take no notice.
    """
    bytes(_LARGE)  # zeroed by the system when touched, which nobody does
