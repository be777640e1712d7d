# machine: two-nodes
# proves: without a request memory goes to the node where it fits, and otherwise to both in proportion to what is free

pages 0 2M 64
pages 1 2M 32
observe 0 prezero run --memory size=100M,hugepages=on --prealloc --verify --json
held 0 2M 50
held 1 2M 0
all_pages_placed 50

# 72 of 96 pages: three quarters of each node.
observe 0 prezero run --memory size=144M,hugepages=on --prealloc --verify --json
held 0 2M 48
held 1 2M 24
all_pages_placed 72

pages 0 2M 16
observe 0 prezero run --memory size=64M,hugepages=on --prealloc --verify --json
held 0 2M 0
held 1 2M 32
all_pages_placed 32
