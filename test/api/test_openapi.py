#!/usr/bin/env python3
"""docs/openapi.json against the running listener: the same paths, methods and statuses, and answers
that are as it describes them. Arguments: the document, src/daemon/api/routes.c."""
import json
import re
import sys
import time

from apitest import Server, equal, finish, grant, ok

document = json.load(open(sys.argv[1], encoding="utf-8"))
routes = dict(re.findall(r'{ "(/[^"]*)", "([A-Z]+)"', open(sys.argv[2], encoding="utf-8").read()))


def resolve(node):
    while "$ref" in node:
        target = document
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        node = target
    return node


TYPES = {"string": str, "integer": int, "boolean": bool, "null": type(None), "object": dict, "array": list}
KNOWN = {"type", "properties", "required", "additionalProperties", "description", "pattern", "contentEncoding", "enum",
         "const", "minimum", "maximum", "items", "minItems", "maxItems", "oneOf", "anyOf"}


def wrong(schema, value, at="answer"):
    """What is wrong with the value, as a list; the part of JSON Schema that the document uses."""
    schema = resolve(schema)
    found = ["%s: the checker does not know '%s'" % (at, word) for word in set(schema) - KNOWN]
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(isinstance(value, TYPES[k]) and (k != "integer" or not isinstance(value, bool)) for k in kinds):
        return found + ["%s: %r is not %s" % (at, value, kinds)]
    if "enum" in schema and value not in schema["enum"] or "const" in schema and value != schema["const"]:
        found.append("%s: %r is not one of those" % (at, value))
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        found.append("%s: %r is not %s" % (at, value, schema["pattern"]))
    if isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        found.append("%s: %r is out of range" % (at, value))
    if isinstance(value, dict) and "properties" in schema:
        for name in schema.get("required", []):
            found += [] if name in value else ["%s.%s is missing" % (at, name)]
        for name, inner in value.items():
            if name in schema["properties"]:
                found += wrong(schema["properties"][name], inner, at + "." + name)
            else:
                found.append("%s.%s is not described" % (at, name))
    if isinstance(value, list) and "items" in schema:
        for i, inner in enumerate(value):
            found += wrong(schema["items"], inner, "%s[%d]" % (at, i))
    for word, good in (("oneOf", lambda n: n == 1), ("anyOf", lambda n: n > 0)):
        if word in schema:
            fits = sum(not wrong_required(inner, value) for inner in schema[word])
            found += [] if good(fits) else ["%s: %d of %s" % (at, fits, word)]
    return found


def wrong_required(schema, value):
    if set(schema) == {"required"}:
        return [name for name in schema["required"] if name not in value]
    return wrong(schema, value)


seen = {}


def check(name, method, path, answer):
    """The status is one that the document has for this path, and the answer as it says."""
    status, headers, body = answer
    operation = document["paths"][path.split("?")[0]][method.lower()]
    seen.setdefault((path.split("?")[0], method), set()).add(status)
    if str(status) not in operation["responses"]:
        return ok(False, name, "status %d is not described" % status, body)
    content = resolve(operation["responses"][str(status)])["content"]
    kind = headers["Content-Type"].split(";")[0]
    if kind not in content:
        return ok(False, name, "type %s is not described" % kind)
    problems = wrong(content[kind]["schema"], body)
    for header in resolve(operation["responses"][str(status)]).get("headers", {}):
        problems += [] if headers[header] else ["no header " + header]
    return ok(not problems, "%s: %d" % (name, status), *problems)


equal({p: [m.upper() for m in o] for p, o in document["paths"].items()}, {p: [m] for p, m in routes.items()},
      "the document has the routes that there are")
server = Server()
for path, operations in document["paths"].items():
    for method, operation in operations.items():
        method, query, body = method.upper(), "", None
        if "parameters" in operation:
            query = "?" + "&".join("%s=%s" % (p["name"], p["example"]) for p in operation["parameters"] if "example" in p)
        if "requestBody" in operation:
            media = operation["requestBody"]["content"]["application/json"]
            body = media["example"]
            equal(wrong(media["schema"], body), [], "the example of %s is as described" % path)
        check("%s %s, the example" % (method, path), method, path, server.ask(method, path + query, body))
        check("%s %s, a foreign host" % (method, path), method, path,
              server.ask(method, path + query, body, {"Host": "evil.example"}))
        if body is not None:
            check(path + ", no JSON", method, path, server.ask(method, path, b"{"))
            check(path + ", another type", method, path, server.ask(method, path, body, {"Content-Type": "text/plain"}))
            check(path + ", too large", method, path, server.ask(method, path, b" " * ((24 << 20) + 1)))
            for name in resolve(media["schema"])["properties"]:
                others = {k: v for k, v in body.items() if k != "request"}
                answer = server.ask(method, path, {**others, name: [[[]]]})
                ok(answer[0] == 400 and answer[2]["member"].split(".")[0].removesuffix("_base64") ==
                   name.removesuffix("_base64"), "%s knows %s" % (path, name), answer[2])
        elif query:
            check(path + ", no key", method, path, server.ask(method, path))
    for method in "GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS":
        if method.lower() not in operations:
            status, headers, answer = server.ask(method, path, b"{}" if method == "POST" else None)
            allow = {"GET": "GET, HEAD", "POST": "POST"}[list(operations)[0].upper()]
            equal((status, headers["Allow"], wrong(document["components"]["schemas"]["Problem"], answer)),
                  (405, allow, []), "%s %s is not described, and refused" % (method, path))
status, _, answer = server.ask("GET", "/v1/other")
equal((status, wrong(document["components"]["schemas"]["Problem"], answer)), (404, []), "paths that are not there")

# A life, so that every arm is compared.
def verb(name, **members):
    answer = server.ask("POST", "/v1/" + name, members)
    check("%s %s" % (name, answer[2].get("arm")), "POST", "/v1/" + name, answer)
    return answer[2]


held = grant(verb("claim", key="life\0", tenant="t"))
verb("claim", key="life\0", tenant="t")
verb("claim", key="life\0", tenant="t", fingerprint="1" * 64)
verb("extend", **held)
verb("advance", **held, point="p\xff", checkpoint_base64="/w==")
check("found, running", "GET", "/v1/records", server.ask("GET", "/v1/records?tenant=t&key=life%00"))
check("found by its id", "GET", "/v1/records", server.ask("GET", "/v1/records?record=" + held["record"]))
verb("finish", **held, state="failed", retryable=True)
held = grant(verb("claim", key="life\0", tenant="t"))
verb("finish", **held, state="succeeded", status=200, body_base64="/w==")
verb("claim", key="life\0", tenant="t")
verb("finish", **held, state="unknown")
verb("release", **held)
held = grant(verb("claim", key="lost", retention_ms="never"))
verb("finish", **held, state="unknown")
verb("claim", key="lost")
for takeover in "rerun", "probe", "escalate", "completer":
    left = grant(verb("claim", key="left " + takeover, lease_ms=1, takeover=takeover, stored_request_base64="/w=="))
    verb("take-over", **left)
    time.sleep(0.02)
    verb("take-over", **left, intent=True)
    verb("take-over", **left)
verb("take-over", record="0" * 32, fence=1)
held = grant(verb("claim", key="back"))
verb("release", **held)
server.stop()

# Statuses that need trouble.
verbs = {path: operation["post"]["requestBody"]["content"]["application/json"]["example"]
         for path, operation in document["paths"].items() if "post" in operation}
full = Server("bytes_max=1")
for path, body in verbs.items():
    if path in ("/v1/claim", "/v1/advance", "/v1/finish"):
        check(path + ", no room", "POST", path, full.ask("POST", path, json.dumps(body) + " " * 70000))
    else:
        equal(full.ask("POST", path, body)[0], 200, path + " is small, and has room")
full.stop()
large = Server("bytes_max=100K")
large.post("finish", **grant(large.post("claim", key="c")), state="succeeded", body="x" * 80000)
check("no room for the answer", "GET", "/v1/records", large.ask("GET", "/v1/records?key=c"))
large.stop()
for fault in "refuse:1+", "lose-before:1+":
    broken = Server(store="fault+sqlite:%s/once.db", env={"ONCE_FAULT": fault})
    for path, body in verbs.items():
        if path != "/v1/child-key":
            check(path + ", store: " + fault, "POST", path, broken.ask("POST", path, body))
    check("look-up, store: " + fault, "GET", "/v1/records", broken.ask("GET", "/v1/records?key=k"))
    check("health, store: " + fault, "GET", "/healthz", broken.ask("GET", "/healthz"))
    check("ready, store: " + fault, "GET", "/readyz", broken.ask("GET", "/readyz"))
    broken.stop()

# What is described happens. Running out of memory does not here, nor is the engine's queue full.
RARE = {("/metrics", 503), ("/v1/child-key", 503), ("/v1/extend", 429), ("/v1/take-over", 429), ("/v1/release", 429)}
for path, operations in document["paths"].items():
    for method, operation in operations.items():
        missing = {int(s) for s in operation["responses"]} - seen[path, method.upper()] - {s for p, s in RARE if p == path}
        equal(missing, set(), "every status of %s was seen" % path)
finish()
