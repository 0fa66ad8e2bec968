import sys
from base64 import b64decode

from sealpost_receiver import WebhookVerificationError, read_challenge, verify_signature

for line in sys.stdin:
    header, body, now, tolerance, secrets = line.rstrip("\n").split("|")
    texts = [b64decode(secret).decode() for secret in secrets.split(":")[1:]]
    given = b64decode(body), b64decode(header).decode(), texts
    times = {"tolerance_seconds": int(tolerance), "now_seconds": int(now)}
    try:
        verify_signature(*given, **times)
        challenge = read_challenge(*given, **times)
        print("accept" if challenge is None else f"answer {challenge}")
    except WebhookVerificationError as error:
        print("reject" if error.kind == "rejected" else "error")
