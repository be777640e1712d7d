# machine: one-node
# guest: linux
# seconds: 400
# proves: Linux boots from a bzImage and a vmlinux, reads what is typed, and power-off, panic and --until are told apart

memory=size=384M,hugepages=on

# A compressed kernel. What is typed before its serial driver is there is lost.
mkfifo "$lab_scratch/typed"
{
    while ! grep -q 'guest: node0' "$err"; do usleep 100000; done 2>/dev/null
    echo hello
} >"$lab_scratch/typed" &
expect 0 prezero run --memory $memory --prealloc --kernel $guest/vmlinuz --initramfs $guest/initramfs \
    --cmdline "$cmdline quiet lab=wait" --json <"$lab_scratch/typed"
says 'guest: cpus 1'
says 'guest: was told hello'
holds '.guest.exit == "power-off"'
holds '.boot | .format == "bzImage" and .protocol == "linux64" and .until_ns == null'
holds '.boot.nodes == [{node: 0, bytes: .request.bytes, host_nodes: [0]}]'
holds '.boot.vcpus[0] | .host_cpus == [0, 1] and (.pinned | not)'
mib=$(sed -n 's/^guest: mib \([0-9]*\).*/\1/p' "$err")
[ "$mib" -gt 300 ] && [ "$mib" -lt 384 ] || fail "the guest found $mib MiB of 384"

# Without its driver for the panic device, a kernel says by the kind of its reset that it panicked.
expect 5 prezero run --memory $memory --prealloc --kernel $guest/vmlinux --initramfs $guest/initramfs \
    --cmdline "$cmdline lab=panic" --cpu-affinity 1 --serial "$lab_scratch/console" --json </dev/null
says "The guest's kernel reported a panic"
holds '.guest.exit == "panic" and .error.class == "guest"'
holds '.boot | .format == "vmlinux" and .protocol == "pvh"'
holds '.boot.vcpus == [{vcpu: 0, node: 0, host_cpus: [1], pinned: true}]'
holds '[.creation_ns, .first_instruction_ns, .boot.first_serial_ns, .boot.user_space_ns, .boot.ended_ns] | . == sort and all'
grep -q 'Run /init as init process' "$lab_scratch/console" || fail 'the file has no console'

# Not populated, and stopped as soon as the text is there.
expect 0 prezero run --memory $memory --kernel $guest/vmlinux --initramfs $guest/initramfs \
    --cmdline "$cmdline quiet" --until 'guest: cpus 1' </dev/null
says 'until; Linux (vmlinux, pvh), 1 vCPUs'
! grep -q 'guest: mib' "$out" || fail 'the guest went on after the text of --until'
has_free 0 2M 256
