#!/usr/bin/env python3
"""Runs the examples of docs/api.md, in their order and in one shell, against a listener, and compares
what they answer with what the page says. Argument: the page."""
import json
import os
import re
import subprocess
import sys

from apitest import Server, equal, finish, ok

page = open(sys.argv[1], encoding="utf-8").read()
server = Server()
MARK = "=== end of command ==="
script, wanted, command = [], [], []
for block in re.findall(r"```sh\n(.*?)```", page, re.S):
    for line in block.splitlines():
        if line.startswith("# => "):
            wanted.append(("; ".join(command), line[5:]))
            script += command + ["echo; echo '%s'" % MARK]
            command = []
        else:
            command.append(line)
    script += command
    command = []
env = {**os.environ, "API": "http://" + server.address, "no_proxy": "127.0.0.1"}
done = subprocess.run(["bash", "-eu"], input="\n".join(script), capture_output=True, text=True, env=env)
equal((done.returncode, done.stderr), (0, ""), "the examples run")
said = done.stdout.split(MARK)[:-1]
equal(len(said), len(wanted), "each says something")
for (command, text), got in zip(wanted, said):
    name = command[-70:]
    try:
        part, whole = json.loads(text), json.loads(got)
    except ValueError:
        equal(got.strip(), text.strip(), name)
        continue
    if isinstance(part, dict):
        equal({k: whole.get(k) for k in part}, part, name, got)
    else:
        equal(whole, part, name)
arms = set(re.findall(r"^\| (.*?) \|", page, re.M))
for arm in "execute", "probe", "replay", "mismatch", "in progress", "unknown", "done", "fenced":
    ok("`%s`" % arm in arms, "the page lists " + arm)
server.stop()
finish()
