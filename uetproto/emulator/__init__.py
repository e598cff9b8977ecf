"""Virtual time: engines joined by links, queues, a switch, faults and taps.

A scenario (`scenario.py`) names the parts, `topology.py` joins them, `clock.py` runs them. Bytes cross every link; only
a NIC (`nic.py`) turns packets into frames and back. Nothing here is global: two simulations may run side by side.
"""
