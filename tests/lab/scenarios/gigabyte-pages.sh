# machine: gigabyte-pages
# seconds: 200
# proves: a guest of two 1 GiB pages gets exactly those, and a third page is refused with the count

observe 0 prezero run --memory size=2G,hugepages=on,hugepage_size=1G --prealloc --verify --json
held 1 1G 2
held 0 2M 0
all_pages_placed 2
holds '[.regions[].page_size] | unique == [1073741824]'

expect 3 prezero run --memory size=3G,hugepages=on,hugepage_size=1G --prealloc
says 'needs 3 pages of 1 GiB, has 2 free, short by 1 (1 GiB)'
