# machine: two-nodes
# proves: SIGKILL while both nodes are being populated returns every page of both, of a memfd and of a file on hugetlbfs

# A seventh of a CPU: it would take many seconds.
limited cpu.max='15000 100000' -- prezero run --memory-zone size=256M,hugepages=on,host_numa_node=0 \
    --memory-zone size=160M,hugepages=on,host_numa_node=1,path=/dev/hugepages --prealloc --threads 2 >"$out" 2>"$err" &
started=$!
until [ "$(free_pages 0 2M)" -lt 190 ] && [ "$(free_pages 1 2M)" -lt 94 ]; do
    [ -d /proc/$started ] || fail "it ended before it was killed: $(cat "$err")"
done
# Only itself: what it may have started must not keep its pages.
run=$(cat /proc/$started/task/$started/children)
kill -KILL "${run% }"
[ "$(free_pages 0 2M)" -gt 64 ] && [ "$(free_pages 1 2M)" -gt 16 ] || fail 'all was populated before the kill'
# It dies at full speed.
echo max >"$lab_cgroup/limited/cpu.max"
expect 137 wait $started
# What is left behind is looked for after every scenario; the next run must be able to take all.
expect 0 prezero run --memory size=576M,hugepages=on --prealloc --verify --json
all_pages_placed 288
