# machine: two-nodes
# proves: host_numa_node=N puts every page on node N, by the kernel's own counts, whichever node it is

for node in 0 1; do
    other=$((1 - node))
    observe 0 prezero run --memory "size=128M,hugepages=on,host_numa_node=$node" --prealloc --verify --json
    held $node 2M 64
    held $other 2M 0
    all_pages_placed 64
    holds "[.regions[].node] == [$node]"
    holds "[.workers[] | {node, cpu, pinned, remote}] == [{node: $node, cpu: $node, pinned: true, remote: false}]"
done
