#!/usr/bin/env python3
"""The languages of examples/: what each needs, how it is fetched and built, how its programs are started.

    toolchains.py fetch        ahead of the tests: node-postgres from npm, pgx by Go, into ~/.cache/once-test (or ONCE_TEST_CACHE)

psycopg, the JDBC driver and Jackson are Debian's (tools/deps). What is missing is said, and the tests of that language are
skipped. Nothing is written into the source folder.
"""
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
EXAMPLES = os.path.join(HERE, "../../examples")
JARS = ["/usr/share/java/%s.jar" % name for name in ("postgresql", "jackson-core", "jackson-databind", "jackson-annotations")]


class Missing(Exception):
    """Why this language cannot be run here."""


class Broken(Exception):
    """An example that does not compile: that is no reason to skip it."""


def cache(name):
    base = os.environ.get("ONCE_TEST_CACHE") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "once-test")
    os.makedirs(base, exist_ok=True)
    return os.path.join(base, name)


def need(*programs):
    for program in programs:
        if shutil.which(program) is None:
            raise Missing("%s is not installed" % program)


def run(command, what, timeout=300, otherwise=Missing, **more):
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", timeout=timeout, **more)
    except subprocess.TimeoutExpired as late:
        raise Missing("%s took more than %d s" % (what, timeout)) from late
    if done.returncode != 0:
        raise otherwise("%s: %s" % (what, " ".join(done.stdout.split())[:1000]))
    return done.stdout


# ---------------------------------------------------------------- one function per language: {program: command}

def python(stage):
    """The first interpreter that has psycopg 3: Debian's has, where python3-psycopg is installed."""
    for program in ("python3", "/usr/bin/python3"):
        found = shutil.which(program)
        if found and subprocess.run([found, "-c", "import sys, psycopg; sys.exit(sys.version_info < (3, 10))"], capture_output=True).returncode == 0:
            return {name: [found, os.path.join(EXAMPLES, "python/orders_%s.py" % name)] for name in ("sql", "gateway")}
    raise Missing("no python3 here has psycopg 3 (python3-psycopg)")


def fetch_npm(package):
    """The folder with the node_modules that a package.json asks for; they are named by what it asks for."""
    need("node", "npm")
    with open(package, encoding="utf-8") as file:
        wanted = json.load(file)["dependencies"]
    folder = cache("node-" + "-".join(name + "-" + version for name, version in sorted(wanted.items())))
    with open(folder + ".lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(folder):
            with tempfile.TemporaryDirectory(dir=os.path.dirname(folder)) as work:
                shutil.copy(package, work)
                run(["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--cache", "cache"],
                    "npm cannot fetch " + ", ".join(wanted), cwd=work)
                shutil.rmtree(os.path.join(work, "cache"), ignore_errors=True)
                os.mkdir(os.path.join(work, "done"))
                os.rename(os.path.join(work, "node_modules"), os.path.join(work, "done/node_modules"))
                os.rename(os.path.join(work, "done"), folder)
    return folder


def node(stage):
    folder = fetch_npm(os.path.join(EXAMPLES, "node/package.json"))
    if int(run(["node", "--version"], "node").lstrip("v").split(".")[0]) < 18:
        raise Missing("this node is older than 18")
    os.symlink(os.path.join(folder, "node_modules"), os.path.join(stage, "node_modules"))
    for name in ("sql", "gateway"):
        shutil.copy(os.path.join(EXAMPLES, "node/orders_%s.mjs" % name), stage)
    return {name: [shutil.which("node"), os.path.join(stage, "orders_%s.mjs" % name)] for name in ("sql", "gateway")}


def go(stage):
    """The first time takes half a minute, most of it for Go's own library."""
    need("go")
    environment = dict(os.environ, GOMODCACHE=cache("go-modules"), GOFLAGS="-modcacherw -buildvcs=false", GOTOOLCHAIN="local", GO111MODULE="on",
                       CGO_ENABLED="0")
    more = {"timeout": 600, "env": environment, "cwd": os.path.join(EXAMPLES, "go")}
    version = run(["go", "env", "GOVERSION"], "go", **more).strip()
    if [int(part) for part in version.removeprefix("go").split(".")[:2]] < [1, 21]:
        raise Missing("this is %s, and 1.21 is needed" % version)
    run(["go", "mod", "download"], "go cannot fetch pgx", **more)
    run(["go", "build", "-o", stage + os.sep, "./sql", "./gateway"], "go build", otherwise=Broken, **more)
    return {name: [os.path.join(stage, name)] for name in ("sql", "gateway")}


def java(stage):
    need("java", "javac")
    for jar in JARS:
        if not os.path.exists(jar):
            raise Missing("%s is not there (libpostgresql-jdbc-java, libjackson2-databind-java)" % jar)
    sources = {"sql": "OrdersSql", "gateway": "OrdersGateway"}
    run(["javac", "-J-XX:TieredStopAtLevel=1", "-cp", ":".join(JARS), "-d", stage, *(os.path.join(EXAMPLES, "java", name + ".java") for name in sources.values())],
        "javac", otherwise=Broken)
    return {name: [shutil.which("java"), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", ":".join([stage, *JARS]), main]
            for name, main in sources.items()}


LANGUAGES = {"python": python, "node": node, "go": go, "java": java}


def build(language, root):
    """{"sql": command, "gateway": command}, made in a folder below `root`; or why not, which is raised by who wants it."""
    stage = tempfile.mkdtemp(prefix=language + ".", dir=root)
    try:
        return LANGUAGES[language](stage)
    except (Missing, Broken) as why:
        return why


if __name__ == "__main__":
    if sys.argv[1:] != ["fetch"]:
        sys.exit("usage: toolchains.py fetch")
    with tempfile.TemporaryDirectory() as folder:
        for one in ("node", "go"):
            why = build(one, folder)
            if isinstance(why, Exception):
                print("%s; the examples in %s will be skipped" % (why, one), file=sys.stderr)
