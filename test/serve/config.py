#!/usr/bin/env python3
"""`once serve`: its options, the nginx.conf it writes, and what it says when it cannot start."""
import os
import socket
import subprocess
import sys

from harness import ONCE, ROOT, Skipped, contains, expect_equal, free_port, main, need_module, need_plain_user

UPSTREAM = ("--upstream", "http://127.0.0.1:9000")


def config(world, *options):
    upstream = () if "--upstream" in options else UPSTREAM
    status, out, err = world.once("serve", *upstream, "--print-config", *options)
    expect_equal((status, err), (0, ""), "--print-config %s" % " ".join(options))
    return out


def test_config__has_what_the_module_needs(world):
    text = config(world)
    for line in ("daemon off;", "error_log stderr warn;", "listen 127.0.0.1:8080;", "once on;", "once_tenant -;",
                 "proxy_ignore_client_abort on;", "proxy_next_upstream off;", "proxy_http_version 1.1;",
                 "server 127.0.0.1:9000", "keepalive 64;", "proxy_set_header Host $host_asked_for;",
                 "proxy_pass http://service;"):
        contains(text, line, "the configuration")
    for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"):
        contains(text, kind + "_temp_path ", "the configuration")
    expect_equal("\nuser " in text, ROOT, "a user for the workers, as root only")


def test_config__says_each_option(world):
    for options, line in (
            (("--listen", "8081"), "listen 127.0.0.1:8081;"),
            (("--listen", "*:8081"), "listen 0.0.0.0:8081;"),
            (("--listen", "localhost:8081"), "listen 127.0.0.1:8081;"),
            (("--listen", "[::1]:8081"), "listen [::1]:8081;"),
            (("--tenant-header", "X-Tenant-Id"), "once_tenant $http_x_tenant_id;"),
            ((), "once_fingerprint credentials;"),
            (("--credentials", "X-Shop-Key", "--credentials", "X-Shop-User"), "once_fingerprint credentials credential=X-Shop-Key credential=X-Shop-User;"),
            (("--credentials", "None", "--credentials", "Cookie"), "once_fingerprint credential=Cookie;"),
            (("--tenant-header", "X-Tenant", "--credentials", "Default"), "once_fingerprint credentials;"),
            (("--tenant-header", "X-Tenant", "--credentials", "Cookie"), "once_fingerprint credential=Cookie;"),
            (("--exclude", "/sent_at", "--exclude", '/a b/"$x;'), 'once_fingerprint credentials "exclude=/sent_at" "exclude=/a b/\\"$x;";'),
            (("--credentials", "none", "--exclude", "/at"), 'once_fingerprint "exclude=/at";'),
            (("--final", "all"), "once_final all;"),
            (("--final", "default,5xx,-503"), "once_final default 5xx -503;"),
            (("--replay-header", "X-Request-Id", "--replay-header", "X-Cost"), "once_replay_headers default X-Request-Id X-Cost;"),
            (("--max-response", "4m"), "once_max_response 4m;"),
            (("--max-response", "16M"), "once_max_response 16M;"),
            (("--required",), "once required;"),
            (("--methods", "POST,PATCH"), "once_methods POST PATCH;"),
            (("--takeover", "rerun"), "once_takeover rerun;"),
            (("--takeover", "escalate"), "once_takeover escalate;"),
            (("--takeover", "probe", "--probe", "/orders/by-key/{key}?of={client-key}", "--complete"),
             'once_takeover probe;\n        once_probe "/orders/by-key/$once_key?of=$once_client_key";'),
            (("--takeover", "probe", "--probe", "/{key}x", "--complete"), 'once_probe "/${once_key}x";'),
            (("--intent",), "once_intent on;"),
            (("--complete",), "once_complete service header=Host;"),
            (("--complete", "--complete-identity", "/dev/null"), "once_complete service identity header=Host;"),
            (("--lease", "90s"), "once_lease 1m30s;"),
            (("--retention", "never"), "once_retention never;"),
            (("--retention", "7d"), "once_retention 7d;"),
            (("--retention", "never", "--body-retention", "1d"), "once_retention never;\n        once_body_retention 1d;"),
            (("--no-key-time",), "once_key_time off;"),
            (("--wait", "250ms"), "once_wait 250ms;"),
            (("--timeout", "10m"), "proxy_read_timeout 10m;"),
            (("--workers", "3"), "worker_processes 3;"),
            (("--log-requests",), "access_log /dev/stderr requests;"),
            (("--otlp", "http://127.0.0.1:4318"), "once_trace on;"),
            (("--trace", "0.25"), "once_trace 0.250000;"),
            (("--trace", "off", "--otlp", "http://127.0.0.1:4318"), "once_trace off;"),
            (("--module", "/dev/null"), 'load_module "/dev/null";'),
            (("--store", "once:/run/x/once.sock"), 'once_daemon "/run/x/once.sock";')):
        contains(config(world, *options), line, " ".join(options))


def test_config__no_credentials_where_they_are_not_wanted(world):
    for options in (("--tenant-header", "X-Tenant"), ("--credentials", "none")):
        assert "once_fingerprint" not in config(world, *options), options


def test_config__upstreams(world):
    for url, lines in (
            ("http://shop", ["server shop:80 ", "proxy_pass http://service;"]),
            ("http://shop.example:81/", ["server shop.example:81 "]),
            ("http://[::1]:9000", ["server [::1]:9000 "]),
            ("http://unix:/run/shop.sock", ["server unix:/run/shop.sock "]),
            ("https://shop.example", ["server shop.example:443 ", "proxy_pass https://service;",
                                      "proxy_ssl_name shop.example;", "proxy_ssl_verify on;"])):
        status, out, err = world.once("serve", "--upstream", url, "--print-config")
        expect_equal((status, err), (0, ""), url)
        for line in lines:
            contains(out, line, url)


def test_config__prints_and_leaves_nothing(world):
    config(world)
    config(world, "--config", world.path("etc"))
    expect_equal(os.listdir(world.folder), [], "files")


def test_mistake__is_named(world):
    need = "once serve: "
    for options, said in (
            ((), "--upstream URL is missing"),
            (("--upstream", "127.0.0.1:9000"),
             "--upstream: '127.0.0.1:9000' is not the URL of a service; write http://HOST:PORT or https://HOST:PORT"),
            (("--upstream", "ftp://x"), "--upstream: 'ftp://x' is not the URL of a service; write http://HOST:PORT or https://HOST:PORT"),
            (("--upstream", "http://x/base"),
             "--upstream: 'http://x/base' has a path: the gateway forwards the client's path, so give only SCHEME://HOST:PORT"),
            (("--upstream", "http://x:0"), "--upstream: 'http://x:0': '0' is not a port from 1 to 65535"),
            (("--upstream", "http://x:65536"), "--upstream: 'http://x:65536': '65536' is not a port from 1 to 65535"),
            (("--upstream", "http://u:secret"), "--upstream: the text after ':' is not a port from 1 to 65535"),
            (("--upstream", "http://u:p@x"), "--upstream: 'http://...@x' contains a user name; credentials come from the client"),
            (("--upstream", "http://"), "--upstream: 'http://': '' is not a host name"),
            (("--upstream", "http://a;b"), "--upstream: 'http://a;b': 'a;b' is not a host name"),
            (("--upstream", "http://$host"), "--upstream: 'http://$host': '$host' is not a host name"),
            (("--upstream", "http://::1"), "--upstream: 'http://::1' is not the URL of a service; write an IPv6 address in [brackets]"),
            (("--upstream", "http://unix:relative"),
             "--upstream: 'http://unix:relative': a socket path must be absolute and have at most 107 bytes"),
            (("--upstream", "http://unix:/a b"),
             "--upstream: 'http://unix:/a b': a socket path may contain only letters, digits and /._-+@"),
            ((*UPSTREAM, *UPSTREAM), "--upstream may be given only once; for several services write your own nginx.conf "
                                     "(--print-config shows a start)"),
            ((*UPSTREAM, "--listen", "0"), "--listen: '0' must end with a port from 1 to 65535"),
            ((*UPSTREAM, "--listen", "127.0.0.1"), "--listen: '127.0.0.1' must end with a port from 1 to 65535"),
            ((*UPSTREAM, "--listen", "::1:80"), "--listen: '::1:80' is not an address; write ADDRESS:PORT, [IPV6]:PORT or PORT"),
            ((*UPSTREAM, "--listen", "shop:80"),
             "--listen: 'shop' is not an address to listen on; write an IP address, '*' or localhost"),
            ((*UPSTREAM, "--http", "on"), "--http: 'on' must end with a port from 1 to 65535"),
            ((*UPSTREAM, "--methods", "POST,,PUT"), "--methods: 'POST,,PUT' is not a comma-separated list of POST, PATCH, PUT and DELETE"),
            ((*UPSTREAM, "--methods", "POST;x"), "--methods: 'POST;x' is not a comma-separated list of POST, PATCH, PUT and DELETE"),
            ((*UPSTREAM, "--methods", "POST,FOO"), "--methods: 'POST,FOO' is not a comma-separated list of POST, PATCH, PUT and DELETE"),
            ((*UPSTREAM, "--methods", ""), "--methods: '' is not a comma-separated list of POST, PATCH, PUT and DELETE"),
            ((*UPSTREAM, "--tenant-header", "X Y"),
             "--tenant-header: 'X Y' is not a header name (letters, digits and -)"),
            *(((*UPSTREAM, "--tenant-header", name),
               "--tenant-header: %s contains credentials, which would be stored and shown as the name of a tenant; give a header that names the "
               "account, or --credentials %s" % (name, name)) for name in ("Authorization", "COOKIE", "x-api-key")),
            ((*UPSTREAM, "--credentials", "X:Y"), "--credentials: 'X:Y' is not a header name (letters, digits and -)"),
            ((*UPSTREAM, "--credentials", "none", "--credentials", "default"), "--credentials: 'none' and 'default' exclude each other"),
            ((*UPSTREAM, "--credentials", "all"), "--credentials: 'all' is not supported; 'default' means the usual headers, name others"),
            ((*UPSTREAM, "--max-response", "0"), "--max-response: '0' is not a size from 1 to 16m, like 512k or 4m"),
            ((*UPSTREAM, *(["--credentials", "X"] * 33)), "--credentials may be given at most 32 times"),
            *(((*UPSTREAM, "--final", words), "--final: '%s' is not a comma-separated list of 'all', 'default', 2xx to 5xx and statuses from 200 to 599, where '-' "
               "before a class or status excludes it" % words) for words in ("", "2xx,", "1xx", "6xx", "199", "600", "-all", "2xx;", "20x", "2xx 3xx")),
            ((*UPSTREAM, "--replay-header", "X Y"), "--replay-header: 'X Y' is not a header name (letters, digits and -)"),
            *(((*UPSTREAM, "--max-response", size), "--max-response: '%s' is not a size from 1 to 16m, like 512k or 4m" % size)
              for size in ("", "x", "-1", "17m", "16385k", "16777217", "1g", "4mm", "4;", "99999999m")),
            ((*UPSTREAM, "--exclude", "sent_at"), "--exclude: JSON pointer 'sent_at': must begin with '/'"),
            ((*UPSTREAM, "--exclude", "/a\n"), "--exclude: control characters are not allowed"),
            ((*UPSTREAM, "--takeover", "guess"), "--takeover: 'guess' is not 'escalate', 'rerun' or 'probe'"),
            ((*UPSTREAM, "--takeover", "probe"), "--takeover probe and --probe PATH must be given together"),
            ((*UPSTREAM, "--takeover", "rerun", "--probe", "/a/{key}"), "--takeover probe and --probe PATH must be given together"),
            ((*UPSTREAM, "--takeover", "probe", "--probe", "/a/{key}"), "--probe needs --complete: the daemon sends the probe"),
            *(((*UPSTREAM, "--takeover", "probe", "--complete", "--probe", path),
               "--probe: '%s' is not a path of the service that contains {key} or {client-key}, like /orders/by-key/{key}" % path)
              for path in ("/orders", "a/{key}", "http://x/{key}", "/$once_key/{key}", "/{key};}", "/{id}", "/a b/{key}", '/"{key}')),
            ((*UPSTREAM, "--lease", "0s"), "--lease: '0s' is too short"),
            ((*UPSTREAM, "--lease", "25h"), "--lease: '25h' is too long"),
            ((*UPSTREAM, "--retention", "0s"), "--retention: '0s' is too short"),
            ((*UPSTREAM, "--body-retention", "0s"), "--body-retention: '0s' is too short"),
            *(((*UPSTREAM, *longer), "--body-retention must not be longer than --retention")
              for longer in (("--body-retention", "25h"), ("--body-retention", "never"), ("--retention", "1h", "--body-retention", "61m"))),
            ((*UPSTREAM, "--wait", "25h"), "--wait: '25h' is too long"),
            ((*UPSTREAM, "--quota", "records"), "--quota: 'records' is not a limit such as records=100000"),
            ((*UPSTREAM, "--quota-tenant", "records=1"), "--quota-tenant: 'records=1' is not TENANT:records=N,..."),
            ((*UPSTREAM, "--trace", "2"), "--trace takes on, off or a share from 0 to 1, not '2'"),
            ((*UPSTREAM, "--otlp", "x"), "--otlp: 'x' is not an http:// or https:// URL without a query"),
            ((*UPSTREAM, "--otlp-ratio", "0.1"), "--otlp-header and --otlp-ratio need --otlp"),
            ((*UPSTREAM, "--otlp", "http://x", "--otlp-ratio", "1.1"), "--otlp-ratio: '1.1' is not a number from 0 to 1"),
            *(((*UPSTREAM, option, "0.0.0.0:27777"),
               option + ": '0.0.0.0:27777' can be reached from other machines; listen on a loopback address such as 127.0.0.1:27777")
              for option in ("--console", "--http")),
            ((*UPSTREAM, "--console", "nowhere"), "--console: 'nowhere' is not ADDRESS:PORT, such as 127.0.0.1:7411 or [::1]:0"),
            ((*UPSTREAM, "--console-traces", "https://x/{key_hash}"), "--console-traces is for --console"),
            ((*UPSTREAM, "--console-origin", "https://x"), "--console-origin is for --console"),
            ((*UPSTREAM, "--console", "127.0.0.1:0", "--console-origin", "https://x/"),
             "--console-origin: it is not https:// and a name, with nothing after it except perhaps a port"),
            ((*UPSTREAM, "--console", "127.0.0.1:1", "--console-traces", "ftp://x/{key_hash}"),
             "--console-traces: it does not begin with http:// or https://"),
            ((*UPSTREAM, "--log-decisions", "xml"), "--log-decisions takes json, logfmt or off, not 'xml'"),
            ((*UPSTREAM, "--log-file", "x"), "--log-file needs --log-decisions json or logfmt"),
            ((*UPSTREAM, "--otlp", "http://x", "--store", "once:/x"), "--complete, --escalate-webhook, --relay, --consume, --console, --seal-keys, "
             "--log-decisions, --otlp and --quota: give these options to the daemon that runs at once:/x"),
            ((*UPSTREAM, "--workers", "0"), "--workers: '0' is not a number from 1 to 512"),
            ((*UPSTREAM, "--tls-cert", "/dev/null"), "--tls-cert and --tls-key must be given together"),
            ((*UPSTREAM, "--tls-cert", "/nonexistent"), "--tls-cert: cannot read '/nonexistent': No such file or directory"),
            ((*UPSTREAM, "--listen", "*:9000"),
             "--upstream: http://127.0.0.1:9000 is the gateway itself: see --listen"),
            (("--upstream", "http://Localhost:9000", "--listen", "9000"),
             "--upstream: http://Localhost:9000 is the gateway itself: see --listen"),
            (("--upstream", "http://localhost:9000", "--listen", "[::]:9000"),
             "--upstream: http://localhost:9000 is the gateway itself: see --listen"),
            ((*UPSTREAM, "--config", ""), "--config takes a directory"),
            ((*UPSTREAM, "more"), "unexpected argument 'more'")):
        status, out, err = world.once("serve", "--print-config", *options)
        expect_equal((status, out), (64, ""), "exit status and output of %s" % (options,))
        expect_equal(err, need + said + "\nsee 'once serve --help'\n", "message for %s" % (options,))
    expect_equal(os.listdir(world.folder), [], "files")


def test_mistake__user(world):
    status, _, err = world.once("serve", *UPSTREAM, "--user", "no-such-user")
    expect_equal(status, 64, "exit status")
    expect_equal(err, "once serve: --user: there is no user 'no-such-user'\n" if ROOT else
          "once serve: --user needs root: otherwise all processes run as the current user\n", "message")


# ---------------------------------------------------------------- what is missing

def started(world, *options, **more):
    """It must end by itself, leaving nothing."""
    port = free_port()
    status, out, err = world.once("serve", *UPSTREAM, "--listen", str(port), "--store",
                                  "sqlite:" + world.path("once.db"), *options, **more)
    expect_equal(out, "", "standard output")
    assert not os.path.exists(world.path("once.db")), "there is a store"
    return status, err.replace("127.0.0.1:%d" % port, "LISTEN").replace("127.0.0.1-%d" % port, "LISTEN")


def test_missing__nginx(world):
    for name in ("nginx-none", "/nonexistent/nginx"):
        status, err = started(world, "--nginx", name)
        expect_equal((status, err), (69, "once serve: cannot find the program %s; install it (apt-get install nginx), or give "
                                  "--nginx FILE\n" % name), name)


def test_missing__module(world):
    status, err = started(world, "--module", "/nonexistent.so")
    expect_equal((status, err), (69, "once serve: --module: cannot find '/nonexistent.so': No such file or directory\n"),
          "a module that is not there")
    # A program that was copied to some place has no module beside it. By a process of its own: what this one has open for writing
    # while another case starts a process cannot be executed ("text file busy").
    subprocess.run(["cp", ONCE, world.path("once")], check=True)
    done = subprocess.run([world.path("once"), "serve", *UPSTREAM, "--print-config"], env=world.env, capture_output=True,
                          text=True, check=True)
    path = done.stdout.split('load_module "')[1].split('"')[0]
    if os.path.exists(path):
        raise Skipped("the module is installed")
    done = subprocess.run([world.path("once"), "serve", *UPSTREAM, "--nginx", "/bin/true"], env=world.env,
                          capture_output=True, text=True, check=False)
    expect_equal((done.returncode, done.stderr),
          (69, "once serve: cannot find the nginx module: neither beside this program nor at %s; build it with 'make', "
               "or give --module FILE\n" % path), "no module anywhere")


def test_missing__port(world):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, _, err = world.once("serve", *UPSTREAM, "--listen", str(port), "--nginx", "/bin/true", "--module", "/dev/null")
        expect_equal((status, err), (69, "once serve: --listen: cannot listen on 127.0.0.1:%d: Address already in use: another "
                                  "program listens there; end it, or choose another port\n" % port), "--listen")
        status, err = started(world, "--http", str(port), "--nginx", "/bin/true", "--module", "/dev/null")
        expect_equal((status, err), (69, "once serve: --http: cannot listen on 127.0.0.1:%d: Address already in use: another "
                                  "program listens there; end it, or choose another port\n" % port), "--http")
    status, _, err = world.once("serve", *UPSTREAM, "--listen", "192.0.2.1:80", "--nginx", "/bin/true", "--module", "/dev/null")
    expect_equal((status, err), (69, "once serve: --listen: cannot listen on 192.0.2.1:80: Cannot assign requested address: no "
                              "such address on this machine\n"), "an address of another machine")


def test_missing__port_of_its_own(world):
    port = free_port()
    for listen, http in (("127.0.0.1:%d" % port, str(port)), ("*:%d" % port, "127.0.0.1:%d" % port)):
        status, _, err = world.once("serve", *UPSTREAM, "--store", "sqlite:" + world.path("once.db"), "--listen", listen, "--http", http,
                                    "--nginx", "/bin/true", "--module", "/dev/null")
        expect_equal((status, err), (64, "once serve: --listen and --http cannot both be 127.0.0.1:%d\nsee 'once serve --help'\n" % port), "message")


def test_missing__permission(world):
    if ROOT:
        raise Skipped("root may write everywhere; see plain_user")
    os.mkdir(world.path("run"), 0o500)
    status, err = started(world, "--nginx", "/bin/true", "--module", "/dev/null")
    expect_equal((status, err), (69, "once serve: cannot create directory '%s/run/once': Permission denied\n" % world.folder), "run")


def test_missing__permission_of_a_plain_user(world):
    user = need_plain_user()
    if user is None:
        raise Skipped("not root")
    os.mkdir(world.path("run"), 0o755)  # root's
    status, _, err = world.once("serve", *UPSTREAM, "--listen", str(free_port()), "--store", "sqlite:" + world.path("x.db"),
                                "--module", need_module(), user=user)
    expect_equal((status, err), (69, "once serve: cannot create directory '%s/run/once': Permission denied\n" % world.folder), "run")
    status, _, err = world.once("serve", *UPSTREAM, "--listen", "80", "--module", need_module(), user=user)
    if "Permission denied" in err:  # some machines let everybody
        expect_equal((status, err), (69, "once serve: --listen: cannot listen on 127.0.0.1:80: Permission denied: ports below "
                                  "1024 need root\n"), "port 80")


def test_config__of_somebody_else_is_kept(world):
    os.mkdir(world.path("etc"))
    with open(world.path("etc/nginx.conf"), "w", encoding="ascii") as f:
        f.write("# mine\n")
    status, err = started(world, "--config", world.path("etc"), "--nginx", "/bin/true", "--module", "/dev/null")
    expect_equal((status, err), (69, "once serve: '%s/etc/nginx.conf' was not written by once serve; remove it, or give another "
                              "--config\n" % world.folder), "message")
    with open(world.path("etc/nginx.conf"), encoding="ascii") as f:
        expect_equal(f.read(), "# mine\n", "the file")
    os.unlink(world.path("etc/nginx.conf"))
    os.mkfifo(world.path("etc/nginx.conf"))
    status, err = started(world, "--config", world.path("etc"), "--nginx", "/bin/true", "--module", "/dev/null")
    expect_equal((status, "was not written by once serve" in err), (69, True), "a FIFO, which nobody writes to: " + err)


# ---------------------------------------------------------------- what nginx says

def test_nginx__accepts_the_configuration(world):
    module = need_module()
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-keyout",
                    world.path("key.pem"), "-out", world.path("cert.pem")], check=True, capture_output=True)
    for options in ((), ("--required", "--tenant-header", "X-Tenant", "--methods", "POST,PUT", "--takeover", "rerun",
                         "--lease", "30s", "--retention", "never", "--wait", "5s", "--workers", "1", "--log-requests"),
                    ("--retention", "90d", "--lease", "1h30m", "--wait", "250ms"),
                    ("--retention", "never", "--body-retention", "never"), ("--body-retention", "24h", "--no-key-time"),
                    ("--listen", "[::1]:8443", "--tls-cert", world.path("cert.pem"), "--tls-key", world.path("key.pem")),
                    ("--upstream", "https://127.0.0.1:9443"), ("--upstream", "http://unix:/run/shop.sock"),
                    ("--upstream", "http://[::1]:9000"), ("--timeout", "500ms"),
                    ("--final", "all,-503", "--replay-header", "X-Cost", "--max-response", "512k", "--exclude", '/a b/"$x;\\', "--exclude", "/{}#"),
                    ("--credentials", "X-Shop-Key", "--credentials", "Authorization", "--tenant-header", "X-Tenant"), ("--credentials", "none"),
                    ("--store", "once:/run/x/once.sock")):
        text = config(world, "--module", module, *options)
        run = text.split('pid "')[1].split("/nginx.pid")[0]
        temp = text.split('client_body_temp_path "')[1].split("/client_body")[0]
        os.makedirs(world.path("here/temp"), exist_ok=True)
        text = text.replace(run, world.path("here")).replace(temp, world.path("here/temp"))
        with open(world.path("nginx.conf"), "w", encoding="utf-8") as f:
            f.write(text)
        done = subprocess.run(["nginx", "-t", "-q", "-p", world.folder, "-e", "stderr", "-c", world.path("nginx.conf")],
                              capture_output=True, text=True, check=False,
                              env={**world.env, "PATH": world.env["PATH"] + ":/usr/sbin"})
        expect_equal((done.returncode, done.stderr), (0, ""), "nginx -t with %s" % (options,))


def test_nginx__a_header_that_is_never_replayed(world):
    need_module()
    status, err = started(world, "--replay-header", "Set-Cookie")
    expect_equal(status, 69, "exit status")
    contains(err, 'invalid value "Set-Cookie" of "once_replay_headers": this header is valid for one answer only and is never replayed', "what nginx said")


def test_nginx__module_that_is_none(world):
    need_module()
    with open(world.path("bad.so"), "w", encoding="ascii") as f:
        f.write("not a library")
    status, err = started(world, "--module", world.path("bad.so"))
    expect_equal(status, 69, "exit status")
    contains(err, "once serve: the module %s cannot be loaded\n" % world.path("bad.so"), "message")
    contains(err, ": dlopen() ", "what nginx said")


def test_nginx__module_for_another_version(world):
    with open(need_module(), "rb") as f:
        image = f.read()
    version = subprocess.run(["nginx", "-v"], capture_output=True, text=True, check=True,
                             env={**world.env, "PATH": world.env["PATH"] + ":/usr/sbin"}).stderr.split("/")[1].split()[0]
    major, minor, patch = (int(n) for n in version.split("."))
    number = major * 1000000 + minor * 1000 + patch
    assert image.count(number.to_bytes(8, "little")) >= 1, "the module has no version"
    with open(world.path("other.so"), "wb") as f:
        f.write(image.replace(number.to_bytes(8, "little"), (number + 7).to_bytes(8, "little")))
    status, err = started(world, "--module", world.path("other.so"))
    expect_equal(status, 69, "exit status")
    contains(err, "once serve: the module %s was built for another version of nginx; rebuild it with the nginx-dev of "
                  "this one\n" % world.path("other.so"), "message")


def test_nginx__upstream_host_unknown(world):
    module = need_module()
    status, _, err = world.once("serve", "--upstream", "http://no-such-host.invalid", "--listen", str(free_port()),
                                "--store", "sqlite:" + world.path("x.db"), "--module", module)
    expect_equal(status, 69, "exit status")
    contains(err, 'host not found in upstream "no-such-host.invalid:80"', "what nginx said")
    contains(err, "once serve: nginx does not accept the configuration, see above\n", "message")


main(sys.modules[__name__])
