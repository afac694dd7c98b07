#!/usr/bin/env python3
"""Does what a page of the documentation says, in its order and in one shell, and compares what comes out with what the page
says comes out.

usage: walk.py PAGE        (environment: ONCE_BIN, and ONCE_TEST_POSTGRES where a page needs a database)

What a fenced block is, is said by its language:

    sh        is run; every command in it has to succeed
    console   "$ " begins a command, what follows it is its output: "..." stands for any lines, at the end of a line for its
              rest; [exit N] is its status, 0 if there is none
    c         has to compile; a whole program, whose first line names its file, is there for what follows
    nginx     is tried with `nginx -t`, inside of http where it is a part; the module must not warn of it
    sql       is run with psql
    text      is no code

Others have to be marked, in the line before: <!-- not run: WHY -->. So does every block that cannot be run here; the options
of `once` in it have to exist all the same. Blocks by
indentation are refused: they say nothing of what they are. <!-- walk: demo --> at the head of a page has `make run`'s demo
running, and <!-- walk: postgres --> a server; addresses that a page names are replaced by free ones, and back again in what
is printed."""
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.join(HERE, "../..")
sys.path.insert(0, os.path.join(HERE, ".."))
from lib.http import request
from lib.ports import free_ports
from lib.tap import finish, ok
from lib.wait import wait_for

MARK = "=== end of command ==="
LANGUAGES = ("sh", "console", "c", "nginx", "sql")
DATABASE = r"postgresql://\w+@db/shop"
# For parts of programs.
HEADERS = "".join("#include <%s>\n" % name for name in (
    "libpq-fe.h", "once.h", "once_client.h", "once_flow.h", "sqlite3.h", "stdio.h", "stdlib.h", "string.h"))
# What differs from run to run.
VARIES = [
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}", "TIME"),
    (r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", "TIME"),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "UUID"),
    (r"\b[0-9a-f]{32,}\b", "HEX"),
    (r"\bfence +\d+", "fence N"),
    (r"\b\d+ms\b|\b(\d+h)?(\d+m)?(\d+(\.\d+)?s)\b|\b(\d+d)?\d+h(\d+m)?\b|\b\d+m\b", "DURATION"),
    (r"[ \t]+", " "),
    (r" $", ""),
]


def tell(good, what, why=""):
    ok(good, what.replace("#", "").replace("\n", " ")[:110], why)


class Block:
    def __init__(self, line, language, text, excuse):
        self.line, self.language, self.text, self.excuse = line, language, text, excuse


def blocks_of(page):
    """The fenced blocks, and what is wrong with the others."""
    blocks, problems, excuse = [], [], None
    lines = page.splitlines()
    at, in_list = 0, False
    while at < len(lines):
        line = lines[at]
        fence = re.match(r"```(\w*)$", line)
        if fence:
            end = lines.index("```", at + 1)
            blocks.append(Block(at + 1, fence.group(1), "\n".join(lines[at + 1:end]) + "\n", excuse))
            at = end
        elif line.startswith("    ") and not in_list and (at == 0 or not lines[at - 1].strip()):
            problems.append("line %d: a block by indentation; fence it, and say what it is" % (at + 1))
        mark = re.match(r"<!-- not run: (.+) -->$", line)
        excuse = mark.group(1) if mark else excuse if not line.strip() else None
        if line.strip() and not line.startswith(" "):
            in_list = bool(re.match(r"([-*]|\d+\.) ", line))
        at += 1
    for b in blocks:
        if b.language not in LANGUAGES + ("text",) and b.excuse is None:
            problems.append("line %d: a block of '%s' that is not run, and does not say why" % (b.line, b.language))
    return blocks, problems


def even(text):
    for pattern, instead in VARIES:
        text = re.sub(pattern, instead, text, flags=re.M)
    return text


def matches(said, expected):
    pattern = ""
    for line in even(expected).splitlines():
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        elif line.endswith("..."):
            pattern += re.escape(line[:-3]) + r".*\n"
        else:
            pattern += re.escape(line) + r"\n"
    said = even(said)
    return re.fullmatch(pattern, said + ("" if said.endswith("\n") or not said else "\n")) is not None


class Shell:
    """One bash, fed command by command."""

    def __init__(self, folder, env):
        self.process = subprocess.Popen(["bash", "--noprofile", "--norc"], cwd=folder, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, start_new_session=True)
        self.run("shopt -s expand_aliases")

    def run(self, command):
        """What it printed, and its status; None: the shell ended."""
        self.process.stdin.write("%s\n__status=$?; printf '\\n%%s %%s\\n' '%s' $__status\n" % (command.rstrip("\n"), MARK))
        self.process.stdin.flush()
        said = ""
        for line in self.process.stdout:
            if line.startswith(MARK):
                return said[:-1] if said.endswith("\n") else said, int(line.split()[-1])
            said += line
        return said, None

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGTERM)   # what the page left in the background
        except ProcessLookupError:
            pass
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


class Demo:
    """What `make run` starts."""

    def __init__(self, ports, folder):
        listen, service, shop, _, http, console = ports
        self.port = listen
        self.process = subprocess.Popen(
            [sys.executable, "-B", os.path.join(ROOT, "demo/run"), os.environ["ONCE_BIN"], folder, "--listen", "127.0.0.1:%d" % listen, "--service",
             str(service), "--shop", str(shop), "--http", "127.0.0.1:%d" % http, "--console", "127.0.0.1:%d" % console],
            stdout=subprocess.DEVNULL, stderr=open(os.path.join(folder, "demo.log"), "w"), start_new_session=True)
        self.log = os.path.join(folder, "demo.log")
        wait_for(self.is_up, "the demo to come up", 180)

    def is_up(self):
        if self.process.poll() is not None:
            sys.exit("the demo does not come up:\n" + open(self.log).read())
        answer = request(self.port, "/.well-known/idempotency")
        return answer is not None and answer[0] == 200

    def end(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


def pg_include():
    return subprocess.run(["pkg-config", "--variable=includedir", "libpq"], capture_output=True, text=True).stdout.strip()


class Walk:
    def __init__(self, page):
        self.page = page
        self.folder = tempfile.mkdtemp(prefix="once-walk.")
        self.demo = None
        first = free_ports(6)
        ports = list(range(first, first + 6))
        self.places = [("127.0.0.1:8080", "127.0.0.1:%d" % ports[0]), ("127.0.0.1-8080", "127.0.0.1-%d" % ports[0]),
                       ("127.0.0.1:9000", "127.0.0.1:%d" % ports[1]), ("127.0.0.1:9001", "127.0.0.1:%d" % ports[2]),
                       ("127.0.0.1:9002", "127.0.0.1:%d" % (ports[2] + 1)), ("127.0.0.1:7411", "127.0.0.1:%d" % ports[4]),
                       ("127.0.0.1:7413", "127.0.0.1:%d" % ports[5])]
        needs = re.search(r"<!-- walk: (.*) -->", page)
        if needs and "demo" in needs.group(1).split():
            os.mkdir(os.path.join(self.folder, "demo"))
            self.demo = Demo(ports, os.path.join(self.folder, "demo"))
        where = os.path.join(self.folder, "here")
        os.mkdir(where)
        build = os.path.dirname(os.path.dirname(os.path.dirname(os.environ["ONCE_BIN"])))
        env = dict(os.environ, LC_ALL="C.UTF-8", TZ="UTC", HOME=self.folder, ROOT=os.path.realpath(ROOT),
                   PATH=os.path.dirname(os.environ["ONCE_BIN"]) + ":" + os.environ["PATH"], ONCE_STORE="sqlite:%s/once.db" % where,
                   C_INCLUDE_PATH=os.path.join(ROOT, "include"), LIBRARY_PATH=os.path.join(build, "src"),
                   LD_LIBRARY_PATH=os.path.join(build, "src"), PKG_CONFIG_PATH=os.path.join(build, "meson-uninstalled"))
        with open(os.path.join(self.folder, ".curlrc"), "w") as f:
            f.write("silent\nshow-error\n")   # it is not looking at a terminal here
        self.shell = Shell(where, env)
        self.env, self.where, self.build = env, where, build

    def there(self, text):
        for ours, real in self.places:
            text = text.replace(ours, real)
        return re.sub(DATABASE, lambda _: shlex.quote(os.environ["ONCE_TEST_POSTGRES"]), text)

    def back(self, text):
        for ours, real in self.places:
            text = text.replace(real, ours)
        return text

    def sh(self, block):
        said, status = self.shell.run("__failed=0; trap '__failed=1' ERR\n%strap - ERR; [ $__failed = 0 ]" % self.there(block.text))
        tell(status == 0, "line %d: %s" % (block.line, block.text.splitlines()[0]), said)

    def console(self, block):
        for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
            lines = part.splitlines(keepends=True)
            count = 1
            while lines[count - 1].endswith("\\\n"):
                count += 1
            command, output = "".join(lines[:count]), "".join(lines[count:])
            wanted = re.search(r"^\[exit (\d+)\]$", output, re.M)
            output = re.sub(r"^\[exit \d+\]\n", "", output, flags=re.M)
            said, status = self.shell.run(self.there(command))
            said = self.back(said).replace("\r\n", "\n")
            good = status == (int(wanted.group(1)) if wanted else 0) and matches(said, output)
            tell(good, "line %d: %s" % (block.line, command), "printed, exit %s:\n%s\nthe page says:\n%s" % (status, said, output))

    def c(self, block):
        name = re.match(r"/\* (\w+\.c) \*/\n", block.text)
        path = os.path.join(self.shell.run("pwd")[0].strip(), name.group(1) if name else "part.c")
        with open(path, "w") as f:
            f.write(block.text if name else HEADERS + block.text)
        done = subprocess.run(["cc", "-std=gnu17", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-Wno-unused-variable", "-I",
                               pg_include(), "-c", path, "-o", "/dev/null"], env=self.env, capture_output=True, text=True)
        tell(done.returncode == 0, "line %d: compiles" % block.line, done.stderr)

    def nginx(self, block):
        module = os.path.join(self.build, "src/gateway/ngx_http_once_module.so")
        text = re.sub(r"^load_module .*;\n", "", self.there(block.text), flags=re.M)
        if re.search(r"^location", text, re.M):
            text = "server {\n%s}\n" % text
        upstreams = set(re.findall(r"proxy_pass +http://(\w+);", text)) - set(re.findall(r"upstream (\w+)", text))
        head = "http {\n" + "".join("upstream %s { server 127.0.0.1:9; }\n" % name for name in sorted(upstreams))
        body = re.sub(r"^http \{\n", head, text) if text.startswith("http {") else head + text + "}\n"
        path = os.path.join(self.where, "nginx.conf")
        with open(path, "w") as f:
            f.write("load_module %s;\npid %s/nginx.pid;\nevents {}\n%s" % (module, self.where, body))
        done = subprocess.run(["nginx", "-t", "-p", self.where, "-c", path, "-e", "stderr"], capture_output=True, text=True)
        tell(done.returncode == 0 and '"once" in' not in done.stderr, "line %d: nginx -t" % block.line, done.stderr + text)

    def sql(self, block):
        done = subprocess.run([os.path.join(os.environ["ONCE_TEST_POSTGRES_BIN"], "psql"), "-XqAt", "-v", "ON_ERROR_STOP=1", "-d",
                               os.environ["ONCE_TEST_POSTGRES"]], input=block.text, capture_output=True, text=True)
        tell(done.returncode == 0, "line %d: %s" % (block.line, block.text.splitlines()[0]), done.stderr)

    def options(self, block):
        """Of a block that is not run: what it has of `once VERB --option`."""
        for command in re.findall(r"^(?:\$ )?(once \w.*(?:\n +.*)*)", block.text, re.M):
            words = re.sub(r"'[^']*'|#.*", "", command.replace("\\\n", " ")).partition(" -- ")[0].split()
            verb = [w for w in words[1:3] if re.fullmatch("[a-z]+", w)]
            known = subprocess.run([os.environ["ONCE_BIN"]] + verb + ["--help"], capture_output=True, text=True)
            if known.returncode != 0 and len(verb) > 1:
                known = subprocess.run([os.environ["ONCE_BIN"], verb[0], "--help"], capture_output=True, text=True)
            missing = [w for w in words if w.startswith("--") and not re.search(re.escape(w) + r"\b", known.stdout)]
            tell(known.returncode == 0 and not missing, "line %d: %s has its options" % (block.line, " ".join(["once"] + verb)), " ".join(missing))

    def run(self):
        blocks, problems = blocks_of(self.page)
        for problem in problems:
            tell(False, problem)
        for block in blocks:
            if block.excuse is not None:
                self.options(block)
            elif block.language in LANGUAGES:
                getattr(self, block.language)(block)
        tell(True, "%d blocks, %d of them not run" % (len(blocks), sum(b.excuse is not None for b in blocks)))

    def end(self):
        self.shell.end()
        if self.demo:
            self.demo.end()
        shutil.rmtree(self.folder, ignore_errors=True)


walk = Walk(open(sys.argv[1], encoding="utf-8").read())
try:
    walk.run()
finally:
    walk.end()
finish()
