"""A minimal Debian in a folder, made from the mirror that this machine's own apt uses, and kept as an archive.

Root      the folder: run programs in it, with apt on the machine's network
Booted    the same with systemd as the first process
Inside    namespaces in which services run: a network of their own (loopback), and everything that was
          started ends with them
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from lib.process import children
from lib.tap import Skipped
from lib.wait import wait_for

CACHE = os.path.expanduser(os.environ.get("ONCE_TEST_CACHE", "~/.cache/once-test"))
ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive"}


def output(*command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more)
    assert done.returncode == 0, "%s: exit %d\n%s" % (" ".join(command), done.returncode, done.stdout[-3000:])
    return done.stdout


def codename():
    with open("/etc/os-release", encoding="utf-8") as file:
        m = re.search(r"^VERSION_CODENAME=(\w+)", file.read(), re.M)
    return m.group(1) if m else ""


def sources():
    """The lines of sources.list, from what apt knows here."""
    form = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(ORIGIN)"
    lines = set()
    for line in output("apt-get", "indextargets", "--format", form, "Created-By: Packages").splitlines():
        uri, release, component, origin = line.split("|")
        if origin == "Debian" and release.split("-")[0] == codename():
            lines.add("deb %s %s %s" % (uri, release, component))
    return sorted(lines)


def archive():
    """The path of the kept root; made if there is none, and every week anew: mirrors move on."""
    if os.geteuid() != 0:
        raise Skipped("not root: a root of its own needs chroot")
    for program in ("mmdebstrap", "lintian", "dpkg-buildpackage"):
        if shutil.which(program) is None:
            raise Skipped("%s is not installed" % program)
    path = os.path.join(CACHE, "debian-%s.tar" % codename())
    if os.path.exists(path) and time.time() - os.path.getmtime(path) < 7 * 86400:
        return path
    lines = sources()
    if not lines:
        raise Skipped("apt here knows no mirror of Debian")
    os.makedirs(CACHE, exist_ok=True)
    proxies = re.findall(r"^Acquire::https?::Proxy .*;$", output("apt-config", "dump"), re.M)
    part = path + ".part"
    output("mmdebstrap", "--mode=root", "--format=tar", "--variant=apt", "--include=curl,ca-certificates", "--skip=cleanup/apt",
           *["--aptopt=" + p for p in proxies], codename(), part, "-", input="\n".join(lines) + "\n")
    os.rename(part, path)
    return path


class Root:
    def __init__(self, path):
        self.path = path
        os.mkdir(path)
        output("tar", "-x", "--numeric-owner", "-f", archive(), "-C", path)
        # As on a machine whose administrator starts things: nobody is started by an installation.
        self.write("/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n", 0o755)
        self.write("/etc/dpkg/dpkg.cfg.d/test", "force-unsafe-io\n")  # nothing here has to survive a power cut
        shutil.copy("/etc/resolv.conf", self.at("/etc/resolv.conf"))
        # Packages that were fetched before are not fetched again.
        self.kept = os.path.join(CACHE, "debs")
        os.makedirs(self.kept, exist_ok=True)
        for name in os.listdir(self.kept):
            shutil.copy(os.path.join(self.kept, name), self.at("/var/cache/apt/archives"))

    def at(self, path):
        return self.path + path

    def exists(self, path):
        return os.path.lexists(self.at(path))

    def read(self, path):
        with open(self.at(path), encoding="utf-8") as file:
            return file.read()

    def write(self, path, text, mode=0o644):
        with open(self.at(path), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.at(path), mode)

    def command(self, *words):
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc=" + self.at("/proc"),
                "chroot", self.path, *words]

    def run(self, *words):
        return output(*self.command(*words), env=ENV, stdin=subprocess.DEVNULL)

    def apt(self, *words, run=None):
        out = (run or self.run)("apt-get", "-y", "--no-install-recommends", "-o", "APT::Keep-Downloaded-Packages=true",
                                "-o", "Dpkg::Options::=--force-confold", *words)
        for name in os.listdir(self.at("/var/cache/apt/archives")):
            kept = os.path.join(self.kept, name)
            if name.endswith(".deb") and not os.path.exists(kept):
                fd, part = tempfile.mkstemp(dir=self.kept)
                os.close(fd)
                shutil.copy(self.at("/var/cache/apt/archives/" + name), part)
                os.rename(part, kept)
        return out

    def install(self, paths, run=None):
        """Packages of this machine, by apt, which resolves what they depend on."""
        folder = self.at("/var/tmp/packages")
        shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(folder)
        for path in paths:
            shutil.copy(path, folder)
        out = self.apt("install", *["/var/tmp/packages/" + os.path.basename(p) for p in paths], run=run)
        shutil.rmtree(folder)
        return out


class Inside:
    """with Inside(root) as inside: inside.run(...), inside.start(...)"""

    def __init__(self, root):
        self.root = root

    def __enter__(self):
        script = "mount -t proc proc %s && ip link set lo up && echo ready && exec sleep infinity" % self.root.at("/proc")
        self.holder = subprocess.Popen(["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", script],
                                       stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout.readline() == "ready\n"
        with open("/proc/%d/task/%d/children" % (self.holder.pid, self.holder.pid), encoding="ascii") as file:
            self.pid = file.read().split()[0]
        return self

    def __exit__(self, *_):
        self.holder.kill()  # and with it the first process of the namespace, and with that all others
        self.holder.wait()

    def is_empty(self):
        try:
            for where, _, _ in os.walk(self.group, topdown=False):
                os.rmdir(where)
        except OSError:
            return False
        return True

    def command(self, *words):
        return ["nsenter", "--target", self.pid, "--mount", "--net", "--pid", "chroot", self.root.path, *words]

    def run(self, *words):
        return output(*self.command(*words), env=ENV, stdin=subprocess.DEVNULL)

    def start(self, *words, **more):
        return subprocess.Popen(self.command(*words), stdin=subprocess.DEVNULL, text=True, **{"env": ENV, **more})


class Booted(Inside):
    """with Booted(root) as booted: systemd has started what is enabled. The network is loopback, also for apt: only
    what was fetched before, or is in a file, can be installed."""

    def __enter__(self):
        if not os.path.exists("/proc/self/ns/cgroup"):
            raise Skipped("no namespaces of control groups here")
        # A control group of its own, which is the root of what it sees.
        self.groups = tempfile.mkdtemp(prefix="once-cgroup.")
        done = subprocess.run(["mount", "-t", "cgroup2", "none", self.groups], stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            os.rmdir(self.groups)
            raise Skipped("cannot mount control groups: " + done.stderr.strip())
        self.group = "%s/once-test-%d" % (self.groups, os.getpid())
        os.mkdir(self.group)
        # Not only a chroot: services get mounts of their own, and for that the root has to be one.
        path = self.root.path
        inner = ("mount --bind {0} {0} && cd {0} && mount -t proc proc proc && mount -t sysfs -o ro sysfs sys"
                 " && mount -t cgroup2 none sys/fs/cgroup && mount -t tmpfs tmpfs run && ip link set lo up"
                 " && mkdir -p mnt && pivot_root . mnt && cd / && umount -l /mnt"
                 " && exec env -i container=once-test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --log-target=console").format(path)
        script = "echo 0 >%s/cgroup.procs && exec unshare --cgroup sh -c '%s'" % (self.group, inner)
        self.log = open(path + "/../systemd.log", "w+", encoding="utf-8")
        self.holder = subprocess.Popen(["unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "sh", "-c", script],
                                       stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)
        try:
            wait_for(self.is_up, "the system to be up", 300)
            return self
        except BaseException:
            self.__exit__()
            raise

    def is_up(self):
        assert self.holder.poll() is None, self.said()
        found = children(self.holder.pid)
        if not found:
            return False
        self.pid = str(found[0])
        done = subprocess.run(self.command("systemctl", "is-system-running"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              env=ENV, text=True, check=False)
        return done.stdout.strip() in ("running", "degraded")

    def said(self):
        self.log.seek(0)
        return self.log.read()[-3000:]

    def __exit__(self, *_):
        super().__exit__()
        self.log.close()
        wait_for(self.is_empty, "the last process in " + self.group, 300)
        subprocess.run(["umount", self.groups], check=True)
        os.rmdir(self.groups)

    def is_empty(self):
        try:
            for where, _, _ in os.walk(self.group, topdown=False):
                os.rmdir(where)
        except OSError:
            return False
        return True

    def command(self, *words):
        return ["nsenter", "--target", self.pid, "--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup", *words]

    def apt(self, *words):
        return self.root.apt("--no-download", *words, run=self.run)

    def install(self, paths):
        return self.root.install(paths, run=self.run)
