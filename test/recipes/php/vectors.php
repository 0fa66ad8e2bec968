<?php

require __DIR__ . '/recipe.php';

while (($line = fgets(STDIN)) !== false) {
    [$header, $body, $now, $tolerance, $secrets] = explode('|', rtrim($line, "\n"));
    $texts = array_map('base64_decode', array_slice(explode(':', $secrets), 1));
    try {
        $right = verify_webhook(base64_decode($body), base64_decode($header), $texts, (int) $tolerance, (int) $now);
        $answer = challenge_answer(base64_decode($body));
        echo $right ? ($answer === null ? "accept\n" : "answer $answer\n") : "reject\n";
    } catch (InvalidArgumentException) {
        echo "error\n";
    }
}
