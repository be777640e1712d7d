# machine: gigabyte-pages
# guest: linux
# seconds: 300
# proves: Linux boots on a segment of one 1 GiB page, clean and dirty, and a reset is told from a panic by its device

mkdir -p /tmp/huge-1g
mount -t hugetlbfs -o pagesize=1G none /tmp/huge-1g
pool=/tmp/huge-1g/prezero
expect 0 prezero pool create $pool --size 1G --segment 1G --node 1
for origin in clean dirty; do
    # A kernel that panics stands still here, so that nothing but the device ends its machine.
    case $origin in
    clean) wanted=0 by=none end='lab=reboot' exit=reset ;;
    dirty) wanted=5 by=user end='panic=0 lab=pvpanic' exit=panic ;;
    esac
    observe $wanted prezero run --memory size=1G,hugepages=on,hugepage_size=1G --prealloc --pool $pool \
        --kernel $guest/vmlinux --initramfs $guest/initramfs --cmdline "$cmdline $end" --json </dev/null
    held 1 1G 0
    holds ".guest.exit == \"$exit\""
    holds "[.regions[] | [.backing, .node, .page_size, .origin, .cleared_by]] == [[\"pool\", 1, 1073741824, \"$origin\", \"$by\"]]"
    ran_in_order
    has_promised_memory "$err"
    node_has 0 0 $((1024 * 1024 - 392)) 10
    expect 0 prezero pool status $pool --json
    holds '[.segments[] | [.node, .state, .leased]] == [[1, "dirty", false]]'
done
expect 0 prezero pool destroy $pool
has_free 1 1G 2
umount /tmp/huge-1g
