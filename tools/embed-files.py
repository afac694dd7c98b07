#!/usr/bin/env python3
"""Turn the console's files into C: their paths, types and bytes.

usage: embed-files.py OUT.c OUT.h FILE...

index.html is at "/", the others at "/NAME".
"""
import os
import sys

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


def main():
    out_c, out_h, *files = sys.argv[1:]
    with open(out_h, "w", encoding="ascii") as h:
        h.write("/* made by tools/embed-files.py */\n#pragma once\n#include <stddef.h>\n"
                "struct console_file { const char *path, *type; const unsigned char *bytes; size_t len; };\n"
                "extern const struct console_file console_files[];\nextern const size_t console_file_count;\n")
    with open(out_c, "w", encoding="ascii") as c:
        c.write("/* made by tools/embed-files.py */\n#include \"%s\"\n" % os.path.basename(out_h))
        for number, path in enumerate(files):
            data = open(path, "rb").read()
            c.write("static const unsigned char file_%d[] = {%s};\n" % (number, ",".join(map(str, data))))
        c.write("const struct console_file console_files[] = {\n")
        for number, path in enumerate(files):
            name = os.path.basename(path)
            c.write("  { \"%s\", \"%s\", file_%d, sizeof file_%d },\n" % (
                "/" if name == "index.html" else "/" + name, TYPES[os.path.splitext(name)[1]], number, number))
        c.write("};\nconst size_t console_file_count = %d;\n" % len(files))


main()
