# machine: two-nodes
# proves: a pool's segments are on the nodes they were made for, and a guest gets those of its nodes only

pool=/dev/hugepages/prezero
expect 0 prezero pool create $pool --size 128M --segment 32M --nodes 0-1 --json
has_free 0 2M 160
has_free 1 2M 64

expect 0 prezero run --memory size=64M,hugepages=on,host_numa_node=1 --prealloc --verify --json
all_pages_placed 32
holds '[.regions[] | {node, backing, origin}] | unique == [{node: 1, backing: "pool", origin: "clean"}]'
expect 0 prezero run --memory size=64M,hugepages=on,host_numa_node=1 --prealloc --verify --json
holds '[.regions[] | {node, origin, cleared_by}] | unique == [{node: 1, origin: "dirty", cleared_by: "user"}]'
holds '[.workers[] | select(.cleared_bytes > 0) | .node] | unique == [1]'

# More than its node's segments is fresh, on that node too.
expect 0 prezero run --memory size=96M,hugepages=on,host_numa_node=0 --prealloc --verify --json
all_pages_placed 48
holds '[.regions[] | .backing] == ["pool", "pool", "memfd"]'

expect 0 prezero pool scrub $pool --json
expect 0 prezero pool status $pool --json
expect 0 prezero pool destroy $pool
has_free 0 2M 192
has_free 1 2M 96
