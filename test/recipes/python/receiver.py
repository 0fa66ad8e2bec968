import json, os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from recipe import challenge_answer, verify_webhook

secrets = [os.environ["SIGNING_SECRET"]]


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if verify_webhook(body, self.headers.get("extract-signature", ""), secrets):
            challenge = challenge_answer(body)
            if challenge:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(challenge.encode())
                return
            event = json.loads(body)
            print("verified", event["id"], event["event"], event["data"]["id"], flush=True)
            self.send_response(204)
        else:
            print("refused", flush=True)
            self.send_response(400)
        self.end_headers()

    def log_message(self, *args):
        """Else it prints a line for each request."""


port = int(os.environ.get("PORT", 3000))
server = ThreadingHTTPServer(("127.0.0.1", port), Receiver)
print(f"listening on http://localhost:{port}", flush=True)
server.serve_forever()
