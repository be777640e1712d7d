# machine: two-nodes
# proves: policy=preferred takes what the node has, then other nodes' pages, and counts them in a warning

memory=size=256M,hugepages=on,host_nodes=1,policy=preferred
observe 0 prezero run --memory $memory --prealloc --verify --json
held 1 2M 96
held 0 2M 32
all_pages_placed 128
holds '.warnings == ["The preferred node 1 has 96 of 128 pages of 2 MiB: 32 are on node 0"]'
expect 0 prezero plan --memory $memory --prealloc
says 'warning: The preferred node 1 has 96 of 128 pages of 2 MiB: 32 are on node 0'

# What fits is all on the node, without a warning.
observe 0 prezero run --memory size=128M,hugepages=on,host_numa_node=1,policy=preferred --prealloc --verify --json
held 1 2M 64
held 0 2M 0
all_pages_placed 64
holds '.warnings == []'

# A preference does not make pages.
observe 3 prezero run --memory size=578M,hugepages=on,host_nodes=1,policy=preferred --prealloc
says 'The host needs 289 pages of 2 MiB, has 288 free, short by 1 (2 MiB)'
held 0 2M 0
held 1 2M 0
