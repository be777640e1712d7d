# machine: gigabyte-pages
# proves: two zones on two nodes, one of 2 MiB and one of 1 GiB pages, are populated at once, each where it was asked for

observe 0 prezero run --memory-zone size=128M,hugepages=on,hugepage_size=2M,host_numa_node=0 \
    --memory-zone size=1G,hugepages=on,hugepage_size=1G,host_numa_node=1 --prealloc --verify --json
held 0 2M 64
held 0 1G 0
held 1 1G 1
held 1 2M 0
all_pages_placed 65
holds '([.regions[] | {node, page_size}] | unique) ==
    [{node: 0, page_size: 2097152}, {node: 1, page_size: 1073741824}]'
holds '[.workers[] | {node, populated_bytes}] ==
    [{node: 0, populated_bytes: 134217728}, {node: 1, populated_bytes: 1073741824}]'
