# machine: one-node
# proves: both hugetlb limits of a cgroup end a run with the file's name and numbers, although pages are free

for file in hugetlb.2MB.max hugetlb.2MB.rsvd.max; do
    observe 3 limited "$file=64M" -- prezero run --memory size=128M,hugepages=on --prealloc
    says "$lab_cgroup/limited/$file"
    says '64 MiB'
    held 0 2M 0
    expect 3 limited -- prezero doctor --memory size=128M,hugepages=on --prealloc
    says "$lab_cgroup/limited/$file"
    expect 0 limited "$file=128M" -- prezero run --memory size=128M,hugepages=on --prealloc --verify
    expect 0 limited "$file=max" -- prezero run --memory size=128M,hugepages=on --prealloc
done
