# SPDX-License-Identifier: GPL-2.0-only
"""This package has the simulation of two UET endpoints with congestion control, a model of congestion control that is
written from cms.md, and the numbered invariants of cms.md §10."""
