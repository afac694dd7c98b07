#!/bin/bash
# once keys: list, show, resolve, release, and the audit trail.
. "$(dirname "$0")/lib.sh"

make() { # KEY STATE [TENANT]: a record in that state
    local tenant=(--tenant "${3-}")
    case $2 in
    succeeded) once run --quiet "${tenant[@]}" --key "$1" -- sh -c 'echo out; echo err >&2' >/dev/null 2>&1 ;;
    failed) once run --final any "${tenant[@]}" --key "$1" -- sh -c 'exit 3' >/dev/null 2>&1 ;;
    retry) once run "${tenant[@]}" --key "$1" -- sh -c 'exit 4' >/dev/null 2>&1 ;;
    running) # the holder is alive as long as the case
        mkfifo "hold.$1"
        spawn "$ONCE" run "${tenant[@]}" --key "$1" -- sh -c 'exec 3>"began.$0"; read _ <"hold.$0"' "$1"
        await "[ -e 'began.$1' ]"
        ;;
    lapsed | unknown) # killed; its lease is over
        ONCE_CRASH=run.exited:1 "$ONCE" run --lease 1ms "${tenant[@]}" --key "$1" -- true >/dev/null 2>&1
        [ $2 = lapsed ] ||
            await "! once run --lease 1ms --tenant '${3-}' --key '$1' -- true 2>/dev/null && once keys show --tenant '${3-}' '$1' | grep -q '^state  *unknown'"
        ;;
    esac
} 2>/dev/null

json() { # FILTER: reads JSON lines, prints the Python expression of each, o being the object
    python3 -c 'import json, sys
for line in sys.stdin.buffer:
    o = json.loads(line.decode("utf-8", "strict"))
    print('"$1"')'
}

list__table_and_filters() {
    make a1 succeeded
    make a2 failed shop
    make b1 retry
    make b2 unknown
    run once keys list
    is "$status" 0 'exit status'
    like "${out%%$'\n'*}" '^KEY +STATE +TENANT +AGE +ATTEMPTS +EXPIRES$' 'head'
    is "$(sed 1d out | awk '{ print $1 }' | tr '\n' ' ')" 'b2 b1 a2 a1 ' 'newest first'
    like "$out" 'a1 +succeeded +- +[0-9]+[a-z0-9]+ +1 +23h' 'a row'
    like "$out" 'a2 +failed +shop ' 'a tenant'
    like "$out" 'b1 +failed, to be retried' 'retryable'
    like "$out" 'b2 +unknown +- .* never'$'\n' 'unknown does not expire'
    keys() { run once keys list --json "$@"; is "$status" 0 "exit status of list $*"; out=$(json 'o["key"]' <out | tr '\n' ' '); }
    keys --state failed; is "$out" 'b1 a2 ' '--state failed'
    keys --state unknown,succeeded; is "$out" 'b2 a1 ' '--state with two'
    keys --tenant shop; is "$out" 'a2 ' '--tenant'
    keys --tenant ''; is "$out" 'b2 b1 a1 ' '--tenant of none'
    keys --prefix a; is "$out" 'a2 a1 ' '--prefix'
    keys --older 1h; is "$out" '' '--older'
    keys --older 1ms --prefix a1; is "$out" 'a1 ' '--older and --prefix'
    run once keys list --state nonsense; is "$status" 64 'an unknown state'
}

show__says_whether_the_body_was_kept() { # which a listing does not know
    run once run --quiet --max-output 10 --key large -- head -c 100 /dev/zero
    run once keys show --json large
    is "$(json 'o["body_dropped"]' <out)" True 'shown'
    run once keys list --json
    is "$(json '"body_dropped" in o' <out)" False 'listed'
}

list__pages() {
    for i in 1 2 3 4 5; do make "k$i" succeeded; done
    run once keys list --limit 2 --json
    is "$(json 'o["key"]' <out | tr '\n' ' ')" 'k5 k4 ' 'first page'
    like "$err" '--before [0-9]+' 'how to go on'
    cursor=${err##*--before }
    run once keys list --limit 2 --json --before "${cursor%$'\n'}"
    is "$(json 'o["key"]' <out | tr '\n' ' ')" 'k3 k2 ' 'second page'
    cursor=${err##*--before }
    run once keys list --limit 2 --json --before "${cursor%$'\n'}"
    is "$(json 'o["key"]' <out | tr '\n' ' ')" 'k1 ' 'last page'
    is "$err" '' 'nothing more to say'
    run once keys list --all
    is "$(sed 1d out | wc -l)" 5 '--all'
    is "$err" '' '--all says nothing about pages'
    run once keys list --limit 1 --quiet
    is "$err" '' '--quiet'
}

json__is_valid_for_any_bytes() {
    keys=($'\377\376bad' $'tab\tnew\nline' 'quo"te\back' $'\033[31mred' 'ünïcode' $'\303' $'\355\240\200' $'\177')
    for key in "${keys[@]}"; do once run --tenant $'\200t' --key "$key" -- printf '\0\377\n"\\' >/dev/null; done
    run once keys list --json --all
    is "$(json 'o.get("key_hex") or o["key"].encode().hex()' <out | sort | tr '\n' ' ')" \
        "$(for key in "${keys[@]}"; do printf %s "$key" | od -An -tx1 | tr -d ' \n'; echo; done | sort | tr '\n' ' ')" 'keys'
    is "$(json 'o["tenant_hex"]' <out | sort -u)" 8074 'tenant'
    run once keys show --json --tenant $'\200t' "${keys[0]}"
    is "$(json 'o["output"][0]["text_hex"], o["key_hex"]' <out)" "00ff0a225c fffe626164" 'show'
    run once keys list
    unlike "$out" $'[\001-\011\013-\037\177]' 'the table has no control characters'
    run once keys show --tenant $'\200t' "${keys[3]}"
    unlike "$out" $'\033' 'show has no escape sequences'
}

show__everything() {
    once run --key k --retention 7d -- sh -c '"$0" advance half --data "the
checkpoint"; echo out; echo err >&2; printf "\001"; exit 0' "$ONCE" >/dev/null 2>&1
    run env TZ=CET-1 "$ONCE" keys show k
    is "$status" 0 'exit status'
    like "$out" 'state +succeeded' 'state'
    like "$out" 'attempt +1' 'attempt'
    like "$out" 'retention +7d' 'retention'
    like "$out" 'created +20[0-9-]* [0-9:]* \+0100   20[0-9-]*T[0-9:.]*Z   \([0-9a-z]+ ago\)' 'times, local and UTC'
    like "$out" 'expires +20[0-9-]* .* \(in 6d23h\)' 'expiry'
    like "$out" 'recovery point +half' 'recovery point'
    like "$out" $'\\| the\n.*\\| checkpoint' 'checkpoint'
    like "$out" 'stdout\| out' 'stdout'
    like "$out" 'stderr\| err' 'stderr'
    like "$out" 'stdout\| \\x01' 'escaped'
    like "$out" 'Content-Type: application/vnd.once.run' 'headers'
    like "$out" 'history.*claimed.*finished' 'history'
    run once keys show --raw=stdout k
    is "$out" $'out\n\001' '--raw=stdout'
    run once keys show --raw=stderr k
    is "$out" $'err\n' '--raw=stderr'
    run once keys show --raw=checkpoint k
    is "$out" $'the\ncheckpoint' '--raw=checkpoint'
    once run --key one -- printf abc >/dev/null
    run once keys show --raw one
    printf '\1\0\0\0\3abc' >expected
    same out expected '--raw: the frame as it is stored'
}

show__states() {
    make r running
    make l lapsed
    make u unknown
    make f retry
    run once keys show r; like "$out" $'state +running\n.*lease until +20.*\\(in ' 'running'
    run once keys show l; like "$out" $'state +running, lease over\n' 'lapsed'
    run once keys show u; like "$out" $'state +unknown\n' 'unknown'
    run once keys show f; like "$out" $'state +failed, to be retried\n.*status +4' 'retryable'
    run once keys show absent
    is "$status" 1 'exit status for an absent key'
    like "$err" 'no such key' 'message for an absent key'
    run once keys show --tenant other r
    is "$status" 1 'another tenant'
}

show__by_the_id_that_logs_have() {
    make u unknown acme
    make k succeeded
    id=$(once keys show --json --tenant acme u | json 'o["record"]')
    is "$(once keys list --json --tenant acme | json 'o["record"]')" "$id" 'listings have it, too'
    for form in "$id" "once-$id" "once-$id-17" "$id-17" "${id^^}"; do
        run once keys show --record "$form"
        is "$status" 0 "exit status for $form"
        like "$out" $'^key +u\ntenant +acme\nstate +unknown\n' "whose it is, for $form"
        like "$out" 'history.*claimed' "its history, for $form"
    done
    once keys show --json --tenant acme u | json '{**o, "age_ms": 0}' >by_key
    once keys show --json --record "once-$id-1" | json '{**o, "age_ms": 0}' >by_id
    same by_id by_key 'the same as by its key'
    run once keys show --raw=stdout --record "$(once keys show --json k | json 'o["record"]')"
    is "$out" $'out\n' '--raw'
    run once keys show --record 00112233445566778899aabbccddeeff
    is "$status" 1 'exit status for an id that nobody has'
    like "$err" 'no such record' 'message for it'
    for wrong in "" once- "${id%?}" "${id}0" "$id-" "$id-x" "once-${id%?}g" "key_hash=$id"; do
        run once keys show --record "$wrong"
        is "$status" 64 "'$wrong' is no id"
    done
    run once keys show --record "$id" k
    is "$status" 64 'a key and an id'
    run once keys show --record "$id" --tenant acme
    is "$status" 64 'a tenant and an id'
    run env ONCE_STORE= "$ONCE" keys show --store "sqlite:plain.db?keytext=off" --record "$id"
    is "$status" 69 'a store that is not there'
    once run --store 'sqlite:plain.db?keytext=off' --key secret -- true
    id=$(once keys list --store 'sqlite:plain.db?keytext=off' --json | json 'o["record"]')
    run once keys show --store 'sqlite:plain.db?keytext=off' --record "$id"
    like "$out" $'^key +-\n.*record +'"$id" 'where keys are not kept, all but the key'
}

resolve__done_replays() {
    make k unknown
    printf 'the answer\n' >body
    run once keys resolve k --done --status 0 --body @body --reason 'asked the bank'
    is "$status" 0 'exit status'
    run once run --quiet --key k -- true
    is "$status:$out" $'0:the answer\n' 'the next run'
    run once keys show k
    like "$out" 'resolved done.*by '"$(id -un)"': asked the bank' 'audit trail'
    run once keys resolve k --done --status 1 --reason 'again'
    is "$status" 1 'a second word'
    like "$err" 'that is final' 'message'
}

resolve__type_is_kept_with_the_body() {
    make k unknown
    run once keys resolve k --done --status 201 --body '{"id":7}' --type 'application/json; charset=utf-8' --reason 'asked the bank'
    is "$status" 0 'exit status'
    run once keys show k
    like "$out" 'status +201.*Content-Type: application/json; charset=utf-8'$'\n''.*"id":7' 'what is kept'
    run once run --quiet --key k -- true
    is "$status:$out" '201:{"id":7}' 'the next run'
}

resolve__failed_is_final() {
    make k lapsed
    run once keys resolve k --done --failed --status 42 --reason 'it bounced'
    is "$status" 0 'exit status'
    for _ in 1 2; do
        run once run --quiet --key k -- true
        is "$status" 42 'the next run'
    done
    run once keys show --json k
    like "$out" '"state":"failed","retryable":false' 'state'
}

resolve__not_done_executes() {
    make k unknown
    run once keys resolve k --not-done --reason 'never arrived'
    is "$status" 0 'exit status'
    run once keys show k
    like "$out" 'by '"$(id -un)"': never arrived' 'audit trail'
    run once run --key k -- true
    is "$status:$err" 0: 'the next run executes'
    run once keys show --json k
    like "$out" '"attempt":2,' 'attempt'
}

resolve__only_what_is_undecided() {
    make r running
    make s succeeded
    run once keys resolve r --not-done --reason x
    is "$status" 75 'a live holder'
    like "$err" 'its lease is not over' 'message'
    run once keys release r --reason x
    is "$status" 75 'release with a live holder'
    run once keys resolve s --not-done --reason x
    is "$status" 1 'a final outcome'
    run once keys resolve absent --not-done --reason x
    is "$status" 1 'an absent key'
    make u unknown
    run once keys resolve u --not-done --fence 999999 --reason x
    is "$status" 77 'another fence'
    like "$err" 'it changed: its fence is' 'message'
    run once keys show --json u
    like "$out" '"state":"unknown"' 'it is as it was'
}

resolve__needs_a_reason_and_a_verdict() {
    make u unknown
    for arguments in '--not-done' '--reason x' '--done --not-done --status 0 --reason x' '--done --reason x' \
        '--not-done --status 1 --reason x' '--not-done --body x --reason x' '--done --status -1 --reason x' \
        '--done --status 1x --reason x' '--done --status 0 --body @missing --reason x' '--not-done --reason x extra'; do
        run once keys resolve u $arguments
        is "$status" 64 "exit status of resolve u $arguments"
    done
    run once keys resolve --not-done --reason x
    is "$status" 64 'without a key'
    run once keys resolve u --not-done --reason ''
    is "$status" 64 'an empty reason'
    run once keys show --json u
    like "$out" '"state":"unknown"' 'it is as it was'
}

release__forgets_but_not_who_did_it() {
    make k unknown
    run once keys release k --reason 'typo'
    is "$status" 0 'exit status'
    run once keys show k
    is "$status" 1 'it is gone'
    like "$out" "by $(id -un): typo" 'the audit trail is not'
    run once run --key k -- echo other
    is "$status:$out" $'0:other\n' 'the key is free for another command'
    run once keys show k
    like "$out" "by $(id -un): typo" 'the audit trail, in the next life of the key'
}

key__any_bytes_on_the_command_line() {
    for key in '--help' '-x' ' ' $'\n' $'\377'; do
        once run --key "$key" -- true
        run once keys show -- "$key"
        is "$status" 0 "show $(printf %q "$key")"
    done
}

key__as_an_argument_or_as_an_option() {
    make k unknown
    make other succeeded
    run once keys show --key k
    is "$status" 0 'show --key'
    cp out by_option
    run once keys show k
    is "$(sed 's/(.*ago)//' out)" "$(sed 's/(.*ago)//' by_option)" 'is the same as show KEY'
    while read -r arguments; do
        eval "run once keys $arguments"
        is "$status" 64 "keys $arguments"
        like "$err" 'unexpected|it is empty|KEY is empty|given already' "why not keys $arguments"
    done <<'END'
show k --key k
show --key k --key other
show --key k other
show ''
show --key ''
show --key k --record 00000000000000000000000000000000
resolve k --key other --not-done --reason r
resolve '' --not-done --reason r
release --key k k --reason r
END
    run once keys show --json k
    like "$out" '"state":"unknown"' 'what was refused changed nothing'
    run once keys resolve --key k --not-done --reason r
    is "$status" 0 'resolve --key'
    make r unknown
    run once keys release --key r --reason r
    is "$status" 0 'release --key'
}

value__a_dash_is_standard_input() { # test/client/send.py has `once send`, run_takeover.sh `once advance`
    for dash in - @-; do
        make "k$dash" unknown
        printf 'from\0outside' >body
        once keys resolve --quiet --key "k$dash" --done --status 0 --body "$dash" --reason r <body || fault "resolve --body $dash"
        once keys show --raw --key "k$dash" >raw
        same raw body "the body by $dash"
    done
    make k unknown
    run once keys resolve k --done --status 0 --body - --body @- --reason r
    is "$status" 64 'read twice it would be empty the second time'
    like "$err" '--body: --body reads standard input already' 'message'
}

tap list__table_and_filters list__pages json__is_valid_for_any_bytes show__everything show__says_whether_the_body_was_kept show__states \
    show__by_the_id_that_logs_have resolve__done_replays resolve__type_is_kept_with_the_body \
    resolve__failed_is_final resolve__not_done_executes resolve__only_what_is_undecided \
    resolve__needs_a_reason_and_a_verdict release__forgets_but_not_who_did_it key__any_bytes_on_the_command_line \
    key__as_an_argument_or_as_an_option value__a_dash_is_standard_input
