# machine: four-nodes
# proves: host_nodes takes pages of the named nodes and of no other, and is refused if they are short together

observe 0 prezero run --memory size=200M,hugepages=on,host_nodes=0-1 --prealloc --verify --json
all_pages_placed 100
held 0 2M 50
held 1 2M 50
held 3 2M 0
holds '[.regions[] | {node, nodes, policy}] ==
    [{node: 0, nodes: [0], policy: "bind"}, {node: 1, nodes: [1], policy: "bind"}]'

# A list with a gap takes brackets, or the key twice.
for nodes in 'host_nodes=[0,3]' 'host_nodes=0,host_nodes=3'; do
    observe 0 prezero run --memory "size=256M,hugepages=on,$nodes" --prealloc --verify --json
    all_pages_placed 128
    held 0 2M 64
    held 1 2M 0
    held 3 2M 64
done

observe 3 prezero run --memory size=258M,hugepages=on,host_nodes=0-1 --prealloc
says 'Nodes 0-1 need 129 pages of 2 MiB, have 128 free (64 on node 0, 64 on node 1), short by 1 (2 MiB)'
says 'fix: host_nodes=0-1,policy=preferred'
held 0 2M 0
held 1 2M 0
held 3 2M 0
