#!/usr/bin/env python3
"""A dump of a store, restored where its roles are not, as docs/scale.md says: it goes on where it was."""
import os
import subprocess
import tempfile

from sqltest import PSQL, equal, finish, migrated, ok, once, psql, url

PG_DUMP = os.path.join(os.environ["ONCE_TEST_POSTGRES_BIN"], "pg_dump")
ROLES = ("CREATE ROLE once_app NOLOGIN; CREATE ROLE once_ops NOLOGIN; GRANT once_app TO once_ops;"
         "CREATE ROLE app LOGIN IN ROLE once_app; CREATE ROLE ops LOGIN IN ROLE once_ops")


def expire():
    for _ in range(40):
        psql("SELECT once.expire(64)")


migrated()
psql("CREATE ROLE app LOGIN IN ROLE once_app; CREATE ROLE ops LOGIN IN ROLE once_ops")
psql("UPDATE once.ring SET period_ms = 1")
for n in range(6):   # some in slot 0, some in closed slots, some in the current one
    psql("SELECT c.record, c.fence FROM once.claim('t', 'done%d', retention => NULL) c \\gset\n"
         "SELECT once.finish(:'record', :fence, 200, 'body') \\gset x_\nSELECT once.claim('t', 'running%d', lease => '1 hour') \\gset x_\n"
         "SELECT c.record, c.fence FROM once.claim('t', 'unknown%d') c \\gset\n"
         "SELECT once.finish(:'record', :fence, 0, state => 'unknown') \\gset x_\n"
         "SELECT pg_sleep(0.002) \\gset x_\nSELECT once.expire(64) \\gset x_" % (n, n, n))
psql("UPDATE once.ring SET period_ms = 86400000")
slots = psql("SELECT count(DISTINCT slot) FROM once.claim WHERE slot > 0")
ok(int(slots) > 1 and psql("SELECT count(*) > 0 FROM once.claim_0") == "t", "records are in slot 0 and in several others", slots)
fence = int(psql("SELECT max(fence) FROM once.claim"))
child = psql("SELECT once.child_key(once.record_id('t', 'done0'), 'charge')")

with tempfile.NamedTemporaryFile(suffix=".sql") as dump:
    subprocess.run([PG_DUMP, "-d", url("test")], stdout=dump, check=True)
    psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'test'", "postgres")
    psql("DROP DATABASE test", "postgres")
    for role in ("app", "ops", "once_ops", "once_app"):   # as in a cluster that never had them
        psql("DROP ROLE %s" % role, "postgres")
    psql(ROLES, "postgres")
    psql("CREATE DATABASE test", "postgres")
    done = subprocess.run([PSQL, "-Xq1", "-v", "ON_ERROR_STOP=1", "-d", url("test"), "-f", dump.name], text=True,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
equal((done.returncode, done.stderr), (0, ""), "it is restored")
equal(once("migrate", "--store", url("test"))[0], 0, "once migrate finds it as it should be")
for round in ("at once", "after upkeep"):
    for n in range(6):
        equal(psql("SELECT c.arm, convert_from(c.body, 'UTF8'), (once.claim('t', 'running%d')).arm, (once.claim('t', 'unknown%d')).arm "
                   "FROM once.claim('t', 'done%d') c" % (n, n, n), user="app"), "replay|body|in progress|unknown", "%s: as it was (K5), %d" % (round, n))
    psql("UPDATE once.ring SET period_ms = 1")
    expire()
ok(int(psql("SELECT fence FROM once.claim('t', 'new')", user="app")) > fence, "fences go on to grow (K2)")
equal(psql("SELECT once.child_key(once.record_id('t', 'done0'), 'charge')", user="app"), child, "names are the same (K9)")
equal(psql("SELECT arm FROM once.resolve('t', 'unknown0', 'done', 'why', 200)", user="ops"), "done", "an operator's role works")
status, said = once("check", "--store", url("test"))
ok(status == 0 and " 0 problems" in said, "once check finds nothing", said)
finish()
