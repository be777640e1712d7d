# machine: one-node
# guest: linux
# proves: a wrong kernel or initramfs is refused before a page is taken, and a guest that crashes at once is a failure

refused() {
    wanted=$1
    shift
    observe "$wanted" prezero run --memory size=128M,hugepages=on --prealloc --json "$@" </dev/null
    held 0 2M 0
    cat "$out" >>"$lab_scratch/refusals"
}

refused 2 --kernel /nonexistent
says 'The kernel /nonexistent cannot be read'
head -c 4000000 $guest/vmlinuz >"$lab_scratch/half"
refused 2 --kernel "$lab_scratch/half"
says 'is truncated: it has 4000000 bytes'
head -c 4000000 $guest/vmlinux >"$lab_scratch/half"
refused 2 --kernel "$lab_scratch/half"
says 'is truncated'
refused 2 --kernel $guest/initramfs
says 'is not a kernel for x86-64'
refused 2 --kernel /bin/busybox
says 'is not a kernel for x86-64'
refused 2 --kernel $guest/vmlinuz --initramfs /nonexistent
says 'The initramfs /nonexistent cannot be read'
refused 2 --kernel $guest/vmlinuz --verify
says "'--kernel <FILE>' cannot be used with '--verify'"
truncate -s 1G "$lab_scratch/large"
refused 3 --kernel $guest/vmlinuz --initramfs "$lab_scratch/large"
says 'The initramfs of 1 GiB does not fit'
observe 3 prezero run --memory size=32M,hugepages=on --prealloc --kernel $guest/vmlinuz --json </dev/null
held 0 2M 0
cat "$out" >>"$lab_scratch/refusals"
says 'The kernel needs memory up to'
# Each has its class, and none came as far as a page.
jq -en '[inputs] | length == 9 and all(.error.class == if (.error.message | test("does not fit|needs memory up to")) then "shortage" else "usage" end)
    and ([.[].phases[]?.name] | any(. == "reserve" or . == "populate") | not)' "$lab_scratch/refusals" >/dev/null ||
    fail 'a refusal has another class, or populated something'

# The code of a kernel, which begins at 2 MiB in its file, but each byte of it is a breakpoint that nobody handles.
cp $guest/vmlinux "$lab_scratch/kernel"
head -c 25165824 /dev/zero | tr '\0' '\314' | dd of="$lab_scratch/kernel" bs=1M seek=2 conv=notrunc 2>/dev/null
expect 5 prezero run --memory size=384M,hugepages=on --prealloc --kernel "$lab_scratch/kernel" --json </dev/null
says 'vCPU 0 shut down with a triple fault'
holds '.guest.exit == "triple-fault" and .boot.first_serial_ns == null'
