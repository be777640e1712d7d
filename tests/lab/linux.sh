# What scenarios say of Linux guests.

# ran_in_order [.until_ns]: the last expected command's guest reached everything up to its end, one after another.
ran_in_order() {
    holds "[.creation_ns, .first_instruction_ns, (.boot | .first_serial_ns, .user_space_ns, ${1+$1,} .ended_ns)] | all and . == sort"
}

# has_promised_memory CONSOLE: the map that the guest's kernel says it got is the report's regions, byte for byte, but for
# the hole that every PC has below 1 MiB.
has_promised_memory() {
    map=
    for range in $(sed -n 's/.*BIOS-e820: \[mem \(0x[0-9a-f]*-0x[0-9a-f]*\)\] usable.*/\1/p' "$1"); do
        map="$map${map:+, }[$((${range%-*})), $((${range#*-} + 1))]"
    done
    holds "[.regions[] | [.gpa, .gpa + .len]] | sort
        | reduce .[] as \$r ([]; if .[-1][1] == \$r[0] then .[-1][1] = \$r[1] else . + [\$r] end)
        | [[0, 654336], [1048576, .[0][1]]] + .[1:] == [$map]"
}

# node_has NODE CPUS KIB DISTANCES: the guest's node has exactly this, less what its kernel keeps for itself: no more in
# all than the kernel says it reserved.
node_has() {
    line=$(sed -n "s/^guest: node$1 cpus $2 present $3 managed \([0-9]*\) total \([0-9]*\) distance $4\r*\$/\1 \2/p" "$err")
    [ -n "$line" ] || fail "node $1 of the guest is not CPUs $2, $3 KiB, distances $4: $(grep "^guest: node$1 " "$err" || true)"
    [ "${line% *}" = "${line#* }" ] || fail "node $1 of the guest counts two kinds of total: $line"
    reserved=$(sed -n 's/.*Memory: .* \([0-9]*\)K reserved.*/\1/p' "$err")
    [ $(($3 - ${line% *})) -le "$reserved" ] ||
        fail "node $1 of the guest manages ${line% *} of $3 KiB, although its kernel reserved $reserved in all"
}
