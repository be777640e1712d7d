# machine: two-nodes
# proves: pages that only another node has do not help: the error has the node's exact numbers, and its advice works

few='size=256M,hugepages=on,host_numa_node=1'
for command in 'run --prealloc' 'run' 'plan' 'doctor'; do
    # shellcheck disable=SC2086
    observe 3 prezero $command --memory "$few"
    says 'Node 1 needs 128 pages of 2 MiB, has 96 free, short by 32 (64 MiB); node 0 has 192 free'
    says 'fix: host_numa_node=0, or: echo 128 | sudo tee /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages'
    held 0 2M 0
    held 1 2M 0
done

expect 0 prezero run --memory 'size=256M,hugepages=on,host_numa_node=0' --prealloc --verify
pages 1 2M 128
observe 0 prezero run --memory "$few" --prealloc --verify --json
held 1 2M 128
all_pages_placed 128
