# What scenarios say of Linux guests.

# ran_in_order [.until_ns]: the last expected command's guest reached everything up to its end, one after another.
ran_in_order() {
    holds "[.creation_ns, .first_instruction_ns, (.boot | .first_serial_ns, .user_space_ns, ${1+$1,} .ended_ns)] | all and . == sort"
}

# has_promised_memory CONSOLE: the map that the guest's kernel says it got is the report's regions, byte for byte, but for
# the hole that every PC has below 1 MiB.
has_promised_memory() {
    map=
    for range in $(sed -n 's/.*BIOS-e820: \[mem \(0x[0-9a-f]*-0x[0-9a-f]*\)\] usable.*/\1/p' "$1"); do
        map="$map${map:+, }[$((${range%-*})), $((${range#*-} + 1))]"
    done
    holds "[.regions[] | [.gpa, .gpa + .len]] | sort
        | reduce .[] as \$r ([]; if .[-1][1] == \$r[0] then .[-1][1] = \$r[1] else . + [\$r] end)
        | [[0, 654336], [1048576, .[0][1]]] + .[1:] == [$map]"
}

# node_has NODE CPUS KIB DISTANCES: the guest's node has exactly this, less what its kernel keeps for itself: no more in
# all than the kernel says it reserved.
node_has() {
    line=$(sed -n "s/^guest: node$1 cpus $2 present $3 managed \([0-9]*\) total \([0-9]*\) distance $4\r*\$/\1 \2/p" "$err")
    [ -n "$line" ] || fail "node $1 of the guest is not CPUs $2, $3 KiB, distances $4: $(grep "^guest: node$1 " "$err" || true)"
    [ "${line% *}" = "${line#* }" ] || fail "node $1 of the guest counts two kinds of total: $line"
    reserved=$(sed -n 's/.*Memory: .* \([0-9]*\)K reserved.*/\1/p' "$err")
    [ $(($3 - ${line% *})) -le "$reserved" ] ||
        fail "node $1 of the guest manages ${line% *} of $3 KiB, although its kernel reserved $reserved in all"
}

gigabyte_pool=/tmp/huge-1g/prezero

# make_gigabyte_pool: with one segment of one page, on node 1.
make_gigabyte_pool() {
    mkdir -p /tmp/huge-1g
    mount -t hugetlbfs -o pagesize=1G none /tmp/huge-1g
    expect 0 prezero pool create $gigabyte_pool --size 1G --segment 1G --node 1
}

# boots_on_the_gigabyte_page ORIGIN BY EXIT-CODE EXIT WORDS: the segment is of that origin and was cleared by that, and
# Linux ends in that way when its command line has these words. No page is taken besides.
boots_on_the_gigabyte_page() {
    observe "$3" prezero run --memory size=1G,hugepages=on,hugepage_size=1G --prealloc --pool $gigabyte_pool \
        --kernel $guest/vmlinux --initramfs $guest/initramfs --cmdline "$cmdline $5" --json </dev/null
    held 1 1G 0
    holds ".guest.exit == \"$4\""
    holds "[.regions[] | [.backing, .node, .page_size, .origin, .cleared_by]] == [[\"pool\", 1, 1073741824, \"$1\", \"$2\"]]"
    ran_in_order
    has_promised_memory "$err"
    node_has 0 0 $((1024 * 1024 - 392)) 10
    expect 0 prezero pool status $gigabyte_pool --json
    holds '[.segments[] | [.node, .state, .leased]] == [[1, "dirty", false]]'
}

leave_gigabyte_pool() {
    expect 0 prezero pool destroy $gigabyte_pool
    has_free 1 1G 2
    umount /tmp/huge-1g
}

# make_pool_of_two_nodes: with a segment of 128 MiB on each.
make_pool_of_two_nodes() {
    expect 0 prezero pool create --size 256M --segment 128M --nodes 0-1
}

# has_segments_of_two_nodes ORIGIN BY: the last expected command had zones of 256 and 160 MiB, each on its node and with a
# segment of that origin, cleared by that, and fresh pages; each vCPU is on a node of its own.
has_segments_of_two_nodes() {
    holds '.placement.misplaced_pages == 0'
    holds "[.regions[] | select(.backing == \"pool\") | [.node, .len, .page_size, .origin, .cleared_by]]
        == [[0, 134217728, 2097152, \"$1\", \"$2\"], [1, 134217728, 2097152, \"$1\", \"$2\"]]"
    holds '[.regions[] | select(.backing != "pool") | [.node, .len, .page_size, .origin, .cleared_by]]
        == [[0, 134217728, 2097152, "fresh", "kernel"], [1, 33554432, 2097152, "fresh", "kernel"]]'
    holds '[.boot.nodes[] | [.bytes, .host_nodes]] == [[268435456, [0]], [167772160, [1]]]'
    holds '[.boot.vcpus[] | [.vcpu, .node, .host_cpus]] == [[0, 0, [0]], [1, 1, [1]]]'
    has_promised_memory "$err"
    expect 0 prezero pool status --json
    holds '[.segments[] | [.node, .state, .leased]] == [[0, "dirty", false], [1, "dirty", false]]'
}

leave_pool_of_two_nodes() {
    expect 0 prezero pool destroy /dev/hugepages/prezero
    has_free 0 2M 192
    has_free 1 2M 96
}
