# machine: two-nodes
# guest: linux
# seconds: 400
# proves: two zones from clean and from dirty segments of two nodes are two nodes of an SMP guest, each with its vCPU

zones='--memory-zone size=256M,host_numa_node=0 --memory-zone size=160M,host_numa_node=1'
prepare_launch
pool=/dev/hugepages/prezero
expect 0 prezero pool create --size 256M --segment 128M --nodes 0-1

for origin in clean dirty; do
    if [ $origin = clean ]; then
        launches 0 'two nodes, SMP' --cmdline "$cmdline"
        says 'CPUs 0-1, nodes 0-1'
        holds '.guest.exit == "until"'
        ran_in_order .until_ns
    else
        # shellcheck disable=SC2086
        expect 0 prezero run $zones --prealloc --cpus 2 --kernel $guest/vmlinux --initramfs $guest/initramfs \
            --cmdline "$cmdline" --json </dev/null
        # Below 1 MiB there is a hole, and the first page is the firmware's.
        node_has 0 0 $((256 * 1024 - 392)) '10 20'
        node_has 1 1 $((160 * 1024)) '20 10'
        holds '.guest.exit == "power-off"'
        ran_in_order
    fi
    holds '.placement.misplaced_pages == 0'
    by=$([ $origin = clean ] && echo none || echo user)
    holds "[.regions[] | select(.backing == \"pool\") | [.node, .len, .page_size, .origin, .cleared_by]]
        == [[0, 134217728, 2097152, \"$origin\", \"$by\"], [1, 134217728, 2097152, \"$origin\", \"$by\"]]"
    holds '[.regions[] | select(.backing != "pool") | [.node, .len, .page_size, .origin, .cleared_by]]
        == [[0, 134217728, 2097152, "fresh", "kernel"], [1, 33554432, 2097152, "fresh", "kernel"]]'
    holds '[.boot.nodes[] | [.bytes, .host_nodes]] == [[268435456, [0]], [167772160, [1]]]'
    holds '[.boot.vcpus[] | [.vcpu, .node, .host_cpus]] == [[0, 0, [0]], [1, 1, [1]]]'
    has_promised_memory "$err"
    expect 0 prezero pool status --json
    holds '[.segments[] | [.node, .state, .leased]] == [[0, "dirty", false], [1, "dirty", false]]'
done
expect 0 prezero pool destroy $pool
has_free 0 2M 192
has_free 1 2M 96
