# machine: failing-memory
# programs: --package prezero-testkit --example poison
# proves: a poisoned page retires its segment, whoever comes upon it: no process dies, and a run goes on without it

pool=/dev/hugepages/prezero
expect 0 prezero pool create $pool --size 96M --segment 16M --json

# poison STATE: the third page of the first segment in this state.
poison() {
    segment=$(ls $pool/node0/*."$1" | head -n 1)
    "$tests/poison" "$segment" 4194304
    bad=${segment%.*}
}
is_retired() {
    says "$bad.retired is retired: the page at offset 0x400000 on node 0 has a hardware error (poisoned page)"
    [ -e "$bad.retired" ] || fail "$bad is not retired"
}

# A run that comes upon it goes on with the others, and fresh pages.
poison clean
expect 0 prezero run --memory size=96M,hugepages=on --prealloc --verify --json
is_retired
holds '.guest.scanned_bytes == .request.bytes and .guest.nonzero_bytes == 0'
holds '[.regions[] | .backing] == ["pool", "pool", "pool", "pool", "pool", "memfd"]'
expect 0 prezero pool status $pool --json
holds '.totals[0].retired.segments == 1 and .totals[0].dirty.segments == 5 and .problems == []'

poison dirty
expect 0 prezero pool scrub $pool --json
is_retired
holds '.cleaned.segments == 4'

# A monitor that is told nothing of it reads all of its memory.
poison clean
expect 0 prezero exec --pool $pool --memory 16M -- dd bs=1M of=/dev/null if={path}
is_retired

expect 0 prezero run --memory size=48M,hugepages=on --prealloc --json
poison dirty
expect 0 prezero pool scrub $pool --exchange --json
is_retired
holds '.cleaned.segments == 2'
expect 0 prezero pool status $pool --json
holds '.totals[0].retired.segments == 4 and .totals[0].clean.segments == 2'
expect 0 prezero pool destroy $pool
# The kernel has the rest back.
poisoned 0 2M 4
