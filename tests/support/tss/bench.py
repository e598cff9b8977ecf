"""This script measures sealing and opening in packets of 1 KiB per second of CPU, in every mode (tss.md §8, §9).

Run as a script: `python -m tests.support.tss.bench [packets] [runs]`. Prints the best of the runs.
"""

import sys
import time
from typing import Any

from tests.support.tss.flows import Flow
from uetproto.engine.tss.domain import SecureDomain
from uetproto.engine.tss.keys import DomainConfig, DomainKey
from uetproto.engine.tss.ledger import NonceLedger
from uetproto.engine.tss.port import SecurePort

A, B = Flow().src, Flow().dst
SSIS = {A: 1, B: 2}
CASES: dict[str, dict[str, Any]] = {
    "direct, SSI": {"mode": "direct", "ssis": SSIS},
    "direct, SSI, PDS in clear": {"mode": "direct", "ssis": SSIS, "crypto_offset": 28},
    "cluster": {"mode": "cluster"},
    "cluster, rekey every 256": {"mode": "cluster", "rekey_mask": 0xFFFFFF00, "rekey_shift": 8},
    "client-server, SSI": {"mode": "client-server", "ssis": SSIS, "servers": frozenset({B})},
}


def rates(domain: DomainConfig, packets: int, ledger: NonceLedger | None) -> tuple[float, float]:
    """Return the packets sealed, and those opened, per second of CPU."""
    sender, port = SecureDomain(domain, A, 4, ledger=ledger), SecurePort()
    port.domains[1] = SecureDomain(domain, B, 4)
    inner, below = bytes(1024), Flow().below(0)
    began = time.process_time()
    sealed = [sender.seal(below, inner) or b"" for _ in range(packets)]
    between = time.process_time()
    for packet in sealed:
        port.receive(below, packet)
    ended = time.process_time()
    assert port.domains[1].counters.in_auth_pkts == packets
    return packets / (between - began), packets / (ended - between)


def main() -> None:
    packets = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    for name, values in CASES.items():
        domain = DomainConfig(sdi=1, keys=((DomainKey(bytes(range(32))),), ()), **values)
        for what, with_ledger in ((name, False), (name + ", ledger", True)):
            found = [rates(domain, packets, NonceLedger() if with_ledger else None) for _ in range(runs)]
            print(f"{what:36} seal {max(f[0] for f in found):9,.0f}/s   open {max(f[1] for f in found):9,.0f}/s")


if __name__ == "__main__":
    main()
