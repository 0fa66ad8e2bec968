import http.client, json, os, sys, time, urllib.error, urllib.parse, urllib.request

from sealpost_receiver import verify_signature


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would take the API key along."""

    def redirect_request(self, *args):
        return None


def pull_webhooks(base_url: str, api_key: str, secrets: list[str], after=None, keep_cursor=None, report=None):
    """Yields every event, verified, oldest first, for ever. after: a cursor, "newest", or None for the oldest event that
    is kept. keep_cursor: called with the cursor to go on from, once everything up to it has been handled. report:
    called with what failed and the seconds until it asks again."""
    opener, failures = urllib.request.build_opener(NoRedirect), 0
    while True:
        query = urllib.parse.urlencode({"wait": 25} | ({"cursor": after} if after else {}))
        url = f"{base_url.rstrip('/')}/v1/webhooks/events?{query}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {api_key}"})
        try:
            with opener.open(request, timeout=90) as response:
                page = json.loads(response.read())
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code < 500 and error.code not in (408, 429):
                raise RuntimeError(f"{error.code}: {error.read().decode(errors='replace')}") from error
            seconds = min(0.5 * 2**failures, 30)
            if report:
                report(error, seconds)
            time.sleep(seconds)
            failures = min(failures + 1, 6)
            continue
        failures = 0
        for item in page["items"]:
            verify_signature(item["body"].encode(), item["signature"], secrets)
        for item in page["items"]:
            event = json.loads(item["body"])
            if event["data"] is not None:  # else the analysis was erased
                yield event
        after = page["next_cursor"]
        if keep_cursor:
            keep_cursor(after)


def save_cursor(cursor):
    with open("cursor.txt", "w") as file:
        file.write(cursor)


def say(error, seconds):
    print(f"No events from {api}: {error}. Asking again in {seconds} s.", file=sys.stderr, flush=True)


if __name__ == "__main__":
    cursor = open("cursor.txt").read() if os.path.exists("cursor.txt") else None
    api = os.environ.get("SEALPOST_URL", "http://127.0.0.1:8080")
    key, secret = os.environ["SEALPOST_API_KEY"], os.environ["SIGNING_SECRET"]
    for event in pull_webhooks(api, key, [secret], cursor, save_cursor, say):
        print("verified", event["id"], event["event"], event["data"]["id"], flush=True)
