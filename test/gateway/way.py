"""nginx's way to the daemon, on which a test sees what is asked, and may keep it."""
import socket
import threading

from lib import wireclient as w


class Way:
    """A socket that nginx connects to (gateway.front) in front of the daemon's. What is asked goes on where passes() says so."""

    def __init__(self, gateway):
        self.path, self.inner = gateway.path("way.sock"), gateway.daemon.socket
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(64)
        threading.Thread(target=self.run, daemon=True).start()

    def passes(self, frame):
        """Does it go on? If not, nothing does any more on its connection."""
        raise NotImplementedError

    def run(self):
        while True:
            outer, inner = self.listener.accept()[0], socket.socket(socket.AF_UNIX)
            try:
                inner.connect(self.inner)
            except OSError:  # the daemon is away
                outer.close()
                continue
            for one, other, passes in ((outer, inner, self.passes), (inner, outer, lambda frame: True)):
                threading.Thread(target=self.pass_on, args=(one, other, passes), daemon=True).start()

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
