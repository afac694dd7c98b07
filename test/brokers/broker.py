"""What the brokers that tests start have in common: a folder of their own, ports of their own, an end by process id.

    with Kafka(folder) as k:        # or RabbitMQ, Nats
        k.url                       # for `once relay --route` and others
        k.stop(); k.start()         # in order; on the same port, with the same data
        k.kill()                    # kill -9

`Kafka.missing()` says why there can be none here, or None. The process ends with the one that started it."""
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from lib.ports import free_ports, is_open  # noqa: F401, for the brokers
from lib.process import die_with_parent
from lib.wait import wait_for
sys.path.append("/usr/lib/python3/dist-packages")  # pika and confluent_kafka are Debian's, also where python3 is another

START_SECONDS = int(os.environ.get("ONCE_TEST_BROKER_SECONDS", "300"))


class Broker:
    def __init__(self, folder):
        self.folder = folder
        self.p = None
        os.makedirs(folder, exist_ok=True)
        self.log = os.path.join(folder, "log")

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.kill()

    def command(self):
        """(arguments, environment)"""
        raise NotImplementedError

    def answers(self):
        raise NotImplementedError

    def prepare(self):
        pass

    def start(self):
        self.launch()
        self.wait()

    def launch(self):
        """Starts it, and does not wait."""
        self.prepare()
        arguments, more = self.command()
        environment = dict(os.environ, **more)
        environment.pop("MALLOC_PERTURB_", None)  # is for our programs: see test/pg/cluster.py
        with open(self.log, "ab") as log:
            self.p = subprocess.Popen(arguments, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                                      stderr=subprocess.STDOUT, cwd=self.folder, preexec_fn=die_with_parent)

    def wait(self):
        """Until it answers."""
        def answers():
            if self.p.poll() is not None:
                raise RuntimeError("%s ended with %d:\n%s" % (type(self).__name__, self.p.poll(), self.said()))
            return self.answers()
        try:
            wait_for(answers, lambda: "%s to answer:\n%s" % (type(self).__name__, self.said()), START_SECONDS)
        except Exception:
            self.kill()
            raise

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read()[-5000:]

    def stop(self):
        self.end(signal.SIGTERM)

    def kill(self):
        self.end(signal.SIGKILL)

    def pause(self, on=True):
        """It is there, and says nothing any more."""
        self.p.send_signal(signal.SIGSTOP if on else signal.SIGCONT)

    def end(self, how):
        if self.p is not None:
            self.p.send_signal(how)
            self.p.wait()
            self.p = None
