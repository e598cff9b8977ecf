# SPDX-License-Identifier: GPL-2.0-only
"""Registration of memory: keys, access, the life of a region (ses.md §2.6, §14.2)."""

from array import array
from typing import Any

import pytest

from tests.support.api.fi_network import pair
from uetproto.api import fi

IDEMPOTENT_SAFE, OPTIMIZED, PROVIDER = 1 << 63, 1 << 62, 1 << 48
Flag, MrMode, Errno = fi.Flag, fi.MrMode, fi.Errno


def domain(mr_mode: fi.MrMode = MrMode.NONE, **ses: Any) -> fi.Domain:
    return fi.Fabric(ses=fi.SesConfig(**ses)).domain("a", mr_mode=mr_mode)


def test_keys_of_the_provider() -> None:
    here = domain()
    keys = [here.mr_reg(bytearray(1)).key for _ in range(3)]
    assert all(key & PROVIDER for key in keys)
    assert len(set(keys)) == 3


def test_a_key_of_a_closed_region_is_not_used_again() -> None:
    here = domain()
    first = here.mr_reg(bytearray(1))
    first.close()
    assert here.mr_reg(bytearray(1)).key != first.key


def test_keys_of_the_user() -> None:
    here = domain()
    assert here.mr_reg(bytearray(1), requested_key=7).key == 7
    assert here.mr_reg(bytearray(1), requested_key=(1 << 48) - 1).key == (1 << 48) - 1
    assert here.mr_reg(bytearray(1), requested_key=8, idempotent_safe=True).key == IDEMPOTENT_SAFE | 8
    assert here.mr_reg(bytearray(1), requested_key=9 | IDEMPOTENT_SAFE).idempotent_safe


def test_the_same_number_in_both_key_spaces() -> None:
    here = domain()
    provider = here.mr_reg(bytearray(1))
    assert here.mr_reg(bytearray(1), requested_key=provider.key & ~PROVIDER).key != provider.key


@pytest.mark.parametrize(
    ("key", "legal"),
    [(1 << 48, "bits 55 … 48"), (1 << 55, "bits 55 … 48"), (1 << 56, "bits 61 … 56"), (1 << 61, "bits 61 … 56"),
     (1 << 64, "0 … 0xffffffffffffffff"), (-1, "0 … "), (OPTIMIZED | 4096, "index below 0x1000")],
)  # fmt: skip
def test_keys_that_are_refused(key: int, legal: str) -> None:
    here = domain()
    with pytest.raises(fi.FiError, match=f"requested_key: .*legal: .*{legal}") as raised:
        here.mr_reg(bytearray(1), requested_key=key)
    assert raised.value.errno is Errno.FI_EINVAL
    assert not here.regions
    assert not here.process.regions


def test_a_key_that_is_taken() -> None:
    here = domain()
    here.mr_reg(bytearray(1), requested_key=7)
    with pytest.raises(fi.FiError, match="requested_key: 0x7") as raised:
        here.mr_reg(bytearray(1), requested_key=7)
    assert raised.value.errno is Errno.FI_ENOKEY


def test_prov_key_ignores_what_is_requested() -> None:
    assert domain(MrMode.PROV_KEY).mr_reg(bytearray(1), requested_key=7).key & PROVIDER


def test_optimized_keys_are_the_first_indices() -> None:
    here = domain()
    keys = [here.mr_reg(bytearray(1), optimized=True) for _ in range(3)]
    assert [mr.key for mr in keys] == [OPTIMIZED, OPTIMIZED | 1, OPTIMIZED | 2]
    keys[1].close()
    again = here.mr_reg(bytearray(1), optimized=True, idempotent_safe=True)
    assert again.key == IDEMPOTENT_SAFE | OPTIMIZED | 1
    assert here.mr_reg(bytearray(1), optimized=True).key == OPTIMIZED | 3, "small headers cannot tell bit 63"


def test_optimized_keys_run_out() -> None:
    here = domain(mr_count=5000)
    for _ in range(4096):
        here.mr_reg(b"", Flag.REMOTE_READ, optimized=True)
    with pytest.raises(fi.FiError, match="optimized: all 4096") as raised:
        here.mr_reg(b"", Flag.REMOTE_READ, optimized=True)
    assert raised.value.errno is Errno.FI_ENOSPC


def test_as_many_as_mr_count() -> None:
    here = domain(mr_count=2)
    first, _ = here.mr_reg(bytearray(1)), here.mr_reg(bytearray(1))
    with pytest.raises(fi.FiError, match="mr_count: all 2") as raised:
        here.mr_reg(bytearray(1))
    assert raised.value.errno is Errno.FI_ENOSPC
    first.close()
    here.mr_reg(bytearray(1))


def test_zero_based_or_virtual_addresses() -> None:
    assert domain().mr_reg(bytearray(10)).base == 0
    here = domain(MrMode.VIRT_ADDR)
    regions = [here.mr_reg(bytearray(5000)) for _ in range(2)]
    assert regions[0].base > 0
    assert regions[1].base >= regions[0].base + 5000
    assert all(mr.region.base == mr.base and mr.base % 4096 == 0 for mr in regions)


@pytest.mark.parametrize("buffer", [bytearray(8), array("I", [1, 2]), memoryview(bytearray(16))[4:12]])
def test_any_buffer_without_a_copy(buffer: Any) -> None:
    mr = domain().mr_reg(buffer, device="cuda:0", context="c")
    assert (mr.length, mr.device, mr.context) == (8, "cuda:0", "c")
    mr.view[0] = 0xAB
    assert memoryview(buffer).cast("B")[0] == 0xAB


@pytest.mark.parametrize(
    ("arguments", "named", "errno"),
    [
        ((object(),), "buf: object", Errno.FI_EINVAL),
        ((memoryview(bytearray(8))[::2],), "buf: memoryview", Errno.FI_EINVAL),
        ((b"read-only",), "memory: read-only", Errno.FI_EINVAL),
        ((bytearray(1), Flag.NONE), "access: ", Errno.FI_EINVAL),
        ((bytearray(1), Flag.FENCE), "access: ", Errno.FI_EINVAL),
    ],
)
def test_what_cannot_be_registered(arguments: tuple[Any, ...], named: str, errno: fi.Errno) -> None:
    here = domain()
    with pytest.raises(fi.FiError, match=named) as raised:
        here.mr_reg(*arguments)
    assert raised.value.errno is errno
    assert not here.regions
    assert not here.process.regions


def test_flags_of_a_registration() -> None:
    with pytest.raises(fi.FiError, match="flags: ") as raised:
        domain().mr_reg(bytearray(1), flags=Flag.FENCE)
    assert raised.value.errno is Errno.FI_EBADFLAGS


def test_access_and_restriction_reach_the_region() -> None:
    here = domain()
    mr = here.mr_reg(b"x", Flag.REMOTE_READ, job_restricted=True)
    assert (mr.region.remote_read, mr.region.remote_write) == (True, False)
    assert mr.region.job_restriction == here.job.job_id
    assert here.mr_reg(bytearray(1)).region.job_restriction is None


def test_life_with_an_endpoint() -> None:
    """register → bind → enable → disable → close (ses.md §14.2)."""
    here = domain(MrMode.ENDPOINT)
    endpoint = here.endpoint()
    mr = here.mr_reg(bytearray(1))
    states = [mr.state]
    with pytest.raises(fi.FiError, match=r"mr.enable: the region is registered; legal: bound") as raised:
        mr.enable()
    assert raised.value.errno is Errno.FI_EOPBADSTATE
    mr.bind(endpoint)
    states.append(mr.state)
    assert not mr.region.enabled
    mr.enable()
    states.append(mr.state)
    assert mr.region.enabled
    with pytest.raises(fi.FiError, match="bound to an endpoint") as raised:
        mr.close()
    assert raised.value.errno is Errno.FI_EBUSY
    with pytest.raises(fi.FiError, match="a region is bound") as raised:
        endpoint.close()
    assert raised.value.errno is Errno.FI_EBUSY
    mr.disable()
    states.append(mr.state)
    assert not mr.region.enabled
    mr.close()
    states.append(mr.state)
    assert [state.value for state in states] == ["registered", "bound", "enabled", "registered", "closed"]
    assert not here.process.regions
    mr.close()


@pytest.mark.parametrize("call", ["enable", "disable", "bind"])
def test_a_closed_region(call: str) -> None:
    here = domain()
    mr = here.mr_reg(bytearray(1))
    mr.close()
    with pytest.raises(fi.FiError, match=f"mr.{call}: the region is closed") as raised:
        getattr(mr, call)(*([here.cntr_open()] if call == "bind" else []))
    assert raised.value.errno is Errno.FI_EOPBADSTATE


def test_counters_are_bound_before_it_is_enabled() -> None:
    here = domain()
    counter = here.cntr_open()
    with pytest.raises(fi.FiError, match=r"mr\.bind: the region is enabled"):
        here.mr_reg(bytearray(1)).bind(counter)
    mr = here.mr_reg(bytearray(1), flags=Flag.RMA_EVENT)
    assert not mr.region.enabled
    mr.bind(counter)
    with pytest.raises(fi.FiError, match="counter: is bound") as raised:
        counter.close()
    assert raised.value.errno is Errno.FI_EBUSY
    mr.enable()
    mr.close()
    counter.close()


def test_an_idempotent_region_has_no_counter() -> None:
    here = domain()
    mr = here.mr_reg(bytearray(1), flags=Flag.RMA_EVENT, idempotent_safe=True)
    with pytest.raises(fi.FiError, match="IDEMPOTENT_SAFE") as raised:
        mr.bind(here.cntr_open())
    assert raised.value.errno is Errno.FI_EINVAL


def test_an_endpoint_of_another_domain() -> None:
    fabric = fi.Fabric()
    one, other = fabric.domain("a", mr_mode=MrMode.ENDPOINT), fabric.domain("a")
    with pytest.raises(fi.FiError, match="endpoint: ") as raised:
        one.mr_reg(bytearray(1)).bind(other.endpoint())
    assert raised.value.errno is Errno.FI_EDOMAIN


def test_a_buffer_is_free_when_its_region_is_closed() -> None:
    two = pair()
    two.a.write(b"x", two.dest, 0, two.mr.key)
    assert two.a.cq.sread(1)[0].ok
    two.mr.close()
    two.memory.extend(b"more")
    assert len(two.memory) == two.mr.length + 4
