# machine: four-nodes
# proves: what the preferred nodes lack comes from the node nearest to them, and several are one preference

# Node 1 is at distance 12, node 0 at 31.
observe 0 prezero run --memory size=200M,hugepages=on,host_nodes=3,policy=preferred --prealloc --verify --json
held 3 2M 64
held 1 2M 36
held 0 2M 0
all_pages_placed 100
says 'The preferred node 3 has 64 of 100 pages of 2 MiB: 36 are on node 1'

observe 0 prezero run --memory 'size=300M,hugepages=on,host_nodes=[0,3],policy=preferred' --prealloc --verify --json
held 0 2M 64
held 3 2M 64
held 1 2M 22
all_pages_placed 150
says 'The preferred nodes 0,3 have 128 of 150 pages of 2 MiB: 22 are on node 1'
