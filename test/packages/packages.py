#!/usr/bin/env python3
"""The Debian packages, from the sources to the purge, in a minimal Debian of their own.

usage: packages.py FOLDER        where to work; the packages are in FOLDER/deb
environment: ONCE_TEST_DEBS=build-deb   what `make deb` has built, instead of building

Builds them (tools/make-deb), has lintian look, installs them with apt in a fresh root, and runs there
what the unit says, as the user it says, with nginx before it; then upgrades, removes, installs again,
purges and installs anew. That is without systemd, whose unit is read here. Then the root is booted, in
namespaces, and the same is done by systemd; skipped where that cannot be.
"""
import functools
import glob
import os
import re
import resource
import shlex
import shutil
import stat
import subprocess
import sys
import time

sys.path.append("/usr/lib/python3/dist-packages")  # where another python3 comes first
import yaml
from root import Booted, ENV, Inside, Root, archive, output
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from lib import wait
from lib.tap import Cases, chained, expect_equal, run

HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGES = ("once", "libonce0", "libonce-dev", "libnginx-mod-http-once")
UNITS = ("once.service", "once-relay@.service", "once-consume@.service")
EXPOSURE_MAX = 1.4  # of `systemd-analyze security`, where 10 is a service that is not confined at all

# A service that never answers the same twice: nginx itself.
SERVICE = """server {
    listen 127.0.0.1:9000;
    location / { return 201 "order $request_id\\n"; }
}
"""
CHARGE = r"""#include <once.h>
#include <stdio.h>
int main(void)
{
    struct once *once = NULL;
    struct once_error err;
    if (once_open("sqlite:/tmp/charge.db", NULL, &once, &err) != ONCE_OK)
        return fprintf(stderr, "%s\n", err.text), 1;
    struct once_reply reply;
    struct once_claim claim = { .key = ONCE_LIT("order-17") };
    once_result r = once_claim(once, &claim, &reply, &err);
    printf("%s %s\n", once_version(), r == ONCE_OK ? once_arm_name(reply.arm) : err.text);
    once_reply_release(&reply);
    once_close(once);
    return 0;
}
"""
folder = root = version = first_answer = None
case = Cases()
wait_for = functools.partial(wait.wait_for, seconds=300)


def packages(where, which=PACKAGES):
    found = [p for name in which for p in glob.glob("%s/%s_*.deb" % (where, name))]
    expect_equal(len(found), len(which), "packages in %s" % where)
    return found


# ---------------------------------------------------------------- the unit, without systemd

def unit(name):
    settings = {}
    for line in root.read("/lib/systemd/system/" + name).splitlines():
        if "=" in line and line[0] not in "#;":
            key, value = line.split("=", 1)
            settings.setdefault(key, []).append(value)
    return settings


def environment(settings):
    """Environment= and EnvironmentFile=, the later ones count."""
    env = dict(v.split("=", 1) for line in settings["Environment"] for v in shlex.split(line))
    for path in settings["EnvironmentFile"]:
        for line in root.read(path.lstrip("-")).splitlines():
            if line.strip() and not line.startswith("#"):
                name, value = line.split("=", 1)
                env[name] = "".join(shlex.split(value))
    return env


def words_of(command, env):
    """$NAME by itself is as many words as it has, ${NAME} is one."""
    words = []
    for word in shlex.split(command):
        if re.fullmatch(r"\$\w+", word):
            words += shlex.split(env.get(word[1:], ""))
        else:
            words.append(re.sub(r"\$\{(\w+)\}", lambda m: env.get(m.group(1), ""), word))
    return words


class Service:
    """ExecStart of once.service as its User, with its directories, its umask and no capability."""

    def __init__(self, inside):
        s = unit("once.service")
        (user,), (group,), (command,) = s["User"], s["Group"], s["ExecStart"]
        env = environment(s)
        (number,) = [l.split(":")[2] for l in root.read("/etc/passwd").splitlines() if l.startswith(user + ":")]
        for base, kind in (("/run", "RuntimeDirectory"), ("/var/lib", "StateDirectory")):
            path = root.at("%s/%s" % (base, s[kind][0]))
            os.makedirs(path, exist_ok=True)
            os.chmod(path, int(s[kind + "Mode"][0], 8))
            os.chown(path, int(number), int(number))
        names = ["%s=%s" % pair for pair in env.items()]
        files = min(int(s["LimitNOFILE"][0]), resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        self.process = inside.start(
            "prlimit", "--nofile=%d" % files, "setpriv", "--reuid=" + user, "--regid=" + group, "--clear-groups",
            "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", "env", "-i", *names,
            "sh", "-c", 'umask %s; exec "$@"' % s["UMask"][0], "sh", *words_of(command, env),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.ready = self.process.stdout.readline()
        assert self.ready.startswith("once: ready: socket /run/once/once.sock"), self.ready + self.process.stdout.read()

    def stop(self, inside):
        inside.run("sh", "-c", "kill -TERM $(cat /proc/[0-9]*/status | awk '/^Name:/ { n = $2 } /^Pid:/ { p = $2 } "
                               "/^PPid:/ && n == \"once\" { print p }')")
        expect_equal(self.process.wait(timeout=300), 0, "exit status of the daemon")


def start_nginx(inside):
    process = inside.start("nginx", "-g", "daemon off;", stderr=subprocess.PIPE)
    for _ in range(600):
        done = subprocess.run(inside.command("curl", "-s", "-o", "/dev/null", "--retry", "50", "--retry-connrefused", "--retry-delay",
                                             "1", "http://127.0.0.1:8080/.well-known/idempotency"), env=ENV, check=False)
        if done.returncode == 0:
            return process
        assert process.poll() is None, process.stderr.read()
    raise AssertionError("nginx does not answer")


def ask(inside, key, port=8080):
    """(status, replayed, body). A daemon that was late is asked again, until what it did too late was given back."""
    due, end = ("store-unavailable",), time.monotonic() + 300
    while True:
        out = inside.run("curl", "-sS", "-i", "-H", 'Idempotency-Key: "%s"' % key, "-d", '{"eur": 25}',
                         "http://127.0.0.1:%d/orders" % port)
        head, body = out.replace("\r", "").split("\n\n", 1)
        if not any(code in body for code in due) or time.monotonic() > end:
            break
        due = ("store-unavailable", "in-progress")
        time.sleep(0.1)
    return int(head.split()[1]), "Idempotency-Replayed: true" in head, body


# ---------------------------------------------------------------- building

@case
def built__without_touching_the_tree():
    archive()  # skips here, where it has to
    before = output("git", "-C", HERE, "status", "--porcelain") if os.path.exists(HERE + "/.git") else ""
    if "ONCE_TEST_DEBS" in os.environ:
        shutil.copytree(os.environ["ONCE_TEST_DEBS"], folder + "/deb")
    else:
        output(os.path.join(HERE, "tools/make-deb"), folder + "/deb")
    after = output("git", "-C", HERE, "status", "--porcelain") if before else ""
    expect_equal(after, before, "git status")
    global version
    version = output("dpkg-deb", "-f", packages(folder + "/deb")[0], "Version").strip()
    names = [os.path.basename(p).split("_")[0] for p in glob.glob(folder + "/deb/*.deb")]
    expect_equal(sorted(n for n in names if n.endswith("-dbgsym")),
          ["libnginx-mod-http-once-dbgsym", "libonce0-dbgsym", "once-dbgsym"], "debug symbols")


@case
def version__of_a_build_before_the_release_is_older():
    if "~" in version:
        output("dpkg", "--compare-versions", version, "lt", re.sub("~[^-]*", "", version))
    output("dpkg", "--compare-versions", version, "lt", version + "+1")


# ---------------------------------------------------------------- installing

@case
def installed__with_what_they_depend_on():
    global root
    root = Root(folder + "/root")
    root.install(packages(folder + "/deb"))
    status = root.run("dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n")
    expect_equal([p for p in PACKAGES if p + " installed" not in status.splitlines()], [], "not installed")
    depends = root.run("dpkg-query", "-W", "-f", "${Depends}", "libnginx-mod-http-once")
    assert re.search(r"\bnginx-abi-[\d.]+-\d+", depends), depends
    (user,) = [l.split(":") for l in root.read("/etc/passwd").splitlines() if l.startswith("once:")]
    expect_equal((user[5], user[6]), ("/var/lib/once", "/usr/sbin/nologin"), "the user")
    store = os.stat(root.at("/var/lib/once"))
    expect_equal((store.st_uid, stat.S_IMODE(store.st_mode)), (int(user[2]), 0o700), "the store's directory")
    assert root.exists("/etc/nginx/modules-enabled/50-mod-http-once.conf")
    root.run("once", "--version")


@case
def units__are_good_ones():
    """systemd reads them without a remark, and counts how confined they are."""
    for name in UNITS:
        name = name.replace("@.", "@x.")
        if "@" in name:
            root.write("/etc/once/%s.conf" % name.replace("once-", "").replace("@", "-").replace(".service", ""), "")
        said = output("systemd-analyze", "--root=" + root.path, "--man=no", "--recursive-errors=no", "verify", name)
        expect_equal([l for l in said.splitlines() if "once" in l], [], name)
        out = output("systemd-analyze", "--root=" + root.path, "--offline=true", "--no-pager", "security", name)
        score = float(re.search(r"Overall exposure level for \S+: ([\d.]+)", out).group(1))
        print("# %s: exposure %.1f" % (name, score))
        assert score <= EXPOSURE_MAX, "%s: exposure %.1f\n%s" % (name, score, out)
    for path in glob.glob(root.at("/etc/once/*.conf")):
        os.unlink(path)


@case
def library__links_and_runs():
    """A program is built here with the headers and libraries of the root, and runs there."""
    source, program = folder + "/charge.c", root.at("/tmp/charge")
    with open(source, "w", encoding="ascii") as file:
        file.write(CHARGE)
    triplet = output("dpkg-architecture", "-qDEB_HOST_MULTIARCH").strip()
    env = dict(os.environ, PKG_CONFIG_SYSROOT_DIR=root.path,
               PKG_CONFIG_LIBDIR="%s/usr/lib/%s/pkgconfig:%s/usr/share/pkgconfig" % (root.path, triplet, root.path))
    flags = shlex.split(output("pkg-config", "--cflags", "--libs", "once", env=env))
    output("cc", "--sysroot=" + root.path, "-B%s/usr/lib/%s" % (root.path, triplet), "-std=c17", source, *flags, "-o", program)
    expected = re.match(r"[\d.]+\d", version).group(0)
    expect_equal(root.run("/tmp/charge"), expected + " execute\n", "the program")
    assert "libonce.so.0" in output("objdump", "-p", program)
    os.unlink(program)


@case
def gateway__as_the_units_say():
    global first_answer
    root.write("/etc/nginx/conf.d/service.conf", SERVICE)
    shutil.copy(root.at("/usr/share/doc/libnginx-mod-http-once/examples/once-site.conf"), root.at("/etc/nginx/sites-enabled/shop"))
    with Inside(root) as inside:
        inside.run("nginx", "-t")
        service = Service(inside)
        start_nginx(inside)
        first_answer = ask(inside, "order-1")
        expect_equal(first_answer[:2], (201, False), "the first time")
        expect_equal(ask(inside, "order-1"), (201, True, first_answer[2]), "the second time")
        assert ask(inside, "order-2")[2] != first_answer[2], "another key, the same answer"
        wait_for(lambda: inside.run("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:7411/healthz") == "200", "health")
        store = os.stat(root.at("/var/lib/once/once.db"))
        expect_equal(stat.S_IMODE(store.st_mode), 0o600, "mode of the store")
        # an operator, by the socket; and a gateway by hand beside the service
        assert "order-1" in inside.run("once", "keys", "list", "--store", "once:/run/once/once.sock")
        gateway = inside.start("once", "serve", "--store", "once:/run/once/once.sock", "--upstream", "http://127.0.0.1:9000",
                               "--listen", "127.0.0.1:8081", stderr=subprocess.STDOUT, stdout=subprocess.PIPE)
        lines = []
        while not lines or "once serve: ready:" not in lines[-1]:
            lines.append(gateway.stdout.readline())
            assert lines[-1] != "", "".join(lines)
        expect_equal(ask(inside, "order-1", 8081), (201, True, first_answer[2]), "through `once serve`: the same store, key and tenant")
        # others may not
        done = subprocess.run(inside.command("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "once", "keys", "list",
                                             "--store", "once:/run/once/once.sock"), env=ENV, capture_output=True, text=True, check=False)
        assert done.returncode in (69, 70) and done.stdout == "", "a stranger: %d %s%s" % (done.returncode, done.stdout, done.stderr)
        service.stop(inside)  # and the gateway with it, which has its folder to remove
        expect_equal(gateway.wait(timeout=300), 0, "exit status of the gateway")
        assert not glob.glob(root.at("/run/once-serve-*"))


# ---------------------------------------------------------------- upgrading

def next_version():
    """The same packages, one version later, with another /etc/default/once."""
    where = folder + "/next"
    os.mkdir(where)
    for path in packages(folder + "/deb"):
        tree = where + "/tree"
        output("dpkg-deb", "-R", path, tree)
        with open(tree + "/DEBIAN/control", encoding="utf-8") as file:
            control = file.read().replace(version, version + "+1")
        with open(tree + "/DEBIAN/control", "w", encoding="utf-8") as file:
            file.write(control)
        if os.path.exists(tree + "/etc/default/once"):
            with open(tree + "/etc/default/once", "a", encoding="utf-8") as file:
                file.write("# a line of the next version\n")
        output("dpkg-deb", "-Zgzip", "-z1", "-b", tree, "%s/%s" % (where, os.path.basename(path).replace(version, version + "+1")))
        shutil.rmtree(tree)
    return packages(where)


@case
def upgrade__keeps_the_store_and_what_was_edited():
    edited = root.read("/etc/default/once") + 'ONCE_OPTIONS="--allow daemon --http 127.0.0.1:7499"\n'
    root.write("/etc/default/once", edited)
    root.install(next_version())
    expect_equal(root.run("dpkg-query", "-W", "-f", "${Version}", "once"), version + "+1", "version")
    expect_equal(root.read("/etc/default/once"), edited, "/etc/default/once")
    assert "a line of the next version" in root.read("/etc/default/once.dpkg-dist")
    with Inside(root) as inside:
        service = Service(inside)
        assert "http 127.0.0.1:7499" in service.ready, service.ready
        start_nginx(inside)
        expect_equal(ask(inside, "order-1"), (201, True, first_answer[2]), "after the upgrade")
        expect_equal(inside.run("once", "check", "--store", "once:/run/once/once.sock").split(",")[-1].strip(), "0 problems", "check")
        service.stop(inside)


# ---------------------------------------------------------------- removing

@case
def removed__keeps_the_data():
    root.apt("remove", "once", "libnginx-mod-http-once")
    assert not root.exists("/usr/bin/once") and not root.exists("/usr/lib/nginx/modules/ngx_http_once_module.so")
    assert not root.exists("/lib/systemd/system/once.service")
    assert root.exists("/var/lib/once/once.db") and root.exists("/etc/default/once")
    assert not root.exists("/etc/nginx/modules-enabled/50-mod-http-once.conf")
    os.unlink(root.at("/etc/nginx/sites-enabled/shop"))
    root.run("nginx", "-t")  # still serves other sites


@case
def installed_again__finds_the_data():
    root.install(packages(folder + "/next", ("once", "libnginx-mod-http-once")))
    shutil.copy(root.at("/usr/share/doc/libnginx-mod-http-once/examples/once-site.conf"), root.at("/etc/nginx/sites-enabled/shop"))
    with Inside(root) as inside:
        service = Service(inside)
        start_nginx(inside)
        expect_equal(ask(inside, "order-1"), (201, True, first_answer[2]), "after it was installed again")
        service.stop(inside)
    os.unlink(root.at("/etc/nginx/sites-enabled/shop"))


@case
def container__as_the_dockerfile_and_the_manifest_say():
    """Without a container: what can be built there, and the gateway as their user, with their variables and arguments."""
    with open(HERE + "/packaging/docker/Dockerfile", encoding="utf-8") as file:
        image = file.read()
    with open(HERE + "/packaging/kubernetes/sidecar.yaml", encoding="utf-8") as file:
        workload = list(yaml.safe_load_all(file))[1]
    (container,) = [c for c in workload["spec"]["template"]["spec"]["containers"] if c["name"] == "once"]
    shutil.copytree(HERE + "/debian", root.at("/root/src/debian"), symlinks=True)
    assert "Inst nginx-dev" in root.run("sh", "-c", "cd /root/src && apt-get build-dep -s -y --no-install-recommends ./")
    shutil.rmtree(root.at("/root/src"))
    user = re.search(r"^USER (\d+):", image, re.M).group(1)
    variables = re.search(r"^ENV (XDG.*)$", image, re.M).group(1).split()
    shutil.rmtree(root.at("/var/lib/once"))
    for path in ("/var/lib/once", "/run/once"):
        os.makedirs(root.at(path), exist_ok=True)
        os.chown(root.at(path), int(user), int(user))
    with Inside(root) as inside:
        inside.start("nginx", "-g", "daemon off;", stderr=subprocess.DEVNULL)
        gateway = inside.start("setpriv", "--reuid=" + user, "--regid=" + user, "--clear-groups", "--no-new-privs", "--inh-caps=-all",
                               "--bounding-set=-all", "env", "-i", "PATH=" + ENV["PATH"], *variables, "once", *container["args"],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        lines = []
        while not lines or "once serve: ready:" not in lines[-1]:
            lines.append(gateway.stdout.readline())
            assert lines[-1] != "", "".join(lines)
        assert any("sqlite:/var/lib/once/once.db" in l for l in lines), "".join(lines)
        for kind in ("startupProbe", "readinessProbe"):
            inside.run(*container[kind]["exec"]["command"])
        inside.run("curl", "-fsS", "-o", "/dev/null", "http://127.0.0.1:8080" + container["livenessProbe"]["httpGet"]["path"])
        # nginx may be a moment behind: what was not sent leaves the key free
        wait_for(lambda: ask(inside, "order-0")[0] == 201, "the service")
        answer = ask(inside, "order-1")
        expect_equal(answer[:2], (201, False), "the first time")
        expect_equal(ask(inside, "order-1"), (201, True, answer[2]), "the second time")


def leftovers():
    """Names with `once` in them, outside of what belongs to dpkg and apt."""
    out = root.run("find", "/", "-xdev", "(", "-path", "/proc", "-o", "-path", "/var/cache/apt", "-o", "-path", "/var/lib/apt", ")", "-prune",
                   "-o", "-iname", "*once*", "-print")
    return out.split()


@case
def purged__leaves_nothing_but_the_user():
    root.apt("purge", *PACKAGES)
    root.apt("autoremove", "--purge")
    status = root.run("dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n")
    expect_equal([l for l in status.splitlines() if "once" in l], [], "packages")
    expect_equal(leftovers(), [], "files")
    assert "once:" in root.read("/etc/passwd")
    expect_equal(os.path.exists(root.at("/usr/lib/x86_64-linux-gnu/libnats.so.3.4")), False, "what only they needed")


@case
def installed_anew__begins_anew():
    root.install(packages(folder + "/deb"))
    shutil.copy(root.at("/usr/share/doc/libnginx-mod-http-once/examples/once-site.conf"), root.at("/etc/nginx/sites-enabled/shop"))
    root.write("/etc/nginx/conf.d/service.conf", SERVICE)
    with Inside(root) as inside:
        service = Service(inside)
        start_nginx(inside)
        answer = ask(inside, "order-1")
        expect_equal(answer[:2], (201, False), "a key of the store that was purged")
        assert answer[2] != first_answer[2]
        service.stop(inside)
    root.apt("purge", *PACKAGES)
    expect_equal(leftovers(), [], "files")


# ---------------------------------------------------------------- with systemd

def property_of(booted, name, unit_name="once"):
    return booted.run("systemctl", "show", "--value", "-p", name, unit_name).strip()


def mapped_modules(booted):
    """The module as each process of nginx has it: "(deleted)" is one that was replaced since."""
    return set(booted.run("sh", "-c", "grep -h ngx_http_once_module /proc/[0-9]*/maps | sed 's/.*ngx_http/ngx_http/' | sort -u").splitlines())


@case
def systemd__runs_and_confines_it():
    os.unlink(root.at("/usr/sbin/policy-rc.d"))
    root.apt("install", "systemd-sysv")
    root.install(packages(folder + "/deb"))
    root.write("/etc/nginx/conf.d/service.conf", SERVICE)
    shutil.copy(root.at("/usr/share/doc/libnginx-mod-http-once/examples/once-site.conf"), root.at("/etc/nginx/sites-enabled/shop"))
    with Booted(root) as booted:
        expect_equal((property_of(booted, "ActiveState"), property_of(booted, "ActiveState", "nginx")), ("active", "active"), "at the start")
        wait_for(lambda: root_has_socket(booted), "the daemon")
        first = ask(booted, "order-1")
        expect_equal(first[:2], (201, False), "the first time")
        expect_equal(ask(booted, "order-1"), (201, True, first[2]), "the second time")
        pid = property_of(booted, "MainPID")
        status = booted.run("cat", "/proc/%s/status" % pid)
        expect_equal([re.search(r"^%s:\s*(\S+)" % f, status, re.M).group(1) for f in ("CapBnd", "NoNewPrivs", "Seccomp")],
              ["0" * 16, "1", "2"], "capabilities, privileges, system calls")
        # killed, it comes back
        booted.run("systemctl", "kill", "--kill-who=main", "--signal=KILL", "once")
        wait_for(lambda: property_of(booted, "MainPID") not in ("0", pid) and root_has_socket(booted), "a new daemon")
        wait_for(lambda: ask(booted, "order-1") == (201, True, first[2]), "an answer")
        # the next version
        pid = property_of(booted, "MainPID")
        booted.install(packages(folder + "/next"))
        assert property_of(booted, "MainPID") not in ("0", pid), "it was not restarted"
        wait_for(lambda: ask(booted, "order-1") == (201, True, first[2]), "an answer")
        wait_for(lambda: mapped_modules(booted) == {"ngx_http_once_module.so"}, "the old module to be gone")
        # the end
        booted.run("systemctl", "stop", "once")
        expect_equal((property_of(booted, "Result"), property_of(booted, "ExecMainStatus")), ("success", "0"), "the end")
        expect_equal(ask(booted, "order-1")[0], 503, "without a daemon")
        expect_equal(boots(), 1, "boots that the store knows, with an id")
        booted.run("systemctl", "start", "once")
        # purged while it runs
        os.unlink(root.at("/etc/nginx/sites-enabled/shop"))
        booted.apt("purge", "once")
        expect_equal((root.exists("/var/lib/once"), root.exists("/etc/default/once")), (False, False), "after the purge")
        expect_equal(booted.run("sh", "-c", "cat /proc/[0-9]*/comm | grep -cx once || true").strip(), "0", "processes")


@case
def lintian__has_nothing_to_say():
    """But that a first upload should close the bug that asked for the package: this is not Debian's archive."""
    (changes,) = glob.glob(folder + "/deb/*.changes")
    out = output("lintian", "--allow-root", "--fail-on", "error,warning", "--display-info", "--tag-display-limit", "0",
                 "--suppress-tags", "initial-upload-closes-no-bugs", changes)
    said = [l for l in out.splitlines() if l[:2] in ("E:", "W:", "I:")]
    expect_equal(said, [], "lintian")


def root_has_socket(booted):
    return subprocess.run(booted.command("test", "-S", "/run/once/once.sock"), check=False).returncode == 0


def boots():
    """A confined daemon can tell boots apart: it could read the kernel's id of this one."""
    for path in glob.glob(root.at("/var/lib/once/once.db*")):
        shutil.copy(path, folder)
    out = output("sqlite3", folder + "/once.db", "SELECT count(*), count(*) FILTER (WHERE boot_id = zeroblob(16)) FROM once_boot")
    known, without = out.strip().split("|")
    expect_equal(without, "0", "boots without an id")
    return int(known)


def main():
    global folder
    folder = os.path.abspath(sys.argv.pop(1))
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    try:
        run(chained(case), sys.argv[1:])
    finally:
        if "ONCE_TEST_KEEP" not in os.environ:
            shutil.rmtree(folder + "/root", ignore_errors=True)
            shutil.rmtree(folder + "/next", ignore_errors=True)


if __name__ == "__main__":
    main()
