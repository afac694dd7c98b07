"""Commits that wait for a standby which does not exist, so for as long as a test likes (FACT-6)."""
import sqltest
from sqltest import psql
from lib.wait import becomes_true


def waiting(user="%"):
    """The server processes of this role, or of any, that wait for a standby."""
    return set(psql("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND usename LIKE '%s'" % user).split())


def standby(name):
    """Commits wait for this standby from now on, or for none if it is empty; False if that is not so in time.

    A session that knows the new name need not wait yet: it is the checkpointer that says so to all, when it gets to
    it. So one waits here first."""
    psql("ALTER SYSTEM SET synchronous_standby_names = '%s'" % name)
    psql("SELECT pg_reload_conf()")
    if not becomes_true(lambda: psql("SHOW synchronous_standby_names") == name):
        return False
    return not name or becomes_true(_commit_waits)


def _commit_waits():
    """Does a commit wait? It is cancelled if it does."""
    session = sqltest.Session()
    session.send("SELECT pg_logical_emit_message(true, 'test', '')")
    waits = becomes_true(lambda: session.poll(0.001) or session.pid in waiting()) and not session.poll(0.001)
    if not session.poll(0.001):
        psql("SELECT pg_cancel_backend(%s)" % session.pid)
        session.get()
    session.close()
    return waits
