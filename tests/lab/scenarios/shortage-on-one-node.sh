# machine: two-nodes
# proves: pages that only another node has do not help: the error has the node's exact numbers, and its advice works

few='size=256M,hugepages=on,host_numa_node=1'
offers='host_numa_node=0, or host_nodes=1,policy=preferred, or host_nodes=0-1,policy=interleave'
for command in 'run --prealloc' 'run' 'plan' 'doctor'; do
    # shellcheck disable=SC2086
    observe 3 prezero $command --memory "$few"
    says 'Node 1 needs 128 pages of 2 MiB, has 96 free, short by 32 (64 MiB); node 0 has 192 free'
    says "fix: $offers, or: echo 128 | sudo tee $(pool_of 1 2M)/nr_hugepages"
    held 0 2M 0
    held 1 2M 0
done

# All that is offered works.
for offer in $(echo "$offers" | sed 's/, or / /g'); do
    expect 0 prezero run --memory "size=256M,hugepages=on,$offer" --prealloc --verify --json
    all_pages_placed 128
done
pages 1 2M 128
observe 0 prezero run --memory "$few" --prealloc --verify --json
held 1 2M 128
all_pages_placed 128

# Zones that are bound to one node are added up.
zone=size=130M,hugepages=on,host_numa_node=1
observe 3 prezero run --memory-zone $zone --memory-zone $zone --prealloc
says 'Node 1 needs 130 pages of 2 MiB for 2 zones, has 128 free, short by 2 (4 MiB); node 0 has 192 free'
held 1 2M 0

# Interleaved, a node that cannot take its turns is short, although the host has enough.
observe 3 prezero run --memory size=516M,hugepages=on,policy=interleave --prealloc
says 'Interleaving 258 pages of 2 MiB over nodes 0-1: node 1 needs 129, has 128 free, short by 1 (2 MiB)'
says 'fix: host_nodes=0-1,policy=bind, or host_nodes=0-1,policy=preferred, or: echo 129'
held 0 2M 0
held 1 2M 0
