# The kernel's pools of hugepages, by node and page size.

# set_pool DIRECTORY COUNT: makes the pool so large. Pages that were given back may be in pieces by then.
set_pool() {
    for try in 1 2 3 4 5; do
        [ "$(cat "$1/nr_hugepages")" != "$2" ] || return 0
        [ $try = 1 ] || {
            echo 3 >/proc/sys/vm/drop_caches
            echo 1 >/proc/sys/vm/compact_memory
        }
        echo "$2" >"$1/nr_hugepages"
    done
}

# pool_counts FILE: that file's count for every node and page size, a line each: DIRECTORY COUNT.
pool_counts() {
    for pool in /sys/devices/system/node/node*/hugepages/hugepages-*; do
        echo "$pool $(cat "$pool/$1")"
    done
}

# restore_pools: as they were when the machine had booted.
restore_pools() {
    while read -r pool count; do
        set_pool "$pool" "$count"
    done </run/pools
    for file in nr free; do
        pool_counts ${file}_hugepages | cmp -s - /run/pools || echo "the pools cannot be put back"
    done
}
