"""nginx's way to the daemon, on which a test sees what is asked, and may keep it."""
import socket

from lib import wireclient as w
from lib.listener import Listener, in_thread


class Way(Listener):
    """A socket that nginx connects to (gateway.front) in front of the daemon's. What is asked goes on where passes() says so."""

    def __init__(self, gateway):
        self.path, self.inner = gateway.path("way.sock"), gateway.daemon.socket
        super().__init__(self.connect, self.path)

    def passes(self, frame):
        """Does it go on? If not, nothing does any more on its connection."""
        raise NotImplementedError

    def connect(self, outer):
        inner = socket.socket(socket.AF_UNIX)
        try:
            inner.connect(self.inner)
        except OSError:  # the daemon is away
            outer.close()
            return
        in_thread(self.pass_on, inner, outer, lambda frame: True)
        self.pass_on(outer, inner, self.passes)

    @staticmethod
    def pass_on(one, other, passes):
        peer = w.Client.of(one, None)
        try:
            while frame := peer.get():
                if not passes(frame):
                    return
                other.sendall(w.frame(frame.kind, frame.payload, frame.number))
            other.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def is_call(frame, verb):
    return frame.kind == w.CALL and frame.payload[0] == verb
