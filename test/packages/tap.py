"""Cases as functions, in the order in which they are written; prints TAP."""
import sys
import traceback


class Skip(Exception):
    pass


_cases = []


def case(function):
    _cases.append(function)
    return function


def equal(got, wanted, what):
    assert got == wanted, "%s: got %r, wanted %r" % (what, got, wanted)


def run(chain=False):
    """Runs what the command line selects by substrings. chain: each case builds on those before it, so
    that after a failure the rest is not tried."""
    words = sys.argv[1:]
    chosen = [c for c in _cases if not words or any(w in c.__name__ for w in words)]
    bad, skipped = 0, None
    for number, function in enumerate(chosen, 1):
        name = function.__name__
        if skipped is not None or (chain and bad):
            print("ok %d - %s # SKIP %s" % (number, name, skipped) if skipped is not None else
                  "# one before it failed\nnot ok %d - %s" % (number, name), flush=True)
            continue
        try:
            function()
            print("ok %d - %s" % (number, name), flush=True)
        except Skip as why:
            print("ok %d - %s # SKIP %s" % (number, name, why), flush=True)
            skipped = why if chain else None
        except Exception:  # pylint: disable=broad-except
            bad += 1
            for line in traceback.format_exc().splitlines():
                print("# " + line)
            print("not ok %d - %s" % (number, name), flush=True)
    print("1..%d" % len(chosen))
    return 1 if bad else 0
