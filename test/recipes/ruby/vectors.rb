require_relative "recipe"

$stdin.each_line(chomp: true) do |line|
  header, body, now, tolerance, secrets = line.split("|", -1)
  texts = secrets.split(":", -1).drop(1).map { |secret| secret.unpack1("m") }
  right = verify_webhook(body.unpack1("m"), header.unpack1("m"), texts, tolerance: tolerance.to_i, now: now.to_i)
  answer = challenge_answer(body.unpack1("m"))
  puts right ? (answer ? "answer #{answer}" : "accept") : "reject"
rescue ArgumentError
  puts "error"
end
