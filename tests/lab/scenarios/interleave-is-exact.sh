# machine: four-nodes
# proves: policy=interleave spreads pages over the named nodes so that their counts differ by at most one
# pending: policy=interleave is not built

observe 0 prezero run --memory size=128M,hugepages=on,host_nodes=0-1,policy=interleave --prealloc --verify --json
held 0 2M 32
held 1 2M 32
held 3 2M 0
all_pages_placed 64

# 50 pages over three nodes: 17, 17 and 16, whichever has the 16.
observe 0 prezero run --memory size=100M,hugepages=on,host_nodes=0-1+3,policy=interleave --prealloc --verify --json
all_pages_placed 50
counts=
for node in 0 1 3; do
    least=$(grep "^$(pool_of $node 2M) " "$lab_scratch/least" | cut -d ' ' -f 2)
    counts="$counts $((64 - least))"
done
# shellcheck disable=SC2086
[ "$(printf '%s\n' $counts | sort | tr '\n' ' ')" = '16 17 17 ' ] || fail "the three nodes have$counts pages"
