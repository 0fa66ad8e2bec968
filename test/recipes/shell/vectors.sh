#!/usr/bin/env bash
set -u
. "${BASH_SOURCE%/*}/recipe.sh"
body=$(mktemp)
trap 'rm -f "$body"' EXIT

while IFS='|' read -r header body_base64 now tolerance rest; do
  printf %s "$body_base64" | base64 -d >"$body"
  secrets=()
  while [[ $rest == :* ]]; do
    rest=${rest#:}
    secrets+=("$(printf %s "${rest%%:*}" | base64 -d)")
    rest=${rest#"${rest%%:*}"}
  done
  # What stands in $() loses its line breaks at the end, and they matter here.
  header=$(printf %s "$header" | base64 -d && printf .)
  verify_webhook "$body" "${header%.}" "$tolerance" "$now" ${secrets[@]+"${secrets[@]}"}
  case $? in 0) answer=$(challenge_answer "$body") && echo "answer $answer" || echo accept ;; 1) echo reject ;; *) echo error ;; esac
done
