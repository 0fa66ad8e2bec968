import sys
from base64 import b64decode

from recipe import challenge_answer, verify_webhook

for line in sys.stdin:
    header, body, now, tolerance, secrets = line.rstrip("\n").split("|")
    texts = [b64decode(secret).decode() for secret in secrets.split(":")[1:]]
    try:
        right = verify_webhook(b64decode(body), b64decode(header).decode(), texts, int(tolerance), int(now))
        answer = challenge_answer(b64decode(body))
        print(("answer " + answer if answer else "accept") if right else "reject")
    except ValueError:
        print("error")
