# machine: one-node
# guest: linux
# proves: a panic is told from an end without the panic device, on a pinned vCPU, and its console is in a file

# Without its driver for the panic device, a kernel says by the kind of its reset that it panicked.
expect 5 prezero run --memory size=384M,hugepages=on --prealloc --kernel $guest/vmlinux --initramfs $guest/initramfs \
    --cmdline "$cmdline lab=panic" --cpu-affinity 1 --serial "$lab_scratch/console" --json </dev/null
says "The guest's kernel reported a panic"
holds '.guest.exit == "panic" and .error.class == "guest"'
holds '.boot.vcpus == [{vcpu: 0, node: 0, host_cpus: [1], pinned: true}]'
ran_in_order
has_promised_memory "$lab_scratch/console"
has_free 0 2M 256
