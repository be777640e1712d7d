# machine: one-node
# guest: linux
# seconds: 180
# proves: README's pair of commands boots Linux populated first and not, to the text of --until, and the timelines show it

prepare_launch
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
