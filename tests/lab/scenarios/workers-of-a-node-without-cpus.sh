# machine: four-nodes
# proves: the nearest node's CPU populates a node that has none, and the report calls it remote

observe 0 prezero run --memory size=64M,hugepages=on,host_numa_node=3 --prealloc --verify --json
held 3 2M 32
held 0 2M 0
held 1 2M 0
all_pages_placed 32
# Node 1 is at distance 12, nodes 0 and 2 are further away.
holds '[.workers[] | {node, cpu, pinned, remote}] == [{node: 3, cpu: 1, pinned: true, remote: true}]'
holds '.warnings | length == 1'
says "Node 3 has no CPU this process may use: another node's CPUs populate it (remote)"

# A CPU mask that leaves only the CPU of the node without memory.
expect 0 taskset -c 2 prezero run --memory size=64M,hugepages=on,host_numa_node=1 --prealloc --json
holds '[.workers[] | {node, cpu, remote}] == [{node: 1, cpu: 2, remote: true}]'
