"""What the tests of examples/orders are written with: the shop and its provider as processes, on SQLite or
PostgreSQL, killed and stopped where a test wants it, and what the books say afterwards.

    SCRIPT sqlite|postgres [CASE...]     needs ONCE_ORDERS, ONCE_PROVIDER, ONCE_BIN; SIZE=N: all of it

Nothing sleeps in the hope that something has happened by then: wait_for() polls, with a bound. Every process
that was started is waited for, or killed by its id.
"""
import functools
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from lib import http
from lib.ports import free_port
from lib.process import is_stopped  # noqa: F401, for tests that import this
from lib.tap import Failed, Skipped, expect, run as run_cases, skip_all  # noqa: F401
from lib.wait import SECONDS as BOUND_S, wait_for

SIZE = int(os.environ.get("SIZE") or 1)
ORDERS, PROVIDER, ONCE = (os.environ[name] for name in ("ONCE_ORDERS", "ONCE_PROVIDER", "ONCE_BIN"))
KIND = sys.argv[1] if len(sys.argv) > 1 else "sqlite"
ORDER = {"item": "tea", "cents": 2500}
_lock = threading.Lock()


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.body = status, body
        self.replayed = headers.get("Idempotency-Replayed") == "true"
        self.unknown = headers.get("Idempotency-Outcome") == "unknown"

    def __repr__(self):
        return "%d %r%s" % (self.status, self.body, " replayed" if self.replayed else "")


def request(port, method, path, body=None, key=None):
    """None: no answer came."""
    answer = http.request(port, path, body, {"Idempotency-Key": '"%s"' % key} if key else {}, method)
    return Answer(*answer) if answer else None


# ---------------------------------------------------------------- the books

class SqliteBooks:
    def __init__(self, folder, name):
        self.url = os.path.join(folder, "shop.db")
        self.store = "sqlite:" + self.url

    def rows(self, sql):
        if not os.path.exists(self.url):
            return []
        with sqlite3.connect(self.url, timeout=BOUND_S) as db:
            try:
                return db.execute(sql).fetchall()
            except sqlite3.OperationalError as error:
                if "no such table" in str(error):
                    return []  # it died before it made them
                raise

    receipts_sql = "SELECT order_id FROM outbox"

    def close(self):
        pass


class Session:
    """One psql for many questions: to start one takes longer than most answers."""
    END = "-- that was it --"

    def __init__(self, url):
        self.process = subprocess.Popen([os.path.join(os.environ["ONCE_TEST_POSTGRES_BIN"], "psql"), "-XqAt", "-F", "\t", "-d", url],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env=dict(os.environ, PGOPTIONS="-c client_min_messages=error"))

    def ask(self, sql):
        self.process.stdin.write("%s;\n\\echo '%s'\n" % (sql, self.END))
        self.process.stdin.flush()
        lines = []
        for line in self.process.stdout:
            if line.rstrip("\n") == self.END:
                break
            lines.append(line.rstrip("\n"))
        else:
            raise Failed("psql ended: %s" % lines)
        error = [line for line in lines if line.startswith("ERROR:")]
        if error and 'relation "orders" does not exist' in error[0]:
            return []
        expect(not error, "psql: %s" % lines)
        return lines

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=BOUND_S)
        self.process.stdout.close()


class PostgresBooks:
    """A database of its own, from a pool: making and dropping one takes longer than most cases."""
    pool, made = [], 0

    def __init__(self, folder, name):
        with _lock:
            if not PostgresBooks.pool:
                PostgresBooks.made += 1
                self.make("shop%d" % PostgresBooks.made)
            self.name = PostgresBooks.pool.pop()
        self.url = self.store = self.of(self.name)
        self.session = None

    def make(self, name):
        """The first is migrated, all others are copies of it."""
        if PostgresBooks.made == 1:
            self.admin("CREATE DATABASE shop0")
            subprocess.run([ONCE, "migrate", "--store", self.of("shop0")], check=True, stdout=subprocess.DEVNULL)
        self.admin("CREATE DATABASE %s TEMPLATE shop0" % name)
        PostgresBooks.pool.append(name)

    @staticmethod
    def of(database):
        return os.environ["ONCE_TEST_POSTGRES"].replace("///postgres?", "///%s?" % database)

    @staticmethod
    def psql(url, sql):
        done = subprocess.run([os.path.join(os.environ["ONCE_TEST_POSTGRES_BIN"], "psql"), "-XqAt", "-F", "\t", "-d", url,
                               "-c", sql], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                              env=dict(os.environ, PGOPTIONS="-c client_min_messages=error"))
        expect(done.returncode == 0, "psql: " + done.stderr)
        return done.stdout

    def admin(self, sql):
        self.psql(os.environ["ONCE_TEST_POSTGRES"], sql)

    def rows(self, sql):
        self.session = self.session or Session(self.url)
        return [tuple(line.split("\t")) for line in self.session.ask(sql)]

    def end_session(self):
        if self.session:
            self.session.close()

    receipts_sql = "SELECT message_key FROM once.outbox WHERE topic = 'receipts'"

    def close(self):
        """As it was; first, what a killed shop's server process may still be at."""
        self.end_session()
        self.psql(self.url, "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = current_database() "
                            "AND pid <> pg_backend_pid(); DROP TABLE IF EXISTS orders; TRUNCATE once.claim, once.result, "
                            "once.progress, once.outbox, once.audit")
        with _lock:
            PostgresBooks.pool.append(self.name)


BOOKS = {"sqlite": SqliteBooks, "postgres": PostgresBooks}


# ---------------------------------------------------------------- a case

class Case:
    def __init__(self, root, name):
        self.folder = tempfile.mkdtemp(prefix="case.", dir=root)
        self.books = BOOKS[KIND](self.folder, name)
        self.started = []
        self.provider_port = free_port()

    def start(self, command, ready=None, env=None):
        """Waits for its first line of output, if `ready`."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ONCE_")}
        environment.update(env or {})
        err = tempfile.TemporaryFile(dir=self.folder)
        process = subprocess.Popen(command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=err, text=True)
        process.err = err
        self.started.append(process)
        if ready:
            line = process.stdout.readline()
            expect("listening" in line, "%s did not start: %r %s" % (command[0], line, self.said(process)))
        return process

    @staticmethod
    def said(process):
        process.err.seek(0)
        return process.err.read().decode()

    def provider(self, *options):
        """Somebody who is no test may have its port: then, as long as nobody knows it, another will do."""
        while True:
            first = not self.started
            process = self.start([PROVIDER, "--listen", str(self.provider_port), "--db", "ledger.db", *options])
            line = process.stdout.readline()
            if "listening" in line:
                return process
            expect(first and "cannot listen" in self.said(process), "the provider did not start: %r %s" % (line, self.said(process)))
            process.wait(timeout=BOUND_S)
            self.started.remove(process)
            self.provider_port = free_port()

    def mode(self, name):
        answer = request(self.provider_port, "PUT", "/mode/" + name)
        expect(answer and answer.status == 200, "provider, mode %s: %s" % (name, answer))

    def held(self):
        return int(request(self.provider_port, "GET", "/held").body)

    def command(self, *options):
        return [ORDERS, "--db", getattr(self.books, "shop_url", self.books.url), "--provider", "http://127.0.0.1:%d" % self.provider_port,
                "--backoff", "50", "--timeout", str(int(BOUND_S * 1000)), *options]

    def orders(self, *options, env=None):
        port = free_port()
        process = self.start(self.command("--listen", str(port), *options), ready=True, env=env)
        process.port = port
        return process

    def sweep(self, *options):
        """One round of a completer: (how many it found unfinished, all that it said)."""
        process = self.start(self.command("--sweep", *options))
        out, _ = process.communicate(timeout=BOUND_S)
        expect(process.returncode == 0, "a sweep failed: %s %s" % (out, self.said(process)))
        return int(out.split("looked at ")[1].split()[0]), out

    def sweep_until_done(self, *options):
        wait_for(lambda: self.sweep(*options)[0] == 0, "completers to find nothing unfinished")

    def post(self, shop, key="k", order=None):
        return request(shop.port, "POST", "/orders", json.dumps(order or ORDER), key)

    def post_until_final(self, shop, key="k", order=None):
        """Asks again as a client does that is told to: 409, 503, or no answer."""
        return wait_for(lambda: (lambda a: a if a and a.status not in (409, 503) else None)(self.post(shop, key, order)),
                        "a final answer for " + key)

    def kill(self, process, number=signal.SIGKILL):
        process.send_signal(signal.SIGCONT)
        process.send_signal(number)
        process.wait(timeout=BOUND_S)

    def charges(self):
        with sqlite3.connect(os.path.join(self.folder, "ledger.db"), timeout=BOUND_S) as db:
            return db.execute("SELECT key, what FROM charge WHERE NOT declined").fetchall()

    def orders_in_books(self):
        return self.books.rows("SELECT id, status FROM orders")

    def receipts(self):
        return self.books.rows(self.books.receipts_sql)

    def once(self, *arguments):
        return subprocess.run([ONCE, *arguments, "--store", self.books.store], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)

    def check_books(self, when):
        """The store at rest."""
        done = self.once("check", "--json")
        problems = json.loads(done.stdout)["problems"] if done.returncode in (0, 1) else done.stdout
        expect(problems == [], "%s: once check: %s" % (when, problems))

    def end_all(self):
        """In order, so that a sanitizer can have its word. Returns what any of them had to say."""
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.send_signal(signal.SIGTERM)
        found = ""
        for process in self.started:
            try:
                process.wait(timeout=BOUND_S)
            except subprocess.TimeoutExpired:
                self.kill(process)
                found += "%s did not end when it was told to\n" % process.args[0]
            said = self.said(process)
            if "Sanitizer" in said or "runtime error" in said or "once flow:" in said:
                found += said
        return found

    def close(self):
        for process in self.started:
            if process.poll() is None:
                self.kill(process)
            process.stdout.close()
            process.err.close()
        self.books.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def tap(cases, at_a_time=12 if KIND == "sqlite" else 6, conclude=None, world=Case):
    """Runs (name, function of a Case that may return a remark), several at a time. `conclude` is one more case,
    about all of them; `world` is made for each function instead of a Case."""
    root = tempfile.mkdtemp(prefix="once-orders.")

    def run(name, function):
        case, remark, failure, skipped = world(root, name), None, "", None
        try:
            remark = function(case)
        except Skipped as why:
            skipped = why
        except Exception as error:  # a driver that breaks is a failure of the case
            failure = (str(error) or "failed") if isinstance(error, Failed) else traceback.format_exc()
        failure += case.end_all()
        if failure:
            failure += "".join("\n%s: %s" % (os.path.basename(p.args[0]), case.said(p)) for p in case.started)
        case.close()
        if failure:
            raise Failed(failure)
        if skipped:
            raise skipped
        return remark

    last = [conclude] if conclude is not None and not sys.argv[2:] else []
    try:
        run_cases([(name, functools.partial(run, name, function)) for name, function in cases], sys.argv[2:], at_a_time, last)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def skip_without_points():
    if not subprocess.run([ONCE, "run", "--list-points"], capture_output=True, text=True, check=True).stdout:
        skip_all("built without crash points")
