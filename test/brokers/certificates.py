"""An authority, and a certificate for the name localhost (not for 127.0.0.1) that it signed, in a folder."""
import os
import subprocess


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def make(folder):
    """(the authority's certificate, the server's certificate, its key): paths of PEM files."""
    os.makedirs(folder, exist_ok=True)
    ca, ca_key, crt, key, request, names = (os.path.join(folder, n) for n in
                                            ("ca.crt", "ca.key", "server.crt", "server.key", "server.csr", "names"))
    if not os.path.exists(crt):
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", ca_key, "-out", ca, "-days", "30", "-subj", "/CN=once test authority")
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", "/CN=localhost")
        with open(names, "w", encoding="ascii") as file:
            file.write("subjectAltName=DNS:localhost\n")
        openssl("x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-out", crt, "-days", "30", "-extfile", names)
    return ca, crt, key
