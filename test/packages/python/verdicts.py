import sys
from base64 import b64decode

from sealpost_receiver import WebhookVerificationError, read_challenge, verify_signature

for line in sys.stdin:
    header, body, now, tolerance, secrets, *standard = line.rstrip("\n").split("|")
    texts = [b64decode(secret).decode() for secret in secrets.split(":")[1:]]
    signed = b64decode(header).decode()
    headers = dict(field.split(": ", 1) for field in signed.split("\n")) if standard else signed
    given = b64decode(body), headers, texts
    times = {"tolerance_seconds": int(tolerance), "now_seconds": int(now)}
    try:
        verify_signature(*given, **times)
        challenge = read_challenge(*given, **times)
        print("accept" if challenge is None else f"answer {challenge}")
    except WebhookVerificationError as error:
        print("reject" if error.kind == "rejected" else "error")
