# SPDX-License-Identifier: GPL-2.0-only
"""The matrix of `nvidia-smi topo -m`: whole texts, round trips, bandwidths, rings (collectives.md §4.1)."""

from itertools import combinations, pairwise, permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.effort import examples
from uetproto import LocalError
from uetproto.collectives.topology.gpu_matrix import (
    CLASSES,
    GB,
    NVLINK,
    SOCKET,
    GpuConnection,
    GpuMatrix,
    Speeds,
    X,
    generated,
    worst,
)
from uetproto.collectives.topology.gpu_matrix_text import parse, show
from uetproto.collectives.topology.kinds import topology

HERE = Path(__file__).parent
NVLINK_TEXT = (HERE / "topo_nvlink.txt").read_text()
"""8 GPUs behind an NVSwitch, a NIC beside each, two more for storage; as a terminal shows it."""
PCIE_TEXT = (HERE / "topo_pcie.txt").read_text()
"""8 GPUs without NVLink and two NICs; an older driver, which names the NICs themselves."""
PAIR = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPHB\t0-7\nGPU1\tPHB\t X \t0-7\n"


# Texts ----------------------------------------------------------------------------------------------------------------


def test_an_nvlink_server() -> None:
    matrix = parse(NVLINK_TEXT)
    assert matrix.gpus == tuple(f"GPU{number}" for number in range(8))
    assert matrix.nics == tuple(f"NIC{number}" for number in range(10))
    assert {matrix.between(a, b) for a, b in combinations(matrix.gpus, 2)} == {GpuConnection("NV", 18)}
    assert [str(matrix.between("GPU4", nic)) for nic in matrix.nics] == [*["SYS"] * 5, "PXB", *["NODE"] * 4]
    assert (matrix.cpu_affinity[0], matrix.numa_affinity[7]) == ("0-55,112-167", "1")
    assert (matrix.gpu_numa_id, matrix.nic_names[9]) == (("N/A",) * 8, "mlx5_9")


def test_a_pcie_server() -> None:
    matrix = parse(PCIE_TEXT)
    assert matrix.nics == ("mlx5_0", "mlx5_1")
    row = [str(matrix.between("GPU1", device)) for device in matrix.devices]
    assert row == ["PIX", "X", "PHB", "PHB", "SYS", "SYS", "SYS", "SYS", "PXB", "SYS"]
    assert (matrix.gpu_numa_id, matrix.nic_names) == ((), ())


@pytest.mark.parametrize(("text", "underlined"), [(NVLINK_TEXT, True), (PCIE_TEXT, False)])
def test_printed_as_it_was(text: str, underlined: bool) -> None:
    """Byte for byte, up to the words of the legend."""
    matrix = parse(text)
    printed = show(matrix, underlined=underlined)
    assert printed.split("\n\n")[0] == text.split("\n\n")[0]
    assert parse(printed) == matrix
    labels = [[line.split("=")[0] for line in each.split("\n") if " = " in line] for each in (printed, text)]
    assert sorted(labels[0]) == sorted(labels[1])
    assert ("NIC Legend:" in printed) is bool(matrix.nic_names)


def test_spaces_instead_of_tabs_and_old_names() -> None:
    """As texts are copied from a screen; SOC is what SYS was called."""
    assert parse(NVLINK_TEXT.expandtabs()) == parse(NVLINK_TEXT.replace("\n", "\r\n")) == parse(NVLINK_TEXT)
    assert parse(PCIE_TEXT.replace("SYS", "SOC")) == parse(PCIE_TEXT)
    bare = parse("GPU0\nGPU0 X")
    assert (bare.rows, bare.cpu_affinity, bare.ring_order(), bare.nearest_nic(0)) == (((X,),), (), (0,), None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: no matrix; legal: a header such as"),
        ("\n  \n", "line 1, column 1: no matrix"),
        ("No devices were found", "line 1, column 1: 'No'; legal: a header that begins with GPU0"),
        ("\tCPU Affinity", "column 2: 'CPU Affinity'; legal: a header that begins"),
        (PAIR.replace("PHB", "QPI", 1), "line 2, column 10: 'QPI'; legal: X, NV#, PIX, PXB, PHB, NODE, SYS"),
        (PAIR.replace("PHB", "NV0", 1), "line 2, column 10: 'NV0'"),
        (PAIR.replace("PHB", "NV", 1), "line 2, column 10: 'NV'"),
        (PAIR.replace("PHB", "NV²", 1), "line 2, column 10: 'NV²'"),
        (PAIR.replace("PHB", "PIX", 1), "line 3, column 6: 'PHB'; legal: PIX for GPU1 to GPU0, as the other way"),
        (PAIR.replace(" X ", "PIX", 1), "line 2, column 6: 'PIX'; legal: X from a device to itself"),
        (PAIR.replace("PHB", " X ", 1), "line 2, column 11: 'X'; legal: X from a device to itself, and nowhere else"),
        (PAIR.replace("\tPHB\t0-7", ""), "line 2, column 9: the row ends; legal: 2 connections, here are 1"),
        (PAIR.replace("0-7", "0-7\tmore", 1), "line 2, column 18: 'more'; legal: the end of the row"),
        (PAIR.replace("GPU1\tPHB", "GPU2\tPHB"), "line 3, column 1: 'GPU2'; legal: the row of GPU1, as in the header"),
        (PAIR.rpartition("GPU1")[0], "line 3, column 1: the matrix ends; legal: the row of GPU1"),
        (PAIR + "GPU2\tPHB\n", "line 4, column 1: 'GPU2'; legal: nothing but an empty line"),
        (PAIR.replace("GPU1\tCPU", "GPU0\tCPU"), "line 1, column 7: 'GPU0'; legal: each device once"),
        ("\tGPU0\tNIC0\tGPU1", "line 1, column 12: 'GPU1'; legal: all GPUs before the NICs"),
        ("\tGPU0\tCPU Affinity\tNIC0", "line 1, column 20: 'NIC0'; legal: CPU Affinity, NUMA"),
        ("\tGPU0\tCPU Affinity\tCPU Affinity", "line 1, column 20: 'CPU Affinity'; legal: each column once"),
        (PAIR.replace("CPU Affinity", "CPU Affinity\tNUMA Affinity"),
         "line 2, column 17: the row ends; legal: also NUMA Affinity"),
        ("\t\x1b[4mGPU0\tGPU0\x1b[0m", "line 1, column 7: 'GPU0'"),
        (NVLINK_TEXT.replace("NIC3: mlx5_3", "NIC3 mlx5_3"), "line 36, column 3: 'NIC3'; legal: a NIC of the header"),
        (NVLINK_TEXT.replace("  NIC3: mlx5_3\n", ""), "the NIC legend ends; legal: the name of NIC3"),
        ("\t" + "\t".join(f"GPU{number}" for number in range(2000)), "legal: at most 1024 devices"),
        (b"GPU0", "bytes; legal: a text"),
    ],
)  # fmt: skip
def test_malformed_texts_are_refused_with_their_place(text: str, message: str) -> None:
    with pytest.raises(LocalError) as caught:
        parse(text)
    assert message in str(caught.value)


@examples(80)
@given(st.text(alphabet="GPUNIC012X VSY\t\n:\x1b[4m", max_size=80) | st.text(max_size=60))
def test_any_text_is_a_matrix_or_refused(text: str) -> None:
    try:
        matrix = parse(text)
    except LocalError as error:
        assert str(error).startswith("topo -m: line ")  # noqa: PT017
    else:
        assert parse(show(matrix)) == matrix


@pytest.mark.parametrize("text", [NVLINK_TEXT, PCIE_TEXT])
def test_any_damage_to_a_whole_text_is_harmless(text: str) -> None:
    for at in range(0, len(text), 7):
        for changed in (text[:at], text[:at] + text[at + 1 :], text[:at] + "?" + text[at + 1 :]):
            try:
                parse(changed)
            except LocalError as error:
                assert ": line " in str(error)  # noqa: PT017


labels = st.sampled_from([GpuConnection(label) for label in CLASSES if label not in ("X", "NV")]) | st.builds(
    GpuConnection, st.just("NV"), st.integers(1, 99)
)


@st.composite
def matrices(draw: st.DrawFn, most: int = 7) -> GpuMatrix:
    gpus, nics = draw(st.integers(1, most)), draw(st.integers(0, 4))
    size = gpus + nics
    half = {(a, b): draw(labels) for a in range(size) for b in range(a)}
    rows = tuple(
        tuple(X if a == b else half[max(a, b), min(a, b)] for b in range(size)) for a in range(size)
    )  # fmt: skip
    names = (*(f"GPU{gpu}" for gpu in range(gpus)), *(f"NIC{nic}" for nic in range(nics)))
    told = [("0-7",) * gpus if draw(st.booleans()) else () for _ in range(3)]
    return GpuMatrix(names, rows, *told, draw(st.sampled_from([(), tuple(f"mlx5_{nic}" for nic in range(nics))])))


@examples(100)
@given(matrices(), st.booleans())
def test_round_trip(matrix: GpuMatrix, underlined: bool) -> None:
    assert parse(show(matrix, underlined=underlined)) == matrix


def test_a_topology_prints_its_own() -> None:
    matrix = topology("rails", 32).matrix()
    assert parse(show(matrix)) == matrix
    assert [matrix.nearest_nic(gpu) for gpu in range(8)] == list(matrix.nics)
    assert [str(matrix.between("GPU0", nic)) for nic in matrix.nics] == ["PIX", "PXB", "NODE", "NODE", *["SYS"] * 4]
    assert matrix.numa_affinity == tuple("00001111")
    assert topology("switch", 4).matrix().devices == ("GPU0", "NIC0")
    assert "NV" not in show(generated(4, nics=False, nvlinks=0), legend=False)


# Classes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nvlink", NVLINK.values(), ids=NVLINK)
@pytest.mark.parametrize("socket", SOCKET.values(), ids=SOCKET)
def test_a_worse_class_is_never_faster(nvlink: int, socket: int) -> None:
    """Invariant 40."""
    order = [X, *(GpuConnection("NV", links) for links in (18, 12, 4, 2, 1)), *map(GpuConnection, list(CLASSES)[2:])]
    speeds = Speeds(nvlink=nvlink, socket=socket)
    found = [speeds.bandwidth(connection) for connection in order]
    assert found == sorted(found, reverse=True)
    assert sorted(order, key=lambda connection: connection.order) == order
    ranks = [connection.kind.rank for connection in order]
    assert ranks == sorted(ranks)


def test_the_tables_of_the_page() -> None:
    """§4.1: GB a second of each kind of link, and NCCL's rank of each class."""
    assert {name: speed / GB for name, speed in NVLINK.items()} == {
        "P100": 18, "V100": 20, "A100": 20, "H100": 20.6, "B200": 40.1,
    }  # fmt: skip
    assert {name: speed / GB for name, speed in SOCKET.items()} == {
        "Broadwell": 6, "Skylake": 10, "Sapphire Rapids": 22, "newer Xeon": 40, "AMD": 16, "Arm": 6,
    }  # fmt: skip
    assert Speeds().bandwidth(X) == 5000 * GB
    assert {Speeds().bandwidth(GpuConnection(label)) for label in ("PIX", "PXB", "PHB", "NODE")} == {12 * GB}
    assert {label: kind.rank for label, kind in CLASSES.items()} == {
        "X": 0, "NV": 1, "PIX": 4, "PXB": 5, "PHB": 8, "NODE": 8, "SYS": 9,
    }  # fmt: skip


def test_bandwidths() -> None:
    matrix = parse(NVLINK_TEXT)
    speeds = Speeds(nvlink=NVLINK["H100"], socket=SOCKET["Broadwell"])
    assert matrix.bandwidth("GPU0", "GPU7", speeds) == 18 * 20_600_000_000
    assert matrix.bandwidth("GPU0", "NIC0", speeds) == 12 * GB
    assert matrix.bandwidth("GPU0", "NIC9", speeds) == 6 * GB
    assert matrix.bandwidth(3, 3) == 5000 * GB
    with pytest.raises(LocalError, match="socket: 0; legal"):
        Speeds(socket=0)


def test_a_path_is_as_bad_as_its_worst_part() -> None:
    matrix = parse(PCIE_TEXT)
    assert matrix.along(["GPU0", "GPU1"]) == GpuConnection("PIX")
    assert matrix.along(["GPU0", "GPU1", "mlx5_0"]) == GpuConnection("PXB")
    assert matrix.along(["GPU0", "GPU1", "GPU4", "GPU5"]) == GpuConnection("SYS")
    assert matrix.along(["GPU0"]) == worst([]) == X
    assert worst([GpuConnection("PHB"), GpuConnection("NODE"), GpuConnection("NV", 2)]) == GpuConnection("NODE")


def test_nearest_nics() -> None:
    matrix = parse(NVLINK_TEXT)
    assert [matrix.nearest_nic(gpu) for gpu in range(8)] == [f"NIC{nic}" for nic in (0, 1, 2, 3, 5, 6, 7, 8)]
    matrix = parse(PCIE_TEXT)
    assert matrix.nearest_nics("GPU3") == ("mlx5_0",)
    turns = parse("GPU0 GPU1 N0 N1\nGPU0 X NV1 PIX PIX\nGPU1 NV1 X PIX PIX\nN0 PIX PIX X PIX\nN1 PIX PIX PIX X")
    assert [turns.nearest_nic(gpu) for gpu in (0, 1)] == ["N0", "N1"]
    with pytest.raises(LocalError, match="gpu: 'N0' is a NIC; legal: GPU0, GPU1"):
        turns.nearest_nic("N0")
    with pytest.raises(LocalError, match="device: 'GPU9'; legal: 0 … 3, or one of GPU0"):
        turns.between("GPU9", 0)


# Rings ----------------------------------------------------------------------------------------------------------------


@examples(60)
@given(matrices(6))
def test_no_ring_has_a_better_worst_connection(matrix: GpuMatrix) -> None:
    def worst_of(ring: tuple[int, ...]) -> tuple[int, int]:
        return worst(matrix.between(a, b) for a, b in pairwise((*ring, ring[0])) if a != b).order

    ring = matrix.ring_order()
    size = len(matrix.gpus)
    assert sorted(ring) == list(range(size))
    assert worst_of(ring) == min(worst_of((0, *rest)) for rest in permutations(range(1, size)))


def test_ring_orders() -> None:
    assert parse(NVLINK_TEXT).ring_order("GPU3")[0] == 3
    ring = parse(PCIE_TEXT).ring_order()
    crossings = [parse(PCIE_TEXT).between(a, b).label for a, b in pairwise((*ring, ring[0]))].count("SYS")
    assert crossings == 2


def test_a_ring_by_nvlink_alone() -> None:
    """A hybrid cube mesh as of 8 V100, in which not all pairs have an NVLink."""
    links = {0: (1, 2, 3, 4), 1: (3, 2, 5), 2: (3, 6), 3: (7,), 4: (5, 6, 7), 5: (7, 6), 6: (7,)}
    joined = {frozenset((a, b)) for a, others in links.items() for b in others}
    rows = tuple(
        tuple(X if a == b else GpuConnection("NV", 1) if frozenset((a, b)) in joined else GpuConnection("SYS")
              for b in range(8)) for a in range(8)
    )  # fmt: skip
    mesh = GpuMatrix(tuple(f"GPU{number}" for number in range(8)), rows)
    ring = mesh.ring_order()
    assert all(frozenset(pair) in joined for pair in pairwise((*ring, ring[0])))


def test_matrices_that_cannot_be() -> None:
    one, far = (X,), GpuConnection("SYS")
    for devices, rows, message in (
        (("NIC0",), (one,), "devices: NIC0; legal: different names, GPU0 and so on first"),
        (("NIC0", "GPU0"), (one, one), "devices: NIC0, GPU0"),
        (("GPU0",), (), "1 rows of 1"),
        (("GPU0",), ((far,),), "GPU0 to itself is SYS; legal: X"),
        (("GPU0", "GPU1"), ((X, far), (X, X)), "X and SYS between GPU1 and GPU0"),
    ):
        with pytest.raises(LocalError, match=message):
            GpuMatrix(devices, rows)
    with pytest.raises(LocalError, match="cpu_affinity: 2 values; legal: 1, or none"):
        GpuMatrix(("GPU0",), (one,), ("0", "1"))
    with pytest.raises(LocalError, match="gpus: 0; legal"):
        generated(0)
