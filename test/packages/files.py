#!/usr/bin/env python3
"""What is in debian/ and packaging/ agrees with the program, the library and itself.

environment: ONCE_BIN, ONCE_LIBRARY (the shared one)
"""
import glob
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

sys.path.append("/usr/lib/python3/dist-packages")  # where another python3 comes first
import yaml
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from lib.daemon import ONCE, Daemon
from lib.tap import Cases, expect_equal, run
from lib.wait import wait_for

HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
case = Cases()
OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]+)")
MANIFESTS = sorted(glob.glob(os.path.join(HERE, "packaging/kubernetes/*.yaml")))


def text_of(path):
    with open(os.path.join(HERE, path), encoding="utf-8") as file:
        return file.read()


_helps = {}


def options_of(*verb):
    """What `once VERB... --help` lists."""
    if verb not in _helps:
        done = subprocess.run([ONCE, *verb, "--help"], stdout=subprocess.PIPE, text=True, check=True)
        _helps[verb] = set(re.findall(r"^  --([a-z-]+)", done.stdout, re.M))
        assert _helps[verb], verb
    return _helps[verb]


def check_words(words, where):
    """`words`: a command line after the word once."""
    verb = (words[0],)
    if words[0] in ("keys", "outbox", "inbox") and len(words) > 1:
        verb = tuple(words[:2])
    used = {m.group(1) for m in (OPTION.match(w) for w in words) if m}
    unknown = used - options_of(*verb) - {"help"}
    assert not unknown, "%s: once %s has no option %s" % (where, " ".join(verb), ", ".join(sorted(unknown)))


def unit(path):
    """The settings of a unit file: name -> values in order; comments do not count."""
    settings = {}
    for line in text_of(path).splitlines():
        if "=" in line and line[0] not in "#;":
            name, value = line.split("=", 1)
            settings.setdefault(name, []).append(value)
    return settings


# ---------------------------------------------------------------- the library and the version

@case
def library__exports_what_the_headers_declare():
    done = subprocess.run([os.path.join(HERE, "tools/symbols"), os.environ["ONCE_LIBRARY"]], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    expect_equal(done.returncode, 0, done.stdout)


@case
def version__is_the_same_everywhere():
    project = re.search(r"version: '([\d.]+)'", text_of("meson.build")).group(1)
    expect_equal(re.match(r"once \(([^)-]+)-\d+\)", text_of("debian/changelog")).group(1), project, "debian/changelog")
    header = [re.search(r"ONCE_VERSION_%s (\d+)" % part, text_of("include/once.h")).group(1)
              for part in ("MAJOR", "MINOR", "PATCH")]
    expect_equal(".".join(header), project, "include/once.h")


# ---------------------------------------------------------------- options

@case
def units__use_options_that_there_are():
    for path, verb, companion in (("once.service", "daemon", "once.default"), ("once-relay@.service", "relay", None),
                                  ("once-consume@.service", "consume", None)):
        (command,) = unit("packaging/systemd/" + path)["ExecStart"]
        words = shlex.split(command)
        expect_equal(words[:2], ["/usr/bin/once", verb], path)
        # also those that comments propose; systemctl's and adduser's are not among them
        for name in (path, companion):
            if name is not None:
                proposed = OPTION.findall(text_of("packaging/systemd/" + name))
                check_words([verb] + ["--" + o for o in proposed], name)


@case
def dockerfile__uses_options_that_there_are():
    lines = text_of("packaging/docker/Dockerfile").replace("\\\n", " ").splitlines()
    expect_equal([l for l in lines if l.startswith("ENTRYPOINT")], ['ENTRYPOINT ["once"]'], "the program")
    (command,) = [json.loads(l[4:]) for l in lines if l.startswith("CMD ")]
    check_words(command, "CMD")
    (example,) = [l.split(" once serve ")[1] for l in lines if l.startswith("#     docker run")]
    check_words(["serve"] + shlex.split(example), "the example")


@case
def guide__uses_options_that_there_are():
    """Commands in docs/install.md: those in blocks, and `code`."""
    text = text_of("docs/install.md")
    lines = [l for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S) for l in block.splitlines()] + re.findall(r"`([^`\n]+)`", text)
    found = 0
    for line in lines:
        for command in re.split(r"[|;]|&&", line.split(" #")[0]):
            m = re.match(r"\s*(?:sudo )?(?:-u \w+ )?(?:[A-Z_]+=\S+ )*once ([a-z].*)", command)
            if m:
                found += 1
                check_words(shlex.split(m.group(1)), "docs/install.md: " + line)
    assert found >= 5, "only %d commands found" % found


# ---------------------------------------------------------------- Kubernetes

def documents(path):
    return list(yaml.safe_load_all(text_of(path)))


def gateways():
    """Each manifest's pod and the container of Once in it."""
    assert MANIFESTS
    for path in MANIFESTS:
        (workload,) = [d for d in documents(path) if d["kind"] in ("Deployment", "StatefulSet")]
        pod = workload["spec"]["template"]["spec"]
        (container,) = [c for c in pod["containers"] if c["name"] == "once"]
        yield os.path.basename(path), workload, pod, container


@case
def manifests__use_options_that_there_are():
    for path, _, _, container in gateways():
        check_words(container["args"], path)


@case
def manifests__fit_together():
    user = int(re.search(r"^USER (\d+):\1$", text_of("packaging/docker/Dockerfile"), re.M).group(1))
    for path, workload, pod, container in gateways():
        (service,) = [d for d in documents(os.path.join(HERE, "packaging/kubernetes", path)) if d["kind"] == "Service"]
        labels = workload["spec"]["template"]["metadata"]["labels"]
        expect_equal(workload["spec"]["selector"]["matchLabels"], labels, path + ": selector")
        expect_equal(service["spec"]["selector"], labels, path + ": the service's selector")
        ports = {p["name"]: p["containerPort"] for p in container["ports"]}
        assert service["spec"]["ports"][0]["targetPort"] in ports, path
        expect_equal(container["args"][container["args"].index("--listen") + 1], "*:%d" % ports["gateway"], path + ": port")
        volumes = {v["name"] for v in pod["volumes"]}
        volumes |= {c["metadata"]["name"] for c in workload["spec"].get("volumeClaimTemplates", [])}
        expect_equal({m["name"] for m in container["volumeMounts"]}, volumes, path + ": volumes")
        expect_equal({m["mountPath"] for m in container["volumeMounts"]}, {"/var/lib/once", "/run/once", "/tmp"}, path)
        context = container["securityContext"]
        expect_equal((context["runAsUser"], context["runAsGroup"], pod["securityContext"]["fsGroup"]), (user,) * 3, path + ": user")
        expect_equal((pod["securityContext"]["runAsNonRoot"], context["allowPrivilegeEscalation"],
                      context["readOnlyRootFilesystem"], context["capabilities"]), (True, False, True, {"drop": ["ALL"]}), path)
        # a store in a file cannot be shared; one in a database needs no volume that stays
        single = "volumeClaimTemplates" in workload["spec"]
        expect_equal((workload["spec"]["replicas"] == 1, "env" not in container), (single, single), path + ": replicas and store")


@case
def probes__are_answered():
    """By a daemon, at the paths that manifests and image ask for."""
    urls = set(re.findall(r"http://127\.0\.0\.1:7411(/\w+)", text_of("packaging/docker/Dockerfile")))
    for path, _, _, container in gateways():
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = container[kind]
            if "exec" in probe:
                urls.add(re.fullmatch(r"http://127\.0\.0\.1:7411(/\w+)", probe["exec"]["command"][-1]).group(1))
            else:
                expect_equal(probe["httpGet"], {"path": "/.well-known/idempotency", "port": "gateway"}, path)
    assert urls
    with tempfile.TemporaryDirectory() as folder:
        with Daemon(folder).start("--http", "127.0.0.1:0") as daemon:
            for url in sorted(urls):  # 503 is not an answer yet, where the machine may have stood still
                expect_equal(wait_for(lambda: (lambda status: status != 503 and status)(daemon.get(url)[0]), url), 200, url)


# ---------------------------------------------------------------- the units

@case
def units__are_confined_alike():
    """What the daemon's unit forbids, the templates forbid; and nobody forbids what the store needs."""
    confined = [unit("packaging/systemd/" + name) for name in ("once.service", "once-relay@.service", "once-consume@.service")]
    names = [n for n in confined[0] if re.match(r"Protect|Private|Restrict[A-Z]|SystemCall|NoNew|Lock|Memory|Capab|Remove|UMask", n)]
    assert len(names) > 20, names
    for settings in confined:
        expect_equal({n: settings.get(n) for n in names}, {n: confined[0][n] for n in names}, "confinement")
        # boot_id tells the store's clock of a reboot; --allow knows users by their numbers.
        expect_equal([n for n in ("ProcSubset", "PrivateUsers") if n in settings], [], "would break the daemon")


if __name__ == "__main__":
    run(case, sys.argv[1:])
