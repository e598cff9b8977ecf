# SPDX-License-Identifier: GPL-2.0-only
"""An audit of frames while they arrive comes to what an audit of the file says."""

from collections import Counter

import pytest

from tests.support.paths import ROOT
from uetproto.audit.auditor import audit
from uetproto.audit.finding import Finding
from uetproto.audit.reader.options import Options
from uetproto.audit.rule import Requires
from uetproto.audit.stream import StreamAudit
from uetproto.wire.capture.pcap import ETHERNET, open_capture

FILES = [
    "roce-fail-icrc", "roce-fail-unaligned", "ses-fail-amo-unsupported-op", "ladder-L29", "secure-start-clear-nack",
    "gradient-lossy", "gradient-nocrc",
]  # fmt: skip


def said(findings: list[Finding]) -> Counter[tuple[object, ...]]:
    return Counter((one.rule.id, one.packets, one.expected, one.seen) for one in findings)


@pytest.mark.parametrize("options", [Options(), Options(complete=True)])
def test_the_same_as_of_a_file(options: Options) -> None:
    """Findings told one by one, without those withdrawn, are those of the report, and of `uetproto audit`."""
    for name in FILES:
        file = ROOT / "pcaps" / f"{name}.pcapng"
        stream, told = StreamAudit(options, ETHERNET), Counter[tuple[object, ...]]()
        with open_capture(file) as reader:
            first = [record for record in reader if record.interface == 0]
        for number, record in enumerate(first):
            told += said(stream.take(record._replace(index=number)))
        end = stream.end(str(file), "v0")
        assert told + said(end.new) - said(end.withdrawn) == said(end.report.findings)
        whole = audit([file], options)
        if len(whole.vantages) == 1:
            assert said(end.report.findings) == said(whole.findings)
            assert {name: tally.judged for name, tally in end.report.tallies.items()} == {
                name: tally.judged for name, tally in whole.tallies.items()
            }
            assert (end.report.packets, end.report.others) == (whole.packets, whole.others)


def test_missing_frames() -> None:
    """If frames are missing, what was said of absent ones is withdrawn, and named."""
    with open_capture(ROOT / "pcaps" / "gradient.pcapng") as reader:
        records = [record for record in reader if record.interface == 0]
    for missing in (None, "the kernel dropped 3 frames"):
        stream, told = StreamAudit(Options(complete=True), ETHERNET), Counter[tuple[object, ...]]()
        for record in records[2:]:
            told += said(stream.take(record))
        end = stream.end("", "v0", missing)
        absent = [one for one in end.report.findings if one.rule.requires is Requires.ABSENCE]
        if missing is None:
            assert absent
        else:
            assert absent == []
            assert said(end.withdrawn) <= told
