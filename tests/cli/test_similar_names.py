# SPDX-License-Identifier: GPL-2.0-only
"""Wherever a command refuses a name, it tells similar ones."""

import re

import pytest

from tests.support.cli.frames import invoke
from tests.support.paths import PCAPS

CAPTURE = str(PCAPS / "gradient.pcapng")


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["disect"], "dissect"),
        (["dissect", CAPTURE, "--pakcet", "1"], "--packet"),
        (["dissect", CAPTURE, "--crc", "onn"], "on"),
        (["fabric", "incast", "--profile", "htsmi"], "htsim"),
        (["ladder", CAPTURE, "--columns", "stat"], "state"),
        (["run", "gradiant"], "gradient"),
        (["run", "gradient", "--set", "pds.mp_rage=1"], "mp_range"),
        (["run", "gradient", "--set", "mp_range=1"], "pds.mp_range"),
        (["run", "gradient", "--set", "payload_mtuu=1"], "ses.payload_mtu"),
        (["run", "gradient", "--set", "mode=rodd"], "rod"),
        (["run", "gradient", "--set", "pds.secure_start=expect"], "expected"),
        (["run", "gradient", "--set", "nodes.rank0.personality=refprof"], "refprov"),
        (["run", "gradient", "--set", "run.target=rank22"], "rank2"),
        (["run", "gradient", "--tap", "rank22"], "rank2"),
        (["run", "gradient-roce", "--set", "roce.congestion=dcqn"], "dcqcn"),
        (["run", "ses-write", "--set", "operation.0.do=wriet"], "write"),
        (["generate", "bnech", "-o", "x.pcap"], "bench"),
        (["generate", "bench", "-o", "x.pcap", "--set", "endpoint=4"], "endpoints"),
        (["generate", "bench", "-o", "x.pcap", "--set", "modes=rodd"], "rod"),
        (["generate", "bench", "-o", "x.pcap", "--mutate", "bad-crx=0.1"], "bad-crc"),
        (["fuzz", "ruddi"], "rudi"),
        (["audit", CAPTURE, "--rules", "PDS-MDOE"], "PDS-MODE"),
        (["audit", "--explain", "psn-two"], "PDS-PSN-TWO-CONTENTS"),
        (["audit", CAPTURE, "--personality", "refprof"], "refprov"),
        (["bench", "--only", "decod"], "decode"),
        (["collective", "all_redcue"], "all_reduce"),
        (["collective", "all_reduce", "--algorithm", "rnig"], "ring"),
        (["collective", "all_reduce", "--compare", "ring,double_tre"], "double_tree"),
        (["collective", "all_reduce", "--topology", "leaf-spin"], "leaf-spine"),
        (["collective", "all_reduce", "--topology", "rails:gpus=2"], "gpus_per_node"),
        (["collective", "all_reduce", "--dtype", "flaot32"], "float32"),
        (["collective", "all_reduce", "--op", "SUMM"], "SUM"),
        (["collective", "all_reduce", "--transport", "rocee"], "roce"),
        (["collective", "all_reduce", "--algorithm", "sharp", "--sharp", "t_osst=1 s"], "t_ost"),
        (["collective", "all_gather", "--algorithm", "multicast", "--multicast", "root=1"], "roots"),
    ],
)
def test_a_name_that_is_nearly_right(arguments: list[str], meant: str) -> None:
    done = invoke(*arguments)
    assert done.exit_code == 2
    hint = done.stderr.lower().partition("did you mean ")[2].partition("?")[0].removeprefix("one of: ")
    assert meant.lower() in re.split(r" or |, ", hint.replace("'", "")), done.stderr
    assert not TOO_MANY.search(done.stderr), done.stderr


TOO_MANY = re.compile(r"(?:[^\s,;]+, ){12,}[^\s,;]+")
"""Matches a list of more than twelve names."""


@pytest.mark.parametrize(
    "arguments",
    [
        ["zzz"], ["run", "zzz"], ["run", "gradient", "--set", "pds.zzz=1"], ["run", "gradient", "--set", "zzz.a=1"],
        ["generate", "bench", "-o", "x.pcap", "--mutate", "zzz=1"], ["audit", CAPTURE, "--rules", "ZZZ-*"],
        ["audit", "--explain", "ZZZ"], ["fuzz", "zzz"], ["bench", "--only", "zzz"],
        ["collective", "all_reduce", "--algorithm", "zzz"], ["generate", "bench", "-o", "x.pcap", "--set", "zzz=1"],
        ["diff", CAPTURE, CAPTURE, "--ignore", "zzz"], ["dissect", CAPTURE, "--filter", "zzz"],
    ],
)  # fmt: skip
def test_a_name_like_no_other_is_not_answered_by_all_names(arguments: list[str]) -> None:
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert not TOO_MANY.search(done.stderr), done.stderr
    assert "did you mean" not in done.stderr
