#!/usr/bin/env python3
"""`once migrate --pg-cron`: pg_cron of the database gives back the space of what expired.

usage: cron.py WITH_POSTGRES SHIFT_CLOCK    (which runs this again, beside a server that has pg_cron)

Before version 1.5 pg_cron runs a job at full minutes only. So that the test need not wait for
one, the server lives by a clock that is set shortly before it when all is ready (shift_clock.c)."""
import os
import struct
import subprocess
import sys
import tempfile
import time

from sqltest import equal, finish, ok, once, psql, url, wait_for

JOBS = "SELECT count(*), min(username), min(database) FROM cron.job WHERE jobname = 'once.expire'"


def outer():
    with tempfile.NamedTemporaryFile(prefix="once-clock-") as clock:
        set_ahead(clock.name, 0)
        os.chmod(clock.name, 0o644)  # the server may be another user
        command = [sys.argv[1], "--tcp", "--preload", "pg_cron", sys.executable, os.path.abspath(__file__)]
        environment = dict(os.environ, LD_PRELOAD=os.path.abspath(sys.argv[2]), SHIFT_CLOCK=clock.name)
        sys.exit(subprocess.run(command, env=environment).returncode)


def set_ahead(clock, seconds):
    with open(clock, "r+b") as file:
        file.write(struct.pack("l", seconds))


def migrate(*options, user="postgres", database="postgres"):
    return once("migrate", "--quiet", "--store", url(database, user), *options)


def refused(said, *words):
    return said[0] == 69 and all(w in said[1] for w in words)


def what_is_missing():
    said = migrate("--pg-cron")
    ok(refused(said, "the extension pg_cron is not in this database", "run CREATE EXTENSION pg_cron") and
       "preload" not in said[1], "no extension: the statement that is missing is named", *said)
    equal(psql("SELECT once.version()", "postgres"), "1", "the store is there all the same, as the message says")
    equal(migrate("--pg-cron=off"), (0, ""), "off, without the extension: nothing to do")
    psql("CREATE DATABASE elsewhere", "postgres")
    said = migrate("--pg-cron", database="elsewhere")
    ok(refused(said, "pg_cron works from the database postgres", "cron.database_name = 'elsewhere'"),
       "another database: the setting that is missing is named", *said)
    psql("CREATE EXTENSION pg_cron", "postgres")
    psql("CREATE ROLE keeper LOGIN; GRANT SELECT ON once.migration TO keeper; GRANT USAGE ON SCHEMA once TO keeper",
         "postgres")
    said = migrate("--pg-cron", user="keeper")
    ok(refused(said, "the role keeper may not use pg_cron", "GRANT USAGE ON SCHEMA cron TO keeper"),
       "no right on pg_cron: the statement is named", *said)
    psql("GRANT USAGE ON SCHEMA cron TO keeper", "postgres")
    said = migrate("--pg-cron", user="keeper")
    ok(refused(said, "the role keeper may not run once.expire", "GRANT once_app TO keeper"),
       "no right on once.expire: the statement is named", *said)
    equal(psql(JOBS, "postgres"), "0||", "nothing was scheduled")


def on_and_off():
    psql("GRANT once_app TO keeper", "postgres")
    equal(migrate("--pg-cron", user="keeper"), (0, ""), "a role with both rights may")
    equal(migrate("--pg-cron", user="keeper"), (0, ""), "repeated")
    equal(psql(JOBS, "postgres"), "1|keeper|postgres", "repeated: there is one job")
    equal(migrate("--pg-cron=off", user="keeper"), (0, ""), "off")
    equal(migrate("--pg-cron=off", user="keeper"), (0, ""), "off, repeated")
    equal(psql(JOBS, "postgres"), "0||", "off: there is none")
    status, sql = once("migrate", "--print", "--pg-cron=off", "--store", url("postgres"))
    ok(status == 0 and "cron.unschedule" in sql and "cron.schedule" not in sql, "off is printed, too")
    status, sql = once("migrate", "--print", "--pg-cron", "--store", url("postgres"))
    equal((status, psql(sql[sql.index("-- pg_cron"):], "postgres", "keeper")), (0, ""), "on is printed, and runs in psql")
    equal(psql(JOBS, "postgres"), "1|keeper|postgres", "printed: the same job")


def it_runs():
    """A record that expired, in a slot that is closed and out of use: cron empties it. There is no job before all of that is
    there: a minute that ends meanwhile would be too early."""
    equal(migrate("--pg-cron=off", user="keeper"), (0, ""), "off, for a while")
    psql("UPDATE once.ring SET period_ms = 1", "postgres")
    record, fence = psql("SELECT record, fence FROM once.claim('', 'k', retention => '1 ms')", "postgres").split("|")
    slot = psql("SELECT slot FROM once.claim WHERE record = '%s'" % record, "postgres")
    psql("SELECT once.finish('%s', %s, 200)" % (record, fence), "postgres")
    wait_for(lambda: psql("SELECT more FROM once.expire()", "postgres") == "t", "the ring to turn")
    before = int(psql("SELECT count(*) FROM once.claim_%s" % slot, "postgres"))
    equal(migrate("--pg-cron", user="keeper"), (0, ""), "on again")
    was = float(psql("SELECT extract(epoch FROM clock_timestamp())", "postgres"))
    set_ahead(os.environ["SHIFT_CLOCK"], 60 + int(58 - time.time()) % 60)
    ok(float(psql("SELECT extract(epoch FROM clock_timestamp())", "postgres")) > was + 59, "the server's clock is ours")
    psql("SELECT pg_reload_conf()", "postgres")  # pg_cron sleeps until the minute that it saw; a signal wakes it
    wait_for(lambda: psql("SELECT count(*) FROM once.claim_%s" % slot, "postgres") == "0", "pg_cron to empty the slot", 300)
    ok(before == 1, "pg_cron has emptied the slot of an expired record")
    wait_for(lambda: psql("SELECT count(*) FROM cron.job_run_details WHERE end_time IS NOT NULL", "postgres") > "0",
          "the run's end")
    equal(psql("SELECT DISTINCT status, username FROM cron.job_run_details WHERE end_time IS NOT NULL", "postgres"),
          "succeeded|keeper", "its run succeeded")


if "ONCE_TEST_POSTGRES" not in os.environ:
    outer()
if os.environ.pop("LD_PRELOAD", None):  # the server only
    os.execv(sys.executable, [sys.executable, os.path.abspath(__file__)])
what_is_missing()
on_and_off()
it_runs()
finish()
