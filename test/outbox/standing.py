"""psql() as sqltest has it, but by clients that stay: a test that waits for a state of the database asks for it a hundred times,
and a process and a connection for each question would be most of what such a test does.

A client is one question's at a time; who asks while all are busy gets a new one. Whoever stops the server says so with forget()."""
import re
import subprocess
import threading

from sqltest import ENV, PSQL, url

_idle, _lock = {}, threading.Lock()


class _Client:
    def __init__(self, database, user):
        self.p = subprocess.Popen([PSQL, "-XqAt", "-v", "VERBOSITY=verbose", "-d", url(database, user)], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=ENV, text=True)
        self.count = 0

    def ask(self, sql):
        """What it printed, and whether it is there for another question."""
        self.count += 1
        end, said = "--end %d of %d\n" % (self.count, self.p.pid), []
        try:
            self.p.stdin.write("%s\n;\n\\echo %s" % (sql, end))
            self.p.stdin.flush()
        except BrokenPipeError:
            pass  # it could not connect, and says why
        for line in self.p.stdout:
            if line == end:
                return "".join(said), True
            said.append(line)
        return "".join(said), False

    def close(self):
        try:
            self.p.stdin.close()
        except BrokenPipeError:
            pass
        self.p.stdout.close()
        self.p.wait()


def psql(sql, database="test", user="postgres"):
    """Values of all rows, as psql -At prints them; or the first error."""
    with _lock:
        clients = _idle.setdefault((database, user), [])
        client = clients.pop() if clients else None
    client = client or _Client(database, user)
    said, stays = client.ask(sql)
    if stays:
        with _lock:
            clients.append(client)
    else:
        client.close()
    error = re.search(r"^(?:psql:.*)?(?:ERROR|FATAL|PANIC):  (.*)", said, re.M)
    return error.group(1) if error else said.rstrip("\n")


def forget():
    """The server is about to go away, or has."""
    with _lock:
        clients = [client for some in _idle.values() for client in some]
        _idle.clear()
    for client in clients:
        client.close()
