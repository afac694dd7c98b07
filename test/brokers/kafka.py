#!/usr/bin/env python3
"""Kafka: one node that is broker and controller (KRaft); plain, TLS and with passwords (SASL/PLAIN: ann, secret).

Its jars are not in this repository: Maven fetches them, once, into ~/.cache/once-test (or ONCE_TEST_CACHE).
`kafka.py fetch` does that ahead of the tests. Topics are not created by themselves."""
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile

from broker import Broker, START_SECONDS, free_ports, is_open, wait_for
import certificates

HERE = os.path.dirname(os.path.realpath(__file__))
POM = os.path.join(HERE, "jars/pom.xml")
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
try:
    import confluent_kafka
    import confluent_kafka.admin
except ImportError:
    confluent_kafka = None


def cache():
    with open(POM, encoding="ascii") as file:
        version = file.read().split("kafka_2.13</artifactId>")[1].split("<version>")[1].split("<")[0]
    base = os.environ.get("ONCE_TEST_CACHE") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "once-test")
    return os.path.join(base, "kafka-" + version)


def fetch():
    """The folder with the jars, or an error as text. The first time it takes a minute."""
    folder = cache()
    if os.path.isdir(folder):
        return folder, None
    if shutil.which("mvn") is None:
        return None, "Kafka's jars are not there, and neither is maven"
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with open(folder + ".lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.isdir(folder):
            return folder, None
        with tempfile.TemporaryDirectory(dir=os.path.dirname(folder)) as work:
            try:
                done = subprocess.run(["mvn", "-B", "-q", "-C", "-f", POM, PLUGIN, "-DincludeScope=runtime", "-DoutputDirectory=%s/jars" % work],
                                      capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)
            except subprocess.TimeoutExpired:
                return None, "Maven took more than ten minutes to fetch Kafka's jars"
            if done.returncode != 0:
                lines = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line] or ["no reason given"]
                return None, "Maven cannot fetch Kafka's jars: " + lines[0][:300]
            os.rename(os.path.join(work, "jars"), folder)
    return folder, None


class Kafka(Broker):
    def __init__(self, folder, **settings):
        """`settings`: of server.properties, with _ for the dots."""
        super().__init__(folder)
        self.port = free_ports(4)
        self.tls_port, self.sasl_port, self.controller_port = self.port + 1, self.port + 2, self.port + 3
        self.url = "kafka://127.0.0.1:%d" % self.port
        self.tls_url = "kafkas://localhost:%d" % self.tls_port
        self.sasl_url = "kafka://127.0.0.1:%d" % self.sasl_port
        self.servers = "127.0.0.1:%d" % self.port
        self.settings = settings
        self.ca = None
        self.admin = None

    @staticmethod
    def missing():
        if confluent_kafka is None:
            return "python3-confluent-kafka is not installed"
        if shutil.which("java") is None:
            return "no Java is installed"
        return fetch()[1]

    def java(self, *arguments):
        return [shutil.which("java"), "-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", os.path.join(cache(), "*"), *arguments]

    def prepare(self):
        properties = os.path.join(self.folder, "server.properties")
        data = os.path.join(self.folder, "data")
        if os.path.exists(data):
            return
        self.ca, crt, key = certificates.make(os.path.join(self.folder, "tls"))
        store = os.path.join(self.folder, "tls/store.pem")
        with open(store, "w", encoding="ascii") as out:
            for name in (key, crt):
                with open(name, encoding="ascii") as file:
                    out.write(file.read())
        settings = {
            "process.roles": "broker,controller", "node.id": "1",
            "controller.quorum.voters": "1@127.0.0.1:%d" % self.controller_port, "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://127.0.0.1:%d,SSL://127.0.0.1:%d,SASL_PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d"
                         % (self.port, self.tls_port, self.sasl_port, self.controller_port),
            "advertised.listeners": "PLAINTEXT://127.0.0.1:%d,SSL://localhost:%d,SASL_PLAINTEXT://127.0.0.1:%d"
                                    % (self.port, self.tls_port, self.sasl_port),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "ssl.keystore.type": "PEM", "ssl.keystore.location": store, "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config":
                'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="secret";',
            "log.dirs": data, "auto.create.topics.enable": "false", "num.partitions": "3", "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1", "transaction.state.log.num.partitions": "1", "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1", "group.initial.rebalance.delay.ms": "0", "log.cleaner.dedupe.buffer.size": "2000000",
            "num.network.threads": "1", "num.io.threads": "2", "background.threads": "1", "controlled.shutdown.enable": "false",
            # one that starts again is not the one that is still believed to be there
            "broker.session.timeout.ms": "6000", "broker.heartbeat.interval.ms": "500", "controller.quorum.election.timeout.ms": "200",
            "controller.quorum.election.backoff.max.ms": "100",
        }
        settings.update((name.replace("_", "."), value) for name, value in self.settings.items())
        with open(properties, "w", encoding="ascii") as file:
            file.writelines("%s=%s\n" % pair for pair in settings.items())
        done = subprocess.run(self.java("kafka.tools.StorageTool", "format", "-t", "b25jZS10ZXN0LW9uY2UtMQ", "-c", properties),
                              capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise RuntimeError("Kafka's folder: " + done.stdout + done.stderr)

    def command(self):
        return self.java("kafka.Kafka", os.path.join(self.folder, "server.properties")), {}

    def answers(self):
        if not is_open(self.port):
            return False
        try:
            admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
            return len(admin.list_topics(timeout=10).brokers) == 1
        except confluent_kafka.KafkaException:
            return False

    @staticmethod
    def patiently(ask):
        """What `ask` says. Where the whole machine stood still for longer than a broker's session, the controller takes the broker, in the same
        process, for gone: for a moment it leads nothing, coordinates nothing, and gets no new topics. None from `ask` is that, too."""
        error = confluent_kafka.KafkaError
        passing = (error.INVALID_REPLICATION_FACTOR, error.BROKER_NOT_AVAILABLE, error.LEADER_NOT_AVAILABLE, error.NOT_LEADER_FOR_PARTITION,
                   error.COORDINATOR_NOT_AVAILABLE, error.COORDINATOR_LOAD_IN_PROGRESS, error.NOT_COORDINATOR, error._UNKNOWN_PARTITION)

        def answer():
            try:
                said = ask()
            except confluent_kafka.KafkaException as e:
                if e.args[0].code() not in passing:
                    raise
                said = None
            return None if said is None else [said]
        return wait_for(answer, "Kafka to come back to itself", START_SECONDS)[0]

    def create_topic(self, name, partitions=3, **config):
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        new = confluent_kafka.admin.NewTopic(name, partitions, 1, config={k.replace("_", "."): str(v) for k, v in config.items()})
        error, unanswered = confluent_kafka.KafkaError, []

        def create():
            try:
                admin.create_topics([new], request_timeout=120)[name].result()
            except confluent_kafka.KafkaException as e:
                if e.args[0].code() == error._TIMED_OUT:
                    return unanswered.append(e)
                if not unanswered or e.args[0].code() != error.TOPIC_ALREADY_EXISTS:
                    raise
            return True
        self.patiently(create)

    def end_members(self, group):
        """A consumer that is dead leaves its group, as after its session's end, and now."""
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        for found in admin.list_groups(group, timeout=120):
            for member in found.members:
                code = self.patiently(lambda: self.leave(group, member.id))
                assert code in (0, 25), code  # 25: it is gone already

    def leave(self, group, member):
        """LeaveGroup: the answer's code, or None where there is no coordinator just now."""
        text = lambda t: struct.pack(">h", len(t)) + t.encode()
        leave = struct.pack(">hhi", 13, 0, 1) + text("once-test") + text(group) + text(member)
        with socket.create_connection(("127.0.0.1", self.port), timeout=120) as s:
            s.sendall(struct.pack(">i", len(leave)) + leave)
            code = struct.unpack(">iih", s.makefile("rb").read(10))[2]
        return None if code in (14, 15, 16) else code

    def messages(self, topic):
        """[(partition, key, headers, value)] of all that is in a topic, each partition in its order. Headers: a list of pairs."""
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.servers, "group.id": "once-test", "enable.auto.commit": False,
                                             "auto.offset.reset": "earliest", "log_level": 0, "fetch.wait.max.ms": 20})
        try:
            partitions = consumer.list_topics(topic, timeout=120).topics[topic].partitions
            left, assigned = {}, []
            for n in partitions:
                low, high = self.patiently(lambda: consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, n), timeout=120))
                if high > low:
                    left[n] = high
                    assigned.append(confluent_kafka.TopicPartition(topic, n, low))
            consumer.assign(assigned)
            found = []
            while left:
                for message in consumer.consume(1000, timeout=0.05):
                    if message.error():
                        raise RuntimeError(message.error())
                    found.append((message.partition(), message.key(), message.headers() or [], message.value()))
                for place in consumer.position(assigned):
                    if place.partition in left and place.offset >= left[place.partition]:
                        del left[place.partition]
            return found
        finally:
            consumer.close()


if __name__ == "__main__":
    if sys.argv[1:] != ["fetch"]:
        sys.exit("usage: kafka.py fetch")
    fetched, why = fetch()
    if fetched is None:
        print(why + "; the tests that need Kafka will be skipped", file=sys.stderr)
