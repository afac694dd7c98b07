#!/usr/bin/env python3
"""Runs the walk-through of docs/reconcile.md in one shell, and compares what it prints with what the page says.
Blocks marked `sh` are run; in those marked `console`, what follows a command is its output, and [exit N].
Argument: the page."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

page = open(sys.argv[1], encoding="utf-8").read()
MARK = "=== end of command ==="
script, wanted = ["set -u", "shopt -s expand_aliases"], []
for kind, block in re.findall(r"```(sh|console)\n(.*?)```", page, re.S):
    if kind == "sh":
        script.append("{\n" + block + "} >/dev/null 2>&1 || echo 'the setup failed'")
        continue
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, _, output = part.partition("\n")
        status = re.search(r"^\[exit (\d+)\]\n", output, re.M)
        wanted.append((command, re.sub(r"^\[exit \d+\]\n", "", output, flags=re.M), int(status.group(1)) if status else 0))
        script += [command, "echo \"%s $?\"" % MARK]
folder = tempfile.mkdtemp(prefix="once-rec.")
env = {**os.environ, "PATH": os.path.dirname(os.environ["ONCE_BIN"]) + ":" + os.environ["PATH"], "LC_ALL": "C.UTF-8"}
done = subprocess.run(["bash"], input="\n".join(script), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, cwd=folder)
shutil.rmtree(folder)
said = re.findall(r"(.*?)" + MARK + r" (\d+)\n", done.stdout, re.S)
failed = len(said) != len(wanted) or not wanted
for number, ((command, output, status), (got, code)) in enumerate(zip(wanted, said), 1):
    good = (got, int(code)) == (output, status)
    failed |= not good
    if not good:
        print("# " + ("got, exit %s:\n%s\nexpected, exit %d:\n%s" % (code, got, status, output)).replace("\n", "\n# "))
    print("%sok %d - %s" % ("" if good else "not ", number, command[:90].replace("#", "")))
if len(said) != len(wanted):
    print("not ok %d - all commands ran\n# %s" % (len(said) + 1, done.stdout[-500:].replace("\n", "\n# ")))
print("1..%d" % (len(said) + (len(said) != len(wanted))))
sys.exit(failed)
