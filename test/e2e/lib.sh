# lib.sh - sourced by every end-to-end test: TAP, a private directory per case, waiting.
#
#     . "$(dirname "$0")/lib.sh"
#     case_name() { run once key; is "$status" 0 "exit status"; }
#     tap case_name ...
#
# The program under test is $ONCE_BIN or the first argument; further arguments select cases
# by substring. Each case runs in a subshell, in a directory of its own with a store of its
# own ($ONCE_STORE). Processes started with `spawn` are ended with the case. Nothing sleeps
# in the hope that something has happened by then: `await` polls a condition, with a bound.
# ONCE_TEST_SECONDS is that bound; ONCE_TEST_KEEP=1 keeps the directories.

set -u
export LC_ALL=C.UTF-8 TZ=UTC
ONCE=${ONCE_BIN:-${1:?which once? give ONCE_BIN or an argument}}
[ -n "${ONCE_BIN:-}" ] || shift
ONCE=$(realpath "$ONCE")
AWAIT_SECONDS=${ONCE_TEST_SECONDS:-180}
unset ONCE_BIN ONCE_CRASH ONCE_CRASH_LOG ONCE_RECORD ONCE_KEY XDG_STATE_HOME
ROOT=$(mktemp -d "${TMPDIR:-/tmp}/once-e2e.XXXXXX") || exit 1
[ -n "${ONCE_TEST_KEEP:-}" ] || trap 'rm -rf "$ROOT"' EXIT
selected=("$@")

# Nothing here takes that long: a hang is a failure with a name, exit status 124.
once() { timeout --foreground -k 5 $((2 * AWAIT_SECONDS)) "$ONCE" "$@"; }

# A failure that does not end the case.
fault() {
    printf '%s\n' "$1" >>"$CASE/failed"
}

# text NAME FILE: into a variable, without NUL bytes, of a long one the first MiB; most are short and need no process.
text() {
    local whole
    if IFS= read -r -d '' -n 65536 whole <"$2"; then whole=$(tr -d '\0' <"$2" | head -c 1048576; printf .) && whole=${whole%.}; fi
    printf -v "$1" %s "$whole"
}

# run COMMAND...: its output in $out and $err (and files of these names), status in $status.
run() {
    status=0
    "$@" >"$CASE/out" 2>"$CASE/err" </dev/null || status=$?
    text out "$CASE/out"
    text err "$CASE/err"
}

where() { # the line of the test that we were called from
    local i
    for ((i = 1; i < ${#FUNCNAME[@]}; i++)); do
        [[ ${BASH_SOURCE[i]} == */lib.sh ]] || { printf 'line %s' "${BASH_LINENO[i - 1]}"; return; }
    done
}

is() { # ACTUAL EXPECTED WHAT
    [ "$1" = "$2" ] || fault "$(where): $3: got '$1', expected '$2'${err:+; stderr: $err}"
}

like() { # TEXT PATTERN(extended regular expression) WHAT
    [[ $1 =~ $2 ]] || fault "$(where): $3: '$1' has no match for '$2'"
}

unlike() {
    [[ ! $1 =~ $2 ]] || fault "$(where): $3: '$1' has a match for '$2'"
}

same() { # FILE FILE WHAT
    cmp -s "$1" "$2" || fault "$(where): $3: $(cmp "$1" "$2" 2>&1)"
}

lines() { # FILE: how many; 0 if it is missing
    if [ -e "$1" ]; then wc -l <"$1"; else echo 0; fi
}

# await CONDITION: evaluates it until it holds.
await() {
    local until=$((SECONDS + AWAIT_SECONDS))
    until eval "$1"; do
        if [ $SECONDS -gt $until ]; then
            fault "$(where): waited $AWAIT_SECONDS s for: $1"
            return 1
        fi
        sleep 0.01
    done
}

# spawn COMMAND...: in the background, as $!, ended with the case.
spawn() {
    "$@" <&0 & # else its stdin would be /dev/null
    spawned+=($!)
}

# expect_exit PID STATUS WHAT: waits for a spawned process.
expect_exit() {
    local status=0
    await "! is_alive $1" || return
    wait "$1" 2>/dev/null || status=$?
    is "$status" "$2" "$3"
}

is_alive() { # PID; a zombie is not
    [ -e "/proc/$1/stat" ] && ! grep -q ') [ZX] ' "/proc/$1/stat" 2>/dev/null
}

is_stopped() { # PID
    grep -q ') T ' "/proc/$1/stat" 2>/dev/null
}

case_end() {
    local pid
    for pid in "${spawned[@]}"; do
        kill -CONT "$pid" 2>/dev/null
        kill -KILL "$pid" 2>/dev/null
    done
    wait 2>/dev/null
}

is_selected() {
    local word
    [ ${#selected[@]} -gt 0 ] || return 0
    for word in "${selected[@]}"; do [[ $1 == *"$word"* ]] && return 0; done
    return 1
}

tap() {
    local number=0 bad=0 name
    for name in "$@"; do
        is_selected "$name" || continue
        number=$((number + 1))
        CASE=$ROOT/$name
        mkdir "$CASE"
        (
            cd "$CASE" || exit 1
            spawned=()
            out='' err='' status=0
            export ONCE_STORE=sqlite:$CASE/once.db
            trap case_end EXIT
            "$name"
            true
        ) >"$CASE/log" 2>&1 || echo 'the case ended badly' >>"$CASE/failed"
        if [ -e "$CASE/failed" ]; then
            sed 's/^/# /' "$CASE/failed"
            sed 's/^/# log: /' "$CASE/log"
            echo "not ok $number - $name"
            bad=1
        else
            echo "ok $number - $name"
        fi
        [ -n "${ONCE_TEST_KEEP:-}" ] || rm -rf "$CASE"
    done
    echo "1..$number"
    exit $bad
}
