# What the lab does around a scenario: pools as at boot before it, a cgroup for everything it starts, and afterwards a
# look at whether anything was left behind. Used by init.

. /lab/pools.sh

# wait_for_end GROUP: until it has no process, for 3 s at most.
wait_for_end() {
    tries=0
    while grep -q 'populated 1' "$1/cgroup.events" && [ $tries -lt 30 ]; do
        usleep 100000
        tries=$((tries + 1))
    done
}

# left_behind GROUP WANTED: what is not as before; nothing if all is. WANTED has the page counts of each pool, and how
# many of them are poisoned and not free again.
left_behind() {
    # A process that was killed gives its memory back a little later.
    wait_for_end "$1"
    for procs in $(find "$1" -name cgroup.procs); do
        while read -r pid; do
            echo "process $pid is left: $(tr '\0' ' ' <"/proc/$pid/cmdline")"
        done <"$procs"
    done
    while read -r pool count poisoned; do
        for file in nr free surplus; do
            found=$(cat "$pool/${file}_hugepages")
            wanted=$count
            [ $file != free ] || wanted=$((count - ${poisoned:-0}))
            [ $file != surplus ] || wanted=0
            [ "$found" = "$wanted" ] || echo "${pool#/sys/devices/system/node/}: $file $found, not $wanted"
        done
    done <"$2"
    for pool in /sys/kernel/mm/hugepages/*; do
        found=$(cat "$pool/resv_hugepages")
        [ "$found" = 0 ] || echo "${pool##*/}: $found pages are still reserved"
    done
}

# struck: whether QEMU has done to a guest of the scenario what no kernel survives: it delivered an interrupt a second
# time (see Extras in crates/prezero-vmm/src/linux/cpuid.rs), while the kernel was on its way from a program into itself.
struck() {
    grep -qs 'ENTRY_TRAMPOLINE stack guard page was hit' $lab_scratch/stdout $lab_scratch/stderr $lab_scratch/console
}

# run_scenario DIR TRY: writes "pass NAME SECONDS", "fail NAME WHY", or "again NAME WHY" if one of its guests was struck
# and this is not the third try; everything else goes to the console.
run_scenario() {
    name=$(cat "$1/name")
    seconds=$(cat "$1/seconds")
    exec 3>&1 >/dev/console
    echo
    echo "##### $name"
    read -r start _ </proc/uptime
    export lab_scratch=/tmp/scenario
    export lab_cgroup=$lab_cgroups/$name
    rm -rf $lab_scratch
    mkdir $lab_scratch "$lab_cgroup" "$lab_cgroup/shell"
    restore_pools >$lab_scratch/why
    cp /run/pools $lab_scratch/pools
    # shellcheck disable=SC2016
    timeout -s KILL "$seconds" sh -c 'echo 0 >"$lab_cgroup/shell/cgroup.procs"
        exec sh -eu -o pipefail -c ". /lab/lib.sh; . \"\$1\"; settle" scenario "$1"' scenario "$1/script"
    code=$?
    # Whatever the exit code is: a failure in a subshell counts too.
    why=$(head -n 1 $lab_scratch/why)
    if [ $code -ge 128 ] && [ -z "$why" ]; then
        why="it was killed, with exit code $code; it may take $seconds s"
    elif [ $code != 0 ] && [ -z "$why" ]; then
        why="a command failed with exit code $code"
    elif [ ! -e $lab_scratch/checked ] && [ -z "$why" ]; then
        why="it expects nothing"
    fi
    left=$(left_behind "$lab_cgroup" $lab_scratch/pools)
    [ -z "$left" ] || echo "left behind: $left"
    echo 1 >"$lab_cgroup/cgroup.kill"
    wait_for_end "$lab_cgroup"
    find "$lab_cgroup" -depth -type d -exec rmdir {} \;
    rm -rf /dev/hugepages/*
    : "${why:=${left:+left behind: $(echo $left)}}"
    read -r end _ </proc/uptime
    exec >&3
    if [ -n "$why" ] && [ "$2" -lt 3 ] && struck; then
        echo "again $name QEMU delivered an interrupt of its guest twice"
    elif [ -n "$why" ]; then
        echo "fail $name $why"
    else
        echo "pass $name $(awk "BEGIN { printf \"%.1f\", $end - $start }")"
    fi
}
