#!/bin/bash
# What a command printed is printed again: same bytes, same streams, same order, same status.
. "$(dirname "$0")/lib.sh"

effect='echo x >>effects'

replay__same_streams_and_status() {
    for _ in 1 2 3; do
        run once run --final any --key k -- sh -c "$effect; echo out; echo err >&2; exit 7"
        is "$status" 7 'exit status'
        is "$out" $'out\n' 'stdout'
        like "$err" '^err' 'stderr'
    done
    is "$(lines effects)" 1 'executions'
}

replay__says_so_on_stderr_unless_quiet() {
    run once run --key k -- echo hi
    is "$err" '' 'stderr of the first run'
    run once run --key k -- echo hi
    like "$err" '^once: replay of attempt 1, finished 20[0-9-]* [0-9:]* \+0000'$'\n''$' 'the remark'
    run once run --quiet --key k -- echo hi
    is "$err" '' 'stderr with --quiet'
    is "$out" $'hi\n' 'stdout with --quiet'
}

replay__remark_has_a_line_of_its_own() {
    once run --key k -- printf charged
    is "$(once run --key k -- printf charged 2>&1 | sed 's/finished.*//')" $'charged\nonce: replay of attempt 1, ' 'in one place'
    run once run --key k -- printf charged
    is "$out:${err%%, *}" 'charged:once: replay of attempt 1' 'in two'
}

replay__binary_output() {
    head -c 200000 /dev/urandom >blob
    printf '\0\1\0\2\377' >>blob
    run once run --key k -- sh -c "$effect; cat blob; cat blob >&2"
    same out blob 'stdout, live'
    same err blob 'stderr, live'
    run once run --quiet --key k -- sh -c "$effect; cat blob; cat blob >&2"
    same out blob 'stdout, replayed'
    same err blob 'stderr, replayed'
    is "$(lines effects)" 1 'executions'
}

replay__no_output() {
    for _ in 1 2; do
        run once run --quiet --key k -- sh -c "$effect"
        is "$status:$out:$err" '0::' 'answer'
    done
    is "$(lines effects)" 1 'executions'
}

output__over_the_limit_is_shown_but_not_kept() {
    run once run --max-output 1000 --key k -- sh -c "$effect; head -c 1001 /dev/zero"
    is "$status" 0 'exit status'
    is "$(stat -c %s out)" 1001 'bytes shown live'
    like "$err" 'too large to store' 'the remark'
    run once run --max-output 1000 --key k -- sh -c "$effect; head -c 1001 /dev/zero"
    is "$status" 0 'exit status of the replay'
    is "$(stat -c %s out)" 0 'bytes replayed'
    like "$err" 'replay of attempt 1, .*was not stored' 'what the replay says'
    run once run --quiet --max-output 1000 --key k -- sh -c "$effect; head -c 1001 /dev/zero"
    like "$err" 'replay of attempt 1, .*was not stored' 'and says with --quiet, too'
    is "$(lines effects)" 1 'executions'
}

output__exactly_the_limit_is_kept() {
    for _ in 1 2; do
        run once run --quiet --max-output 1000 --key k -- sh -c "head -c 400 /dev/zero; head -c 600 /dev/zero >&2"
        is "$(stat -c %s out):$(stat -c %s err)" 400:600 'bytes'
    done
}

output__several_megabytes_replay() {
    head -c 9000000 /dev/urandom >blob
    run once run --max-output 10M --key k -- cat blob
    same out blob 'live'
    run once run --quiet --key k --max-output 10M -- cat blob
    same out blob 'replayed'
}

output__interleaving_is_kept() {
    # Both streams into one file; each line is written when the one before it has arrived.
    cat >talk <<'END'
n=0
for word in o:one e:two e:three o:four e:five o:six; do
    case $word in o:*) echo "${word#?:}" ;; *) echo "${word#?:}" >&2 ;; esac
    n=$((n + 1))
    until [ "$(wc -l <all)" -ge $n ]; do sleep 0.01; done
done
END
    status=0
    once run --key k -- sh talk >all 2>&1 || status=$?
    is "$status" 0 'exit status'
    printf '%s\n' one two three four five six >expected
    same all expected 'live'
    once run --quiet --key k -- sh talk >again 2>&1
    same again expected 'replayed into one file'
    run once run --quiet --key k -- sh talk
    is "$out" $'one\nfour\nsix\n' 'stdout'
    is "$err" $'two\nthree\nfive\n' 'stderr'
    run once keys show --raw k
    is "$(stat -c %s out)" $((28 + 5 * 5)) 'stored: 28 bytes in 5 frames, neighbours merged'
}

output__is_live() {
    mkfifo go
    spawn sh -c 'exec "$0" run --key k -- sh -c "echo begun; read _ <go; echo ended" >live' "$ONCE"
    await 'grep -q begun live 2>/dev/null'
    is "$(cat live)" begun 'while it runs'
    echo >go
    expect_exit $! 0 'exit status'
    is "$(cat live)" $'begun\nended' 'afterwards'
}

output__a_flood_does_not_starve_the_other_stream() {
    for flood in 1 2; do
        rm -f stop
        spawn sh -c 'exec "$0" run --key k$1 -- sh -c "yes >&$1 & first=\$!; yes >&$1 & echo hello >&$((3 - $1)); until [ -e stop ]; do sleep 0.02; done; kill \$first \$!" \
            1>stream.1.$1 2>stream.2.$1' "$ONCE" $flood
        once=$!
        await "grep -aq hello stream.$((3 - flood)).$flood 2>/dev/null"
        : >stop
        expect_exit $once 0 'exit status'
        rm stream.*
    done
}

output__slow_reader_loses_nothing() {
    # It reads nothing until there is no more room for what it should read.
    local full='import fcntl, struct, termios, time
while struct.unpack("i", fcntl.ioctl(0, termios.FIONREAD, bytes(4)))[0] < fcntl.fcntl(0, 1032): time.sleep(0.01)' # F_GETPIPE_SZ
    once run --max-output 4M --key k -- head -c 3000000 /dev/zero | { python3 -c "$full"; wc -c >count; }
    is "$(cat count)" 3000000 'bytes read'
    run once run --max-output 4M --quiet --key k -- head -c 3000000 /dev/zero
    is "$(stat -c %s out)" 3000000 'bytes replayed'
}

# A reader that goes away, a full disk, a closed stdout: the outcome is stored all the same.
broken_stdout() { # WHAT, then the first run on stdin
    is "$(lines effects)" 1 "$1: executions after the first run"
    run once run --quiet --key k -- sh -c "$effect; echo one; echo two"
    is "$status:$out" $'0:one\ntwo\n' "$1: replay"
    is "$(lines effects)" 1 "$1: executions"
}

stdout__closed_pipe_keeps_the_outcome() {
    mkfifo pipe
    exec 8<>pipe 9>pipe # 8 lets 9 open; closed, nobody reads
    exec 8<&-
    status=0
    once run --key k -- sh -c "$effect; echo one; echo two" >&9 2>err || status=$?
    is "$status" 74 'exit status'
    like "$(cat err)" 'cannot write to standard output: Broken pipe' 'message'
    broken_stdout 'closed pipe'
}

stdout__full_disk_keeps_the_outcome() {
    status=0
    once run --key k -- sh -c "$effect; echo one; echo two" >/dev/full 2>err || status=$?
    is "$status" 74 'exit status'
    like "$(cat err)" 'No space left' 'message'
    broken_stdout 'full disk'
}

stdout__closed_descriptor_keeps_the_outcome() {
    status=0
    once run --key k -- sh -c "$effect; echo one; echo two" >&- 2>err || status=$?
    is "$status" 74 'exit status'
    like "$(cat err)" 'Bad file descriptor' 'message'
    broken_stdout 'closed descriptor'
}

stdout__failing_command_keeps_its_status() {
    status=0
    once run --key k -- sh -c 'echo one; exit 3' >/dev/full 2>err || status=$?
    is "$status" 3 'exit status'
}

stdin__is_the_commands() {
    is "$(echo hello | once run --key k -- cat)" hello 'first run'
    is "$(echo other | once run --quiet --key k -- cat)" hello 'replay, whatever standard input has'
    is "$(once run --key closed -- sh -c 'cat 2>&1 || true' <&- | wc -l)" 1 'closed standard input is closed for the command'
}

command__inherits_no_descriptor_of_ours() {
    run once run --key k -- sh -c 'exec 7</dev/null; exec ls /proc/self/fd'
    sh -c 'exec 7</dev/null; exec ls /proc/self/fd' >plain </dev/null 2>err
    same out plain 'descriptors'
}

command__environment_says_who_it_is() {
    run once run --key k -- sh -c 'echo $ONCE_ATTEMPT; echo $ONCE_FENCE; echo $ONCE_KEY; echo $ONCE_STORE; echo ${ONCE_RECOVERY_POINT-unset}; echo ${ONCE_CHECKPOINT_FILE-unset}'
    { read -r attempt; read -r fence; read -r key; read -r store; read -r point; read -r file; } <out
    is "$attempt" 1 ONCE_ATTEMPT
    like "$fence" '^[1-9][0-9]*$' ONCE_FENCE
    like "$key" '^[[:graph:]]{20,64}$' ONCE_KEY
    is "$store" "$ONCE_STORE" ONCE_STORE
    is "$point" '' 'ONCE_RECOVERY_POINT without one'
    is "$file" unset 'ONCE_CHECKPOINT_FILE without one'
    ONCE_KEY=old ONCE_CHECKPOINT_FILE=old run once run --key nested -- env
    is "$(grep -c '^ONCE_KEY=' out)" 1 'ONCE_KEY of an enclosing run is replaced'
    unlike "$out" 'ONCE_CHECKPOINT_FILE' 'ONCE_CHECKPOINT_FILE of an enclosing run is removed'
    run once run --key other -- sh -c 'echo $ONCE_KEY'
    [ "$out" != "$key"$'\n' ] || fault 'two keys, one child key'
}

store__relative_path_is_absolute_for_the_command() {
    mkdir elsewhere
    run once run --store sqlite:rel.db --key k -- sh -c 'cd elsewhere; echo $ONCE_STORE'
    is "$out" "sqlite:$CASE/rel.db"$'\n' ONCE_STORE
    is "$(stat -c %a rel.db)" 600 'mode of the file'
}

store__default_is_in_the_state_directory() {
    unset ONCE_STORE
    HOME=$CASE/home run once run --key k -- true
    is "$status" 0 'exit status'
    is "$(stat -c %a home/.local/state/once)" 700 'mode of the directory'
    [ -s home/.local/state/once/once.db ] || fault 'no store in ~/.local/state/once'
    XDG_STATE_HOME=$CASE/state HOME=$CASE/home run once run --key k -- true
    [ -s state/once/once.db ] || fault 'no store in $XDG_STATE_HOME/once'
}

key__belongs_to_its_command() {
    run once run --key k -- sh -c "$effect" a b
    for other in 'a' 'a b c' 'ab' "a 'b '" "'a b'"; do
        eval "run once run --key k -- sh -c \"\$effect\" $other"
        is "$status" 65 "exit status with arguments $other"
        like "$err" 'another command' 'message'
    done
    is "$(lines effects)" 1 'executions'
    cd / && run once run --key k -- sh -c "$effect" a b
    is "$status" 0 'another directory does not count'
}

key__any_bytes() {
    for key in ' ' $'\n' $'\377\376' '-k' "it's" 'a/b?c&d' "$(head -c 255 /dev/zero | tr '\0' x)"; do
        run once run --key "$key" -- sh -c "$effect"
        is "$status" 0 "first run of '$key'"
        run once run --key "$key" -- sh -c "$effect"
        like "$err" 'replay' "second run of '$key'"
    done
    is "$(lines effects)" 7 'executions'
    run once run --key "$(head -c 256 /dev/zero | tr '\0' x)" -- true
    is "$status" 64 'a key of 256 bytes'
    run once run --key '' -- true
    is "$status" 64 'an empty key'
}

tenant__has_its_own_keys() {
    run once run --tenant a --key k -- sh -c "$effect; echo a"
    run once run --tenant b --key k -- sh -c "$effect; echo b"
    is "$status:$out" $'0:b\n' 'another tenant'
    run once run --key k -- sh -c "$effect; echo none"
    is "$status:$out" $'0:none\n' 'no tenant'
    run once run --quiet --tenant a --key k -- sh -c "$effect; echo a"
    is "$status:$out" $'0:a\n' 'the first tenant again'
    is "$(lines effects)" 3 'executions'
}

retention__over_means_anew() {
    run once run --retention 1ms --key k -- sh -c "$effect"
    await 'once run --quiet --retention 1ms --key k -- sh -c "$effect"; [ "$(lines effects)" -ge 2 ]'
    run once run --retention never --key for-ever -- sh -c "$effect"
    run once keys show --json for-ever
    like "$out" '"expires_at":"never"' 'expiry of --retention never'
}

retention__of_the_output_ends_first() {
    run once run --retention never --body-retention 1ms --key k -- sh -c "$effect; echo shown; exit 3"
    is "$status:$out" $'3:shown\n' 'the first time'
    run once run --retention never --body-retention 1ms --final any --key j -- sh -c "$effect; echo shown; exit 3"
    is "$status:$out" $'3:shown\n' 'another'
    await 'once keys show --json j >shown; grep -q "\"body_expired\":true" shown'
    run once run --final any --key j -- sh -c "$effect; echo shown; exit 3"
    is "$status:$out" '3:' 'the replay'
    like "$err" 'replay of attempt 1, .*; its output has expired' 'its remark'
    is "$(lines effects)" 2 'executions'
    run once expire
    is "$status:$out" $'0:0 removed\n' 'expire'
    run once run --final any --quiet --key j -- sh -c "$effect; echo shown; exit 3"
    is "$status:$out" '3:' 'the replay after that'
    like "$err" '^once: replay .*; its output has expired' 'said with --quiet, too'
    run once keys show j
    like "$out" 'body retention +1ms' 'shown: its retention'
    like "$out" 'body +executed, but the body has expired' 'shown: its body'
    run once keys show --raw=stdout j
    is "$status" 1 'its output'
    like "$err" 'its body has expired' 'its output'
    run once check
    is "$status" 0 'check'
    run once run --retention 1h --body-retention 61m --key l -- sh -c "$effect"
    is "$status" 64 'longer than the record'
    like "$err" 'body retention of 1h1m is longer than the record.s, 1h' 'longer than the record'
    run once run --body-retention never --key l -- sh -c "$effect"
    is "$status" 64 'for ever in a record that is not'
    is "$(lines effects)" 2 'executions in the end'
}

retention__old_key_is_not_executed_as_new() {
    old=018bcfe5-6800-7abc-8def-000000000001 # 2023
    run once run --key-time --key $old -- sh -c "$effect"
    is "$status:$out" '70:' 'an old key'
    like "$err" "$old is a UUIDv7 whose time is outside the retention" 'an old key'
    [ ! -e effects ] || fault 'it was executed'
    run once run --key-time --retention never --key $old -- sh -c "$effect"
    is "$status" 0 'kept for ever'
    run once run --key-time --key $old -- sh -c "$effect"
    is "$status" 0 'a replay'
    run once run --key-time --key "$(once key)" -- sh -c "$effect"
    is "$status" 0 'a new one'
    run once run --key 018bcfe5-6800-7abc-8def-000000000002 -- sh -c "$effect"
    is "$status" 0 'without the option'
    is "$(lines effects)" 3 'executions'
}

tap replay__same_streams_and_status replay__says_so_on_stderr_unless_quiet replay__remark_has_a_line_of_its_own replay__binary_output replay__no_output \
    output__over_the_limit_is_shown_but_not_kept output__exactly_the_limit_is_kept output__several_megabytes_replay \
    output__interleaving_is_kept output__is_live \
    output__a_flood_does_not_starve_the_other_stream output__slow_reader_loses_nothing \
    stdout__closed_pipe_keeps_the_outcome stdout__full_disk_keeps_the_outcome \
    stdout__closed_descriptor_keeps_the_outcome stdout__failing_command_keeps_its_status stdin__is_the_commands \
    command__inherits_no_descriptor_of_ours command__environment_says_who_it_is \
    store__relative_path_is_absolute_for_the_command store__default_is_in_the_state_directory \
    key__belongs_to_its_command key__any_bytes tenant__has_its_own_keys retention__over_means_anew \
    retention__of_the_output_ends_first retention__old_key_is_not_executed_as_new
