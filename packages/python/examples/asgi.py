import os

from sealpost_receiver import SIGNATURE_HEADER, WebhookVerificationError, read_challenge, verify_webhook

BODY_BYTES_MAX = 2 * 1024 * 1024


async def store(event):
    """Put the event where your worker finds it, once per id: a table, a queue."""


async def app(scope, receive, send):
    async def answer(status, text=""):
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": text.encode()})

    assert scope["type"] == "http"
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > BODY_BYTES_MAX:
            return await answer(413)
    header = [value for name, value in scope["headers"] if name == SIGNATURE_HEADER.encode()]
    request = body, header, [os.environ.get("SIGNING_SECRET")]
    try:
        challenge = read_challenge(*request)
        if challenge is not None:
            return await answer(200, challenge)
        event = verify_webhook(*request)
    except WebhookVerificationError as error:
        return await answer(error.status_code)
    # A test event is answered like any other, but is nobody's result.
    if event["data"].get("example") is not True:
        await store(event)
    await answer(204)
