require "openssl"

# body: the raw request body, request.body.read. header: request.get_header("HTTP_EXTRACT_SIGNATURE").
def verify_webhook(body, header, secrets, tolerance: 300, now: Time.now.to_i)
  secrets = Array(secrets)
  raise ArgumentError, "a signing secret is missing or empty" if secrets.empty? || secrets.any? { |s| s.to_s.empty? }
  return false if header.to_s.bytesize > 8192

  items = header.to_s.b.split(",").map { |item| item.split("=", 2) }
  times = items.filter_map { |name, value| value if name == "t" }
  return false unless times.size == 1 && times[0].match?(/\A(0|[1-9][0-9]{0,14})\z/)
  return false if (now - times[0].to_i).abs >= tolerance

  signatures = items.filter_map { |name, value| value if name == "v1" && value&.match?(/\A[0-9a-f]{64}\z/) }
  matches = secrets.sum do |secret|
    expected = OpenSSL::HMAC.hexdigest("SHA256", secret, "#{times[0]}.".b + body.b)
    signatures.count { |signature| OpenSSL.fixed_length_secure_compare(expected, signature) }
  end
  matches.positive?
end

# body: one that verify_webhook accepted. The text to answer with a 200 if it is a challenge, else nil.
def challenge_answer(body)
  body.b[/\A{"type":"webhook\.challenge","challenge":"([0-9A-Za-z-]{1,128})"}\z/, 1]
end
