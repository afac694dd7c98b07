#!/usr/bin/env python3
"""The console from outside: who is let in, and what keeps a browser from being used against its user."""
import os
import stat
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from consoletest import *

daemon = Daemon()
first = daemon.token()
ok("console 127.0.0.1:%d, http" % daemon.port in daemon.line, "the first line says where", daemon.line)

# ---------------------------------------------------------------- headers of everything
for path in ("/", "/main.js", "/style.css", "/icon.svg", "/api/overview", "/nothing"):
    status, headers, _ = daemon.ask("GET", path)
    csp = headers["Content-Security-Policy"]
    ok("default-src 'none'" in csp and "frame-ancestors 'none'" in csp and "base-uri 'none'" in csp and "form-action 'none'" in csp and
       "unsafe" not in csp and "http" not in csp and "*" not in csp, "%s: a strict policy" % path, csp)
    equal((headers["X-Frame-Options"], headers["X-Content-Type-Options"], headers["Referrer-Policy"], headers["Cache-Control"]),
          ("DENY", "nosniff", "no-referrer", "no-store"), "%s: no frames, no sniffing, no referrer, no cache" % path)
    ok(headers["Access-Control-Allow-Origin"] is None, "%s: no other site may read it" % path)
for path, kind in {"/": "text/html", "/main.js": "text/javascript", "/style.css": "text/css", "/icon.svg": "image/svg+xml"}.items():
    status, headers, body = daemon.ask("GET", path)
    ok(status == 200 and headers["Content-Type"].startswith(kind), "%s is there" % path, status, headers)
    ok("http://" not in body.replace("http://www.w3.org/", "").replace("http://127.0.0.1", "") and "https://" not in body, "%s loads nothing from elsewhere" % path)

# ---------------------------------------------------------------- without a session
GETS = ["/api/overview", "/api/activity", "/api/keys", "/api/key?key=x", "/api/outbox"]
POSTS = ["/api/logout", "/api/reveal", "/api/resolve", "/api/forget", "/api/child-key", "/api/outbox/reveal", "/api/outbox/action"]
for path in GETS:
    equal(daemon.ask("GET", path)[0], 401, "%s without a session" % path)
for path in POSTS:
    equal(daemon.ask("POST", path, {}, {"Origin": daemon.origin})[0], 401, "%s without a session" % path)
    equal(daemon.ask("GET", path)[0], 405, "%s: nothing changes by GET" % path)
equal(daemon.ask("GET", "/api/login?token=" + first)[0], 405, "nobody signs in by GET")
for path in ("/../etc/passwd", "/console.c", "/.git/config", "//main.js", "/main.js/", "/api", "/api/", "/%2e%2e/"):
    equal(daemon.ask("GET", path)[0], 404, "%s is not there" % path)

# ---------------------------------------------------------------- signing in
equal(daemon.login("0" * 64)[0], 401, "a wrong token")
equal(daemon.login(first[:-1])[0], 401, "a shorter one")
equal(daemon.ask("POST", "/api/login", {"token": first, "name": "ann"})[0], 403, "without an Origin")
equal(daemon.ask("POST", "/api/login", {"token": first, "name": "ann"}, {"Origin": "http://evil.example"})[0], 403, "from another site")
equal(daemon.ask("POST", "/api/login", {"token": first, "name": "ann"}, {"Origin": "null"})[0], 403, "from a sandboxed page")
equal(daemon.ask("POST", "/api/login", "token=%s&name=ann" % first, {"Origin": daemon.origin, "Content-Type": "application/x-www-form-urlencoded"})[0], 415, "by a form")
for name in ("", "x" * 65, "a\nb", "a\x1b[31m", "\u202eann", "a\u0000"):
    equal(daemon.ask("POST", "/api/login", {"token": first, "name": name}, {"Origin": daemon.origin})[0], 400, "as %r" % name[:10])
status, headers, answer = daemon.ask("POST", "/api/login", {"token": first, "name": "ann"}, {"Origin": daemon.origin})
cookie = headers["Set-Cookie"]
equal(status, 200, "the right token", answer)
daemon.used.add(first)
ok("; HttpOnly" in cookie and "; SameSite=Strict" in cookie and "; Path=/" in cookie and "Domain" not in cookie, "its cookie", cookie)
ok(answer["csrf"] not in cookie, "the second secret is another one")
daemon.token()
ok(first not in daemon.log().split("signed in")[-1], "the next token is printed, the used one not again")
equal(daemon.login(first)[0], 401, "a token is good once")
session = Session(daemon, cookie.split(";")[0], answer["csrf"])
other = daemon.login(name="bob")
equal((session.get("/api/keys")[0], other.get("/api/keys")[0]), (200, 200), "two sessions")

# ---------------------------------------------------------------- a session is two secrets, our Origin, our Host
for what, headers in {"the cookie alone": session.headers(X_Once_Csrf=None), "the header alone": session.headers(Cookie=None),
                      "another's header": session.headers(X_Once_Csrf=other.csrf), "another's cookie": session.headers(Cookie=other.cookie),
                      "a cut cookie": session.headers(Cookie=session.cookie[:-1]), "an empty header": session.headers(X_Once_Csrf=""),
                      "a cookie of another name": session.headers(Cookie=session.cookie.replace("once_console", "once_consolf"))}.items():
    equal(daemon.ask("GET", "/api/keys", headers=headers)[0], 401, "%s: not let in" % what)
    equal(daemon.ask("POST", "/api/reveal", {}, headers)[0], 401, "%s: does nothing" % what)
many = "; ".join("a%d=%d" % (i, i) for i in range(50)) + "; " + session.cookie + "; z=1"
equal(daemon.ask("GET", "/api/keys", headers=session.headers(Cookie=many))[0], 200, "among other cookies")
for what, headers in {"another Origin": session.headers(Origin="http://evil.example"), "another port's": session.headers(Origin="http://127.0.0.1:%d" % (daemon.port + 1)),
                      "https": session.headers(Origin=daemon.origin.replace("http:", "https:")), "no Origin": session.headers(Origin=None), "null": session.headers(Origin="null"),
                      "a cross-site fetch": session.headers(Sec_Fetch_Site="cross-site"), "a same-site fetch": session.headers(Sec_Fetch_Site="same-site"),
                      "a rebound name": session.headers(Host="evil.example:%d" % daemon.port, Origin="http://evil.example:%d" % daemon.port)}.items():
    equal(daemon.ask("POST", "/api/child-key", {"record": "00" * 16, "call": "x"}, headers)[0], 403, "%s: refused" % what)
equal(session.post("/api/child-key", record="00" * 16, call="x")[0], 200, "as it should be")
equal(daemon.ask("POST", "/api/child-key", b'{"record":"%s","call":"x"}' % (b"00" * 16), session.headers(Content_Type="text/plain"))[0], 415, "text/plain, as forms can send it")
for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
    equal(daemon.ask(method, "/api/resolve", headers=session.headers())[0], 405, method)

# ---------------------------------------------------------------- sizes
equal(daemon.ask("POST", "/api/login", b" " * (17 << 10), {"Origin": daemon.origin})[0], 413, "a large sign-in")
equal(session.post("/api/reveal", key="k" * (17 << 10), what="response", fence="1")[0], 413, "a large question")
equal(session.post("/api/resolve", key="k", fence="1", verdict="done", status=200, reason="r", body="x" * (3 << 20))[0], 413, "a large outcome")
equal(session.get("/api/key", key=b"k" * 300)[0], 400, "a long key")
equal(session.get("/api/keys", limit="1000")[0], 400, "a large page")
equal(session.get("/api/keys", limit="0")[0], 400, "an empty page")
for name, value in {"states": "running,none", "before": "-1", "older_ms": "1e9", "abandoned": "2", "nothing": "1"}.items():
    equal(session.get("/api/keys", **{name: value})[0], 400, "%s=%s" % (name, value))

# ---------------------------------------------------------------- signing out, many sessions
equal(session.post("/api/logout")[0], 200, "signed out")
equal(session.get("/api/keys")[0], 401, "and out it is")
equal(other.get("/api/keys")[0], 200, "the other is not")
sessions = [daemon.login(name="s%d" % i) for i in range(16)]
equal([s.get("/api/keys")[0] for s in sessions], [200] * 16, "sixteen sessions")
equal(other.get("/api/keys")[0], 401, "the one that was idle longest made room")

# ---------------------------------------------------------------- guessing
begin, answers = time.monotonic(), []
equal([daemon.login("%064x" % i)[0] for i in range(3)], [401] * 3, "a wrong token, three times")
for first in range(3, 803, 40):  # ten are free, and there is another one every second: a machine that stood still has many
    with ThreadPoolExecutor(8) as pool:
        answers += pool.map(lambda i: daemon.login("%064x" % i)[0], range(first, first + 40))
    if 429 in answers:
        break
ok(429 in answers and set(answers) <= {401, 429}, "guessing is slowed down", answers)
ok(3 + answers.count(401) <= 11 + time.monotonic() - begin, "ten are heard, and one more each second", answers)
equal(sessions[0].get("/api/keys")[0], 200, "who is in stays in")
wait_for(lambda: isinstance(daemon.login(), Session), "and the right token works again, a little later")
ok("a wrong token" in daemon.log() and "%064x" % 3 not in daemon.log(), "the log tells of it, without the guess")
daemon.stop()

# ---------------------------------------------------------------- a token of one's own
folder = tempfile.mkdtemp(prefix="once-console-")
path = folder + "/token"


def refused(*options, console="127.0.0.1:%d" % free_port()):
    run = subprocess.run([ONCE, "daemon", "--store", "sqlite:%s/x.db" % folder, "--socket", folder + "/x.sock", "--http", "off", "--console", console, *options],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS)
    return run.returncode, run.stdout


for text, mode, says in (("short", 0o600, "16 to 512"), ("x" * 600, 0o600, "16 to 512"), ("0123456789abcdef", 0o644, "read by others")):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    os.chmod(path, mode)
    code, said = refused("--console-token-file", path)
    ok(code == 64 and says in said, "a token file is refused: %s" % says, code, said)
code, said = refused("--console-token-file", folder + "/none")
ok(code == 64 and "cannot read" in said, "as is one that is not there", code, said)
with open(path, "w", encoding="ascii") as file:
    file.write("correct horse battery\n")
os.chmod(path, 0o600)
daemon = Daemon("--console-token-file", path)
wait_for(lambda: "console:" in daemon.log(), "it says where")
ok("correct horse" not in daemon.log() and "#token" not in daemon.log(), "a token of one's own is not printed", daemon.log())
ok(all(isinstance(daemon.login("correct horse battery"), Session) for _ in range(2)), "and is good more than once")
equal(daemon.login("correct horse batterz")[0], 401, "another is not")
daemon.stop("with a token file it")

# ---------------------------------------------------------------- where traces are
CANNOT = "it has something that cannot stand in a URL: but for {key_hash}, write it as %XX"
for url, says in (("javascript:alert(1)//{key_hash}", "it does not begin with http:// or https://"), ("//x/{key_hash}", "it does not begin with http:// or https://"),
                  ("", "it does not begin with http:// or https://"), (" https://x/{key_hash}", "it does not begin with http:// or https://"),
                  ("https://x/{key_hash}\n", CANNOT), ("https://x/\x1b[31m{key_hash}", CANNOT), ("https://x/\u202e{key_hash}", CANNOT), ("https://x/ {key_hash}", CANNOT),
                  ('https://x/"><script>{key_hash}', CANNOT), ("https://x\\@y/{key_hash}", CANNOT), ("https://x/{key}/{key_hash}", CANNOT), ("https://x/%/{key_hash}", CANNOT),
                  ("https://x/%0{key_hash}", CANNOT), ("https://x/{{key_hash}}", CANNOT), ("https:///{key_hash}", "it has no host"), ("https://:80/{key_hash}", "it has no host"),
                  ("https://u:p@x/{key_hash}", "a user or password is in it"), ("https://x/", "{key_hash} is missing"), ("https://x/%7Bkey_hash%7D", "{key_hash} is missing"),
                  ("https://{key_hash}.x/{key_hash}", "{key_hash} is not behind the host"), ("https://x/{key_hash}" + "x" * 1981, "it is longer than 2000 bytes")):
    code, said = refused("--console-traces", url)
    ok(code == 64 and said.startswith("once daemon: --console-traces: " + says), "as a link to traces %s is refused" % repr(url)[:60], code, said)
Daemon("--console-traces", "http://[::1]:16686/{key_hash}" + "x" * 1971).stop("with a link of 2000 bytes it")

# ---------------------------------------------------------------- where it listens
for address in ("0.0.0.0:0", "[::]:0", "192.0.2.1:7413", "example.org:80", "7413"):
    code, said = refused(console=address)
    ok(code == 64 and "console" in said, "--console %s is refused" % address, code, said)
daemon = Daemon("--console-any-address", console="0.0.0.0:%d" % free_port())
daemon.port = int(daemon.address.split(":")[1])
daemon.origin = "http://127.0.0.1:%d" % daemon.port
ok(isinstance(daemon.login(), Session), "unless that is asked for")
daemon.stop("that")
code, said = refused(console="0.0.0.0:7413")
ok(code == 64 and "such as 127.0.0.1:7413" in said, "what is refused is told an address with its own port", code, said)

# ---------------------------------------------------------------- behind a proxy with TLS
NAMED, PORT = "it is not https:// and a name, with nothing after it except perhaps a port", "its port is not a number from 1 to 65535"
for origin, says in (("http://console.example", "it does not begin with https://"), ("console.example", "it does not begin with https://"), ("", "it does not begin with https://"),
                     ("HTTPS://console.example", "it does not begin with https://"), ("*", "it does not begin with https://"), ("null", "it does not begin with https://"),
                     ("https://", NAMED), ("https://console.example/", NAMED), ("https://console.example/path", NAMED), ("https://*.example", NAMED),
                     ("https://u:p@console.example", PORT), ("https://u@console.example", NAMED), ("https://a..b", NAMED), ("https://.a", NAMED), ("https://a.", NAMED),
                     ("https://-a", NAMED), ("https://a-.b", NAMED), ("https://a-", NAMED), ("https://a b", NAMED), ("https://a\n", NAMED), ("https://a?x", NAMED), ("https://a#", NAMED),
                     ("https://a,https://b", NAMED), ("https://k\u00e4se.example", NAMED), ("https://[::1]", NAMED), ("https://" + "a" * 64, NAMED), ("https://" + "a." * 127, NAMED),
                     ("https://a:", PORT), ("https://a:0", PORT), ("https://a:65536", PORT), ("https://a:08443", PORT), ("https://a:x", PORT), ("https://a:8443/", PORT),
                     ("https://a:99999999999999", PORT), ("https://a:443", "leave the port 443 out, as browsers do")):
    code, said = refused("--console-origin", origin)
    ok(code == 64 and said.startswith("once daemon: --console-origin: " + says), "as an origin %s is refused" % repr(origin)[:60], code, said)
for origin, name in (("https://console.example", "console.example"), ("https://console.example:8443", "console.example:8443")):
    daemon = Daemon("--console-origin", origin)
    local = daemon.origin
    token = daemon.token()
    ok("sign in once at %s/#token=" % origin in daemon.log(), "the log says where browsers find it", daemon.log())
    refusals = {"without TLS": ("http://" + name, name), "another name's": ("https://evil.example", name), "a name below": ("https://x.console.example", name), "a longer name's": (origin + ".evil.example", name),
                "another port's": ("https://console.example:444", name), "null": ("null", name), "a rebound name": (origin, "evil.example"), "a name below as Host": (origin, "x." + name),
                "the origin with a path": (origin + "/", name), "of this machine, by the proxy's name": (local, name), "another's, Host rewritten": ("https://evil.example", "127.0.0.1:%d" % daemon.port)}
    for what, (sent, host) in refusals.items():
        equal(daemon.ask("POST", "/api/login", {"token": token, "name": "ann"}, {"Origin": sent, "Host": host})[0], 403, "%s: %s is refused" % (origin, what))
    for host in (name, name.upper(), "127.0.0.1:%d" % daemon.port, "localhost"):
        equal(daemon.ask("GET", "/", headers={"Host": host})[0], 200, "%s: the page, as Host %s" % (origin, host))
        token = daemon.token()
        status, headers, answer = daemon.ask("POST", "/api/login", {"token": token, "name": "ann"}, {"Origin": origin, "Host": host, "Sec-Fetch-Site": "same-origin"})
        equal(status, 200, "%s: signed in, as Host %s" % (origin, host), answer)
        daemon.used.add(token)
        ok(headers["Set-Cookie"].endswith("; Secure"), "its cookie is sent with TLS only", headers["Set-Cookie"])
        session = Session(daemon, headers["Set-Cookie"].split(";")[0], answer["csrf"])
        equal(daemon.ask("POST", "/api/child-key", {"record": "00" * 16, "call": "x"}, session.headers(Host=host, Origin=origin))[0], 200, "and works")
        equal(daemon.ask("POST", "/api/child-key", {"record": "00" * 16, "call": "x"}, session.headers(Host=host, Origin=origin, Sec_Fetch_Site="cross-site"))[0], 403, "not for pages of other sites")
    near = daemon.login()
    ok(isinstance(near, Session) and near.get("/api/keys")[0] == 200, "at this machine it works as before", near)
    daemon.stop("behind a proxy it")
daemon = Daemon()
answer = daemon.ask("GET", "/", headers={"Host": "console.example"})
ok(answer[0] == 403 and "configured" not in str(answer[2]), "without an origin no name is spoken of that nobody can configure", answer)
daemon.stop()
socket_path = folder + "/console.sock"
daemon = Daemon(console=socket_path)
daemon.origin = "http://localhost"
equal(stat.S_IMODE(os.stat(socket_path).st_mode), 0o600, "a unix socket is for its user")
unix = daemon.login()
ok(isinstance(unix, Session) and unix.get("/api/keys")[0] == 200, "and works", unix)
equal(daemon.ask("GET", "/", headers={"Host": "evil.example"})[0], 403, "for whom it is meant")
code, said = refused(console=socket_path)
ok(code == 69 and "in use" in said, "it is not taken away from one that is alive", code, said)
daemon.process.kill()
daemon.process.wait()
ok(os.path.exists(socket_path), "one that was killed leaves its name")
again = Daemon(console=socket_path)
again.stop("its successor")
ok(not os.path.exists(socket_path), "and removes the name at its end")
for option in (("--console-any-address",), ("--console-token-file", path), ("--console-outbox", "sqlite:x"), ("--console-traces", "https://x/{key_hash}"),
               ("--console-origin", "https://x")):
    code, said = refused(*option, console="off")
    ok(code == 64 and said.startswith("once daemon: %s is for --console\n" % option[0]), "%s without a console" % option[0], code, said)
finish()
