#!/bin/bash
# Every verb explains itself; mistakes are refused with a hint.
. "$(dirname "$0")/lib.sh"

verbs=('run' 'advance' 'keys' 'keys list' 'keys show' 'keys resolve' 'keys release' 'key' 'check' 'expire' 'forget' 'migrate' 'send' 'serve' 'status' 'reconcile' 'relay' 'outbox' 'outbox list' 'outbox show' 'outbox retry' 'outbox drop' 'consume' 'inbox' 'inbox list' 'inbox show' 'inbox retry' 'inbox drop')

help__of_every_verb() {
    for verb in "${verbs[@]}"; do
        run once $verb --help
        is "$status:$err" 0: "$verb --help"
        like "$out" "^usage: once $verb" "$verb: usage"
        like "$out" 'exit:' "$verb: exit codes"
        like "$out" 'example: ' "$verb: an example"
        [ "$(awk '{ if (length($0) > m) m = length($0) } END { print m }' out)" -le 90 ] || fault "$verb --help: lines over 90 columns"
        cp out direct
        run once help $verb
        is "$status" 0 "help $verb"
        same out direct "help $verb"
        run once $verb -h
        is "$status" 0 "$verb -h"
        same out direct "$verb -h"
    done
    once --help >direct
    run once -h
    is "$status" 0 'once -h'
    same out direct 'once -h'
    for verb in "${verbs[@]}"; do [[ $verb == *' '* ]] || like "$(once --help)" "  $verb +[a-z]" "$verb in the list"; done
    [ ! -e once.db ] || fault 'asking for help made a store'
}

version__is_told() {
    for option in --version -V; do
        run once $option
        is "$status" 0 'exit status'
        like "$out" '^once [0-9]+\.[0-9]+\.[0-9]+'$'\n''$' 'version'
    done
}

mistake__is_64_with_a_hint() {
    while read -r arguments; do
        eval "run once $arguments"
        is "$status" 64 "exit status of once $arguments"
        like "$err" '^once' "message of once $arguments"
        like "$err" "--help" "hint of once $arguments"
        is "$out" '' "stdout of once $arguments"
    done <<'END'

nonsense
help nonsense
--nonsense
run
run --key k
run -- true
run --key '' -- true
run --key a --key b -- true
run --key k --nonsense -- true
run --key k --lease -- true
run --key k --lease 10 -- true
run --key k --lease 0s -- true
run --key k --lease never -- true
run --key k --retention 0s -- true
run --key k --wait 25h -- true
run --key k --takeover probe -- true
run --key k --final some -- true
run --key k --max-output 17M -- true
run --key k --max-output x -- true
run --key k --quiet=yes -- true
run -k k -- true
advance
advance --nonsense x
daemon --log-decisions xml
daemon --log-file x
daemon --otlp x
daemon --otlp http://u:p@x
daemon --otlp-ratio 0.5
daemon --otlp http://x --otlp-ratio 1.5
daemon --otlp http://x --otlp-ratio -1
relay --route '*=http://x' --otlp-header 'a: b'
relay --route '*=http://x' --otlp http://x --otlp-ratio 1
consume nats://x/y --consumer c --to http://x --otlp-ratio x
send POST http://x --otlp-header 'a: b'
send POST http://x --otlp ftp://x
send POST http://x --otlp http://x --otlp-header nonsense
send POST http://x --otlp http://x --otlp-header @/nonexistent
send POST http://x --trace -H 'Traceparent: x'
keys
keys nonsense
keys list extra
keys list --limit 0
keys list --limit x
keys list --before 0
keys list --older x
keys show
keys show a b
keys show --raw=x k
keys release k
keys resolve k --done --status 600 --reason r
keys resolve k --done --status -1 --reason r
keys resolve k --done --status 0 --reason r --type text/plain
keys resolve k --not-done --reason r --type text/plain
keys resolve k --done --status 0 --reason r --body x --type ''
keys resolve k --done --status 0 --reason r --body x --type plain
keys resolve k --done --status 0 --reason r --body x --type $'text/plain\r\nSet-Cookie: a=b'
keys resolve k --done --status 0 --reason r --body x --type $'text/plain\n'
keys resolve k --done --status 0 --reason r --body x --type text/$(printf %252s | tr ' ' x)
keys resolve k --done --status 0 --reason r --body x --type application/vnd.once.run
key extra
check extra
status extra
status --socket ''
forget
forget --tenant a
forget --tenant a --reason r
forget --tenant a --key k --drop --reason r
forget --tenant a --key= --reason r
forget --tenant a --key b --key c --reason r
forget --tenant a --yes --reason r --step 0
forget --tenant a --yes --reason r --step 1001
forget --tenant a --yes --reason r ''
forget --tenant a --yes --reason r k l
forget --tenant a --yes --reason r --key k k
expire --limit 0
expire --step 10001
migrate extra
migrate --pg-cron
migrate --pg-cron=sometimes
send
send POST
send POST ftp://x.invalid/
send POST x.invalid
send POST http://u@x.invalid/
send 'PO ST' http://x.invalid/
send POST http://x.invalid/ extra
send POST http://x.invalid/ -H x
send POST http://x.invalid/ -H 'Idempotency-Key: k'
send POST http://x.invalid/ -H 'Content-Length: 3'
send POST http://x.invalid/ -H @nowhere
send POST http://x.invalid/ -d @nowhere
send POST http://x.invalid/ -d a -d b
send POST http://x.invalid/ -x
send POST http://x.invalid/ -d
send POST http://x.invalid/ --key ''
send POST http://x.invalid/ --key a --key b
send http://x.invalid/
send http://x.invalid/ POST
send post http://x.invalid/
send Post
send POST http://x.invalid/ --key 'a b'
send POST http://x.invalid/ --key 'a;b' --header-format bare
send POST http://x.invalid/ --header-name 'a b'
send POST http://x.invalid/ --header-format quoted
send POST http://x.invalid/ --tries 0
send POST http://x.invalid/ --max-time 25h
send POST http://x.invalid/ --timeout 0s
send POST http://x.invalid/ --max-answer 2G
send POST http://x.invalid/ --max-age x
send POST http://x.invalid/ --json
send --resume --list
send --resume a b
send --resume -d x
send --resume --key k
send --list extra
send --list -H 'A: b'
send --forget
serve
serve --upstream x
serve --upstream http://x --listen x
serve --upstream http://x extra
reconcile
reconcile extra
reconcile --from x.csv
reconcile --from x --key k
reconcile --from x.csv --key k extra
reconcile --from x.csv --key k --exec y
reconcile --from x.csv --key k --format xml
reconcile --from x.csv --key k --separator ab
reconcile --from x.csv --key /~2
reconcile --from x.csv --key k --call ''
reconcile --from x.csv --key k --jobs 2
reconcile --from x.csv --key k --outcome o
reconcile --from x.csv --key k --done a
reconcile --from x.csv --key k --outcome o --done '*' --not-done '*'
reconcile --from x.csv --key k --compare a
reconcile --from x.csv --key k --since yesterday
reconcile --from x.csv --key k --since 1h --until 2h
reconcile --from x.csv --key k --grace never
reconcile --from x.csv --key k --resolve maybe
reconcile --from x.csv --key k --resolve done
reconcile --from x.csv --key k --resolve not-done
reconcile --from x.csv --key k --resolve not-done --complete-until 2999-01-01
reconcile --from x.csv --key k --resolve not-done --complete-until 1h --status 0
reconcile --from x.csv --key k --resolve done --status 0 --answer '*'
reconcile --from x.csv --key k --resolve done --status 0 --apply --dry-run
reconcile --from x.csv --key k --apply
reconcile --from x.jsonl --key k --no-header
reconcile --exec ''
reconcile --exec x --key k
reconcile --exec x --complete-until 1h
reconcile --exec x --jobs 65
reconcile --exec x --timeout 0s
reconcile --exec x --header 'A: b'
reconcile --url https://example.invalid/
reconcile --url https://{key}.example.invalid/
reconcile --url ftp://example.invalid/{key}
reconcile --url https://example.invalid/{key} --header x
relay
relay --route x
relay --route =http://localhost/
relay --route a=ftp://localhost/
relay --route a=http:///
relay --route a=http://user@localhost/
relay --route a=http://localhost/ extra
relay --route a=http://localhost/ --timeout 20s
relay --route a=http://localhost/ --lease 1ms
relay --route a=http://localhost/ --batch 1001
relay --route a=http://localhost/ --attempts 0
relay --route a=http://localhost/ --backoff never
outbox
outbox nonsense
outbox list extra
outbox list --state alive
outbox list --limit 0
outbox show
outbox show 17
outbox show --raw --json 0b8f7a52-6f0e-4a53-9d3e-3b1f6a1c2d4e
outbox retry --reason x
outbox retry 0b8f7a52-6f0e-4a53-9d3e-3b1f6a1c2d4e
outbox retry --all-dead 0b8f7a52-6f0e-4a53-9d3e-3b1f6a1c2d4e --reason x
consume
consume nats://localhost/S --consumer c
consume nats://localhost/S --exec true
consume ftp://localhost --consumer c --exec true
consume nats://localhost/S --consumer c --exec true --window 10001
consume nats://localhost/S --consumer c --exec true --attempts 0
inbox
inbox nonsense
inbox list --state pending
inbox show 17
inbox retry --reason x
inbox retry --consumer c 0b8f7a52-6f0e-4a53-9d3e-3b1f6a1c2d4e --reason x
inbox drop 0b8f7a52-6f0e-4a53-9d3e-3b1f6a1c2d4e
outbox retry --topic t 0b8f7a52-6f0e-4a53-9d3e-3b1f6a1c2d4e --reason x
outbox drop 0b8f7a52-6f0e-4a53-9d3e-3b1f6a1c2d4e --reason ''
END
    [ ! -e once.db ] || fault 'a mistake made a store'
}

mistake__is_named() {
    said() { like "$err" "^once run: $1" 'message'; }
    run once run --key k --nonsense -- true; said "unknown or ambiguous option '--nonsense'"
    run once run -x -- true; said "unknown option '-x'"
    run once run --quiet=yes -- true; said "option '--quiet=yes' takes no value"
    run once run --key; said "option '--key' needs a value"
    run once run --key k --lease 5 -- true; said "--lease: .*5"
    run once run --key k; said 'COMMAND is missing'
    run once run true; said '--key KEY is missing'
    run once run --key '' -- true; said '--key: it is empty'
    run once run --key a --key b -- true; said '--key: it was given already'
    run once run --key k --lease 25h -- true; said 'cannot run the command: a lease of 1d1h is not between 1ms and 1d'
    run once run --key k --retention 99999999d -- true; said "cannot run the command: a retention of 99999999d is not between 1ms and [0-9]+d, nor 'never'"
    run once send http://x.invalid/; like "$err" 'METHOD is missing: once send POST https://' 'message'
    run once send post http://x.invalid/; like "$err" 'METHOD must be in capitals: POST' 'message'
}

mistake__limits_of_the_library_are_64() {
    run once run --key k --lease 25h -- true
    is "$status" 64 'a lease of more than a day'
    run once run --key k --retention 99999999d -- true
    is "$status" 64 'a retention of more than 100 years'
    run once run --tenant "$(head -c 256 /dev/zero | tr '\0' x)" --key k -- true
    is "$status" 64 'a tenant of 256 bytes'
}

options__end_at_the_command() {
    run once run --key k sh -c 'echo "$@"' sh --key --help
    is "$status:$out" $'0:--key --help\n' 'its own options are not ours'
}

# In URLs of every kind, also with what should have been escaped: messages end in logs.
password__is_in_no_message() {
    while read -r arguments; do
        eval "run once $arguments"
        [ "$status" -ge 64 -a "$status" -lt 100 ] || fault "exit status of once $arguments: $status"
        like "$err" '^once' "message of once $arguments"
        case $out$err in *SEC*|*RET*) fault "once $arguments tells it: $out$err" ;; esac
    done <<'END'
outbox list --store 'redis://u:SECRET@127.0.0.1:1?tier=best-effort'
outbox list --store 'host=h password=SECRET'
relay --store 'redis://u:SECRET@127.0.0.1:1?tier=best-effort' --route 't=http://127.0.0.1:1/'
inbox list --store 'redis://u:SECRET@127.0.0.1:1?tier=best-effort'
daemon --socket d.sock --http off --store 'redis://u:SEC?RET@127.0.0.1:1?tier=best-effort'
daemon --socket d.sock --http off --store 'redis://u:x?SECRET&x@127.0.0.1:1?tier=best-effort'
daemon --socket d.sock --http off --store 'postgresql://u:SEC%RET@127.0.0.1:1/x'
keys list --store 'postgresql://u:SEC%RET@127.0.0.1:1/x'
run --store 'postgresql://u:SEC%00RET@127.0.0.1:1/x' --key k -- true
keys list --store 'postgresql://u:x@SECRET@127.0.0.1:1/x'
keys list --store 'postgresql://u:SEC/RET@127.0.0.1:1/x'
keys list --store 'postgresql://u:1/SECRET@127.0.0.1:1/x'
keys list --store 'postgresql://u:1/?SECRET@127.0.0.1:1/x'
keys list --store 'postgresql://u:SECRET'
keys list --store 'postgresql:u:SECRET@127.0.0.1'
keys list --store 'postgresql://127.0.0.1:1/x?passwort=SECRET'
keys list --store 'postgresql://127.0.0.1:1/x?password=SEC%RET'
outbox list --store 'postgresql://u:SEC%RET@127.0.0.1:1/x'
inbox list --store 'postgresql://u:SEC%RET@127.0.0.1:1/x'
daemon --socket d.sock --http off --otlp 'https://u:SECRET@127.0.0.1:1/?x'
daemon --socket d.sock --http off --otlp 'ftp://u:SECRET@127.0.0.1:1/'
daemon --socket d.sock --http off --otlp 'https://u:SEC/RET@127.0.0.1:1/'
daemon --socket d.sock --http off --otlp 'https://127.0.0.1:1/?token=SECRET'
daemon --socket d.sock --http off --complete 's=ftp://u:SECRET@127.0.0.1:1/'
daemon --socket d.sock --http off --escalate-webhook 'ftp://u:SECRET@127.0.0.1:1/'
consume --consumer c --to 'ftp://u:SECRET@127.0.0.1:1/' 'nats://127.0.0.1:1/s/t'
consume --consumer c --to 'http://127.0.0.1:1/' 'nonsense://u:SEC?RET@127.0.0.1:1/s/t'
send --data x 'ftp://u:SECRET@127.0.0.1:1/'
send --data x 'http:///u:SECRET@127.0.0.1:1/'
END
}

tap help__of_every_verb version__is_told mistake__is_64_with_a_hint mistake__is_named mistake__limits_of_the_library_are_64 \
    options__end_at_the_command password__is_in_no_message
