#!/bin/bash
# once check, expire, migrate, key; stores that cannot be used.
. "$(dirname "$0")/lib.sh"

check__healthy_and_json() {
    once run --key a -- true
    once run --key b -- false
    run once check
    is "$status" 0 'exit status'
    like "$out" '^2 records, [0-9]+ attempts, 0 problems' 'summary'
    run once check --quiet
    is "$status:$out" 0: '--quiet'
    run once check --json
    is "$(python3 -c 'import json, sys; o = json.load(sys.stdin); print(o["records"], o["problems"], o["complete"])' <out)" '2 [] True' 'JSON'
}

check__damage_is_found() {
    once run --key a -- sh -c 'head -c 100000 /dev/urandom | od' >/dev/null
    run once check
    is "$status" 0 'before'
    # The stored outcome's bytes are somewhere in the file; turn one of them around.
    python3 - once.db <<'END'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
tables = [r[0] for r in db.execute("select name from sqlite_master where type = 'table'")]
best = None
for t in tables:
    for c in [r[1] for r in db.execute(f'pragma table_info("{t}")')]:
        try:
            row = db.execute(f'select rowid, "{c}" from "{t}" where typeof("{c}") = \'blob\' order by length("{c}") desc limit 1').fetchone()
        except sqlite3.OperationalError:
            continue
        if row and (best is None or len(row[1]) > len(best[3])):
            best = (t, c, row[0], row[1])
t, c, rowid, blob = best
blob = bytearray(blob)
blob[len(blob) // 2] ^= 0x10
db.execute(f'update "{t}" set "{c}" = ? where rowid = ?', (bytes(blob), rowid))
db.commit()
END
    run once check
    is "$status" 1 'exit status'
    like "$out" '[1-9][0-9]* problems' 'summary'
    run once check --json
    is "$status" 1 'exit status of --json'
    python3 -c 'import json, sys; assert json.load(sys.stdin)["problems"]' <out || fault 'no problem in the JSON'
    run once run --key a -- sh -c 'head -c 100000 /dev/urandom | od'
    is "$status" 70 'a damaged outcome is not replayed'
    is "$out" '' 'not a byte of it'
}

expire__removes_what_is_due() {
    for i in 1 2 3 4 5; do once run --retention 1ms --key "short$i" -- true; done
    once run --key long -- true
    run once expire --limit 2
    is "$status" 0 'exit status'
    like "$out" '^2 removed, more are due' '--limit'
    run once expire --progress --step 1
    is "$status" 0 'exit status'
    like "$out" '^3 removed'$'\n''$' 'the rest'
    like "$err" '1 removed.*2 removed.*3 removed' 'progress'
    run once expire
    like "$out" '^0 removed' 'nothing left'
    run once keys list --json --all
    is "$(wc -l <out)" 1 'records left'
    run once check
    is "$status" 0 'once check'
}

# Only a full disk gives up the reserve: a store that somebody owns is not one.
expire__of_an_owned_store_leaves_the_reserve() {
    once run --key k -- true >/dev/null
    exec 9<>once.db-lock
    flock 9
    echo owner 1 test >&9
    run once expire
    exec 9>&-
    is "$status" 69 'exit status'
    like "$err" 'in use by another process' 'message'
    [ -s once.db-reserve ] || fault 'the reserve is gone'
}

expire__interrupted_says_how_far_it_got() {
    for i in 1 2 3; do once run --retention 1ms --key "short$i" -- true; done
    # Stopped at its first commit (a crash point), it finds the signal when it goes on.
    spawn env --default-signal=INT ONCE_CRASH=sqlite.committed:1:stop "$ONCE" expire --step 1 2>said
    once=$!
    await "is_stopped $once"
    kill -INT $once
    kill -CONT $once
    expect_exit $once 130 'exit status'
    like "$(cat said)" 'stopped after [0-2] records; run it again' 'message'
    run once expire
    is "$status" 0 'again'
    run once check
    is "$status" 0 'once check'
}

migrate__makes_a_store() {
    run once migrate
    is "$status" 0 'exit status'
    like "$out" "^sqlite:$CASE/once.db is at version [0-9]+" 'says which'
    run once keys list
    is "$status:$out" 0: 'an empty store'
    run once migrate --quiet
    is "$status:$out" 0: 'again'
    rm once.db*
    run once migrate --print
    like "$out" 'CREATE TABLE' '--print'
    [ ! -e once.db ] || fault '--print made a store'
}

key__is_a_new_uuid() {
    run once key
    like "$out" '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}'$'\n''$' 'a UUIDv7'
    first=$out
    run once key
    [ "$out" != "$first" ] || fault 'the same key twice'
}

unusable__is_69_and_executes_nothing() {
    echo 'no database, just text, and long enough to be looked at as one' >text
    for i in 1 2 3 4 5 6 7 8 9 10; do cat text text >>text2; done
    python3 -c 'import sqlite3; d = sqlite3.connect("foreign.db"); d.execute("create table mine (x)"); d.commit()'
    once migrate --store sqlite:newer.db --quiet
    python3 -c 'import sqlite3; d = sqlite3.connect("newer.db"); d.execute("pragma user_version = 9999"); d.execute("update once_meta set value = 9999 where name = '"'schema'"'"); d.commit()'
    for url in sqlite:/no/such/directory/once.db sqlite:text2 sqlite:foreign.db sqlite:newer.db "sqlite:$CASE"; do
        run once run --store "$url" --key k -- sh -c 'echo x >>effects'
        is "$status" 69 "exit status of run with $url"
        like "$err" '^once run: cannot open the store: sqlite:.{10}' "message of run with $url"
        unlike "$err" 'cannot.*cannot' "what cannot be done is said once, with $url"
        for verb in 'keys list' 'keys show k' check expire; do
            run once $verb --store "$url"
            is "$status" 69 "exit status of $verb with $url"
        done
    done
    is "$(lines effects)" 0 'executions'
}

# A reason to mend the command line, not to try again later.
url__that_is_none_is_64() {
    for url in nonsense nonsense:x mysql://x/y sqlite: sqlite:?keytext=on 'sqlite:x.db?bogus=1' 'sqlite:x.db?keytext=maybe' once: \
        'redis://localhost' 'redis://localhost:x?tier=best-effort' 'postgresql://h:x/d' 'postgresql://h/d?bogus=1' fault+nonsense:x; do
        for verb in 'keys list' 'keys show k' check expire migrate 'migrate --print' 'outbox list' 'run --key k'; do
            run once $verb --store "$url" $([[ $verb == run* ]] && echo '-- touch executed')
            is "$status" 64 "exit status of $verb with $url"
            like "$err" "^once [a-z ]+: cannot " "message of $verb with $url"
            is "$out" '' "what $verb prints with $url"
        done
    done
    [ ! -e executed ] || fault 'something was executed'
    is "$(ls *db* 2>/dev/null)" '' 'stores made'
}

print__is_for_stores_with_a_schema() {
    run once migrate --print --store postgresql://
    is "$status" 0 'PostgreSQL'
    like "$out" 'CREATE SCHEMA' 'PostgreSQL'
    run once migrate --print --store trace+sqlite:x.db
    is "$status" 0 'SQLite, wrapped'
    unlike "$out" 'CREATE SCHEMA' 'SQLite, wrapped'
    run once migrate --print --store 'redis://h?tier=best-effort'
    is "$status:$out" 64: 'Redis'
    like "$err" 'Redis has no schema' 'Redis'
    run once migrate --print --store once:/run/x
    is "$status:$out" 64: 'a daemon'
}

# A machine on which nobody has run anything yet.
fresh__is_said_and_no_failure_of_a_timer() {
    unset ONCE_STORE
    for state in "$CASE/none" "$CASE/empty"; do
        export XDG_STATE_HOME=$state
        mkdir -p empty/once
        for verb in 'keys list' 'keys show k' "forget --tenant '' --key k --reason r"; do
            eval "run once $verb"
            is "$status" 69 "exit status of $verb"
            like "$err" "there is no store at '$state/once/once.db' yet; 'once migrate' or the first 'once run' creates it" "$verb"
        done
        for verb in expire check; do
            run once $verb
            is "$status:$out" 0: "$verb"
            like "$err" "^once $verb: there is no store at " "$verb"
            run once $verb --quiet
            is "$status:$out:$err" 0:: "$verb --quiet"
            run once $verb --store "sqlite:$state/once/once.db"
            is "$status" 69 "$verb of a store that was named"
            ONCE_STORE="sqlite:$state/once/once.db" run once $verb
            is "$status" 69 "$verb of a store that the environment names"
        done
        run once check --json
        is "$(python3 -c 'import json, sys; o = json.load(sys.stdin); print(o["records"], o["problems"])' <out)" '0 []' 'JSON'
    done
    is "$(find none empty/once 2>/dev/null)" empty/once 'nothing was made'
    run once run --key k -- true
    run once check
    like "$out" '^1 records' 'and now there is one'
}

looking__leaves_no_file_behind() {
    for verb in 'keys list' 'keys show k' 'keys resolve k --not-done --reason x' check expire; do
        run once $verb
        is "$status" 69 "exit status of $verb without a store"
        [ ! -e once.db ] || fault "$verb made a store"
        rm -f once.db*
    done
}

output__that_cannot_be_written_is_74() {
    once run --key k -- true
    for verb in 'keys list' 'keys list --json' 'keys show k' check migrate key expire --version --help 'help run'; do
        status=0
        once $verb >/dev/full 2>err || status=$?
        is "$status" 74 "exit status of $verb on a full disk"
    done
}

modes() { stat -c '%n %a' "$@" | tr '\n' ' '; }

mode__is_the_owners_only() {
    umask 022
    : >looked.db
    run once keys list --store sqlite:looked.db
    is "$status" 69 'an empty file is no store yet'
    : >zero.db
    run once run --store sqlite:zero.db --key k -- true
    is "$status" 0 'an empty file becomes a store'
    [ -e zero.db-wal ] || fault 'there is no log'
    for file in looked.db* zero.db*; do is "$(modes $file)" "$file 600 " 'and its owner has it alone'; done
    for file in zero.db zero.db-wal; do
        for mode in 604 602 601 644 666; do
            chmod $mode $file
            for verb in 'run --key x' 'keys list' 'expire' 'check'; do
                run once ${verb%% --*} --store sqlite:zero.db $([[ $verb == run* ]] && echo '--key x -- touch executed')
                is "$status" 69 "$file of mode $mode: $verb"
                like "$err" "everybody may access '.*/$file'.* run: chmod o= '.*/zero.db' '.*/zero.db'-[*]" "$file of mode $mode: what $verb says"
            done
        done
        eval "$(sed -n 's/.*; run: //p' err)"
        run once run --store sqlite:zero.db --key k -- true
        is "$status" 0 "$file, as the message says"
    done
    [ ! -e executed ] || fault 'something was executed'
    install -m 660 /dev/null group.db
    run once run --store sqlite:group.db --key k -- true
    is "$status $(modes group.db)" '0 group.db 660 ' 'an empty file for a group stays one'
    chmod 660 zero.db
    run once run --store sqlite:zero.db --key k2 -- true
    is "$status $(modes zero.db)" '0 zero.db 660 ' 'the group is the operator'"'"'s business'
}

tap check__healthy_and_json check__damage_is_found expire__removes_what_is_due expire__of_an_owned_store_leaves_the_reserve expire__interrupted_says_how_far_it_got \
    migrate__makes_a_store key__is_a_new_uuid unusable__is_69_and_executes_nothing url__that_is_none_is_64 print__is_for_stores_with_a_schema \
    fresh__is_said_and_no_failure_of_a_timer looking__leaves_no_file_behind mode__is_the_owners_only \
    output__that_cannot_be_written_is_74
