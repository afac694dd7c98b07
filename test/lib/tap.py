"""TAP on standard output, in two ways.

Results one after the other, from any thread:

    ok(answer.status == 200, "it is answered", answer)
    equal(answer.body, b"x", "with its body")
    finish()

Cases that are a result each, several at a time: functions that raise if they do not hold, and may return a remark.

    run([("a retry is answered", retry), ...], width=4)

Diagnostics come before their result, where tools/run-tests looks for them."""
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor

NOTE_MAX = 4000  # characters of a note
_lock, _case = threading.Lock(), threading.local()
_number = _failed = 0


class Failed(Exception):
    """A case does not hold."""


class Skipped(Exception):
    """A case cannot run here; the reason is its text."""


def expect(holds, what):
    if not holds:
        raise Failed(what)


def expect_equal(got, expected, what):
    if got != expected:
        raise Failed("%s: got %s, expected %s" % (what, shorten(got), shorten(expected)))


def shorten(value):
    text = repr(value)
    return text if len(text) < 600 else text[:400] + " ... " + text[-150:]


# ---------------------------------------------------------------- results

def ok(passed, name, *notes):
    """`name` may end in "# SKIP reason". Returns whether it passed."""
    global _number, _failed
    case = getattr(_case, "name", None)
    with _lock:
        _number += 1
        if not passed:
            _failed += 1
            for note in notes:
                _comment(str(note)[:NOTE_MAX])
        print("%sok %d - %s%s" % ("" if passed else "not ", _number, case + ": " if case else "", name), flush=True)
    return bool(passed)


def equal(got, expected, name, *notes):
    return ok(got == expected, name, "got:      %r" % (got,), "expected: %r" % (expected,), *notes)


def remark(text):
    with _lock:
        _comment(text)


def _comment(text):
    for line in str(text).splitlines():
        print("# " + line, flush=True)


def finish():
    """The plan, and the end of this program."""
    print("1..%d" % _number, flush=True)
    sys.exit(1 if _failed or _number == 0 else 0)


def skip_all(reason):
    """Instead of all results: why this program cannot run here."""
    print("1..0 # SKIP %s" % reason, flush=True)
    sys.exit(0)


def skip_if(reason):
    """The reason, or something false: it can run."""
    if reason:
        skip_all(reason)


def bail(why):
    print("Bail out! %s" % why, flush=True)
    sys.exit(1)


# ---------------------------------------------------------------- cases

class Cases(list):
    """`case = Cases()` collects what @case stands before, as (name, function)."""

    def __call__(self, function):
        self.append((function.__name__, function))
        return function


def chosen(cases, words):
    """Those (name, function) whose name has one of the words in it; all if there are none."""
    return [case for case in cases if not words or any(word in case[0] for word in words)]


def run_results(cases, words, width=1):
    """Functions that call ok(): what they raise is a failed result of theirs. Their results begin with their name."""
    def run_one(case):
        _case.name, function = case
        try:
            function()
        except Exception:  # pylint: disable=broad-except
            ok(False, "comes to its end", traceback.format_exc())
        finally:
            _case.name = None

    with ThreadPoolExecutor(width) as pool:
        list(pool.map(run_one, chosen(cases, words)))


def run(cases, words, width=1, last=()):
    """Functions that are a result each, then those of `last` one at a time; and the end of this program."""
    cases = chosen(cases, words)
    with ThreadPoolExecutor(width) as pool:
        for name, outcome in [(name, pool.submit(_outcome, function)) for name, function in cases]:
            _report(name, *outcome.result())
    for name, function in last:
        _report(name, *_outcome(function))
    finish()


def chained(cases):
    """Cases that each build on those before: after one that failed or was skipped, the rest is as well."""
    ended = []

    def link(function):
        def run_one():
            if ended:
                raise ended[0]
            try:
                return function()
            except Skipped as why:
                ended.append(why)
                raise
            except Exception:
                ended.append(Failed("one before it failed"))
                raise
        return run_one
    return [(name, link(function)) for name, function in cases]


def _outcome(function):
    """(passed, addition to the name, diagnostics)"""
    try:
        said = function()
        return True, "", said if isinstance(said, str) else ""
    except Skipped as why:
        return True, " # SKIP %s" % why, ""
    except Failed as failure:
        # An error while it was ended in spite of that is not the cause.
        first = None if failure.__suppress_context__ or failure.__cause__ else failure.__context__
        return False, "", str(failure) + ("\nafter: %r" % first if first else "")
    except Exception:  # pylint: disable=broad-except
        return False, "", traceback.format_exc()


def _report(name, passed, addition, diagnostics):
    if passed and diagnostics:
        remark(diagnostics)
    ok(passed, name + addition, diagnostics)
