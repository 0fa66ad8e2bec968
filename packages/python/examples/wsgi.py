import os

from sealpost_receiver import WebhookVerificationError, read_challenge, verify_webhook

BODY_BYTES_MAX = 2 * 1024 * 1024


def store(event):
    """Put the event where your worker finds it, once per id: a table, a queue."""


def app(environ, start_response):
    def answer(status, text=""):
        start_response(status, [("Content-Type", "text/plain")])
        return [text.encode()]

    length = int(environ.get("CONTENT_LENGTH") or 0)
    if length > BODY_BYTES_MAX:
        return answer("413 Content Too Large")
    body, header = environ["wsgi.input"].read(length), environ.get("HTTP_EXTRACT_SIGNATURE")
    request = body, header, [os.environ.get("SIGNING_SECRET")]
    try:
        challenge = read_challenge(*request)
        if challenge is not None:
            return answer("200 OK", challenge)
        event = verify_webhook(*request)
    except WebhookVerificationError as error:
        return answer(f"{error.status_code} Refused")
    # A test event is answered like any other, but is nobody's result.
    if event["data"].get("example") is not True:
        store(event)
    return answer("204 No Content")
