#!/bin/bash
# `once` dies, or sleeps past its lease: what happens to the command, to the key, to the next.
. "$(dirname "$0")/lib.sh"

LEASE=400ms # of who dies: on a busy machine it is over before the next line. Who takes over has the usual one: under rerun it ends its
            # command when it comes too late to renew

kill_9__takes_all_descendants_along() {
    # A child, a grandchild whose parent is gone, one in a session of its own that ignores signals.
    cat >family <<'END'
trap '' TERM INT HUP
echo $$ >>pids
sleep 1000 & echo $! >>pids
(sleep 1000 & echo $! >>pids)
setsid sh -c 'trap "" TERM HUP INT; echo $$ >>pids; sleep 1000 & echo $! >>pids; wait' >/dev/null 2>&1 </dev/null &
until [ "$(wc -l <pids)" -ge 5 ]; do sleep 0.02; done
: >ready
wait
END
    spawn "$ONCE" run --key k -- sh family
    once=$!
    await '[ -e ready ]'
    mapfile -t pids <pids
    is "${#pids[@]}" 5 'processes'
    for pid in "${pids[@]}"; do is_alive "$pid" || fault "$pid is not alive before"; done
    kill -9 $once
    for pid in "${pids[@]}"; do await "! is_alive $pid"; done
    expect_exit $once 137 'once'
}

# What kills once's whole group leaves the guardian, which kills who had left the group.
kill_9__of_the_group_takes_along_who_left_it() {
    spawn setsid "$ONCE" run --key k -- sh -c 'setsid sleep 1000 >/dev/null 2>&1 & echo $! >child; : >ready; wait'
    once=$!
    await '[ -e ready ]'
    read -r child <child
    spawned+=("$child")
    is_alive "$child" || fault 'it is not alive before'
    kill -9 -- "-$(ps -o pgid= -p $once | tr -d ' ')"
    await "! is_alive $child"
    expect_exit $once 137 'once'
}

kill_9__also_while_the_guardian_is_stopped() {
    spawn "$ONCE" run --key k -- sh -c 'echo $$ >pid; sleep 1000 & echo $! >child; : >ready; wait'
    once=$!
    await '[ -e ready ]'
    read -r command <pid
    read -r child <child
    read -r guardian <"/proc/$once/task/$once/children"
    kill -STOP "$guardian"
    kill -9 $once
    await "! is_alive $command"
    await "! is_alive $child"
    await "! is_alive $guardian"
}

guardian__holds_nothing_open() {
    # Else it might keep a lock of the store, or the pipe that our caller reads from.
    spawn "$ONCE" run --key k -- sh -c ': >ready; exec sleep 1000'
    await '[ -e ready ]'
    read -r guardian <"/proc/$!/task/$!/children"
    await '[ "$(ls /proc/$guardian/fd | wc -l)" = 3 ]' # control, report, signals
}

guardian_killed__is_unknown() {
    spawn sh -c 'exec "$0" run --key k -- sh -c "echo \$\$ >pid; : >ready; exec sleep 1000" 2>said' "$ONCE"
    once=$!
    await '[ -e ready ]'
    read -r command <pid
    read -r guardian <"/proc/$once/task/$once/children"
    kill -9 "$guardian"
    expect_exit $once 70 'exit status'
    await "! is_alive $command"
    like "$(cat said)" 'once keys resolve' 'message'
    run once keys show --json k
    like "$out" '"state":"unknown"' 'state'
}

# Starts a run of key k with $@ as further options, and kills it when its command runs. SIGTERM is ignored: under rerun the
# command gets it in a moment when a busy machine has not renewed the lease in time.
die_running() {
    spawn env --ignore-signal=TERM "$ONCE" run --lease "$LEASE" "$@" --key k -- sh -c "$command" >/dev/null
    local once=$!
    await '[ -e ready ]'
    kill -9 $once
    wait $once 2>/dev/null
    rm ready
}

command='echo x >>effects; echo "$ONCE_ATTEMPT $ONCE_RECOVERY_POINT" >>attempts; : >ready; [ -e pass ] || exec sleep 1000'

escalate__in_progress_while_the_lease_is_live() {
    LEASE=1h die_running
    run once run --key k -- sh -c "$command"
    is "$status" 75 'exit status'
    is "$(lines effects)" 1 'executions'
}

escalate__ends_unknown_and_says_how_to_resolve() {
    die_running
    run once run --wait 60s --lease $LEASE --key k -- sh -c "$command"
    is "$status" 70 'exit status after the lease'
    like "$err" 'once keys resolve --done --status 0 --fence [0-9]+ --reason .WHY. k' 'how to say it was done'
    like "$err" 'once keys resolve --not-done --fence' 'how to say it was not'
    is "$(lines effects)" 1 'executions'
    # The commands that the message tells do what it says.
    eval "$(sed -n 's/^ *once \(keys resolve --done[^#]*\)#.*/once \1/p' err) >/dev/null" || fault 'the command told failed'
    run once run --lease $LEASE --key k -- sh -c "$command"
    is "$status:$out" 0: 'after it was resolved as done'
    is "$(lines effects)" 1 'executions, still'
}

escalate__not_done_executes_again() {
    die_running --store "sqlite:$CASE/with space.db" --tenant "it's"
    again() { run once run --wait 60s --lease $LEASE --store "sqlite:$CASE/with space.db" --tenant "it's" --key k -- sh -c "$command"; }
    again
    is "$status" 70 'exit status after the lease'
    : >pass
    eval "$(sed -n 's/^ *once \(keys resolve --not-done[^#]*\)#.*/once \1/p;s/^ *once \(keys resolve --not-done.*\)/once \1/p' err | head -n 1) >/dev/null" ||
        fault 'the command told failed'
    again
    is "$status" 0 'exit status'
    is "$(tr '\n' , <attempts)" '1 ,2 ,' 'attempts'
}

rerun__executes_again_from_the_recovery_point() {
    command='echo "$ONCE_ATTEMPT $ONCE_RECOVERY_POINT" >>attempts
        if [ -n "${ONCE_CHECKPOINT_FILE-}" ]; then cat "$ONCE_CHECKPOINT_FILE" >found; exit 0; fi
        head -c 300 blob | "'$ONCE'" advance first --data - || exit 1
        "'$ONCE'" advance second --data @blob || exit 1
        : >ready; exec sleep 1000'
    head -c 60000 /dev/urandom >blob
    die_running --takeover rerun
    run once run --wait 60s --takeover rerun --key k -- sh -c "$command"
    is "$status" 0 'exit status'
    is "$(tr '\n' , <attempts)" '1 ,2 second,' 'attempts and points'
    same found blob 'checkpoint'
    run once keys show k
    like "$out" 'attempt +2' 'attempt shown'
}

rerun__failed_attempt_keeps_its_point() {
    command='echo "$ONCE_ATTEMPT ${ONCE_RECOVERY_POINT:-none} $(cat ${ONCE_CHECKPOINT_FILE:-/dev/null})" >>attempts
        "'$ONCE'" advance "p$ONCE_ATTEMPT" --data "data $ONCE_ATTEMPT"; exit $((3 - ONCE_ATTEMPT))'
    for expected in 2 1 0; do
        run once run --key k -- sh -c "$command"
        is "$status" $expected 'exit status'
    done
    is "$(cat attempts)" $'1 none \n2 p1 data 1\n3 p2 data 2' 'attempts, points, checkpoints'
}

# A holder that stops by itself (a crash point) when its guardian starts the command, before it looks at its lease for the first
# time: however slow the machine is, the command begins, for without its lease a holder ends it. `halted` is when it has not the
# store's lock either: that thread may still have been at it, and then nobody else could take over.
halting=run.forked:1:stop
LONGER=1500ms
halted() { # PID
    is_stopped "$1" || return
    flock -n once.db-lock true && return
    kill -CONT "$1"
    kill -STOP "$1"
    return 1
}

# FAULT-6.
zombie__is_fenced_and_reports_the_stored_outcome() {
    command='echo "$ONCE_ATTEMPT" >>attempts; echo "from $ONCE_ATTEMPT"; : >ready.$ONCE_ATTEMPT
        until [ -e go.$ONCE_ATTEMPT ]; do sleep 0.02; done; echo "end $ONCE_ATTEMPT"; echo "err $ONCE_ATTEMPT" >&2'
    ONCE_CRASH=$halting spawn sh -c 'exec "$0" run --takeover rerun --lease '$LONGER' --key k -- sh -c "$1" >out.1 2>err.1' "$ONCE" "$command"
    first=$!
    await '[ -e ready.1 ] && halted $first'
    : >go.2 # the second attempt does not wait
    run once run --wait 60s --takeover rerun --key k -- sh -c "$command"
    is "$status:$out" $'0:from 2\nend 2\n' 'the second attempt'
    : >go.1
    kill -CONT $first
    expect_exit $first 0 'exit status of the first'
    like "$(cat err.1)" 'attempt 1 of k ended .* attempt 2 took over' 'what it says'
    is "$(tail -n 2 out.1)" $'from 2\nend 2' 'its output ends with what is stored'
    like "$(cat err.1)" 'err 2' 'and so does its stderr'
    run once run --quiet --takeover rerun --key k -- sh -c "$command"
    is "$status:$out" $'0:from 2\nend 2\n' 'a replay'
    is "$(sort attempts | tr '\n' ' ')" '1 2 ' 'attempts'
}

zombie__successor_still_running_is_75_or_waits() {
    command='echo "from $ONCE_ATTEMPT"; : >ready.$ONCE_ATTEMPT; until [ -e go.$ONCE_ATTEMPT ]; do sleep 0.02; done'
    for wait in 0s 60s; do
        rm -f ready.* go.*
        ONCE_CRASH=$halting spawn env ONCE_TRACE=trace.$wait sh -c 'exec "$0" run --store "trace+$ONCE_STORE" --takeover rerun --wait '$wait' --lease '$LONGER' --key k'$wait' -- sh -c "$1" >out.1 2>err.1' "$ONCE" "$command"
        first=$!
        await '[ -e ready.1 ] && halted $first'
        # It waits for the end of the first one's lease; its own is long.
        spawn "$ONCE" run --takeover rerun --wait 60s --key k$wait -- sh -c "$command" >out.2
        second=$!
        await '[ -e ready.2 ]'
        : >go.1
        kill -CONT $first
        if [ $wait = 0s ]; then
            expect_exit $first 75 'exit status of the first, without --wait'
            : >go.2
        else
            await '[ "$(grep -c lookup trace.60s)" -ge 16 ]' # longer than the library by itself would
            is_alive $first || fault 'the first did not wait'
            : >go.2
            expect_exit $first 0 'exit status of the first, with --wait'
            like "$(tail -n 1 out.1)" 'from 2' 'output of the first, with --wait'
        fi
        expect_exit $second 0 'exit status of the second'
    done
}

zombie__command_gets_sigterm_under_rerun() {
    command='trap "echo term >>terms; exit 1" TERM; : >ready.$ONCE_ATTEMPT; [ $ONCE_ATTEMPT = 2 ] || while :; do sleep 0.02; done'
    ONCE_CRASH=$halting spawn sh -c 'exec "$0" run --takeover rerun --lease '$LONGER' --key k -- sh -c "$1" 2>err.1' "$ONCE" "$command"
    first=$!
    await '[ -e ready.1 ] && halted $first'
    run once run --wait 60s --takeover rerun --key k -- sh -c "$command"
    is "$status" 0 'the second attempt'
    kill -CONT $first
    expect_exit $first 0 'exit status of the first: the stored one'
    is "$(lines terms)" 1 'SIGTERM arrived'
}

zombie__under_escalate_is_unknown() {
    command='echo x >>effects; : >ready; until [ -e go ]; do sleep 0.02; done'
    ONCE_CRASH=$halting spawn sh -c 'exec "$0" run --lease '$LONGER' --key k -- sh -c "$1" 2>err.1' "$ONCE" "$command"
    first=$!
    await '[ -e ready ] && halted $first'
    run once run --wait 60s --lease $LEASE --key k -- sh -c "$command"
    is "$status" 70 'the second'
    : >go
    kill -CONT $first
    expect_exit $first 70 'the first'
    like "$(cat err.1)" 'it ended in this run with status 0, after its lease was over' 'what it says'
    is "$(lines effects)" 1 'executions'
}

zombie__key_with_another_life_is_not_its_answer() {
    # While it sleeps, another attempt takes over and ends, that outcome expires, and the key
    # is used for something else.
    command=': >ready.$ONCE_ATTEMPT; until [ -e go.$ONCE_ATTEMPT ]; do sleep 0.02; done'
    ONCE_CRASH=$halting spawn sh -c 'exec "$0" run --takeover rerun --lease '$LONGER' --key k -- sh -c "$1" >out.1 2>err.1' "$ONCE" "$command"
    first=$!
    await '[ -e ready.1 ] && halted $first'
    : >go.2
    run once run --wait 60s --takeover rerun --retention 1ms --key k -- sh -c "$command"
    is "$status" 0 'the second attempt'
    await 'run once run --key k -- echo other; [ "$status" != 65 ]'
    is "$status:$out" $'0:other\n' 'the next life of the key'
    : >go.1
    kill -CONT $first
    expect_exit $first 70 'exit status of the first'
    like "$(cat err.1)" 'took over, and its record is gone' 'what it says'
    is "$(cat out.1)" '' 'it does not print what belongs to another command'
}

zombie__advance_is_refused() {
    command=': >ready.$ONCE_ATTEMPT; until [ -e go.$ONCE_ATTEMPT ]; do sleep 0.02; done
        trap "" TERM; "'$ONCE'" advance late 2>advance.err; echo $? >advance.$ONCE_ATTEMPT'
    ONCE_CRASH=$halting spawn sh -c 'exec "$0" run --takeover rerun --lease '$LONGER' --key k -- sh -c "trap \"\" TERM; $1" 2>err.1' "$ONCE" "$command"
    first=$!
    await '[ -e ready.1 ] && halted $first'
    : >go.2
    run once run --wait 60s --takeover rerun --key k -- sh -c "trap \"\" TERM; $command"
    is "$(cat advance.2)" 0 'advance of the second'
    : >go.1
    await '[ -s advance.1 ]'
    is "$(cat advance.1)" 77 'advance of the first'
    like "$(cat advance.err)" 'another attempt took over' 'message'
    kill -CONT $first
    expect_exit $first 0 'exit status of the first: the stored one'
}

advance__outside_of_run() {
    run once advance point
    is "$status" 64 'exit status'
    like "$err" "not inside 'once run'" 'message'
    ONCE_RECORD=nonsense run once advance point
    is "$status" 64 'exit status with nonsense in ONCE_RECORD'
}

advance__forward_only() {
    run once run --key k -- sh -c '
        "$0" advance a || exit 10
        "$0" advance a --data again || exit 11
        "$0" advance b || exit 12
        "$0" advance a; test $? = 64 || exit 13
        "$0" advance "" ; test $? = 64 || exit 14
        "$0" advance "no spaces"; test $? = 64 || exit 15
        head -c 65536 /dev/zero | "$0" advance c --data - || exit 16
        head -c 65537 /dev/zero | "$0" advance d --data -; test $? = 64 || exit 17
        "$0" advance e --data @missing; test $? = 64 || exit 18
        ' "$ONCE"
    is "$status" 0 'exit status (the number of the step that went wrong)'
}

store_gone__after_the_execution_is_70() {
    # The command takes the store's lock away, as an owner does, and keeps it.
    command='exec 9<>once.db-lock; flock 9; echo owner 1 test >&9; sleep 1000 >/dev/null 2>&1 & echo $! >child; echo x >>effects'
    run once run --lease $LEASE --key k -- sh -c "$command"
    read -r child <child
    spawned+=("$child")
    is "$status" 70 'exit status'
    like "$err" 'was executed \(status 0\), but that could not be stored' 'message'
    run once run --key k -- sh -c "$command"
    is "$status" 69 'exit status before anything was executed'
    kill "$child"
    run once run --wait 60s --lease $LEASE --key k -- sh -c "$command"
    is "$status" 70 'exit status when the store is back'
    is "$(lines effects)" 1 'executions'
}

tap kill_9__takes_all_descendants_along kill_9__of_the_group_takes_along_who_left_it kill_9__also_while_the_guardian_is_stopped \
    guardian__holds_nothing_open guardian_killed__is_unknown \
    escalate__in_progress_while_the_lease_is_live escalate__ends_unknown_and_says_how_to_resolve escalate__not_done_executes_again \
    rerun__executes_again_from_the_recovery_point rerun__failed_attempt_keeps_its_point \
    zombie__is_fenced_and_reports_the_stored_outcome zombie__successor_still_running_is_75_or_waits \
    zombie__command_gets_sigterm_under_rerun zombie__under_escalate_is_unknown \
    zombie__key_with_another_life_is_not_its_answer zombie__advance_is_refused advance__outside_of_run advance__forward_only \
    store_gone__after_the_execution_is_70
