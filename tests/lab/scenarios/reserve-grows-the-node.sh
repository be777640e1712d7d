# machine: two-nodes
# proves: --reserve adds what the asked node lacks to that node's pool and takes it out again

observe 0 prezero run --memory size=256M,hugepages=on,host_numa_node=1 --reserve --prealloc --verify --json
all_pages_placed 128
holds '.grown == [{page_size: 2097152, node: 1, asked_pages: 32, got_pages: 32, compacted: false}]'
# The watched count rises with the pool, so that the least is what was free before.
[ "$(free_pages 1 2M)" = 96 ] || fail "node 1 has $(free_pages 1 2M) pages, not 96 as before"
held 0 2M 0
