"""This package judges captures against the protocol (interfaces.md §8): trackers follow conversations, rules are
tables.

The walk of a packet
--------------------
    auditor.py    `audit(files, options)` → `AuditReport` (report.py); an `Auditor` for each interface of a file
    reader/       makes an `ObservedPacket` (observed.py) from a record (records.py): by readers compiled from tables
                  (fast_path.py, fast_path_codegen.py), or by decoding (slow_path.py). expected_values.py says
                  what an expected header is, crc_of_packet.py what a packet tells of its CRC, mirror.py which
                  packets are copies
    */tracker.py  follows what a packet belongs to, and reports events; each subject has a folder
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

`pds` and `ses` do not import each other: contract.py holds what they use of each other. Most packets take the fast path
through the first module of a tracker; the module `_state` or `_events` names its events. flows.py drops silent and
surplus flows.

Other parts
-----------
listeners.py adds listeners to the same pass: stats/measure.py (`uetproto stats`, `--plot`), parquet.py. personality.py
and baseline.py say which findings are known; examples.py and rules_md.py document the rules.
"""
