# What scenarios say. They run with set -eu -o pipefail, so any command that fails fails the scenario; these give
# reasons. Sizes of pages are 2M or 1G.

. /lab/pools.sh
. /lab/linux.sh
. /lab/readme.sh

out=$lab_scratch/stdout
err=$lab_scratch/stderr
tests=/lab/tests
files=/lab/files
guest=/lab/guest
# What a guest inside an emulated machine is better told than left to find out (README, The lab, says why), and that with
# what prezero gives a kernel by itself.
emulated='tsc=reliable noxsave mitigations=off'
cmdline="$(readme_cmdline) $emulated"

# fail WHY: ends the scenario, also from a subshell.
fail() {
    echo "FAILED: $*"
    rm -f "$lab_scratch/watch"
    [ -s "$lab_scratch/why" ] || echo "$*" | head -n 1 >"$lab_scratch/why"
    exit 1
}

# expect EXIT COMMAND...: runs it, with its output in $out and $err, for the checks below.
expect() {
    settle
    : >"$lab_scratch/checked"
    wanted=$1
    shift
    echo "\$ $*"
    code=0
    "$@" >"$out" 2>"$err" || code=$?
    cat "$err" "$out"
    [ "$code" = "$wanted" ] || {
        why=$(grep -m 1 ^error "$err" || grep -v '^note: ' "$err" | tail -n 1) || true
        fail "exit code $code, not $wanted: $*: $why"
    }
}

# observe EXIT COMMAND...: as expect, watching the kernel's count of free pages meanwhile, for held.
observe() {
    : >"$lab_scratch/watch"
    watch_pools &
    watcher=$!
    expect "$@"
    rm "$lab_scratch/watch"
    wait $watcher
}

# The least that is free in each pool as long as there is the file.
watch_pools() {
    # Waiting for what never comes takes no process, unlike sleep: the memory is there for a tenth of a second only.
    exec 4<>/run/never
    pools=$(echo /sys/devices/system/node/node*/hugepages/hugepages-*)
    n=0
    for pool in $pools; do
        read -r least_$n <"$pool/free_hugepages"
        n=$((n + 1))
    done
    while [ -e "$lab_scratch/watch" ]; do
        n=0
        for pool in $pools; do
            read -r free <"$pool/free_hugepages"
            eval "[ \$free -ge \$least_$n ] || least_$n=\$free"
            n=$((n + 1))
        done
        read -r -t 0.005 -u 4 _ || true
    done
    n=0
    for pool in $pools; do
        eval "echo $pool \$least_$n"
        n=$((n + 1))
    done >"$lab_scratch/least"
}

# held NODE SIZE PAGES: the observed command had so many pages of the node at once, not one more or less.
held() {
    least=$(grep "^$(pool_of "$1" "$2") " "$lab_scratch/least" | cut -d ' ' -f 2)
    was=$(($(free_pages "$1" "$2") - least))
    [ $was = "$3" ] || fail "$was pages of $2 of node $1 were taken, not $3"
}

# says TEXT: the last expected command wrote it, to stdout or stderr.
says() {
    grep -qF -e "$1" "$out" "$err" || fail "it does not say: $1"
}

# holds FILTER: it is true of the JSON document that the last expected command wrote. All filters for a document are
# tried at once, before the next command, because jq takes a second to start here.
holds() {
    printf '%s\0' "$1" >>"$lab_scratch/filters"
}

settle() {
    [ -s "$lab_scratch/filters" ] || return 0
    program=$(tr '\n\0' ' \n' <"$lab_scratch/filters" | sed 's/.*/(&),/; $s/,$//')
    results=$(jq -c "$program" "$out") || fail "these are not all filters for this document: $program"
    rm "$lab_scratch/filters"
    n=$(echo "$results" | grep -nvx true | head -n 1 | cut -d : -f 1) || true
    [ -z "$n" ] || fail "it does not hold that $(echo "$program" | sed -n "$n { s/^(//; s/),*\$//; p; }")"
}

# alike FILTER FILE...: it gives the same for all of these JSON documents.
alike() {
    filter=$1
    shift
    jq -en "[inputs | $filter] | unique | length == 1" "$@" >/dev/null || fail "$* differ in $filter"
}

# all_pages_placed PAGES [METHOD]: prezero checked so many pages, and all were where they were planned; the guest read
# zeros. Hugepages are asked for one by one, ordinary memory is counted (numa_maps).
all_pages_placed() {
    holds ".placement == {checked_pages: $1, misplaced_pages: 0, method: \"${2:-move_pages}\"}"
    holds '.guest.scanned_bytes == .request.bytes and .guest.nonzero_bytes == 0'
}

# pool_of NODE SIZE: the directory of the kernel's counts.
pool_of() {
    case $2 in
    2M) kib=2048 ;;
    1G) kib=1048576 ;;
    *) fail "pages of $2 are not known here" ;;
    esac
    echo "/sys/devices/system/node/node$1/hugepages/hugepages-${kib}kB"
}

# free_pages NODE SIZE
free_pages() {
    cat "$(pool_of "$1" "$2")/free_hugepages"
}

# pages NODE SIZE COUNT: makes the pool so large. The next scenario finds it as at boot.
pages() {
    pool=$(pool_of "$1" "$2")
    set_pool "$pool" "$3"
    got=$(cat "$pool/nr_hugepages")
    [ "$got" = "$3" ] || fail "node $1 has $got pages of $2, not the $3 that the scenario needs"
    sed -i "s|^$pool .*|$pool $3|" "$lab_scratch/pools"
}

# poisoned NODE SIZE COUNT: so many pages of a node are lost until the machine is booted again.
poisoned() {
    pool=$(pool_of "$1" "$2")
    sed -i "s|^$pool .*|& $3|" "$lab_scratch/pools"
}

# has_free NODE SIZE COUNT: that many pages of a node are free now.
has_free() {
    found=$(cat "$(pool_of "$1" "$2")/free_hugepages")
    [ "$found" = "$3" ] || fail "node $1 has $found free pages of $2, not $3"
}

# limited FILE=VALUE... -- COMMAND...: runs it in a cgroup of its own with these limits.
limited() {
    group=$lab_cgroup/limited
    [ -d "$group" ] || {
        echo '+cpu +cpuset +hugetlb +memory' >"$lab_cgroup/cgroup.subtree_control"
        mkdir "$group"
    }
    while [ "$1" != -- ]; do
        echo "${1#*=}" >"$group/${1%%=*}"
        shift
    done
    shift
    # shellcheck disable=SC2016
    sh -c 'echo 0 >"$0/cgroup.procs"; exec "$@"' "$group" "$@"
}

# passes PROGRAM TEST: one test of a program that the header's "tests" made. It may not skip itself.
passes() {
    expect 0 env PREZERO_REQUIRE=hugepages,kvm,numa "$tests/$1" --exact "$2" --nocapture
    says 'test result: ok. 1 passed'
}
