"""A PostgreSQL cluster in a folder of its own: make it, copy it to a standby, start, stop,
promote. with-postgres makes clusters for tests with this; tests that stop servers and start
them again take hold of theirs with it. A server is reached, and stopped, by its folder only."""
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile


def as_server_user(command):
    """The server refuses to run as root."""
    return ["runuser", "-u", "postgres", "--"] + command if os.geteuid() == 0 else command


def quietly(command):
    """Runs it; what it says is shown only if it failed. Meson has malloc() fill what it gives and takes (MALLOC_PERTURB_), which shows
    who reads it too early or too late: that is for our programs, and takes a server much of its time."""
    environment = {name: value for name, value in os.environ.items() if name != "MALLOC_PERTURB_"}
    done = subprocess.run(as_server_user(command), cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", env=environment)
    if done.returncode != 0:
        sys.stderr.write(done.stdout)
    return done.returncode == 0


class Cluster:
    """`data` is its folder; its log is the file beside it."""

    def __init__(self, bin_dir, data):
        self.bin_dir, self.data, self.log = bin_dir, data, data + ".log"

    def program(self, name, *arguments):
        return quietly([os.path.join(self.bin_dir, name), *arguments])

    def pg_ctl(self, verb, *arguments):
        return self.program("pg_ctl", verb, "-D", self.data, "-w", "-t", "300", "-s", *arguments)

    def make(self):
        """Where a run of tests has a shelf (tools/run-tests), a copy of the first one that it made: then all of them have
        one system identifier, which no test may mind."""
        shelf = os.environ.get("ONCE_TEST_SHELF")
        template = self.template(shelf) if shelf else None
        return quietly(["cp", "-R", template, self.data]) if template else self.initdb(self.data)

    def template(self, shelf):
        """The shelf's cluster, which nobody starts. None: there is none to be had."""
        template = os.path.join(shelf, self.bin_dir.strip("/").replace("/", "-"))
        try:
            with open(template + ".lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not os.path.isdir(template):
                    workshop = tempfile.mkdtemp(dir=shelf)
                    if os.geteuid() == 0:
                        shutil.chown(workshop, "postgres")
                    if not self.initdb(os.path.join(workshop, "data")):
                        return None
                    os.rename(os.path.join(workshop, "data"), template)
        except OSError:
            return None
        return template

    def initdb(self, data):
        return self.program("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
                            "--locale=C.UTF-8", "--no-sync")

    def copy_of(self, socket_folder, port):
        """A standby that follows the primary behind that socket."""
        return self.program("pg_basebackup", "-D", self.data, "-h", socket_folder, "-p", port, "-U", "postgres", "-R",
                            "-X", "stream", "-c", "fast", "--no-sync")

    def configure(self, settings):
        with open(os.path.join(self.data, "postgresql.conf"), "a") as conf:
            for name, value in settings.items():
                conf.write("%s = '%s'\n" % (name, value.replace("'", "''")))

    def said(self):
        return open(self.log, errors="replace").read() if os.path.exists(self.log) else ""

    def start(self):
        return self.pg_ctl("start", "-l", self.log)

    def stop(self, mode="immediate"):
        return self.pg_ctl("stop", "-m", mode)

    def reload(self):
        return self.pg_ctl("reload")

    def promote(self):
        return self.pg_ctl("promote")

    def is_up(self):
        return os.path.exists(os.path.join(self.data, "postmaster.pid"))
