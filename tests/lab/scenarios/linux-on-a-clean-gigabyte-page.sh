# machine: gigabyte-pages
# guest: linux
# proves: Linux boots on a clean segment of one 1 GiB page, and a reset is the end that it asks for

make_gigabyte_pool
boots_on_the_gigabyte_page clean none 0 reset lab=reboot
leave_gigabyte_pool
