import base64
import json
import sys

from standardwebhooks import Webhook, WebhookVerificationError

for line in sys.stdin:
    sent = json.loads(line)
    try:
        Webhook(sent["secret"]).verify(base64.b64decode(sent["body"]), sent["headers"])
        print("accept")
    except WebhookVerificationError:
        print("reject")
