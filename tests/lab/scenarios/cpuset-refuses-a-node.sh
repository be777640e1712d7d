# machine: two-nodes
# proves: a node that the cpuset does not allow is told apart from one that is short, and the others still work

expect 4 limited cpuset.mems=0 -- prezero run --memory size=64M,hugepages=on,host_numa_node=1 --prealloc
says "Node 1 is not in this process's allowed memory nodes (0)"
says "$lab_cgroup/limited/cpuset.mems"
says 'fix: host_numa_node=0'
expect 4 limited -- prezero doctor --memory size=64M,hugepages=on,host_numa_node=1
# One node of a list is enough, whatever the policy.
for policy in bind preferred interleave; do
    expect 4 limited -- prezero run --memory "size=64M,hugepages=on,host_nodes=0-1,policy=$policy" --prealloc
    says "Node 1 is not in this process's allowed memory nodes (0)"
    says "$lab_cgroup/limited/cpuset.mems"
done

# Node 0 is all that is left, with or without asking for it.
for node in '' ,host_numa_node=0 ,policy=interleave; do
    observe 0 limited -- prezero run --memory "size=64M,hugepages=on$node" --prealloc --verify --json
    held 0 2M 32
    held 1 2M 0
    all_pages_placed 32
done
# 288 pages are free, and 192 of them are within reach.
expect 3 limited -- prezero run --memory size=400M,hugepages=on --prealloc
says 'needs 200 pages of 2 MiB, has 192 free, short by 8 (16 MiB)'
