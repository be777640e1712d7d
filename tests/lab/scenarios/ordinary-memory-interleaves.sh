# machine: two-nodes
# proves: ordinary memory is interleaved too: 4 KiB at a time, or 2 MiB where the kernel gives transparent hugepages

thp=/sys/kernel/mm/transparent_hugepage/enabled
as_booted=$(sed 's/.*\[\(.*\)\].*/\1/' $thp)

# How often node $1 took its turn; nothing but an interleaving policy counts here.
turns() { sed -n 's/^interleave_hit //p' "/sys/devices/system/node/node$1/numastat"; }

# interleaved THP TURNS BACKING: with that setting each node takes so many turns for its half of the memory.
interleaved() {
    echo "$1" >$thp
    before0=$(turns 0)
    before1=$(turns 1)
    expect 0 prezero run --memory size=64M,hugepages=off,policy=interleave --prealloc --verify --json
    turned="$(($(turns 0) - before0)) $(($(turns 1) - before1))"
    [ "$turned" = "$2 $2" ] || fail "nodes took $turned turns, not $2 each, with THP $1"
    all_pages_placed 16384 numa_maps
    holds '[.regions[] | {nodes, policy, backing}] == [{nodes: [0, 1], policy: "interleave", backing: "'"$3"'"}]'
}

interleaved never 8192 base
interleaved madvise 16 thp
echo "$as_booted" >$thp
