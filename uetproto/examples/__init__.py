# SPDX-License-Identifier: GPL-2.0-only
"""These programs show torch.distributed over an emulated network; `python -m uetproto.examples.fsdp` runs one of them.

    point_to_point   send and receive, a shift around the ring, a batch, any source
    collectives      what each collective does to the tensors of four ranks
    mistakes         what goes wrong, and its errors: deadlocks, mismatches, a buffer changed too early
    training         two layers, data-parallel: gradients of a backward pass, summed by every algorithm
    fsdp             sharded layers: all_gather and reduce_scatter, one after the other and interleaved
    timeline         a picture of fsdp: when a rank computed, its collectives, and its packets

All programs but timeline take the transport as their argument: uet (the default), roce, or model, which has no packets.
"""
