"""Reads /metrics, as strictly as Prometheus does: every sample has a type, none comes twice, buckets add up."""
import re

SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\\n]|\\.)*",?)*)\})? (\S+)')
LABEL = re.compile(r'([a-z]+)="((?:[^"\\]|\\.)*)"')


class Metrics(dict):
    """{(name, label, value, label, value, ...): number}; ask it as m("once_relay_published_total", route="a")."""
    def __call__(self, name, **labels):
        return self[(name, *(x for pair in sorted(labels.items()) for x in pair))]


def parse(text):
    metrics, types = Metrics(), {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types, "two types of " + name
            types[name] = kind
        elif not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            assert match, "no sample: %r" % line
            name, labels, value = match.groups()
            base = re.sub("_(bucket|sum|count)$", "", name)
            assert name in types or types.get(base) == "histogram", "no type: " + line
            key = (name, *(x for pair in sorted(LABEL.findall(labels or "")) for x in pair))
            assert key not in metrics, "twice: " + line
            metrics[key] = float(value)
    buckets = {}
    for key in metrics:
        if key[0].endswith("_bucket"):
            series = tuple(x for i in range(1, len(key), 2) if key[i] != "le" for x in key[i:i + 2])
            buckets.setdefault((key[0][:-len("_bucket")], *series), []).append((float(key[key.index("le") + 1]), metrics[key]))
    for (name, *series), counts in buckets.items():
        counts.sort()
        assert [c for _, c in counts] == sorted(c for _, c in counts), "buckets of %s shrink" % name
        assert counts[-1][1] == metrics[(name + "_count", *series)], "the last bucket of %s is not all" % name
    return metrics


def samples(text):
    """{name, with its labels as they are written: number}"""
    return {name: float(value) for name, value in re.findall(r"^(once_\S+) (\S+)$", text, re.M)}
