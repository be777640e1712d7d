# The commands of README's section "Launch a test VM", which scenarios run as they are written there. What differs from
# a reader's host:
# * a line that begins with sudo is left out: what it installs is in the machine;
# * vmlinux and /boot/vmlinuz-$(uname -r) are links to the guests' kernel, unpacked and packed;
# * a scenario may add options, after those of README: words for the kernel, where the emulator wants some.

readme=/lab/README.md
launched=$lab_scratch/launched

# readme_block N: the section's Nth block for the shell.
readme_block() {
    awk -v wanted="$1" '
        /^## / { here = $0 == "## Launch a test VM" }
        here && /^```/ { inside = $0 == "```sh"; count += inside; next }
        inside && count == wanted' $readme
}

# readme_command TEXT: the one command that has this comment behind it, on one line and without the comment.
readme_command() {
    readme_block 2 | sed -e ':more' -e '/\\$/ { N; s/ *\\\n */ /; b more' -e '}' | sed -n "s/ *# $1\$//p"
}

# readme_cmdline: the kernel's command line, as the table of options has it.
readme_cmdline() {
    # shellcheck disable=SC2016
    sed -n 's/^| `--cmdline STR` | in place of `\([^`]*\)`.*/\1/p' $readme
}

# prepare_launch: makes what README's commands need, in the directory that they run in.
prepare_launch() {
    mkdir -p /boot "$launched"
    ln -sf $guest/vmlinuz "/boot/vmlinuz-$(uname -r)"
    ln -sf $guest/vmlinux "$launched/vmlinux"
    readme_block 1 | grep -v '^sudo ' >"$lab_scratch/initramfs.sh"
    (cd "$launched" && sh -eu ../initramfs.sh)
}

# launches EXIT TEXT [OPTIONS...]: expects it of the command with this comment, with these options at its end.
launches() {
    code_wanted=$1
    command=$(readme_command "$2")
    case $command in
    *"
"* | '') fail "README has not one command with the comment: # $2" ;;
    esac
    shift 2
    expect "$code_wanted" sh -c "cd $launched && $command \"\$@\"" sh "$@"
}
