# machine: two-nodes
# proves: a user without privileges binds memory to a node, and needs only /dev/kvm

as_nobody() { su nobody -c "$*"; }
observe 0 as_nobody prezero run --memory size=64M,hugepages=on,host_numa_node=1 --prealloc --verify --json
held 0 2M 0
held 1 2M 32
all_pages_placed 32
