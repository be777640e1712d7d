# machine: gigabyte-pages
# guest: linux
# seconds: 300
# proves: Linux boots on a 1 GiB page and resets itself

observe 0 prezero run --memory size=1G,hugepages=on,hugepage_size=1G --prealloc \
    --kernel $guest/vmlinux --initramfs $guest/initramfs --cmdline "$cmdline quiet lab=reboot" --json </dev/null
held 1 1G 1
says 'guest: cpus 1'
grep -q '^guest: mib 9[0-9][0-9]' "$err" || fail 'the guest has other memory'
holds '.guest.exit == "reset"'
