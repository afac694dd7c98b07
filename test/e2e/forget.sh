#!/bin/bash
# `once forget`: what is erased, what is refused, what a retry gets, and what a crash in between leaves.
. "$(dirname "$0")/lib.sh"

effect='echo x >>effects'
make() { # TENANT KEY: an answer that is not empty
    once run --quiet --tenant "$1" --key "$2" -- sh -c "$effect; echo MARK-answer-$2" >/dev/null
}
again() { run once run --quiet --tenant "$1" --key "$2" -- sh -c "$effect; echo MARK-answer-$2"; }
in_files() { grep -c -a "$1" once.db once.db-wal 2>/dev/null | awk -F: '{ n += $2 } END { print n + 0 }'; }
of_tenant() { once keys list --all --json --tenant "$1" | wc -l; }

one__is_told_and_not_executed_again() {
    make MARK-tenant MARK-key
    make MARK-tenant other
    run once forget --tenant MARK-tenant --key MARK-key --reason 'ticket 1'
    is "$status:$out" $'0:forgotten: a retry is answered that it was done\n' 'the answer'
    again MARK-tenant MARK-key
    is "$status:$out" '0:' 'a retry: the status, and no answer'
    run once run --tenant MARK-tenant --key MARK-key -- sh -c "$effect; echo MARK-answer-MARK-key"
    like "$err" 'its output was forgotten' 'and it says why'
    again MARK-tenant other
    is "$out" $'MARK-answer-other\n' 'the other one is as it was'
    is "$(lines effects)" 2 'executions'
    is "$(in_files MARK-key)$(in_files MARK-answer-MARK-key)" 00 'its bytes are in no file'
    run once keys show MARK-key --tenant MARK-tenant
    like "$out" 'forgotten  by .*: ticket 1' 'the history says who and why'
    run once check
    is "$status" 0 'the store is sound'
}

one__by_argument_as_by_option() {
    make t a
    make t b
    run once forget --tenant t a --reason r
    is "$status:$out" $'0:forgotten: a retry is answered that it was done\n' 'KEY alone'
    again t a
    is "$status:$out" '0:' 'it is forgotten'
    run once forget --tenant t --yes --reason r ''
    is "$status" 64 'an empty KEY is not the whole tenant'
    again t b
    is "$out" $'MARK-answer-b\n' 'the other one is as it was'
}

one__what_is_not_finished_is_refused() {
    make t other
    run once forget --tenant t --key none --reason r
    is "$status" 1 'no such key'
    spawn "$ONCE" run --key live -- sh -c "$effect; echo \$\$ >pid; sleep 1000"
    await '[ -s pid ]'
    run once forget --tenant '' --key live --reason r
    is "$status" 75 'in progress'
    like "$err" 'in progress' 'and told so'
    run once forget --tenant '' --key live --drop --yes --reason r
    is "$status" 75 'nor is it dropped'
    ONCE_CRASH=run.exited:1 once run --lease 100ms --key lost -- sh -c "$effect"
    await 'once keys list --json | grep lost | grep -q "\"lease_live\": *false"'
    run once forget --tenant '' --key lost --reason r
    is "$status" 1 'undecided'
    like "$err" "once keys resolve" 'and what to do'
    once keys resolve --done --status 0 --reason 'it did' lost
    run once forget --tenant '' --key lost --reason r
    is "$status" 0 'after that it is forgotten'
}

one__dropped_executes_again() {
    make a k
    run once forget --tenant a --key k --drop --reason r
    is "$status" 64 'not without a word of confirmation'
    like "$err" '--yes' 'which it names'
    run once forget --tenant a --key k --drop --yes --reason r
    like "$out" 'a retry executes again' 'loud about it'
    again a k
    is "$(lines effects)" 2 'executions'
    run once keys show k --tenant a
    like "$out" 'dropped  by ' 'the history'
}

dry_run__changes_nothing() {
    for k in 1 2 3; do make a $k; done
    run once forget --tenant a --dry-run
    is "$status:$out" $'0:would be: 3 forgotten\n' 'what would be'
    run once forget --tenant a --key 2 --dry-run
    like "$out" '^would be forgotten' 'of one'
    again a 2
    is "$out" $'MARK-answer-2\n' 'nothing changed'
}

tenant__all_of_it_and_nobody_elses() {
    for k in $(seq 12); do make a $k; done
    make b 1
    make '' 1
    run once forget --tenant a --reason r
    is "$status" 64 'not without a word of confirmation'
    run once forget --tenant a --yes --step 5 --reason 'all of it'
    is "$status:$out" $'0:12 forgotten\n' 'how many'
    is "$(of_tenant a)" 0 'nothing has its name any more'
    is "$(in_files 'MARK-answer-7')" 0 'bytes in the files'
    for k in 1 7 12; do
        again a $k
        is "$status:$out" '0:' "replay of $k"
    done
    again b 1
    is "$out" $'MARK-answer-1\n' "another tenant's"
    run once forget --tenant a --yes --reason 'once more'
    is "$status:$out" $'0:0 forgotten\n' 'there is nothing left to do'
    run once forget --tenant '' --yes --reason 'the single tenant'
    is "$out" $'1 forgotten\n' 'of the single tenant just his own'
    is "$(lines effects)" 14 'executions'
}

tenant__killed_in_the_middle_goes_on() {
    for k in $(seq 15); do make a $k; done
    local n=1 left=15 before
    for point in sqlite.applied sqlite.committed engine.answered; do
        before=$left
        ONCE_CRASH=$point:$((n + 1)) once forget --tenant a --yes --step 3 --reason r >/dev/null 2>&1
        is $? 137 "killed at $point"
        left=$(of_tenant a)
        [ "$left" -le "$before" ] || fault "more than before: $left after $before"
        run once check
        is "$status" 0 "the store after $point"
    done
    [ "$left" -lt 15 ] || fault 'nothing was done before it was killed'
    [ "$left" -gt 0 ] || fault 'all was done: it was not killed in the middle'
    run once forget --tenant a --yes --step 3 --reason r
    is "$status:$out" "0:$left forgotten"$'\n' 'the rest'
    for k in $(seq 15); do again a "$k"; done
    is "$(lines effects)" 15 'executions'
    is "$(in_files MARK-answer)" 0 'bytes in the files'
}

tenant__interrupted_stops_between_two_steps() {
    for k in $(seq 9); do make a $k; done
    ONCE_CRASH=sqlite.committed:1:stop "$ONCE" forget --tenant a --yes --step 3 --reason r >said 2>&1 &
    spawned+=($!)
    await "is_stopped $!"
    kill -TERM $!
    kill -CONT $!
    expect_exit $! 143 'its exit status'
    like "$(cat said)" 'run it again to continue' 'what it said'
    local left
    left=$(of_tenant a)
    [ "$left" -gt 0 ] || fault 'it did not stop'
    run once forget --tenant a --yes --reason r
    is "$out" "$left forgotten"$'\n' 'the rest'
}

reconcile__finds_what_was_forgotten() {
    make '' a
    make '' b
    once forget --tenant '' --key a --reason r
    printf 'key,state\na,paid\nb,paid\n' >charges.csv
    run once reconcile --from charges.csv --key key --outcome state --done paid --grace 0s
    like "$status:$out" '^0:2 lines, 2 records: 2 equal' 'by its key, which the other side has'
}

daemon__does_it_for_others() {
    spawn "$ONCE" daemon --socket "$CASE/sock" --http off --quiet >said
    await '[ -s said ]' # it is ready
    export ONCE_STORE=once:$CASE/sock
    for k in 1 2 3; do make a $k; done
    run once forget --tenant a --yes --reason r
    is "$status:$out" $'0:3 forgotten\n' 'over the socket'
    again a 2
    is "$status:$out" '0:' 'a replay'
    is "$(lines effects)" 3 'executions'
    is "$(in_files MARK-answer)" 0 'bytes in the files'
}

tap one__is_told_and_not_executed_again one__by_argument_as_by_option one__what_is_not_finished_is_refused one__dropped_executes_again \
    dry_run__changes_nothing tenant__all_of_it_and_nobody_elses tenant__killed_in_the_middle_goes_on \
    tenant__interrupted_stops_between_two_steps reconcile__finds_what_was_forgotten daemon__does_it_for_others
