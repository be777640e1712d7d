# machine: two-nodes
# proves: a CPU that goes offline while its worker populates does not end the run, and the memory is where it was asked for

limited cpu.max='20000 100000' -- prezero run --memory size=160M,hugepages=on,host_numa_node=1 \
    --prealloc --verify --json >"$lab_scratch/report" 2>"$err" &
started=$!
until [ "$(free_pages 1 2M)" -lt 94 ]; do
    [ -d /proc/$started ] || fail "it ended too early: $(cat "$err")"
done
echo 0 >/sys/devices/system/cpu/cpu1/online
[ "$(free_pages 1 2M)" -gt 16 ] || fail 'all was populated before the CPU was gone'
echo max >"$lab_cgroup/limited/cpu.max"
code=0
wait $started || code=$?
echo 1 >/sys/devices/system/cpu/cpu1/online
[ $code = 0 ] || fail "exit code $code: $(cat "$err")"
expect 0 cat "$lab_scratch/report"
all_pages_placed 80
