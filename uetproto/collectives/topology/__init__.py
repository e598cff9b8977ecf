# SPDX-License-Identifier: GPL-2.0-only
"""This package has topologies (graphs of nodes and switches), the matrix of connections between the GPUs of a host, and
drawings of schedules."""
