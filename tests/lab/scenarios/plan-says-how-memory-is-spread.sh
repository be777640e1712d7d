# machine: two-nodes
# proves: the text of plan says why memory is on which node when nothing was asked for
# pending: the plan's text does not say it yet

expect 0 prezero plan --memory size=300M,hugepages=on --prealloc
says 'node 0'
says 'most free'
expect 0 prezero plan --memory size=432M,hugepages=on --prealloc
says 'in proportion'
