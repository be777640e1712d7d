# machine: two-nodes
# proves: --clear always has each node's workers clear that node's memory, and the guest reads zeros
# tests: --package prezero --bin prezero

zones='--memory-zone size=128M,hugepages=on,host_numa_node=0 --memory-zone size=64M,hugepages=on,host_numa_node=1'
for method in '' '--method cached'; do
    # shellcheck disable=SC2086
    observe 0 prezero run $zones --prealloc --clear always $method --verify --json
    held 0 2M 64
    held 1 2M 32
    all_pages_placed 96
    holds '[.clear[].node] == [0, 1]'
    holds '[.regions[].cleared_by] == ["user", "user"]'
    holds '[.workers[] | {node, cpu, populated_bytes, cleared_bytes}] ==
        [{node: 0, cpu: 0, populated_bytes: 134217728, cleared_bytes: 134217728},
         {node: 1, cpu: 1, populated_bytes: 67108864, cleared_bytes: 67108864}]'
done
holds '[.clear[] | {method, reason}] | unique == [{method: "cached", reason: "requested"}]'

# Fresh memory is not cleared unless it is asked for.
# shellcheck disable=SC2086
expect 0 prezero run $zones --prealloc --json
holds 'has("clear") | not'
holds '[.workers[].cleared_bytes] == [0, 0]'

passes prezero commands::run::tests::clearing::what_is_written_on_any_node_is_cleared
