# SPDX-License-Identifier: GPL-2.0-only
"""The emulator joins engines by links, queues, switches, faults and taps, in virtual time.

A scenario (`scenario/settings.py`) names the parts of a network, `network/build.py` joins them, `network/clock.py` runs
their events, and `run/play.py` plays the scenario. Links carry frames as bytes; only a NIC (`network/nic.py`) turns
packets into frames and back. There is no global state: two simulations may run side by side.
"""
