#!/bin/bash
# Many processes, one key: one execution.
. "$(dirname "$0")/lib.sh"

# Holds its key until the file `go` exists.
holding='echo x >>effects; : >ready; until [ -e go ]; do sleep 0.02; done; echo out; exit 0'

hold() { # KEY: starts one and waits until it holds the key
    spawn "$ONCE" run --key "$1" -- sh -c "$holding" >first
    holder=$!
    await '[ -e ready ]'
}

in_progress__is_75_and_says_what_to_do() {
    hold k
    run once run --key k -- sh -c "$holding"
    is "$status" 75 'exit status'
    like "$err" 'k is in progress: attempt 1 .*renews its lease.*--wait' 'message'
    unlike "$err" '[0-9][smh]' 'no time that is none'
    run once run --wait 50ms --key k -- sh -c "$holding"
    is "$status" 75 'exit status after a wait that was too short'
    : >go
    expect_exit $holder 0 'the holder'
    run once run --quiet --key k -- sh -c "$holding"
    is "$status:$out" $'0:out\n' 'afterwards'
    is "$(lines effects)" 1 'executions'
}

in_progress__of_another_command_is_a_mismatch() {
    hold k
    run once run --wait 10s --key k -- true
    is "$status" 65 'exit status'
    : >go
    expect_exit $holder 0 'the holder'
}

wait__replays() {
    hold k
    pids=()
    for i in 1 2 3 4 5; do
        spawn "$ONCE" run --wait 60s --key k -- sh -c "$holding" >"out$i" 2>"err$i"
        pids+=($!)
    done
    : >go
    for i in 1 2 3 4 5; do
        expect_exit "${pids[i - 1]}" 0 "waiter $i"
        is "$(cat "out$i")" out "output of waiter $i"
        like "$(cat "err$i")" 'replay of attempt 1' "remark of waiter $i"
    done
    expect_exit $holder 0 'the holder'
    is "$(lines effects)" 1 'executions'
}

wait__ends_at_a_signal_with_nothing_held() {
    hold k
    spawn "$ONCE" run --wait 1h --key k -- sh -c "$holding"
    waiter=$!
    await "grep -q ') S ' /proc/$waiter/stat"
    kill -TERM $waiter
    expect_exit $waiter 143 'the waiter'
    : >go
    expect_exit $holder 0 'the holder'
    is "$(lines effects)" 1 'executions'
}

wait__next_executes_after_a_failure() {
    spawn "$ONCE" run --key k -- sh -c 'echo x >>effects; : >ready; until [ -e go ]; do sleep 0.02; done; exit $((2 - ONCE_ATTEMPT))'
    first=$!
    await '[ -e ready ]'
    spawn "$ONCE" run --wait 60s --key k -- sh -c 'echo x >>effects; : >ready; until [ -e go ]; do sleep 0.02; done; exit $((2 - ONCE_ATTEMPT))'
    second=$!
    : >go
    expect_exit $first 1 'the first'
    expect_exit $second 0 'the second, which waited'
    is "$(lines effects)" 2 'executions'
}

lease_until() { # KEY: until when, in milliseconds
    date -d "$(once keys show --json "$1" | sed -n 's/.*"lease_until":"\([^"]*\)".*/\1/p')" +%s%3N
}

lease__is_renewed_while_the_command_runs() {
    # By its record: who asked would take over, rightly, in a moment when a busy machine has not renewed it in time. For the same
    # reason it is not `rerun`, under which it would end its command in such a moment.
    spawn "$ONCE" run --lease 400ms --key k -- sh -c "$holding"
    holder=$!
    await '[ -e ready ]'
    leased=$(lease_until k)
    await '[ "$(lease_until k)" -ge $((leased + 3 * 400)) ]'
    : >go
    expect_exit $holder 0 'the holder'
    is "$(lines effects)" 1 'executions'
}

# Starts COUNT processes, number $i running COMMAND with $i in it, all let go at
# the same moment; then waits for them: $statuses is like "1x0 49x75 ". Who is told that others were at the store for as long
# as he would wait for his turn, as on a busy machine, asks again.
fire() { # COUNT COMMAND
    local i pid s pids=()
    statuses=''
    cat >patient <<'END'
read _
i=$1
shift
while "$@"; s=$?; [ $s = 69 ] && grep -q 'is in use by another process (step ' err.$i; do : >err.$i; done
exit $s
END
    mkfifo gun
    exec 6<>gun 5<gun
    for ((i = 0; i < $1; i++)); do
        eval "spawn sh patient $i $2" <&5 6>&- >"out.$i" 2>>"err.$i"
        pids+=($!)
    done
    exec 6>&- 5<&- # nobody writes any more: the end of every read
    for pid in "${pids[@]}"; do
        await "! is_alive $pid" || return
        s=0
        wait "$pid" || s=$?
        echo $s
    done >statuses
    statuses=$(sort -n statuses | uniq -c | awk '{ printf "%sx%s ", $1, $2 }')
    # What they said, for a failure's message.
    err=$(cat err.* | grep -v 'replay of' | sort | uniq -c | sort -rn | head -n 5)
}

fifty__one_execution_others_wait() {
    # The one that executes goes on until all others have been told to wait.
    fire 50 'env ONCE_TRACE=trace.$i "$ONCE" run --store "trace+$ONCE_STORE" --wait 120s --key k -- sh -c "echo x >>effects
        until [ \$(cat trace.* | grep -c \"in progress\") -ge 49 ] && [ \$(grep -l \"in progress\" trace.* | wc -l) -ge 49 ]; do
            sleep 0.05; done; echo out"'
    is "$statuses" '50x0 ' 'exit statuses'
    is "$(lines effects)" 1 'executions'
    is "$(cat out.* | sort | uniq -c | tr -s ' ')" ' 50 out' 'outputs'
    is "$(cat err.* | grep -c 'replay of attempt 1')" 49 'replays'
    run once check
    is "$status" 0 'once check'
}

fifty__one_execution_others_75() {
    # The one that executes goes on until all others have been told.
    fire 50 '"$ONCE" run --key k -- sh -c "echo x >>effects
        until [ \$(cat err.* | grep -c \"in progress\") -ge 49 ]; do sleep 0.05; done; echo out"'
    is "$statuses" '1x0 49x75 ' 'exit statuses'
    is "$(lines effects)" 1 'executions'
    is "$(cat out.*)" out 'output'
    run once check
    is "$status" 0 'once check'
}

twenty_keys__four_processes_each() { # or SIZE times as many
    local each=$((4 * ${SIZE:-1}))
    fire $((20 * each)) '"$ONCE" run --wait 300s --key key-$((i % 20)) -- sh -c "echo $((i % 20)) | tee -a effects"'
    is "$statuses" "$((20 * each))x0 " 'exit statuses'
    is "$(sort -n effects | tr '\n' ' ')" "$(seq -s ' ' 0 19) " 'executions'
    is "$(cat out.* | sort -n | uniq -c | awk '{ printf "%sx%s ", $1, $2 }')" "$(seq -f "${each}x%g" -s ' ' 0 19) " 'outputs'
    run once check
    is "$status" 0 'once check'
}

tap in_progress__is_75_and_says_what_to_do in_progress__of_another_command_is_a_mismatch wait__replays \
    wait__ends_at_a_signal_with_nothing_held wait__next_executes_after_a_failure \
    lease__is_renewed_while_the_command_runs fifty__one_execution_others_wait fifty__one_execution_others_75 \
    twenty_keys__four_processes_each
