#!/usr/bin/env python3
"""tools/layers, tools/phrases and tools/lines refuse a fault of each kind in a small tree, and accept the tree without it.

usage: tidy_tools.py TOOLS        the folder of the tools
"""
import os
import shutil
import subprocess
import sys
import tempfile

GOOD = {
    "src/meson.build": "subdir('core')\nsubdir('os')\nsubdir('cli')\n",
    "src/core/meson.build": "core_lib = static_library('core', files('key.c'))\n",
    "src/core/key.h": "/* key.h - a key. What is a key? Who asks? */\n",
    "src/core/key.c": '/* key.c - the implementation. */\n#include "core/key.h"\n',
    "src/os/meson.build": "os_lib = static_library('os', files('os.c'), dependencies: [core_dep])\n",
    "src/os/os.c": '/* os.c - the clock. */\n#include "core/key.h"\n',
    "src/os/os.h": "/* os.h - the clock. */\n",
    "src/cli/meson.build": "cli_deps = [core_dep, os_dep]\n",
    "src/cli/main.c": '/* main.c - the verbs. */\n#include "os/os.h"\n\nstatic const char *text = "unexpected argument";\n',
    "sql/sqlite/due.sql": "-- Records that are due.\nSELECT 'please';\n",
    "sql/redis/once.lua": "-- The script.\nlocal please = 'please'\n",
    "web/main.js": "// The page.\nconst title = 'Records';\n",
    "web/index.html": "<h1>Records</h1>\n",
    "HACKING.md": "# Hacking\n\n```text\nWhoever please\n```\n\nA word in code, `please`.\n",
    "test/a.c": "/* Whoever is not read. */\n",
}
LONG = "static int long_one(int a,\n                    int b)\n{\n%s}\n"
PHRASE = "phrases that we do not use, the budget is 0"


def many(folder, count, text=""):
    """A folder with that many files."""
    return {"%s/f%d.h" % (folder, n): "/* One. */\n" + text for n in range(count)}


FAULTS = [  # tool, files that are added (a text that begins with + is appended), what is said
    ("layers", {"src/core/key.c": '+#include "os/os.h"\n'}, "src/core/key.c:3: src/core may not include os"),
    ("layers", {"src/core/meson.build": "core_deps = [os_dep]\n"}, "src/core/meson.build: depends on os, which is above it"),
    ("layers", {"src/new/new.c": "/* A room. */\n"}, "src/new: src/meson.build does not name this folder"),
    ("phrases", {"src/core/key.c": "+/* A key. Whoever has it, waits. */\n"}, "src/core/key.c:3: Whoever ->"),
    ("phrases", {"src/core/key.c": "+/*\n * A key.\n * What was\n * stored stays.\n */\n"}, "src/core/key.c:5: What was ->"),
    ("phrases", {"src/core/key.h": "+/* Who waits is told. */\n"}, "src/core/key.h:2: Who ->"),
    ("phrases", {"src/cli/main.c": '+char *a = "one KEY, "\n    "please";\n'}, "src/cli/main.c:6: please ->"),
    ("phrases", {"src/os/os.h": "+int x; /* 0: there is\n         none */\n"}, "src/os/os.h:2: is none ->"),
    ("phrases", {"src/os/os.h": "+/* A text that is no number. */\n"}, "src/os/os.h:2: is no number ->"),
    ("phrases", {"src/os/os.h": "+/* The census of tenants. */\n"}, "src/os/os.h:2: census ->"),
    ("phrases", {"sql/sqlite/due.sql": "+-- What is due.\n-- Rest.\n"}, "sql/sqlite/due.sql:3: What is ->"),
    ("phrases", {"sql/redis/once.lua": "+x = 1 -- also not here\n"}, "sql/redis/once.lua:3: also not ->"),
    ("phrases", {"web/main.js": "+const a = 'a time, please';\n"}, "web/main.js:3: please ->"),
    ("phrases", {"web/index.html": "+<p>Who waits is told.</p>\n"}, "web/index.html:2: Who ->"),
    ("phrases", {"HACKING.md": "+- That is too much.\n"}, "HACKING.md:8: is too much ->"),
    ("lines", {"src/core/key.c": "+" + LONG % ("    a += b;\n" * 69)}, "src/core/key.c:5: long_one() has 71 lines, at most 70"),
    ("lines", many("src/os/sub", 46), "src/os/sub: 46 files directly in it, at most 45"),
    ("lines", many("src/cli/sub", 40), "src/cli: 41 files, at most 40"),
    ("lines", {"src/cli/main.c": "+" + "\n" * 8000}, "src/cli: 8004 lines, at most 8000"),
    ("lines", {"sql/sqlite/due.sql": "+" + "\n" * 100000}, "lines of product, at most"),
]
FINE = {"src/core/key.c": "+" + LONG % ("    a += b;\n" * 68), **many("src/os/sub", 45), **many("src/cli/sub", 39)}


class Tree:
    """A project of its own, with copies of the tools."""

    def __init__(self, folder, added):
        self.folder = folder
        os.makedirs(os.path.join(folder, "tools"))
        for tool in ("layers", "phrases", "lines"):
            shutil.copy(os.path.join(sys.argv[1], tool), os.path.join(folder, "tools", tool))
        subprocess.run(["git", "init", "-q", folder], check=True)
        self.write(GOOD)
        self.run("phrases", "--fix-budget")
        self.write(added)

    def write(self, files):
        for path, text in files.items():
            full = os.path.join(self.folder, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w") as f:
                f.write(GOOD[path] + text[1:] if text.startswith("+") else text)

    def run(self, tool, *arguments):
        arguments = arguments or (("--check",) if tool == "lines" else ())
        done = subprocess.run([os.path.join(self.folder, "tools", tool), *arguments], stdout=subprocess.PIPE, text=True)
        return done.returncode, done.stdout


def refuses(tool, added, expected):
    with tempfile.TemporaryDirectory() as folder:
        status, said = Tree(folder, added).run(tool)
    lines = said.splitlines()
    good = status == 1 and len(lines) == (2 if tool == "phrases" else 1) and expected in lines[0]
    return (good and (tool != "phrases" or PHRASE in lines[1])), "%d, %r" % (status, said)


def accepts(added):
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(folder, added)
        said = [tree.run(tool) for tool in ("layers", "phrases", "lines")]
    return said == [(0, "")] * 3, repr(said)


def budget_falls():
    """A budget that is larger than the number of phrases is refused, until it is written again."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(folder, {"src/os/os.h": "+/* Two, please, please. */\n"})
        tree.run("phrases", "--fix-budget")
        said = [tree.run("phrases")]
        tree.write({"src/os/os.h": "+/* One, please. */\n"})
        said.append(tree.run("phrases"))
        tree.run("phrases", "--fix-budget")
        said.append(tree.run("phrases"))
    lower = "src/os: 1 phrases that we do not use, the budget is 2: lower it with tools/phrases --fix-budget\n"
    return said == [(0, ""), (1, lower), (0, "")], repr(said)


def main():
    cases = [("a tree without a fault", accepts, ({},)), ("a tree at its bounds", accepts, (FINE,)),
             ("a budget only falls", budget_falls, ())]
    cases += [("%s: %s" % (fault[0], fault[2]), refuses, fault) for fault in FAULTS]
    print("1..%d" % len(cases))
    failed = False
    for number, (name, check, arguments) in enumerate(cases, 1):
        good, said = check(*arguments)
        print("%s %d - %s" % ("ok" if good else "not ok", number, name))
        if not good:
            print("# " + said)
            failed = True
    sys.exit(1 if failed else 0)


main()
