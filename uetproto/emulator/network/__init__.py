"""The emulated network: clock, links, queues, switches, NICs, faults and capture points."""
