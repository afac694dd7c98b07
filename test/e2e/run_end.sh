#!/bin/bash
# How a command can end, and which signals reach it.
. "$(dirname "$0")/lib.sh"

effect='echo x >>effects'

failure__is_retried_by_default() {
    run once run --key k -- sh -c 'echo $ONCE_ATTEMPT >>attempts; echo out $ONCE_ATTEMPT; exit $((3 - ONCE_ATTEMPT))'
    is "$status:$out" $'2:out 1\n' 'attempt 1'
    run once run --key k -- sh -c 'echo $ONCE_ATTEMPT >>attempts; echo out $ONCE_ATTEMPT; exit $((3 - ONCE_ATTEMPT))'
    is "$status:$out" $'1:out 2\n' 'attempt 2'
    unlike "$err" replay 'attempt 2 is no replay'
    for _ in 1 2; do
        run once run --key k -- sh -c 'echo $ONCE_ATTEMPT >>attempts; echo out $ONCE_ATTEMPT; exit $((3 - ONCE_ATTEMPT))'
        is "$status:$out" $'0:out 3\n' 'attempt 3, then its replay'
    done
    is "$(tr '\n' ' ' <attempts)" '1 2 3 ' 'attempts'
}

failure__is_final_if_asked() {
    for _ in 1 2 3; do
        run once run --final any --quiet --key k -- sh -c "$effect; echo no >&2; exit 9"
        is "$status:$err" $'9:no\n' 'answer'
    done
    is "$(lines effects)" 1 'executions'
}

failure__keeps_child_key_and_grows_fence() {
    run once run --key k -- sh -c 'echo $ONCE_KEY $ONCE_FENCE >>seen; exit 1'
    run once run --key k -- sh -c 'echo $ONCE_KEY $ONCE_FENCE >>seen; exit 1'
    { read -r key1 fence1; read -r key2 fence2; } <seen
    is "$key2" "$key1" 'ONCE_KEY of the second attempt'
    [ "$fence2" -gt "$fence1" ] || fault "fence $fence2 after $fence1"
}

killed__is_reported_as_shells_do() {
    for signal in 9 15 6; do
        run once run --key "k$signal" --final any -- sh -c "$effect; kill -$signal \$\$"
        is "$status" $((128 + signal)) "killed by $signal"
        run once run --key "k$signal" --final any -- sh -c "$effect; kill -$signal \$\$"
        is "$status" $((128 + signal)) "killed by $signal, replayed"
    done
    is "$(lines effects)" 3 'executions'
}

# $1 a signal, then options: a command that prints, has its effect, and is killed.
die() {
    local signal=$1
    shift
    run once run "$@" --key k -- sh -c "echo so far; $effect; kill -$signal \$\$"
}

killed__is_unknown_and_asked_about() {
    for signal in 15 6 9; do
        rm -f effects once.db*
        die $signal --quiet
        is "$status:$out" "$((128 + signal)):so far"$'\n' "killed by $signal"
        like "$err" "attempt 1 of k was killed by signal $signal: how far it got is unknown" 'what it says'
        like "$err" 'once keys resolve --done --status 0 --fence [0-9]+ --reason .WHY. k' 'how to say it was done'
        die $signal
        is "$status:$out" 70: 'the next run'
        like "$err" "was killed by signal $signal.*once keys resolve --not-done --fence" 'what that says'
        is "$(lines effects)" 1 'executions'
    done
    run once keys show k
    like "$out" 'state +unknown.*status +137.*so far' 'what is kept of it'
    run once check
    is "$status" 0 'once check'
    run once keys resolve k --not-done --reason 'nothing arrived'
    is "$status" 0 'resolved'
    die 9
    is "$status:$(lines effects)" 137:2 'not done: executed again'
    run once keys resolve k --done --status 0 --body 'it is there' --reason 'the ledger has it'
    die 9
    is "$status:$out:$(lines effects)" '0:it is there:2' 'done: replayed'
}

killed__is_retried_under_rerun() {
    for expected in 1 2; do
        die 9 --takeover rerun
        is "$status:$(lines effects)" 137:$expected "execution $expected"
        run once keys show --json k
        like "$out" '"state":"failed".*"status":137,' 'recorded'
    done
}

# What timeout(1) and a service manager do: they end `once`, which passes it on.
killed__by_a_signal_to_once_is_unknown() {
    spawn "$ONCE" run --key k -- sh -c "$effect; : >ready; exec sleep 1000" 2>said
    once=$!
    await '[ -e ready ]'
    kill -TERM $once
    expect_exit $once 143 'exit status'
    like "$(cat said)" 'killed by signal 15' 'what it says'
    run once run --key k -- sh -c "$effect; : >ready; exec sleep 1000"
    is "$status:$(lines effects)" 70:1 'the next run'
}

not_found__releases_the_key() {
    run once run --key k -- ./tool
    is "$status" 127 'no such file'
    like "$err" 'cannot execute ./tool: No such file.*released' 'message'
    run once run --key k -- no-such-program-anywhere
    is "$status" 127 'another command under the same key: it was free'
    echo 'echo done' >tool
    run once run --key k -- ./tool
    is "$status" 126 'not executable'
    like "$err" 'Permission denied' 'message'
    chmod +x tool
    run once run --key k -- ./tool
    is "$status:$out" $'0:done\n' 'and now it runs'
    run once keys show --json k
    like "$out" '"attempt":1,' 'released attempts do not count'
}

not_executable__releases_the_key() {
    mkdir directory
    run once run --key k -- ./directory
    is "$status" 126 'a directory'
    printf '#!/no/such/interpreter\n' >script
    chmod +x script
    run once run --key k -- ./script
    is "$status" 127 'no interpreter'
    run once run --key k -- sh -c "$effect"
    is "$status" 0 'the key is free'
}

background__output_is_awaited() {
    mkfifo go
    spawn sh -c 'exec "$0" run --key k -- sh -c "{ read _ <go; echo late; } & echo early" >out' "$ONCE"
    once=$!
    await 'grep -q early out 2>/dev/null'
    is_alive $once || fault 'it did not wait for the output of the background process'
    echo >go
    expect_exit $once 0 'exit status'
    run once run --quiet --key k -- sh -c '{ read _ <go; echo late; } & echo early'
    is "$out" $'early\nlate\n' 'replay'
}

background__signal_ends_the_waiting() {
    spawn sh -c 'exec "$0" run --key k -- sh -c "sleep 1000 & echo \$! >child; echo \$\$ >pid; echo early; exec 3>done" >out' "$ONCE"
    once=$!
    await '[ -e done ] && grep -q early out'
    read -r child <child
    read -r command <pid
    await "! is_alive $command" # else a signal would be the command's
    spawned+=("$child")
    await '! grep -qs . /proc/$once/task/$once/children || kill -TERM $once 2>/dev/null || true; ! is_alive $once'
    expect_exit $once 0 'exit status'
    is_alive "$child" || fault 'the background process was killed'
    run once run --quiet --key k -- sh -c 'sleep 1000 & echo $! >child; echo $$ >pid; echo early; exec 3>done'
    is "$out" $'early\n' 'replay'
}

background__daemon_survives() {
    run once run --key k -- sh -c 'setsid sleep 1000 >/dev/null 2>&1 & echo $! >child'
    is "$status" 0 'exit status'
    read -r child <child
    spawned+=("$child")
    is_alive "$child" || fault 'a process that let go of the output was killed'
}

# A shell without job control starts what is in the background with SIGINT and SIGQUIT ignored, nohup all with SIGHUP.
plainly=(env --default-signal=INT,QUIT,HUP)

# A command that counts the signals it gets, until it finds the file `stop`.
counting='trap "echo sig >>signals" INT TERM HUP QUIT; : >ready; until [ -e stop ]; do sleep 0.02; done; echo over; exit 5'

signal__is_passed_on_once() {
    for name in TERM INT HUP QUIT; do
        rm -f ready stop signals
        spawn "${plainly[@]}" "$ONCE" run --key "k$name" -- sh -c "$counting" >out
        once=$!
        await '[ -e ready ]'
        kill -$name $once
        await '[ -e signals ]'
        : >stop
        expect_exit $once 5 "exit status after $name"
        is "$(lines signals)" 1 "$name arrived"
        run once keys show --json "k$name"
        like "$out" '"state":"failed".*"status":5,' "recorded after $name"
    done
}

signal__default_action_ends_the_command_and_is_recorded() {
    spawn "$ONCE" run --final any --key k -- sh -c ': >ready; exec sleep 1000'
    once=$!
    await '[ -e ready ]'
    kill -TERM $once
    expect_exit $once 143 'exit status'
    run once run --final any --key k -- sh -c ': >ready; exec sleep 1000'
    is "$status" 143 'replay'
}

signal__from_the_terminal_arrives_once() {
    command -v script >/dev/null || { fault 'script(1) is missing (package bsdutils)'; return; }
    # A shell's trap runs once for two signals in a row; this counts each of them, until none
    # has come for a while.
    cat >count.py <<'END'
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
open("ready", "w").close()
signal.sigwaitinfo([signal.SIGINT])
count = 1
while signal.sigtimedwait([signal.SIGINT], 0.3):
    count += 1
sys.exit(40 + count)
END
    mkfifo keyboard
    exec 7<>keyboard
    spawn "${plainly[@]}" script -qefc "exec '$ONCE' run --key k -- python3 count.py" /dev/null <keyboard >screen
    terminal=$!
    await '[ -e ready ]'
    printf '\003' >&7
    expect_exit $terminal 41 'exit status: 40 and how often SIGINT arrived'
    exec 7>&-
    run once keys show --json k
    like "$out" '"state":"failed".*"status":41,' 'recorded'
}

signal__ignored_stays_ignored() {
    spawn sh -c 'trap "" HUP; exec "$0" run --key k -- sh -c ": >ready; until [ -e stop ]; do sleep 0.02; done"' "$ONCE"
    once=$!
    await '[ -e ready ]'
    kill -HUP $once
    : >stop
    expect_exit $once 0 'exit status'
}

stop__and_continue_as_a_group() {
    mkfifo go
    set -m
    # It forks nothing: a shell that waits in vfork(2) for a stopped child would not show as stopped.
    spawn "$ONCE" run --key k -- sh -c 'echo $$ >pid; : >ready; read _ <go; echo over' >out
    set +m
    once=$!
    await '[ -e ready ]'
    read -r command <pid
    kill -TSTP -- -$once
    await "is_stopped $once"
    await "is_stopped $command"
    kill -CONT -- -$once
    await "! is_stopped $command"
    echo >go
    expect_exit $once 0 'exit status'
    is "$(cat out)" over 'output'
}

signal__before_the_start_releases_the_key() {
    # Stopped right after the claim (a crash point), it finds the signal when it goes on.
    ONCE_CRASH=run.claimed:1:stop spawn "$ONCE" run --key k -- sh -c "$effect"
    once=$!
    await "is_stopped $once"
    kill -TERM $once
    kill -CONT $once
    expect_exit $once 143 'exit status'
    is "$(lines effects)" 0 'executions'
    run once run --key k -- sh -c "$effect"
    is "$status:$(lines effects)" 0:1 'the key was free'
}

signal__ignored_before_the_start_changes_nothing() {
    spawn env --ignore-signal=TERM ONCE_CRASH=run.claimed:1:stop "$ONCE" run --key k -- sh -c "$effect"
    once=$!
    await "is_stopped $once"
    kill -TERM $once
    kill -CONT $once
    expect_exit $once 0 'exit status'
    is "$(lines effects)" 1 'executions'
}

sigchld__ignored_by_our_caller() {
    run env --ignore-signal=CHLD "$ONCE" run --final any --key k -- sh -c 'true & wait $!; exit 3'
    is "$status" 3 'exit status'
    run env --ignore-signal=CHLD "$ONCE" run --key inherited -- grep SigIgn /proc/self/status
    env --ignore-signal=CHLD grep SigIgn /proc/self/status >expected
    same out expected 'signals that the command ignores'
}

tap failure__is_retried_by_default failure__is_final_if_asked failure__keeps_child_key_and_grows_fence \
    killed__is_reported_as_shells_do killed__is_unknown_and_asked_about killed__is_retried_under_rerun \
    killed__by_a_signal_to_once_is_unknown not_found__releases_the_key not_executable__releases_the_key \
    background__output_is_awaited background__signal_ends_the_waiting background__daemon_survives \
    signal__is_passed_on_once signal__default_action_ends_the_command_and_is_recorded \
    signal__from_the_terminal_arrives_once signal__ignored_stays_ignored stop__and_continue_as_a_group \
    signal__before_the_start_releases_the_key signal__ignored_before_the_start_changes_nothing \
    sigchld__ignored_by_our_caller
