# machine: two-nodes
# proves: plan and doctor end as run does, with the same regions or the same error, for what fits and for what does not

agree() {
    code=$1
    shift
    for command in run plan doctor; do
        expect "$code" prezero $command "$@" --prealloc --json
        cp "$out" "$lab_scratch/$command"
    done
    cd "$lab_scratch"
    alike '{regions, error}' run plan doctor
    # A run that is refused has started no workers to report.
    [ "$code" != 0 ] || alike '{slots, workers: [.workers[] | {node, cpu, remote}]}' run plan
}

agree 0 --memory size=64M,hugepages=on
agree 0 --memory size=400M,hugepages=on
agree 0 --memory-zone size=64M,hugepages=on,host_numa_node=1 --memory-zone size=64M,hugepages=off,host_numa_node=0
agree 0 --memory size=256M,hugepages=on,host_nodes=1,policy=preferred
agree 0 --memory size=100M,hugepages=on,policy=interleave
agree 0 --memory size=400M,hugepages=on,host_nodes=0-1
agree 2 --memory size=64M,host_numa_node=2
agree 3 --memory size=578M,hugepages=on
agree 3 --memory size=578M,hugepages=on,host_nodes=0-1
agree 3 --memory size=400M,hugepages=on,policy=interleave
agree 3 --memory-zone size=100M,hugepages=on,host_numa_node=1 --memory-zone size=100M,hugepages=on,host_numa_node=1
