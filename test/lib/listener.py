"""A socket that accepts connections in threads of its own: proxies and servers that misbehave."""
import socket
import threading


class Listener:
    """Calls serve(connection) in a thread for each. `path`: a Unix socket there, else a free port of the loopback."""

    def __init__(self, serve, path=None):
        if path:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.bind(path)
        else:
            self.socket = socket.create_server(("127.0.0.1", 0))
            self.port = self.socket.getsockname()[1]
        self.socket.listen(256)
        self.serve = serve
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def close(self):
        self.socket.close()


def in_thread(function, *arguments):
    threading.Thread(target=function, args=arguments, daemon=True).start()
