# What the lab does around a scenario: pools as at boot before it, a cgroup for everything it starts, and afterwards a
# look at whether anything was left behind. Used by init.

# How often a scenario is begun at most whose guest has met a fault of QEMU's. A boot meets one in five times on a busy
# host; that five of a scenario's two boots do is one case in a hundred and fifty.
lab_tries=5

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
    for mount in $(new_mounts); do
        echo "$mount is still mounted"
    done
}

# new_mounts: where something is mounted that was not when the machine had booted, the last first.
new_mounts() {
    cut -d ' ' -f 2 /proc/mounts | grep -vxFf /run/mounts | tac
}

# clear_away: what a scenario has left in any hugetlbfs, and what it has mounted: it may run again, and others come after.
clear_away() {
    for mount in $(sed -n 's/^[^ ]* \([^ ]*\) hugetlbfs .*/\1/p' /proc/mounts); do
        rm -rf "${mount:?}"/*
    done
    for mount in $(new_mounts); do
        umount "$mount" || umount -l "$mount"
    done
}

# watch_guests SECONDS: says after that time whether a guest of the scenario is busy: virtual CPUs that run their guests
# for half of two seconds at least, where one that boots is done long before.
watch_guests() {
    exec 4<>/run/never
    read -r -t "$1" -u 4 _ || true
    before=$(guest_ticks)
    read -r -t 2 -u 4 _ || true
    [ $(($(guest_ticks) - before)) -lt 100 ] || echo busy >$lab_scratch/busy
}

# guest_ticks: what all virtual CPUs have spent in their guests, in hundredths of a second (proc(5), guest_time).
guest_ticks() {
    cat /proc/[0-9]*/task/*/stat 2>/dev/null | awk '/ \(prezero-vcpu/ { ticks += $43 } END { print ticks + 0 }'
}

# fault_of_guest EXIT DIR: what QEMU has done to a guest of the scenario that no kernel survives, if it has: it delivered an
# interrupt a second time (see Extras in crates/prezero-vmm/src/linux/cpuid.rs). On the kernel's way from a program into
# itself that is an error; while the kernel holds a lock that the interrupt wants, it waits for itself.
fault_of_guest() {
    if grep -qs 'ENTRY_TRAMPOLINE stack guard page was hit' $lab_scratch/stdout $lab_scratch/stderr $lab_scratch/console; then
        echo "QEMU delivered an interrupt of its guest twice"
    elif [ "$1" = 137 ] && [ -e "$2/guest" ] && [ -e $lab_scratch/busy ]; then
        echo "its guest stood still, with a busy CPU"
    fi
}

# run_scenario DIR TRY: writes "pass NAME SECONDS", "fail NAME WHY", or "again NAME WHY" if one of its guests has met a
# fault of QEMU's and this is not the last try; everything else goes to the console.
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
    watch_guests $((seconds > 10 ? seconds - 5 : seconds / 2)) &
    watcher=$!
    # shellcheck disable=SC2016
    timeout -s KILL "$seconds" sh -c 'echo 0 >"$lab_cgroup/shell/cgroup.procs"
        exec sh -eu -o pipefail -c ". /lab/lib.sh; . \"\$1\"; settle" scenario "$1"' scenario "$1/script"
    code=$?
    kill $watcher 2>/dev/null
    wait $watcher 2>/dev/null
    # Whatever the exit code is: a failure in a subshell counts too.
    why=$(head -n 1 $lab_scratch/why)
    if [ $code -ge 128 ] && [ -z "$why" ]; then
        why="it was killed, with exit code $code; it may take $seconds s"
        # It did not come to show them itself.
        tail -n 20 $lab_scratch/stderr $lab_scratch/stdout 2>/dev/null
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
    clear_away
    : "${why:=${left:+left behind: $(echo $left)}}"
    read -r end _ </proc/uptime
    exec >&3
    fault=
    [ -z "$why" ] || [ "$2" = $lab_tries ] || fault=$(fault_of_guest $code "$1")
    if [ -n "$fault" ]; then
        echo "again $name $fault"
    elif [ -n "$why" ]; then
        echo "fail $name $why"
    else
        echo "pass $name $(awk "BEGIN { printf \"%.1f\", $end - $start }")"
    fi
}
