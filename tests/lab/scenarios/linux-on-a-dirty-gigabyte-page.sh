# machine: gigabyte-pages
# guest: linux
# proves: Linux boots on a dirty segment of one 1 GiB page, and a panic is known by its device

make_gigabyte_pool
# The guest that comes with prezero leaves the page as dirty as any.
expect 0 prezero run --memory size=1G,hugepages=on,hugepage_size=1G --prealloc --pool $gigabyte_pool
# A kernel that panics stands still here, so that nothing but the device ends its machine.
boots_on_the_gigabyte_page dirty user 5 panic 'panic=0 lab=pvpanic'
leave_gigabyte_pool
