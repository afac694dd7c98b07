#!/bin/bash
# Sealed stores: what is in the files, keys that come, go and are wrong, commands and daemons with them.
. "$(dirname "$0")/lib.sh"

effect='echo x >>effects'
K1='k1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f'
K2='k2 200102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f'
ACME='acme-1 acme 300102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f'
keys() { (umask 077 && rm -f keys && printf '%s\n' "$@" >keys); }
in_files() { grep -c -a "$1" once.db once.db-wal 2>/dev/null | awk -F: '{ n += $2 } END { print n + 0 }'; }
make() { run once run --quiet --tenant "$1" --key "$2" -- sh -c "$effect; echo MARK-$2"; }

run__sealed_and_replayed() {
    keys "$K1"
    for _ in 1 2; do
        run once run --quiet --seal-keys keys --key k -- sh -c "$effect; echo MARK-out; echo MARK-err >&2"
        is "$status:$out:$err" $'0:MARK-out\n:MARK-err\n' 'the answer'
    done
    is "$(lines effects)" 1 'executions'
    is "$(in_files MARK)" 0 'what is in the files'
    run once run --key k -- sh -c "$effect"
    is "$status" 69 'without the keys it is refused'
    like "$err" "sealed, with key 'k1'" 'and told which'
    run once run --key new -- sh -c "$effect"
    is "$status" 69 'also what is new'
    is "$(lines effects)" 1 'executions'
    run once keys show k
    like "$out" 'body +executed, but the body is sealed, and its key is not available' 'looking needs none, and shows none'
    run once keys show k --seal-keys keys
    like "$out" 'MARK-out' 'with them it does'
    run once check
    is "$status" 0 'the store is sound'
}

run__checkpoint_of_a_command_is_sealed() {
    keys "$K1"
    export ONCE_SEAL_KEYS=$CASE/keys
    run once run --key k -- sh -c "$effect; '$ONCE' advance charged --data MARK-receipt && exit 1"
    is "$status" 1 'it broke off'
    is "$(in_files MARK)" 0 'what is in the files'
    run once run --key k -- sh -c "$effect; '$ONCE' advance charged --data MARK-receipt && exit 1"
    is "$(lines effects)" 2 'it went on'
    run once keys show k --raw=checkpoint
    is "$out" 'MARK-receipt' 'its checkpoint'
}

tenant__whose_line_is_dropped_is_told_and_not_executed_again() {
    keys "$K1" "$ACME"
    export ONCE_SEAL_KEYS=$CASE/keys
    make acme k
    make other k
    keys "$K1"
    make acme k
    is "$status:$out" '0:' 'the status, and no answer'
    make other k
    is "$out" $'MARK-k\n' "another tenant's is as it was"
    make acme new
    is "$out" $'MARK-new\n' 'new ones work'
    is "$(lines effects)" 3 'executions'
    keys "$K1" "$ACME"
    make acme k
    is "$out" $'MARK-k\n' 'with the line back'
}

rotation__old_and_new() {
    keys "$K1"
    export ONCE_SEAL_KEYS=$CASE/keys
    make '' old
    keys "$K1" "$K2"
    make '' new
    make '' old
    is "$out" $'MARK-old\n' 'the old one opens'
    keys "$K2"
    make '' new
    is "$status" 69 'a key that sealed something is missing'
    like "$err" "'k1', which is not among the keys" 'and told which'
    keys "$K2" 'k1 gone'
    make '' new
    is "$status:$out" $'0:MARK-new\n' 'dropped on purpose'
    make '' old
    is "$status:$out" '0:' 'what it sealed is told'
    is "$(lines effects)" 2 'executions'
}

keys__what_is_wrong_with_them() {
    export ONCE_SEAL_KEYS=$CASE/keys
    make '' k
    is "$status" 69 'no file'
    keys "$K1"
    chmod 644 keys
    make '' k
    like "$status:$err" '^69:.*chmod 0600' 'others can read it'
    keys '# comment' 'k1 00112233'
    make '' k
    like "$status:$err" '^69:.*line 2: the key is not 64' 'a line that is wrong'
    unlike "$err" '00112233' 'never what is in it'
    keys "$K1"
    make '' k
    is "$status" 0 'with a good one it works'
    keys "${K1/0001/1001}"
    make '' k
    like "$status:$err" '^69:.*not the one that this store was sealed with' 'another key of that name'
    unset ONCE_SEAL_KEYS
    run once run --quiet --seal-keys-command "echo '$K1'" --key k -- sh -c "$effect; echo MARK-k"
    is "$status:$out" $'0:MARK-k\n' 'from a command'
    run once run --quiet --seal-keys-command 'echo k1; exit 3' --key k -- true
    like "$status:$err" '^69:.*exit status 3' 'a command that fails'
    is "$(lines effects)" 1 'executions'
}

# Whoever can write to the file puts one record's answer into another's place, with the row's own checksum right. The
# checksum is no secret; the tag is.
moved__answers_are_found() {
    keys "$K1"
    export ONCE_SEAL_KEYS=$CASE/keys
    make '' a
    make '' b
    python3 - once.db <<'PY' || fault 'cannot change the file'
import sqlite3, struct, sys
M = (1 << 64) - 1
P1, P2, P3, P4, P5 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
rol = lambda x, n: ((x << n) | (x >> (64 - n))) & M
rnd = lambda acc, lane: rol((acc + lane * P2) & M, 31) * P1 & M
def xxh64(b, seed):
    i, n = 0, len(b)
    if n >= 32:
        v = [(seed + P1 + P2) & M, (seed + P2) & M, seed, (seed - P1) & M]
        while i + 32 <= n:
            v = [rnd(a, l) for a, l in zip(v, struct.unpack_from('<4Q', b, i))]
            i += 32
        h = (rol(v[0], 1) + rol(v[1], 7) + rol(v[2], 12) + rol(v[3], 18)) & M
        for a in v:
            h = ((h ^ rnd(0, a)) * P1 + P4) & M
    else:
        h = (seed + P5) & M
    h = (h + n) & M
    while i + 8 <= n:
        h = (rol(h ^ rnd(0, struct.unpack_from('<Q', b, i)[0]), 27) * P1 + P4) & M
        i += 8
    if i + 4 <= n:
        h = (rol(h ^ (struct.unpack_from('<I', b, i)[0] * P1 & M), 23) * P2 + P3) & M
        i += 4
    for c in b[i:]:
        h = rol(h ^ (c * P5 & M), 11) * P1 & M
    h = ((h ^ (h >> 33)) * P2) & M
    h = ((h ^ (h >> 29)) * P3) & M
    return h ^ (h >> 32)
db = sqlite3.connect(sys.argv[1])
rows = db.execute('SELECT r.fence, c.record, r.state, r.retryable, r.status, r.outcome FROM once_result r JOIN once_claim c USING (fence) ORDER BY r.fence').fetchall()
assert len(rows) == 2, rows
def sum_of(row, body):
    seal = xxh64(row[1] + struct.pack('>QBBi', row[0], row[2], row[3], row[4]), 0)
    return struct.pack('>Q', xxh64(body, seal))
assert all(row[5][-8:] == sum_of(row, row[5][:-8]) for row in rows), 'this is not how it is computed'
for to, of in ((rows[0], rows[1]), (rows[1], rows[0])):
    body = of[5][:-8]
    db.execute('UPDATE once_result SET outcome = ? WHERE fence = ?', (body + sum_of(to, body), to[0]))
db.commit()
PY
    for k in a b; do
        make '' $k
        is "$status" 70 "of $k"
        unlike "$out" MARK 'never the other answer'
    done
    is "$(lines effects)" 2 'executions'
}

daemon__seals_for_its_clients() {
    keys "$K1" "$ACME"
    spawn "$ONCE" daemon --socket "$CASE/sock" --http off --quiet --seal-keys keys >ready
    await '[ -s ready ]'
    local store=$ONCE_STORE
    export ONCE_STORE=once:$CASE/sock
    make acme k
    make acme k
    is "$out" $'MARK-k\n' 'replayed, without keys of our own'
    is "$(in_files MARK)" 0 'what is in the files'
    run once run --seal-keys keys --key x -- true
    like "$status:$err" '^69:.*give the keys to the daemon' 'keys are not for its clients'
    kill -TERM "${spawned[0]}"
    expect_exit "${spawned[0]}" 0 'the daemon'
    export ONCE_STORE=$store
    run once daemon --socket "$CASE/sock" --http off --quiet
    is "$status" 69 'without them it does not start'
    keys "$K1"
    spawn "$ONCE" daemon --socket "$CASE/sock" --http off --quiet --seal-keys keys >ready
    await '[ -s ready ]'
    export ONCE_STORE=once:$CASE/sock
    make acme k
    is "$status:$out" '0:' 'after a line was dropped: the status, and no answer'
    is "$(lines effects)" 1 'executions'
}

tap run__sealed_and_replayed run__checkpoint_of_a_command_is_sealed \
    tenant__whose_line_is_dropped_is_told_and_not_executed_again rotation__old_and_new keys__what_is_wrong_with_them \
    moved__answers_are_found daemon__seals_for_its_clients
