# machine: one-node
# guest: linux
# proves: README's first command boots Linux to a shell on the terminal, with prezero's own command line

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
has_free 0 2M 256
