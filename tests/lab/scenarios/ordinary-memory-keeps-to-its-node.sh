# machine: two-nodes
# proves: ordinary memory is on the node asked for, also where the CPU that populates it is another node's

# Pages of node 1 that CPUs of other nodes took.
taken_from_afar() { sed -n 's/^other_node //p' /sys/devices/system/node/node1/numastat; }

thp=/sys/kernel/mm/transparent_hugepage/enabled
as_booted=$(sed 's/.*\[\(.*\)\].*/\1/' $thp)
echo never >$thp
for policy in bind preferred; do
    before=$(taken_from_afar)
    memory=size=64M,hugepages=off,host_nodes=1,policy=$policy
    expect 0 taskset -c 0 prezero run --memory "$memory" --prealloc --verify --json
    taken=$(($(taken_from_afar) - before))
    [ $taken -ge 16384 ] || fail "$taken base pages of node 1 were taken, not 16384 at least, with $policy"
    all_pages_placed 16384 numa_maps
    holds '[.regions[] | {node, nodes, policy}] == [{node: 1, nodes: [1], policy: "'$policy'"}]'
    holds '[.workers[] | {node, cpu, remote}] == [{node: 1, cpu: 0, remote: true}]'
done
echo "$as_booted" >$thp
