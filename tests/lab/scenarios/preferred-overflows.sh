# machine: two-nodes
# proves: policy=preferred takes what the node has, then other nodes' pages, and counts them in a warning
# pending: policy=preferred is not built

observe 0 prezero run --memory size=256M,hugepages=on,host_numa_node=1,policy=preferred --prealloc --verify --json
held 1 2M 96
held 0 2M 32
holds '.guest.nonzero_bytes == 0 and .placement.checked_pages == 128'
holds '.warnings | length == 1'
says '32 pages'

# What fits is all on the node, without a warning.
observe 0 prezero run --memory size=128M,hugepages=on,host_numa_node=1,policy=preferred --prealloc --verify --json
held 1 2M 64
held 0 2M 0
holds '.warnings == []'
