# machine: two-nodes
# guest: linux
# proves: README's two zones, from clean segments of two nodes, are two nodes of an SMP guest, each with its vCPU

prepare_launch
make_pool_of_two_nodes
launches 0 'two nodes, SMP' --cmdline "$cmdline"
says 'CPUs 0-1, nodes 0-1'
holds '.guest.exit == "until"'
ran_in_order .until_ns
has_segments_of_two_nodes clean none
leave_pool_of_two_nodes
