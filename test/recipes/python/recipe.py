import hashlib, hmac, re, time


def verify_webhook(body: bytes, header: str, secrets: list[str], tolerance=300, now=None) -> bool:
    """body: the raw request body. header: the value of extract-signature. tolerance, now: seconds."""
    if isinstance(secrets, str) or not secrets or not all(secrets):
        raise ValueError("secrets must be a list of signing secrets, none of them empty")
    if not header or len(header) > 8192:
        return False
    items = [item.partition("=")[::2] for item in header.split(",")]
    times = [value for name, value in items if name == "t"]
    if len(times) != 1 or not re.fullmatch("0|[1-9][0-9]{0,14}", times[0]):
        return False
    if abs((time.time() if now is None else now) - int(times[0])) >= tolerance:
        return False
    signatures = [value for name, value in items if name == "v1" and re.fullmatch("[0-9a-f]{64}", value)]
    matches = 0
    for secret in secrets:
        expected = hmac.new(secret.encode(), times[0].encode() + b"." + body, hashlib.sha256).hexdigest()
        matches += sum(hmac.compare_digest(expected, signature) for signature in signatures)
    return matches > 0


def challenge_answer(body: bytes):
    """body: one that verify_webhook accepted. The text to answer with a 200 if it is a challenge, else None."""
    match = re.fullmatch(rb'{"type":"webhook\.challenge","challenge":"([0-9A-Za-z-]{1,128})"}', body)
    return match and match[1].decode()
