using System;
using System.Collections.Generic;
using System.Linq;
using System.Security.Cryptography;
using System.Text;
using System.Text.RegularExpressions;

static class Webhooks
{
    /// <summary>A body that Verify accepted. The text to answer with a 200 if it is a challenge, else null.</summary>
    public static string? ChallengeAnswer(byte[] body)
    {
        const string form = @"\A\{""type"":""webhook\.challenge"",""challenge"":""([0-9A-Za-z-]{1,128})""\}\z";
        var match = Regex.Match(Encoding.Latin1.GetString(body), form);
        return match.Success ? match.Groups[1].Value : null;
    }

    /// <summary>The raw request body, the value of extract-signature, and seconds: 300,
    /// DateTimeOffset.UtcNow.ToUnixTimeSeconds().</summary>
    public static bool Verify(byte[] body, string? header, IReadOnlyCollection<string> secrets, long tolerance, long now)
    {
        if (secrets.Count == 0 || secrets.Any(string.IsNullOrEmpty))
            throw new ArgumentException("A signing secret is missing or empty.");
        if (header is null || header.Length > 8192) return false;
        var items = header.Split(',');
        var times = items.Where(item => item.StartsWith("t=", StringComparison.Ordinal)).ToList();
        if (times.Count != 1 || !Regex.IsMatch(times[0], @"\At=(0|[1-9][0-9]{0,14})\z")) return false;
        var signedAt = times[0].Substring(2);
        if (Math.Abs(now - long.Parse(signedAt)) >= tolerance) return false;
        var message = Encoding.UTF8.GetBytes(signedAt + ".").Concat(body).ToArray();
        var matches = 0;
        foreach (var secret in secrets)
        {
            using var hmac = new HMACSHA256(Encoding.UTF8.GetBytes(secret));
            var expected = "v1=" + BitConverter.ToString(hmac.ComputeHash(message)).Replace("-", "").ToLowerInvariant();
            foreach (var item in items)
                if (CryptographicOperations.FixedTimeEquals(Encoding.UTF8.GetBytes(expected), Encoding.UTF8.GetBytes(item)))
                    matches++;
        }
        return matches > 0;
    }
}
