"""RabbitMQ: a node of its own, with an epmd of its own; plain and TLS. Beside the service of Debian's package, and without it.

Users: guest, guest (a vhost /). `channel()` is a channel of pika."""
import os
import shutil
import subprocess

from broker import Broker, die_with_parent, free_ports, is_open, wait_for
import certificates

BIN = "/usr/lib/rabbitmq/bin"
try:
    import pika
except ImportError:
    pika = None


class RabbitMQ(Broker):
    def __init__(self, folder, **settings):
        """`settings`: of rabbitmq.conf, with _ for the dots."""
        super().__init__(folder)
        self.port = free_ports(4)
        self.tls_port, self.dist_port, self.epmd_port = self.port + 1, self.port + 2, self.port + 3
        self.settings = settings
        self.url = "amqp://127.0.0.1:%d" % self.port
        self.tls_url = "amqps://localhost:%d" % self.tls_port
        self.node = "once-test-%d@localhost" % self.port
        self.epmd = None
        self.ca = None

    @staticmethod
    def missing():
        if not os.path.exists(os.path.join(BIN, "rabbitmq-server")):
            return "rabbitmq-server is not installed"
        return None if pika is not None else "python3-pika is not installed"

    def environment(self):
        at = lambda name: os.path.join(self.folder, name)
        return {"HOME": self.folder, "RABBITMQ_HOME": "", "RABBITMQ_NODENAME": self.node, "RABBITMQ_CONF_ENV_FILE": at("env.conf"),
                "RABBITMQ_CONFIG_FILE": at("rabbitmq.conf"), "RABBITMQ_MNESIA_BASE": at("mnesia"), "RABBITMQ_LOG_BASE": at("logs"),
                "RABBITMQ_PID_FILE": at("pid"), "RABBITMQ_ENABLED_PLUGINS_FILE": at("plugins"), "RABBITMQ_GENERATED_CONFIG_DIR": at("config"),
                "RABBITMQ_ADVANCED_CONFIG_FILE": at("advanced.config"), "RABBITMQ_DIST_PORT": str(self.dist_port),
                "ERL_EPMD_PORT": str(self.epmd_port), "ERL_EPMD_ADDRESS": "127.0.0.1", "RABBITMQ_SERVER_ERL_ARGS":
                # no more schedulers than this needs, and asleep when idle: tests share the machine
                "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none +P 1048576 -kernel inet_dist_use_interface {127,0,0,1}",
                # the script becomes the server itself, whose pid is then the one to signal
                "RABBITMQ_ALLOW_INPUT": "1", "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-noinput", "LANG": "C.UTF-8"}

    def prepare(self):
        at = lambda name: os.path.join(self.folder, name)
        self.ca, crt, key = certificates.make(at("tls"))
        with open(at(".erlang.cookie"), "w", encoding="ascii") as file:
            file.write("oncetest")
        os.chmod(at(".erlang.cookie"), 0o600)
        with open(at("env.conf"), "w", encoding="ascii") as file:
            file.write("")
        with open(at("plugins"), "w", encoding="ascii") as file:
            file.write("[].\n")
        settings = {"listeners.tcp.1": "127.0.0.1:%d" % self.port, "listeners.ssl.1": "127.0.0.1:%d" % self.tls_port,
                    "ssl_options.cacertfile": self.ca, "ssl_options.certfile": crt, "ssl_options.keyfile": key,
                    "ssl_options.verify": "verify_none", "ssl_options.fail_if_no_peer_cert": "false", "log.console": "true",
                    "log.console.level": "warning", "log.file": "false", "disk_free_limit.absolute": "1MB"}
        settings.update((name.replace("__", "."), value) for name, value in self.settings.items())
        with open(at("rabbitmq.conf"), "w", encoding="ascii") as file:
            file.writelines("%s = %s\n" % pair for pair in settings.items())
        if self.epmd is None:  # in the foreground, ours to end; the node would start one that stays
            self.epmd = subprocess.Popen([shutil.which("epmd") or "/usr/bin/epmd", "-port", str(self.epmd_port), "-address", "127.0.0.1"],
                                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                         preexec_fn=die_with_parent)
            wait_for(lambda: is_open(self.epmd_port), "epmd")

    def command(self):
        return [os.path.join(BIN, "rabbitmq-server")], self.environment()

    def answers(self):
        try:
            self.connection().close()
            return True
        except (pika.exceptions.AMQPError, OSError):
            return False

    def __exit__(self, *_):
        self.kill()
        if self.epmd is not None:
            self.epmd.kill()
            self.epmd.wait()
            self.epmd = None

    def ctl(self, *arguments):
        """rabbitmqctl; slow, as it starts a virtual machine of its own."""
        done = subprocess.run([os.path.join(BIN, "rabbitmqctl"), "-n", self.node, *arguments], env=dict(os.environ, **self.environment()),
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError("rabbitmqctl %s: %s%s" % (" ".join(arguments), done.stdout, done.stderr))
        return done.stdout

    def connection(self):
        return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.port, socket_timeout=60, stack_timeout=120,
                                                                  blocked_connection_timeout=120))

    def declare(self, queue, exchange="", binding=None, kind="topic", **arguments):
        """A durable queue, and a durable exchange that it is bound to."""
        connection = self.connection()
        channel = connection.channel()
        channel.queue_declare(queue, durable=True, arguments=arguments)
        if exchange:
            channel.exchange_declare(exchange, kind, durable=True)
            channel.queue_bind(queue, exchange, binding if binding is not None else queue)
        connection.close()

    def take_all(self, queue):
        """[(method, properties, body)] of everything that is in a queue, in its order; it is empty then."""
        connection = self.connection()
        channel = connection.channel()
        found = []
        while True:
            method, properties, body = channel.basic_get(queue, auto_ack=True)
            if method is None:
                break
            found.append((method, properties, body))
        connection.close()
        return found
