import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from sealpost_receiver import SIGNATURE_HEADER, WebhookVerificationError, read_challenge, verify_webhook


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        request = body, self.headers.get_all(SIGNATURE_HEADER), [os.environ.get("SIGNING_SECRET")]
        try:
            challenge = read_challenge(*request)
            if challenge is not None:
                return self.answer(200, challenge)
            event = verify_webhook(*request)
        except WebhookVerificationError as error:
            print("refused", error, flush=True)
            return self.answer(error.status_code)
        print("verified", event["id"], event["event"], event["data"]["id"], flush=True)
        self.answer(204)

    def answer(self, status, text=""):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args):
        """Else it prints a line for each request."""


port = int(os.environ.get("PORT", 3000))
server = ThreadingHTTPServer(("127.0.0.1", port), Receiver)
print(f"listening on http://localhost:{port}", flush=True)
server.serve_forever()
