# machine: two-nodes
# proves: without a request memory goes to the node where it fits, and otherwise to both in proportion to what is free

observe 0 prezero run --memory size=300M,hugepages=on --prealloc --verify --json
held 0 2M 150
held 1 2M 0
all_pages_placed 150

# 216 of 288 pages: three quarters of each node.
observe 0 prezero run --memory size=432M,hugepages=on --prealloc --verify --json
held 0 2M 144
held 1 2M 72
all_pages_placed 216

pages 0 2M 32
observe 0 prezero run --memory size=128M,hugepages=on --prealloc --verify --json
held 0 2M 0
held 1 2M 64
