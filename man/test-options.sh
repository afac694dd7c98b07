#!/bin/sh
# Every long option that `once VERB --help` lists is in that verb's man page, and the page
# names no option that the help does not list. Prints TAP.
# usage: test-options.sh ONCE MAN_FOLDER
set -u
once=$1 man=$2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
number=0 bad=0

# What the help lists: lines that begin with an option.
of_help() { "$once" "$@" --help | sed -n 's/^  --\([a-z-]*\).*/\1/p'; }
# What the page names anywhere: options are written `Fl -name`.
of_page() { grep -o 'Fl -[a-z][a-z-]*' "$man/$1" | sed 's/^Fl -//' | sort -u; }
# What it describes: the items of its list of options.
of_items() { sed -n 's/^\.It Fl -\([a-z-]*\).*/\1/p' "$man/$1" | sort -u; }

compare() { # PAGE; the help's options are in $tmp/help
    sort -u "$tmp/help" >"$tmp/sorted"
    of_items "$1" >"$tmp/items"
    of_page "$1" >"$tmp/page"
    number=$((number + 1))
    missing=$(comm -23 "$tmp/sorted" "$tmp/items" | tr '\n' ' ')
    extra=$(comm -13 "$tmp/sorted" "$tmp/page" | tr '\n' ' ')
    if [ ! -s "$tmp/sorted" ] || [ -n "$missing$extra" ]; then
        echo "# not described in $1: ${missing:-none}; in $1 but not in the help: ${extra:-none}"
        echo "not ok $number - $1"
        bad=1
    else
        echo "ok $number - $1"
    fi
}

# The verbs come from the program, so that a new one cannot be forgotten here.
for verb in $("$once" --help | sed -n 's/^  \([a-z]\{2,\}\)  *[a-z].*/\1/p'); do
    if [ "$verb" = keys ]; then
        for sub in list show resolve release; do of_help keys "$sub"; done >"$tmp/help"
    elif [ "$verb" = outbox ] || [ "$verb" = inbox ]; then
        for sub in list show retry drop; do of_help "$verb" "$sub"; done >"$tmp/help"
    else
        of_help "$verb" >"$tmp/help"
    fi
    compare "once-$verb.1"
done
printf 'help\nversion\n' >"$tmp/help"
compare once.1
echo "1..$number"
exit $bad
