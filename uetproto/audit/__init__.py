"""Judges anybody's capture against the protocol (interfaces.md §8): trackers follow conversations, rules are tables.

The way of a packet
-------------------
    auditor.py    `audit(files, options)` → `AuditReport` (report.py); an `Auditor` for each interface of a file
    reader/       makes an `ObservedPacket` (observed.py) of a record (records.py): by readers compiled from the tables
                  (fast_path.py, fast_path_codegen.py), or from a decoded packet (slow_path.py). expected_values.py says
                  what an expected header is, flow_crc.py whether a flow has CRCs, mirror.py which packets are copies
    */tracker.py  trackers follow what a packet belongs to, and tell of events; one folder a subject
    judge.py      asks the rules that subscribe to an event: a `RuleTally` counts, a `Finding` (finding.py) tells
    */rules.py    the rules (rule.py: what one is; rules.py: all), each beside the tracker whose events it judges

Trackers
--------
    wire          a packet alone
    pds           PDCs: whose packet it is (_ends), what an end sends (_sent), what the other says of it (_replies)
    ses           messages: their state (_message), whose packet it is (message_attribution.py), what comes back
                  (_replies, _answers), tokens of deferrable sends (_tokens), sync groups (_groups)
    rudi          RUDI, UUD
    roce          queue pairs: requests (_requests), answers (_answers)
    sharp, tss    groups of in-network computing; secure domains

What is hot takes a short way through a tracker's first module; `_state` or `_events` has its events. Flows that are
silent or too many are dropped by flows.py.

Other parts
-----------
listeners.py adds listeners to the same pass: stats/measure.py (`uetproto stats`, `--plot`), parquet.py. personality.py
and baseline.py say which findings are known; examples.py and rules_md.py document the rules.
"""
