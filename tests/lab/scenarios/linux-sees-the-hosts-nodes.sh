# machine: two-nodes
# guest: linux
# seconds: 400
# proves: two zones from clean and from dirty segments of two nodes are two nodes of an SMP guest, each with its vCPU

zones='--memory-zone size=256M,hugepages=on,host_numa_node=0 --memory-zone size=160M,hugepages=on,host_numa_node=1'
pool=/dev/hugepages/prezero
expect 0 prezero pool create $pool --size 256M --segment 128M --nodes 0-1

for origin in clean dirty; do
    # By the panic device; a guest that ends otherwise is the other scenario's.
    [ $origin = clean ] && end=off && code=0 || { end=pvpanic && code=5; }
    # shellcheck disable=SC2086
    expect $code prezero run $zones --prealloc --pool $pool --kernel $guest/vmlinux --initramfs $guest/initramfs \
        --cpus 2 --cmdline "$cmdline quiet lab=$end" --json </dev/null
    says 'guest: cpus 2'
    grep -q '^guest: node0 cpus 0 mib [12][0-9][0-9] distance 10 20' "$err" || fail 'the guest has another node 0'
    grep -q '^guest: node1 cpus 1 mib 1[0-9][0-9] distance 20 10' "$err" || fail 'the guest has another node 1'
    holds '.placement.misplaced_pages == 0'
    holds "[.regions[] | select(.backing == \"pool\") | .origin] == [\"$origin\", \"$origin\"]"
    holds '[.boot.nodes[].host_nodes] == [[0], [1]]'
    holds '[.boot.vcpus[] | [.vcpu, .node, .host_cpus]] == [[0, 0, [0]], [1, 1, [1]]]'
    holds ".guest.exit == \"$([ $end = off ] && echo power-off || echo panic)\""
done
expect 0 prezero pool destroy $pool
has_free 0 2M 192
has_free 1 2M 96
