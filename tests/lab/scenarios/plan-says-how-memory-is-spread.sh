# machine: two-nodes
# proves: the text of plan and run names the node of each piece, and plan says how it was chosen where nobody asked

rule='where none is asked for, a zone is on the node with the most free pages if it fits there, else on all in proportion'
expect 0 prezero plan --memory size=300M,hugepages=on --prealloc
says '300 MiB at 0x0 on 2 MiB hugepages (memfd), node 0'
says "$rule"
expect 0 prezero plan --memory size=432M,hugepages=on --prealloc
says '288 MiB at 0x0 on 2 MiB hugepages (memfd), node 0'
says '144 MiB at 0x12000000 on 2 MiB hugepages (memfd), node 1'
says "$rule"
expect 0 prezero run --memory size=432M,hugepages=on --prealloc
says '144 MiB at 0x12000000 on 2 MiB hugepages (memfd), node 1'
says '216 pages checked, 0 on another node than planned'
expect 0 prezero plan --memory size=64M,hugepages=on,host_nodes=0-1,policy=interleave --prealloc
says 'interleaved over nodes 0-1'
! grep -q 'where none is asked for' "$out" || fail 'it gives the rule although nodes were asked for'
