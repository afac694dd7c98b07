"""A pgbouncer of our own, in transaction mode, before the cluster that ONCE_TEST_POSTGRES names.

usage: pgbouncer.py COMMAND [ARGUMENT]...

runs COMMAND with ONCE_TEST_POOLED, the URL of the superuser through the pooler. It ends with
this process, whatever happens. Without the program it prints a TAP skip and exits 0.
"""
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from lib.ports import free_port, is_open
from lib.process import die_with_parent
from lib.tap import skip_all
from lib.wait import wait_for

USERS = ("postgres", "stranger")


def program():
    found = shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if not found:
        skip_all("pgbouncer is not installed")
    return found


class Pooler:
    """server: "host=... port=..." of what is behind it; pool: server connections per database.
    Stopped by stop(), and at the end of this process."""
    def __init__(self, server=None, pool=4):
        self.program = program()
        self.server = server or self.direct()
        self.folder = tempfile.mkdtemp(prefix="once-bouncer-", dir="/tmp")
        self.account = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
        if self.account:
            os.chown(self.folder, pwd.getpwnam(self.account).pw_uid, -1)
        self.port = free_port()
        self.write("users", "".join('"%s" ""\n' % user for user in USERS))
        self.write("ini", """
            [databases]
            * = {server}
            [pgbouncer]
            pool_mode = transaction
            default_pool_size = {pool}
            max_client_conn = 200
            unix_socket_dir = {folder}
            listen_addr = 127.0.0.1
            listen_port = {port}
            auth_type = trust
            auth_file = {folder}/users
            server_login_retry = 0
            """.format(server=self.server, pool=pool, folder=self.folder, port=self.port))
        self.start()

    @staticmethod
    def direct():
        """The cluster's own socket."""
        query = urllib.parse.parse_qs(os.environ["ONCE_TEST_POSTGRES"].split("?", 1)[1])
        return "host=%s port=%s" % (query["host"][0], query.get("port", ["5432"])[0])

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w") as f:
            f.write("\n".join(line.strip() for line in text.splitlines()) + "\n")
        os.chmod(path, 0o644)

    def start(self):
        log = open(os.path.join(self.folder, "log"), "ab")
        self.p = subprocess.Popen([self.program, os.path.join(self.folder, "ini")], cwd="/", stdin=subprocess.DEVNULL,
                                  stdout=log, stderr=log, user=self.account, preexec_fn=die_with_parent,
                                  group=pwd.getpwnam(self.account).pw_gid if self.account else None,
                                  extra_groups=[] if self.account else None)
        log.close()
        wait_for(self.answers, "pgbouncer")

    def answers(self):
        if self.p.poll() is not None:
            with open(os.path.join(self.folder, "log"), errors="replace") as f:
                sys.exit("pgbouncer did not start:\n" + f.read())
        return is_open(self.port)

    def url(self, database, user="postgres"):
        return "postgresql:///%s?host=%s&port=%d&user=%s&connect_timeout=300" % (database, self.folder, self.port, user)

    def stop(self):
        self.p.terminate()
        self.p.wait()

    def remove(self):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


if __name__ == "__main__":
    pooler = Pooler()
    try:
        code = subprocess.call(sys.argv[1:], env=dict(os.environ, ONCE_TEST_POOLED=pooler.url("postgres")))
    finally:
        pooler.remove()
    sys.exit(code if code >= 0 else 128 - code)
