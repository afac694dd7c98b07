#!/usr/bin/env python3
"""rediss: the certificate must be one that is trusted, and the host's; then all goes as without TLS.

usage: ONCE_REDIS_WORKER=FILE tls.py
"""
import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]
import redisserver
from lib.ports import free_port
from lib.tap import finish, ok, skip_all
from redisserver import Redis

def openssl(folder, *words):
    subprocess.run(["openssl", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def make_certificates(folder):
    for name in ("ca", "stranger"):
        openssl(folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
                "-subj", "/CN=" + name, "-keyout", name + ".key", "-out", name + ".pem")
    openssl(folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=localhost",
            "-keyout", "server.key", "-out", "server.csr")
    with open(os.path.join(folder, "ext"), "w", encoding="ascii") as file:
        file.write("subjectAltName=DNS:localhost\n")
    openssl(folder, "x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days",
            "30", "-extfile", "ext", "-out", "server.pem")


def run(url, text):
    worker = subprocess.run([os.environ["ONCE_REDIS_WORKER"], url], input=text, stdout=subprocess.PIPE, text=True)
    return [line for line in worker.stdout.splitlines() if not line.startswith("told: ")]


def main():
    if not redisserver.available() or not shutil.which("openssl"):
        skip_all("redis-server or openssl is not installed")
    folder = tempfile.mkdtemp(prefix="once-rt-", dir="/tmp")
    port, server = free_port(), None
    try:
        make_certificates(folder)
        paths = {n: os.path.join(folder, n + ".pem") for n in ("ca", "stranger", "server")}
        server = Redis(os.path.join(folder, "data"), settings=[
            "--tls-port", str(port), "--tls-cert-file", paths["server"], "--tls-key-file", os.path.join(folder, "server.key"),
            "--tls-ca-cert-file", paths["ca"], "--tls-auth-clients", "no"]).start()
        url = "rediss://%s:%d/0?tier=best-effort%s"
        said = run(url % ("localhost", port, "&ca=" + paths["ca"]), "fill 50 k\nfill 3 large 900000\nagain 3 large\n")
        ok(said == ["ready", "fill 50", "fill 3", "again 3 0 grown"], "trusted: as without TLS, large ones too", said)
        said = run(url % ("localhost", port, "&ca=" + paths["stranger"]), "")
        ok("certificate is not trusted" in said[0], "signed by somebody else: refused", said)
        said = run(url % ("127.0.0.1", port, "&ca=" + paths["ca"]), "")
        ok("certificate is not trusted" in said[0], "of another host: refused", said)
        said = run(url % ("localhost", port, ""), "")
        ok("certificate is not trusted" in said[0], "unknown to the system: refused", said)
        said = run(url % ("localhost", port, "&ca=" + os.path.join(folder, "none")), "")
        ok("no certificates to trust" in said[0], "a file that is not there: said", said)
        said = run("redis://localhost:%d/0?tier=best-effort" % port, "")
        ok(said[0].startswith("failed"), "without TLS on that port: refused", said)
    finally:
        if server:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    finish()


main()
