# verify_webhook BODY_FILE HEADER TOLERANCE NOW SECRET...   (bash and coreutils; 300 and $(date +%s) are usual)
# Returns 0 if valid, 1 if not, 2 without a secret or body. Secrets never show in the process list.
verify_webhook() {
  local LC_ALL=C body=$1 header=$2 tolerance=$3 now=$4 secret item items time= times=0 age salt expected matches=0
  shift 4
  [ $# -gt 0 ] && [ -r "$body" ] || return 2
  for secret; do [ -n "$secret" ] || return 2; done
  [ ${#header} -le 8192 ] || return 1
  IFS=, read -r -d '' -a items < <(printf '%s,\0' "$header")
  for item in "${items[@]}"; do
    case $item in t=*) time=${item#t=} times=$((times + 1)) ;; esac
  done
  [[ $times = 1 && $time =~ ^(0|[1-9][0-9]{0,14})$ ]] || return 1
  age=$((now - time))
  [ "${age#-}" -lt "$tolerance" ] || return 1
  salt=$(head -c 16 /dev/urandom | od -An -tx1)
  for secret; do
    expected=$(hmac_sha256 "$secret" < <(printf %s. "$time" && cat <"$body"))
    for item in "${items[@]}"; do # Compares salted digests, so that timing reveals nothing.
      [ "$(printf %s "${salt}v1=$expected" | sha256sum)" = "$(printf %s "$salt$item" | sha256sum)" ] &&
        matches=$((matches + 1))
    done
  done
  [ "$matches" -gt 0 ]
}

hmac_sha256() { # KEY, the message on standard input
  local key inner= outer= i
  key=$(printf %s "$1" | od -An -v -tx1 | tr -d ' \n')
  [ ${#key} -le 128 ] || key=$(printf %s "$1" | sha256sum | cut -c1-64)
  while [ ${#key} -lt 128 ]; do key+=00; done
  for ((i = 0; i < 128; i += 2)); do
    printf -v inner '%s\\x%02x' "$inner" $((16#${key:i:2} ^ 0x36))
    printf -v outer '%s\\x%02x' "$outer" $((16#${key:i:2} ^ 0x5c))
  done
  inner=$({ printf "$inner" && cat; } | sha256sum | cut -c1-64 | sed 's/../\\x&/g')
  printf "$outer$inner" | sha256sum | cut -c1-64
}

# challenge_answer BODY_FILE   (one that verify_webhook accepted)
# If it is a challenge, prints the text to answer with a 200 and returns 0.
challenge_answer() {
  local LC_ALL=C body form='^\{"type":"webhook\.challenge","challenge":"([0-9A-Za-z-]{1,128})"\}$'
  IFS= read -r -d '' -n 1024 body <"$1" # Nothing that has a NUL or more than 1,024 bytes is one.
  [ ${#body} = "$(wc -c <"$1")" ] && [[ $body =~ $form ]] && printf %s "${BASH_REMATCH[1]}"
}
