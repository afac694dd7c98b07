"""nginx under the sanitizers that the module was built with: how it is started, what it said.

ONCE_NGINX_PRELOAD names the sanitizers' libraries, which have to be there before the module; they
are for nginx alone. Each process writes what was found into a file of its own in a folder, also
what a process that ends left in memory. nginx itself leaves the tables that a worker makes at its
start, on purpose: a leak counts if it was made while requests were served, or by the module. What a configuration was read into
is kept to the end, in pools; `nginx -t` ends with nothing that points to them but what happens to be left on its stack.
"""
import os
import re

PRELOAD = os.environ.get("ONCE_NGINX_PRELOAD")
NAME = "sanitizer"


def environment(folder):
    """What nginx needs in its environment. `folder` has to be writable for its workers; None: what is
    found goes to stderr, and leaks are not looked for."""
    if not PRELOAD:
        return {}
    if folder is None:
        return {"LD_PRELOAD": PRELOAD, "ASAN_OPTIONS": "detect_leaks=0,detect_odr_violation=0"}
    # nginx keeps no frame pointers; each process has its own ngx_module_names; who leaks is not to exit otherwise.
    options = "detect_leaks=1,fast_unwind_on_malloc=0,detect_odr_violation=0,log_path=%s/%s" % (folder, NAME)
    return {"LD_PRELOAD": PRELOAD, "ASAN_OPTIONS": options, "LSAN_OPTIONS": "exitcode=0"}


def is_nginx_own(leak):
    """Did nginx, or a library of its, make this block for itself before the first event? (The module is
    unloaded when leaks are looked for: its frames have no name.)"""
    frames = re.findall(r"^ +#\d+ .*$", leak, re.M)
    if re.search(r" ngx_(memalign|alloc) ", " ".join(frames[:3])) and any(" ngx_init_cycle " in frame for frame in frames):
        return True
    served = re.compile(r"<unknown module>|ngx_http_once|ngx_process_events_and_timers")
    return len(frames) > 3 and not any(served.search(frame) for frame in frames)


def findings(folder):
    """Lines that a test fails with."""
    found = []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if not name.startswith(NAME + "."):
            continue
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
            text = file.read()
        head, *leaks = re.split(r"^(?=(?:Direct|Indirect) leak of )", text, flags=re.M)
        if not leaks or "detected memory leaks" not in head:
            leaks = [text]
        for leak in leaks:
            if "leak of " not in leak or not is_nginx_own(leak):
                found += leak.strip().splitlines()[:24]
    return found
