#!/usr/bin/env python3
"""Runs the examples of docs/sql.md, in their order and in one session, and compares what they
answer with what the page says; and that it lists every function that has a COMMENT."""
import re
import sys

from sqltest import Session, equal, finish, migrated, ok, psql

page = open(sys.argv[1], encoding="utf-8").read()
migrated()
session = Session()
for number, block in enumerate(re.findall(r"```sql\n(.*?)```", page, re.S), 1):
    statement = []
    for line in block.splitlines():
        if line.startswith("-- =>"):
            sql = "\n".join(statement).rstrip().removesuffix(";")
            equal(session.run(sql).splitlines()[-1:] or [""], [line[5:].strip()],
                  "example %d: %s" % (number, " ".join(statement)[:70].replace("#", "")))
            statement = []
        else:
            statement.append(line)
            if line.rstrip().endswith((";", "\\gset")):
                following = block[block.index(line) + len(line):].lstrip("\n")
                if following.startswith("-- =>"):
                    continue
                sql = "\n".join(statement).rstrip()
                said = session.run(sql.removesuffix(";"))
                ok("ERROR" not in said, "example %d: %s" % (number, " ".join(statement)[:70]), said)
                statement = []
session.close()
commented = psql("SELECT DISTINCT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace "
                 "WHERE n.nspname = 'once' AND obj_description(p.oid, 'pg_proc') IS NOT NULL ORDER BY 1").split()
table = page[page.index("## All functions"):]
for name in commented:
    ok("`once.%s(" % name in table, "the page lists once." + name)
finish()
