# SPDX-License-Identifier: GPL-2.0-only
"""This package has congestion control: what a sender may send, and on which path (cms.md).

A new algorithm is one file with a class that has the methods of `contract.CongestionControl`, and a line in `registry`.
"""
