# machine: two-nodes
# proves: host_numa_node=N puts every page on node N, by the kernel's own counts, whichever node it is and whose CPUs work

# bound NODE CPUS CPU REMOTE: with these CPUs allowed, a worker on CPU populates the node, which is another's or not.
bound() {
    observe 0 taskset -c "$2" prezero run --memory "size=64M,hugepages=on,host_numa_node=$1" --prealloc --verify --json
    held "$1" 2M 32
    held $((1 - $1)) 2M 0
    all_pages_placed 32
    holds "[.regions[].node] == [$1]"
    holds "[.workers[] | {node, cpu, pinned, remote}] == [{node: $1, cpu: $3, pinned: true, remote: $4}]"
}

bound 0 0-1 0 false
bound 1 0-1 1 false
# On its own CPUs the kernel would take the node's pages unasked.
bound 0 1 1 true
bound 1 0 0 true
