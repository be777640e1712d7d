# machine: one-node
# guest: linux
# seconds: 400
# proves: README's commands boot Linux with prezero's own command line, populated first or not; a panic is told from an end

prepare_launch

# What is typed before there is a shell may be lost.
mkfifo "$lab_scratch/typed"
{
    while ! grep -q '^/ # ' "$out"; do usleep 100000; done 2>/dev/null
    # shellcheck disable=SC2016
    echo 'echo "heard $((40 + 2))"; exit'
} >"$lab_scratch/typed" &
# The command line is prezero's own, which the README names.
prezero run --help | grep -qF "[default: \"$(readme_cmdline)\"]" || fail 'README names another default command line'
launches 0 'on the terminal' <"$lab_scratch/typed"
says 'memory    512 MiB at 0x0 on 2 MiB hugepages'
says 'CPUs 0, nodes 0'
says 'heard 42'
says "Kernel command line: $(readme_cmdline)"
says 'guest     power-off; Linux (bzImage, linux64), 1 vCPUs'

for first in eager off; do
    case $first in
    eager) launches 0 'how long a boot takes' --cmdline "$cmdline" ;;
    off) launches 0 'and without populating first' --cmdline "$cmdline" ;;
    esac
    cp "$out" "$lab_scratch/$first"
    says 'CPUs 0, nodes 0'
    ! grep -q 'exit powers off' "$err" || fail 'the guest went on after the text of --until'
    holds ".request.prealloc == \"$first\" and .guest.exit == \"until\" and .regions[0].page_size == 2097152"
    holds ".boot | .cmdline == \"$cmdline\" and .format == \"vmlinux\" and .protocol == \"pvh\""
    holds '.request.bytes as $bytes | .boot.nodes == [{node: 0, bytes: $bytes, host_nodes: [0]}]'
    holds '.boot.vcpus[0] | .host_cpus == [0, 1] and (.pinned | not)'
    ran_in_order .until_ns
    has_promised_memory "$err"
done
has_free 0 2M 256
jq -en '[inputs.creation_ns] | .[0] > .[1]' "$lab_scratch/eager" "$lab_scratch/off" >/dev/null ||
    fail 'it was created no later for being populated first'

# Without its driver for the panic device, a kernel says by the kind of its reset that it panicked.
expect 5 prezero run --memory size=384M,hugepages=on --prealloc --kernel $guest/vmlinux --initramfs $guest/initramfs \
    --cmdline "$cmdline lab=panic" --cpu-affinity 1 --serial "$lab_scratch/console" --json </dev/null
says "The guest's kernel reported a panic"
holds '.guest.exit == "panic" and .error.class == "guest"'
holds '.boot.vcpus == [{vcpu: 0, node: 0, host_cpus: [1], pinned: true}]'
ran_in_order
has_promised_memory "$lab_scratch/console"
