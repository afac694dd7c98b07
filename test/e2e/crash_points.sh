#!/bin/bash
# kill -9 at every crash point of `once run`, then try again (FAULT-1 to FAULT-4): the command's effect
# happened at most once under `escalate`; what was acknowledged replays.
. "$(dirname "$0")/lib.sh"

mapfile -t points < <(once run --list-points | grep -v '^migrate\.\|^daemon\.\|^completer\.\|^flow\.\|^reconcile\.\|^relay\.\|^client\.\|^send\.\|^consume\.')
command='echo x >>effects; echo out; echo err >&2'

# The n-th passing of POINT is deadly, n = 1, 2, 3 ... until the run survives.
walk() { # POINT
    local n
    for ((n = 1; n < 200; n++)); do
        rm -rf once.db* effects
        status=0
        ONCE_CRASH=$1:$n ONCE_CRASH_LOG=$CASE/passed "$ONCE" run --lease 50ms --key k -- sh -c "$command" >out 2>err </dev/null || status=$?
        local acknowledged=no
        [ $status != 0 ] || acknowledged=yes
        [ $acknowledged = yes ] || is "$status" 137 "status at $1:$n"
        run once run --wait 60s --lease 50ms --key k -- sh -c "$command"
        [ "$(lines effects)" -le 1 ] || fault "$1:$n: executed $(lines effects) times"
        case $status in
        0) is "$(lines effects):$out" $'1:out\n' "$1:$n: outcome" ;;
        70) [ $acknowledged = no ] || fault "$1:$n: acknowledged, then unknown" ;;
        *) fault "$1:$n: exit status $status: $err" ;;
        esac
        run once check
        is "$status" 0 "$1:$n: once check: $out"
        [ $acknowledged = no ] || break
    done
    [ $n -gt 1 ] || grep -qx "$1" "$CASE/passed" || skipped+=" $1"
}

every_point() {
    skipped=''
    [ ${#points[@]} -ge 9 ] || { fault 'no points: built without them?'; return; }
    for point in "${points[@]}"; do walk "$point"; done
    is "$skipped" '' 'points that were never passed'
}

tap every_point
