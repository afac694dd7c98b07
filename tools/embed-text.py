#!/usr/bin/env python3
"""Turn text files into C strings.

usage: embed-text.py PREFIX OUT.c OUT.h FILE...

PREFIX_NAME is the text of NAME.*, with values for the names of the protocol's numbers (protocol_numbers.py).
"""
import os
import sys

import protocol_numbers


def main():
    prefix, out_c, out_h, *files = sys.argv[1:]
    names = [prefix + "_" + os.path.splitext(os.path.basename(f))[0] for f in files]
    with open(out_h, "w", encoding="ascii") as h:
        h.write("/* made by tools/embed-text.py */\n#pragma once\n")
        h.writelines("extern const char %s[];\n" % name for name in names)
    with open(out_c, "w", encoding="ascii") as c:
        c.write('/* made by tools/embed-text.py */\n#include "%s"\n' % os.path.basename(out_h))
        for name, path in zip(names, files):
            lines = protocol_numbers.expand(open(path, encoding="ascii").read(), path).splitlines()
            text = "\n".join('    "%s\\n"' % line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
            c.write("const char %s[] =\n%s;\n" % (name, text))
        c.write(protocol_numbers.assertions())


main()
