# machine: gigabyte-pages
# seconds: 240
# proves: a segment of one 1 GiB page goes from guest to guest and is cleared in between

mkdir -p /tmp/huge-1g
mount -t hugetlbfs -o pagesize=1G none /tmp/huge-1g
pool=/tmp/huge-1g/prezero
expect 0 prezero pool create $pool --size 1G --segment 1G --node 1 --json
has_free 1 1G 1
for origin in clean dirty; do
    expect 0 prezero run --memory size=1G,hugepages=on,hugepage_size=1G --prealloc --verify --pool $pool --json
    all_pages_placed 1
    holds "[.regions[] | {backing, origin, page_size}] == [{backing: \"pool\", origin: \"$origin\", page_size: 1073741824}]"
done
expect 0 prezero pool destroy $pool
has_free 1 1G 2
umount /tmp/huge-1g
