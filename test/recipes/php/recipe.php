<?php

/** $body: the raw request body, file_get_contents('php://input'). $header: $_SERVER['HTTP_EXTRACT_SIGNATURE'] ?? ''. */
function verify_webhook(string $body, string $header, array $secrets, int $tolerance = 300, ?int $now = null): bool
{
    foreach ($secrets ?: [''] as $secret) {
        if (!is_string($secret) || $secret === '') {
            throw new InvalidArgumentException('A signing secret is missing or empty.');
        }
    }
    $times = $signatures = [];
    foreach (explode(',', strlen($header) > 8192 ? '' : $header) as $item) {
        [$name, $value] = explode('=', $item, 2) + ['', ''];
        if ($name === 't') $times[] = $value;
        if ($name === 'v1') $signatures[] = $value;
    }
    if (count($times) !== 1 || !preg_match('/^(0|[1-9][0-9]{0,14})$/D', $times[0])) return false;
    if (abs(($now ?? time()) - (int) $times[0]) >= $tolerance) return false;
    $matches = 0;
    foreach ($secrets as $secret) {
        $expected = hash_hmac('sha256', "$times[0].$body", $secret);
        foreach ($signatures as $signature) $matches += (int) hash_equals($expected, $signature);
    }
    return $matches > 0;
}

/** $body: one that verify_webhook accepted. The text to answer with a 200 if it is a challenge, else null. */
function challenge_answer(string $body): ?string
{
    $form = '/^\{"type":"webhook\.challenge","challenge":"([0-9A-Za-z-]{1,128})"\}$/D';
    return preg_match($form, $body, $match) ? $match[1] : null;
}
