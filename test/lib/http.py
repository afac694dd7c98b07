"""HTTP servers that tests answer with, and single requests."""
import http.client
import http.server
import json
import threading

from lib.wait import SECONDS


class Handler(http.server.BaseHTTPRequestHandler):
    """do_POST() and the like read body() and call answer() or drop()."""
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # an answer is one segment

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def lower_headers(self):
        return {name.lower(): value for name, value in self.headers.items()}

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def drop(self):
        """No answer: the connection ends."""
        self.close_connection = True

    def finish(self):
        try:
            super().finish()
        except OSError:
            pass

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    """Answers from threads of its own, until stop()."""
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, handler, port=0, tls=None):
        super().__init__(("127.0.0.1", port), handler)
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.port = self.server_address[1]
        self.url = "http://127.0.0.1:%d" % self.port
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def handle_error(self, *_):
        pass  # a client that was killed leaves a broken connection

    def stop(self):
        self.shutdown()
        self.server_close()


def request(address, path="/", body=None, headers=None, method=None, timeout=SECONDS):
    """(status, headers, body) of an answer, whatever its status; None: no answer came. The address is a port of the loopback, or HOST:PORT."""
    host, port = ("127.0.0.1", address) if isinstance(address, int) else address.rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=timeout)
    try:
        connection.request(method or ("GET" if body is None else "POST"), path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def post_json(address, path, members):
    """(status, document); (None, None): no answer came."""
    answer = request(address, path, json.dumps(members), {"Content-Type": "application/json"})
    return (answer[0], json.loads(answer[2])) if answer else (None, None)
