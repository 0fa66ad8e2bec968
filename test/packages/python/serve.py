"""Serves an example of the package's README: serve.py wsgi|asgi FOLDER PORT."""

import asyncio
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from wsgiref.simple_server import WSGIRequestHandler, make_server

kind, folder, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
sys.path.insert(0, folder)


class Quiet(WSGIRequestHandler):
    def log_message(self, *args):
        """Else it prints a line for each request."""


class Asgi(BaseHTTPRequestHandler):
    """As little of a server as one request takes; the body comes in two pieces."""

    def do_POST(self):
        from asgi import app

        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in self.headers.items()]
        pieces = [
            {"type": "http.request", "body": body[:9], "more_body": True},
            {"type": "http.request", "body": body[9:]},
        ]

        async def receive():
            return pieces.pop(0)

        async def send(message):
            if message["type"] == "http.response.start":
                self.send_response(message["status"])
                self.end_headers()
            else:
                self.wfile.write(message["body"])

        asyncio.run(app({"type": "http", "headers": headers}, receive, send))

    def log_message(self, *args):
        """Else it prints a line for each request."""


if kind == "wsgi":
    from wsgi import app

    server = make_server("127.0.0.1", port, app, handler_class=Quiet)
else:
    server = ThreadingHTTPServer(("127.0.0.1", port), Asgi)
print("listening", flush=True)
server.serve_forever()
