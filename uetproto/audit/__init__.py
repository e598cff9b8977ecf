# SPDX-License-Identifier: GPL-2.0-only
"""This package judges captures against the protocol (interfaces.md §8). Trackers follow the conversations in a capture
and report events. Rules, which are rows of tables, judge the events.

Stations of a packet, in order
------------------------------
    auditor.py    `audit(files, options)` → `AuditReport` (report.py); an `Auditor` for each interface of a file
    reader/       makes an `ObservedPacket` (observed.py) from a record (records.py): by readers compiled from tables
                  (fast_path.py, fast_path_codegen.py), or by decoding (slow_path.py). expected_values.py says
                  what an expected header is, crc_of_packet.py what a single packet shows about its CRC,
                  mirror.py which packets are copies
    */tracker.py  follows the conversation of a packet, and reports events; each subject has a folder
    judge.py      asks the rules that subscribe to an event, counts in a `RuleTally`, and keeps a `Finding` (finding.py)
    */rules.py    the rules (rule.py: what a rule is; rules.py: all), beside the tracker whose events they judge

Trackers
--------
    wire          a packet alone
    pds           PDCs: finding the PDC of a packet (_ends), what an end sends (_sent), its answers (_replies);
                  RUDI and UUD (_rudi)
    ses           messages: their state (_message), finding the message of a packet (message_attribution.py), answers
                  (_replies, _answers), tokens of deferrable sends (_tokens), sync groups (_groups)
    roce          queue pairs: requests (_requests), answers (_answers)
    sharp         groups of in-network computing
    tss           secure domains

`pds` and `ses` do not import each other; contract.py describes what each of the two uses of the other. The module
tracker.py handles most packets of its subject itself; the module `_state` or `_events` defines the events. flows.py
drops flows that are silent for long, and the least recently active ones if there are too many.

Other parts
-----------
listeners.py lets further modules see the packets of the same pass: stats/measure.py (`uetproto stats`, `--plot`) and
parquet.py. personality.py and baseline.py say which findings are known; examples.py and rules_md.py document the rules.
"""
