"""Parts that tests of collectives share, first needed for graph."""

from uetproto.collectives.topology.kinds import topology

SMALL = {
    "pair": topology("pair", 2),
    "switch": topology("switch", 5),
    "leaf-spine": topology("leaf-spine", 7, hosts_per_leaf=2, leaves=4, spines=3),
    "fat-tree of 2": topology("fat-tree", 8, k=4, levels=2),
    "fat-tree of 3": topology("fat-tree", 16, k=4),
    "rails": topology("rails", 12, gpus_per_node=4, spines=2),
    "strewn": topology("fat-tree", 6, k=4, places=(15, 3, 8, 0, 12, 1)),
}
