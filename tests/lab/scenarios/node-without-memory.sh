# machine: four-nodes
# proves: a node without memory, or one that is not there, is refused as a target, and those with memory are listed

for command in 'run --prealloc' 'run' 'plan' 'doctor'; do
    # shellcheck disable=SC2086
    expect 2 prezero $command --memory size=64M,hugepages=on,host_numa_node=2
    says 'NUMA node 2 has no memory; the nodes with memory are 0-1,3'
    says 'fix: host_numa_node=0'
done
expect 2 prezero run --memory size=64M,host_numa_node=4 --prealloc
says 'There is no NUMA node 4; the nodes with memory are 0-1,3'
