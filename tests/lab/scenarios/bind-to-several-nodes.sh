# machine: four-nodes
# proves: host_nodes=0-1 takes pages of both nodes and of no other, and is refused if they are short together
# pending: host_nodes is not built

observe 0 prezero run --memory size=200M,hugepages=on,host_nodes=0-1 --prealloc --verify --json
all_pages_placed 100
held 3 2M 0
holds '([.regions[] | .len] | add) == 209715200 and ([.regions[].node] | unique) == [0, 1]'

observe 3 prezero run --memory size=258M,hugepages=on,host_nodes=0-1 --prealloc
says 'short by 1'
held 0 2M 0
