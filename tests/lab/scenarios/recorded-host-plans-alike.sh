# machine: four-nodes
# proves: doctor --record of this machine is a fixture: it has the files that the kept ones have, and plans as the machine
# files: tests/fixtures/hosts/memory-only-node tests/fixtures/hosts/cpu-only-node

recorded=$lab_scratch/host
expect 0 prezero doctor --record "$recorded" --json
holds '.recorded | length > 50'

for fixture in memory-only-node cpu-only-node; do
    (cd "$files/tests/fixtures/hosts/$fixture" && find proc sys -type f) | while read -r file; do
        case $file in
        # Read only where debugfs does not tell the kind of preemption, or sysfs has no nodes.
        proc/version | proc/cmdline | sys/devices/system/cpu/online) continue ;;
        # A recording has the calling thread's.
        proc/self/*) own=proc/thread-self/${file#proc/self/} ;;
        *) own=$file ;;
        esac
        [ -e "$recorded/$own" ] || fail "the recording has no $own, and $fixture has it"
    done
done

for memory in size=64M,hugepages=on size=300M,hugepages=on size=64M,host_numa_node=3 size=64M,hugepages=off; do
    expect 0 prezero plan --memory "$memory" --prealloc --json
    cp "$out" "$lab_scratch/live"
    expect 0 prezero plan --root "$recorded" --memory "$memory" --prealloc --json
    alike . "$lab_scratch/live" "$out"
done
expect 2 prezero plan --root "$recorded" --memory size=64M,host_numa_node=2
says 'NUMA node 2 has no memory; the nodes with memory are 0-1,3'
