"""This module gives the C library's allocator a hint, for work that allocates and frees buffers a million times."""

_LARGE = 31 << 20  # glibc adapts to what it sees freed, up to 32 MiB


def keep_freed_memory() -> None:
    """Have glibc reuse freed memory; otherwise it returns the memory to the system, and page faults bring it back.

    It does so up to the size of the largest block that it has seen freed. Other allocators take no notice.
    """
    bytes(_LARGE)  # the system zeroes a page when it is touched, and no page is
