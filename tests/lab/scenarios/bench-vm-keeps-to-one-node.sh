# machine: two-nodes
# files: tests/fixtures/peers
# proves: bench vm has all memory on the node with the most of it, and its workers and another monitor on that node's CPU

# A monitor that notes where it may run and what its memory is, and says that it has booted.
monitor=$lab_scratch/monitor
cat >"$monitor" <<END
#!/bin/sh
[ "\$1" = --version ] && exec echo cloud-hypervisor v53.0.0
grep Cpus_allowed_list /proc/\$\$/status >$lab_scratch/cpus
echo "\$*" >$lab_scratch/words
while [ "\$1" != --event-monitor ]; do shift; done
cat $files/tests/fixtures/peers/cloud-hypervisor-events.json >"\${2#path=}"
exec sleep 1000
END
chmod +x "$monitor"
pages 0 2M 32
expect 0 prezero bench vm --memory 32M --runs 1 --peer "cloud-hypervisor=$monitor" --json
holds '.memory_node == 1'
holds '[.rows[] | select(.peer == null) | [.way, .workers]]
    == [["fresh", 1], ["recycled-cached", 1], ["recycled-uncached", 1], ["recycled-clean", 1]]'
holds '[.rows[] | select(.peer != null) | [.peer, .way, .runs]] == [["cloud-hypervisor", "prefault", 1]]'
holds '[.pins.rows[].memory] | sort == ["fresh", "populated", "recycled"]'
holds '[.warnings[] | select(contains("said that it was ready"))] | length == 1'
says 'Memory of all machines is on node 1'
[ "$(cut -f 2 "$lab_scratch/cpus")" = 1 ] || fail "the other monitor may run elsewhere: $(cat "$lab_scratch/cpus")"
grep -q ',host_numa_node=1 ' "$lab_scratch/words" || fail "its memory is elsewhere: $(cat "$lab_scratch/words")"
has_free 0 2M 32
has_free 1 2M 96
