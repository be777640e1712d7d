# machine: two-nodes
# proves: a segment whose pages are on another node than its directory says is retired, by scrub and by a run, which goes on

pool=/dev/hugepages/prezero
expect 0 prezero pool create $pool --size 96M --segment 16M --nodes 0-1 --json

# misplace STATE: a segment of node 1 gets into the directory of node 0, with this state.
misplace() {
    segment=$(ls $pool/node1/*.clean | head -n 1)
    bad=$pool/node0/$(basename "$segment" .clean)
    mv "$segment" "$bad.$1"
}
is_retired() {
    says "$bad.retired is retired: the page at offset 0x0 is on node 1, not 0"
    [ -e "$bad.retired" ] || fail "$bad is not retired"
}

misplace dirty
expect 0 prezero pool scrub $pool --json
is_retired
holds '.cleaned.segments == 0'

# Bound to node 0, and more than its clean segments are.
misplace clean
expect 0 prezero run --memory size=64M,hugepages=on,host_numa_node=0 --prealloc --verify --json
is_retired
all_pages_placed 32
holds '[.regions[] | .backing] == ["pool", "pool", "pool", "memfd"]'

misplace dirty
expect 0 prezero pool scrub $pool --exchange --json
expect 0 prezero pool status $pool --json
holds '[.totals[] | {node, clean: .clean.segments, retired: .retired.segments}] == [{node: 0, clean: 4, retired: 2}]'
expect 0 prezero pool destroy $pool
has_free 0 2M 192
has_free 1 2M 96
