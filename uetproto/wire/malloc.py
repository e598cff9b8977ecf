"""This module gives a hint to the C library's allocator, for work that allocates and frees many buffers."""

_LARGE = 31 << 20  # glibc adapts to what it sees freed, up to 32 MiB


def keep_freed_memory() -> None:
    """Make glibc reuse freed memory; otherwise glibc returns it to the system, and getting it back costs page faults.

    Glibc reuses memory up to the size of the largest block that it has seen freed. Other allocators take no notice.
    """
    bytes(_LARGE)  # the system zeroes a page when it is touched, and no page is
