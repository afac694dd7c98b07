#!/usr/bin/env python3
"""Turn SQL files into C: one string per statement, one list of the migrations.

usage: embed-sql.py [--record] PREFIX OUT.c OUT.h [STATEMENT.sql...] -- MIGRATION.sql...

A migration is a file, or a folder whose files are applied in order of their names.
PREFIX_STATEMENTS(X) in the header lists the statements by file name, so that the C
code has one enum and one table of them; the migrations come in order of their number, each
with the SHA-256 of its text. --record adds to each a statement that writes number, name and
checksum to the table once.migration. Names of the protocol's numbers become their values
(protocol_numbers.py) before anything else; a migration keeps the names in comments, for those who read functions in psql.
"""
import hashlib
import os
import re
import sys

import protocol_numbers


def quoted(text, comments=False):
    lines = []
    for line in text.splitlines():
        if not comments:
            line = re.sub(r"--.*$", "", line).rstrip()
        if line.strip():
            lines.append('    "%s\\n"' % line.replace("\\", "\\\\").replace('"', '\\"'))
    return "\n".join(lines)


def expanded(path, comment=False):
    return protocol_numbers.expand(open(path).read(), path, comment)


RECORD = "\n\nINSERT INTO once.migration (number, name, checksum) VALUES (%d, '%s',\n    '%s');\n"


def main():
    arguments = sys.argv[1:]
    record = arguments[0] == "--record"
    prefix, out_c, out_h, *rest = arguments[record:]
    split = rest.index("--")
    statements = sorted(rest[:split], key=os.path.basename)
    migrations = {}
    for path in sorted(rest[split + 1:]):
        parent = os.path.basename(os.path.dirname(path))
        name = os.path.basename(path)[:-4] if parent == "migrate" else parent
        migrations.setdefault(name, []).append(path)
    names = [os.path.basename(s)[:-4] for s in statements]
    upper = prefix.upper()
    with open(out_h, "w") as h:
        h.write("/* made by tools/embed-sql.py */\n#pragma once\n")
        h.write("#define %s_STATEMENTS(X) %s\n" % (upper, " ".join("X(%s)" % n for n in names)))
        for n in names:
            h.write("extern const char %s_sql_%s[];\n" % (prefix, n))
        h.write("struct %s_migration { const char *name, *checksum, *sql; };\n" % prefix)
        h.write("extern const struct %s_migration %s_migrations[];\n" % (prefix, prefix))
        h.write("extern const int %s_migration_count;\n" % prefix)
    with open(out_c, "w") as c:
        c.write("/* made by tools/embed-sql.py */\n#include \"%s\"\n" % os.path.basename(out_h))
        for n, path in zip(names, statements):
            c.write("const char %s_sql_%s[] =\n%s;\n" % (prefix, n, quoted(expanded(path))))
        c.write("const struct %s_migration %s_migrations[] = {\n" % (prefix, prefix))
        for i, name in enumerate(sorted(migrations)):
            assert int(name.split("_")[0]) == i + 1, "migrations are numbered from 1 without gaps: " + name
            text = "\n".join(expanded(path, comment=True) for path in migrations[name])
            checksum = hashlib.sha256(text.encode()).hexdigest()
            text += RECORD % (i + 1, name, checksum) if record else ""
            c.write("  { \"%s\", \"%s\",\n%s },\n" % (name, checksum, quoted(text, comments=True)))
        c.write("};\n" + protocol_numbers.assertions())
        c.write("const int %s_migration_count = %d;\n" % (prefix, len(migrations)))


main()
