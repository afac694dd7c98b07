#!/usr/bin/env python3
"""The protocol's numbers for SQL and Lua: they use the names of C, the build replaces each by its value.

usage: protocol_numbers.py expand FILE...   print the text with the numbers, as psql or Redis can run it
       protocol_numbers.py check FOLDER...  complain about numbers of the protocol that were typed by hand

HEADERS define the names, as macros or in enums (those made from X-macros, too). A name in a comment stays as it is.
Embedding (embed-sql.py, embed-text.py) and tests use expand(); tools/tidy runs check.
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEADERS = ["include/once.h", "src/core/limits.h", "src/core/json/json.h", "src/core/fingerprint.h", "src/store/store.h",
           "src/store/format.h", "src/messages/outbox/outbox.h"]
NAME = re.compile(r"\b(?:ONCE|OUTBOX|PG|REDIS|SQLITE)_[A-Z0-9_]+\b")
# A comment, a string, or what is between them.
PIECES = re.compile(r"(--[^\n]*|/\*.*?\*/)|('(?:[^'\n]|'')*'|\"[^\"\n]*\")|(.)", re.S)


def evaluate(text, known):
    text = re.sub(r"\(\s*(?:u?int\d*_t|size_t|int|enum \w+)\s*\)", "", text)
    text = re.sub(r"\b(0x[0-9a-fA-F]+|\d+)[uUlL]*\b", r"\1", text)
    text = re.sub(r"\b[A-Za-z_]\w*\b", lambda m: str(known[m.group(0)]), text)
    if not re.fullmatch(r"[0-9a-fx\s()+*/<>|&~-]+", text):
        raise KeyError(text)
    return int(eval(text.replace("/", "//"), {"__builtins__": {}}))  # digits and operators only


def x_macro(call, macros):
    """LIST(ENTRY), where LIST(X) is X(a, ...) X(b, ...) and ENTRY(name, ...) is PREFIX_##name,"""
    entry = re.search(r"(\w+)##", macros[call.group(2)]).group(1)
    return " ".join("%s%s," % (entry, name) for name in re.findall(r"\bX\((\w+)", macros[call.group(1)]))


def read_enum(body, known, macros):
    body = re.sub(r"(\w+)\((\w+)\)", lambda m: x_macro(m, macros) if m.group(1) in macros else m.group(0), body)
    value = -1
    for item in filter(None, (i.strip() for i in body.split(","))):
        name, _, given = (part.strip() for part in item.partition("="))
        try:
            value = evaluate(given, known) if given else value + 1
        except (KeyError, SyntaxError):
            return
        known[name] = value


def numbers():
    known, macros, plain = {}, {}, []
    for path in HEADERS:
        text = re.sub(r"/\*.*?\*/", "", open(os.path.join(ROOT, path), encoding="utf-8").read(), flags=re.S)
        text = text.replace("\\\n", " ")
        for name, parameters, body in re.findall(r"^#define (\w+)(\([\w, ]*\))?[ \t]+(.*)$", text, re.M):
            if parameters:
                macros[name] = body
            else:
                plain.append((name, body))
        text = re.sub(r"^#.*$", "", text, flags=re.M)
        for name, body in plain:
            try:
                known.setdefault(name, evaluate(body, known))
            except (KeyError, SyntaxError):
                pass  # not a number
        for body in re.findall(r"\benum\b[\s\w]*\{([^}]*)\}", text):
            read_enum(body, known, macros)
    return known


KNOWN = numbers()
USED = set()  # by expand()


def expand(text, path, comment=False):
    """The text with values for names; `comment` keeps each name beside its value, but not inside of a string."""
    def value(name, line, commented):
        if name not in KNOWN:
            sys.exit("%s:%d: %s is not defined in any of: %s" % (path, line, name, " ".join(HEADERS)))
        USED.add(name)
        return "%d/*%s*/" % (KNOWN[name], name) if commented else str(KNOWN[name])

    out, line = [], 1
    for in_comment, string, code in pieces(text):
        piece = in_comment or string or code
        at = line
        if not in_comment:
            piece = NAME.sub(lambda m: value(m.group(0), at + m.string[:m.start()].count("\n"), comment and not string), piece)
        out.append(piece)
        line += (in_comment or string or code).count("\n")
    return "".join(out)


def assertions():
    """C: the compiler has the same values for the names that were used as this program read from the headers. The rows
    of messages are of a higher layer than the store that this is compiled into."""
    return "".join('#include "%s"\n' % header.split("/", 1)[1] for header in HEADERS if "/messages/" not in header) + "".join(
        '_Static_assert(%s == %dLL, "as in tools/protocol_numbers.py");\n' % (name, KNOWN[name])
        for name in sorted(USED) if not name.startswith("OUTBOX_"))


def pieces(text):
    """Comments, strings, and the code between them, in their order: one of three is not empty."""
    code = ""
    for in_comment, string, character in PIECES.findall(text):
        if character:
            code += character
            continue
        yield "", "", code
        code = ""
        yield in_comment, string, ""
    yield "", "", code


N = r"\s*\(?\s*[1-9]\d*\b"  # a flag may be compared with 0
WHAT = r"\b(?:\w*state|states\[\w+\]|\w*takeover|takeovers\[\w+\]|arm|verdict|flags|left_as)\b\)?(?:\s*&\s*\w+)?"
CODE_RULES = [
    ("a bit operation with a number", r"(?<![|&])[&|~](?![|&~=])" + N + r"|(?:<<|>>)" + N + r"|\bbit\.b\w+\([^()]*\b\d+"),
    ("a state, arm, takeover, verdict or flag as a number",
     WHAT + r"\s*(?:=|<>|~=|==|:=|<=?|>=?|(?:NOT )?IN|(?:NOT )?BETWEEN|WHEN|[+-])" + N +
     r"|\bcoalesce\([^(),]*(?:state|takeover)s?(?:\[\w+\])?," + N + r"|\bclose_claim\(\w+," + N + r"|\bCASE [^;]*?(?:state|takeover|verdict)\)?(?:\s*&\s*\w+)? WHEN \d"),
    ("a limit as a number",
     r"\b(?:length|cardinality|count|array_length|bytes)\b(?:\([^()]*(?:\([^()]*\))?[^()]*\))?\)?,?[^<>=;()]{0,5}"
     r"\s*(?:<=?|>=?|(?:NOT )?BETWEEN 1 AND)\s*(?:[2-9]|\d{2,})\b"),
]
STRING_RULE = r"\[!-~\]\{1,\d+\}|\blimit is \d+"  # in a string: how long a name may be
# Large numbers that are limits wherever they come; a power of ten may be anything.
LIMITS = re.compile(r"_(LEASE_MS|RETENTION_MS|SKEW_MS|BODY_LEN|HEADERS_LEN|REQUEST_LEN|PAYLOAD_LEN|JSON_LEN)_|^PG_LOCK_")


def check_text(text, path):
    limits = {v: k for k, v in sorted(KNOWN.items()) if LIMITS.search(k) and not re.fullmatch("10+", str(v))}
    # Same places as in the text, without comments and strings; a name is not a number.
    code = "".join(re.sub(r"[^\n]", " ", c or s) if c or s else NAME.sub(lambda m: "N" * len(m.group(0)), p)
                   for c, s, p in pieces(text))
    found = [(m.start(), what) for what, rule in CODE_RULES for m in re.finditer(rule, code)]
    found += [(m.start(), "%s as a number" % limits[int(m.group(0))]) for m in re.finditer(r"\b\d{4,}\b", code)
              if int(m.group(0)) in limits]
    at = 0
    for in_comment, string, between in pieces(text):
        if string and re.search(STRING_RULE, string):
            found.append((at, "a limit as a number"))
        at += len(in_comment or string or between)
    found = sorted({(text.count("\n", 0, start) + 1, what) for start, what in found})
    for line, what in found:
        print("%s:%d: %s: %s" % (path, line, what, text.splitlines()[line - 1].strip()))
    return len(found)


def check(folders):
    paths = [os.path.join(folder, name) for top in folders for folder, _, names in os.walk(top)
             for name in sorted(names) if name.endswith((".sql", ".lua"))]
    if not paths:
        sys.exit("no .sql or .lua files in " + " ".join(folders))
    return sum(check_text(open(path, encoding="utf-8").read(), path) for path in sorted(paths))


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("expand", "check"):
        sys.exit(__doc__)
    if sys.argv[1] == "check":
        sys.exit(1 if check(sys.argv[2:]) else 0)
    for path in sys.argv[2:]:
        print(expand(open(path, encoding="utf-8").read(), path), end="")


if __name__ == "__main__":
    main()
