# machine: two-nodes
# guest: linux
# proves: two zones from dirty segments of two nodes are cleared, and an SMP guest counts every page of its two nodes

zones='--memory-zone size=256M,host_numa_node=0 --memory-zone size=160M,host_numa_node=1'
make_pool_of_two_nodes
# The guest that comes with prezero leaves them as dirty as any.
# shellcheck disable=SC2086
expect 0 prezero run $zones --prealloc
# shellcheck disable=SC2086
expect 0 prezero run $zones --prealloc --cpus 2 --kernel $guest/vmlinux --initramfs $guest/initramfs \
    --cmdline "$cmdline" --json </dev/null
# Below 1 MiB there is a hole, and the first page is the firmware's.
node_has 0 0 $((256 * 1024 - 392)) '10 20'
node_has 1 1 $((160 * 1024)) '20 10'
holds '.guest.exit == "power-off"'
ran_in_order
has_segments_of_two_nodes dirty user
leave_pool_of_two_nodes
