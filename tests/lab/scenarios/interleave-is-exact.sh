# machine: four-nodes
# proves: policy=interleave gives each named node its turn, page by page, and no other node a page

observe 0 prezero run --memory size=128M,hugepages=on,host_nodes=0-1,policy=interleave --prealloc --verify --json
held 0 2M 32
held 1 2M 32
held 3 2M 0
all_pages_placed 64
holds '[.workers[] | {node, populated_bytes}] ==
    [{node: 0, populated_bytes: 67108864}, {node: 1, populated_bytes: 67108864}]'

# The turns begin with the first node, so the pages that are left over are on nodes 0 and 1.
observe 0 prezero run --memory 'size=100M,hugepages=on,host_nodes=[0-1,3],policy=interleave' --prealloc --verify --json
held 0 2M 17
held 1 2M 17
held 3 2M 16
all_pages_placed 50

# Each zone has turns of its own.
zone=size=50M,hugepages=on,policy=interleave
observe 0 prezero run --memory-zone $zone,host_nodes=0-1 --memory-zone "$zone,host_nodes=[1,3]" \
    --prealloc --verify --json
held 0 2M 13
held 1 2M 25
held 3 2M 12
all_pages_placed 50

# Without a list it is every node with memory that this process may use.
observe 0 prezero run --memory size=120M,hugepages=on,policy=interleave --prealloc --verify --json
held 0 2M 20
held 1 2M 20
held 3 2M 20
all_pages_placed 60
observe 0 limited cpuset.mems=1,3 -- prezero run --memory size=120M,hugepages=on,policy=interleave \
    --prealloc --verify --json
held 0 2M 0
held 1 2M 30
held 3 2M 30
all_pages_placed 60
