import base64
import hashlib
import hmac
import json
import pickle
import unittest
from pathlib import Path
from typing import Any, Dict, List
from unittest import mock

from sealpost_receiver import (
    WEBHOOK_VERIFICATION_ERROR_CODES,
    WebhookVerificationError,
    read_challenge,
    verify_signature,
    verify_webhook,
)

VECTORS = Path(__file__).parents[3] / "test" / "fixtures" / "signature-vectors.json"

SECRET = "whsec_bm90LWEtcmVhbC1zZWNyZXQtb25seS1mb3ItdGVzdHM"
NOW = 1_763_600_000
ANALYSIS = '{"id":"an_1","status":"failed","n":1E400}'
EVENT = '{"id":"d-1","event":"analysis.failed","created_at":"2027-01-15T08:00:00.000Z","data":%s}' % ANALYSIS
NO_NUMBERS = (float("nan"), float("inf"))
CHALLENGE = '{"type":"webhook.challenge","challenge":"a-1"}'


def signed(text: str, secrets: List[str] = [SECRET], **changed: Any) -> Dict[str, Any]:
    body = text.encode("utf-8", "surrogateescape")
    macs = [hmac.new(secret.encode(), b"%d." % NOW + body, hashlib.sha256).hexdigest() for secret in secrets]
    header = ",".join([f"t={NOW}", *(f"v1={mac}" for mac in macs)])
    return {"body": body, "header": header, "secrets": [SECRET], "now_seconds": NOW, **changed}


class Verify(unittest.TestCase):
    def refuses(self, code: str, given: Dict[str, Any]) -> WebhookVerificationError:
        with self.assertRaises(WebhookVerificationError) as caught:
            verify_webhook(**given)
        self.assertEqual(caught.exception.code, code)
        self.assertNotIn(SECRET, str(caught.exception))
        return caught.exception

    def test_vectors(self) -> None:
        cases = json.loads(VECTORS.read_text("utf-8"))["cases"]
        self.assertEqual(len(cases), 44)
        for case in cases:
            with self.subTest(case["name"]):
                verdict = "accept"
                try:
                    verify_signature(
                        base64.b64decode(case["body_base64"]),
                        case["header"],
                        case["secrets"],
                        tolerance_seconds=case["tolerance_seconds"],
                        now_seconds=case["now"],
                    )
                except WebhookVerificationError as error:
                    verdict = {"rejected": "reject", "misuse": "error"}[error.kind]
                self.assertEqual(verdict, case["verdict"])

    def test_event(self) -> None:
        event = verify_webhook(**signed(EVENT))
        analysis = {"id": "an_1", "status": "failed", "n": float("inf")}
        self.assertEqual((event["id"], event["event"], event["data"]), ("d-1", "analysis.failed", analysis))

    def test_numbers_that_are_too_long_for_an_int(self) -> None:
        data = verify_webhook(**signed(EVENT.replace("1E400", "9" * 9_000 + ',"m":9007199254740993')))["data"]
        self.assertEqual((data["n"], data["m"]), (float("inf"), 9_007_199_254_740_993))

    def test_what_is_no_event(self) -> None:
        bodies = ["", "null", "[]", '"x"', "{", EVENT + "}", "\ufeff" + EVENT, CHALLENGE]
        for old, new in [
            ("an_1", "\udcff"),
            ("1E400", "NaN"),
            ("1E400", "-Infinity"),
            ("1E400", "[" * 100_000 + "]" * 100_000),
            ('"id":"d-1"', '"ID":"d-1"'),
            ('"d-1"', "1"),
            ('"d-1"', '""'),
            ("created_at", "created"),
            ("analysis.failed", "analysis.new"),
            ('"analysis.failed"', "[]"),
            ('"failed"', '"succeeded"'),
            ('"an_1"', "null"),
            (ANALYSIS, "null"),
        ]:
            bodies.append(EVENT.replace(old, new))
            self.assertNotEqual(bodies[-1], EVENT)
        for text in bodies:
            with self.subTest(text[:200]):
                self.assertEqual(self.refuses("body_not_an_event", signed(text)).status_code, 400)
                verify_signature(**signed(text))

    def test_challenge(self) -> None:
        self.assertEqual(read_challenge(**signed(CHALLENGE)), "a-1")
        for text in (EVENT, CHALLENGE + "\n", "\ufeff" + CHALLENGE, '{"challenge":"a-1"}'):
            self.assertIsNone(read_challenge(**signed(text)))
        with self.assertRaises(WebhookVerificationError):
            read_challenge(**signed(CHALLENGE, ["whsec_forged"]))

    def test_two_signatures_and_two_secrets(self) -> None:
        for secrets in (["whsec_new", SECRET], [SECRET, "whsec_old"]):
            verify_webhook(**signed(EVENT, secrets))
            verify_webhook(**{**signed(EVENT), "secrets": secrets})

    def test_what_frameworks_pass(self) -> None:
        given = signed(EVENT)
        body, header = given["body"], given["header"]
        for same_body in (bytearray(body), memoryview(body)):
            verify_webhook(**{**given, "body": same_body})
        for same_header in (header.encode(), [header], (header.encode(),)):
            verify_webhook(**{**given, "header": same_header})

    def test_each_code(self) -> None:
        genuine = signed(EVENT)
        header = genuine["header"]
        malformed: List[Any] = [[header, header], 1, header + 16 * f",v1={'0' * 64}"]
        no_bodies: List[Any] = [EVENT, None, {}, [1]]
        wrong: Dict[str, List[Dict[str, Any]]] = {
            "header_missing": [{"header": None}, {"header": ""}, {"header": b""}, {"header": []}],
            "header_malformed": [{"header": value} for value in malformed],
            "timestamp_too_old": [{"now_seconds": NOW + 300}, {"now_seconds": NOW + 299.5, "tolerance_seconds": 299.5}],
            "timestamp_ahead": [{"now_seconds": NOW - 300}],
            "no_signature_matches": [{"body": genuine["body"] + b" "}, {"secrets": ["\udcff"]}],
            "body_not_an_event": [signed("{}")],
            "body_already_parsed": [{"body": value} for value in no_bodies],
            "secret_missing": [{"secrets": value} for value in (None, [], SECRET, [None], [SECRET, None], [b"x"])],
            "secret_empty": [{"secrets": value} for value in ([""], [SECRET, " \n"], ["\0 \ufeff"])],
            "tolerance_invalid": [{"tolerance_seconds": n} for n in (0, -1, None, True, "300", *NO_NUMBERS)],
            "clock_invalid": [{"now_seconds": n} for n in (-1, NOW * 1_000, True, "1", *NO_NUMBERS)],
        }
        self.assertEqual(list(wrong), list(WEBHOOK_VERIFICATION_ERROR_CODES))
        for code, changes in wrong.items():
            for change in changes:
                with self.subTest(code, change=change):
                    error = self.refuses(code, {**genuine, **change})
                    self.assertEqual(error.status_code, 400 if error.kind == "rejected" else 500)
                    again = pickle.loads(pickle.dumps(error))
                    self.assertEqual((again.code, str(again)), (code, str(error)))

    def test_the_system_clock(self) -> None:
        given = signed(EVENT, now_seconds=None)
        self.refuses("timestamp_too_old", given)
        with mock.patch("time.time", return_value=NOW + 299.9):
            verify_webhook(**given)

    def test_every_pair_is_compared(self) -> None:
        given = {**signed(EVENT, [SECRET, "whsec_old"]), "secrets": [SECRET, "whsec_new"]}
        with mock.patch("hmac.compare_digest", side_effect=hmac.compare_digest) as compare:
            verify_webhook(**given)
        self.assertEqual(compare.call_count, 4)


if __name__ == "__main__":
    unittest.main()
