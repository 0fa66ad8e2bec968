import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

final class Webhooks {
    private static final Pattern CHALLENGE =
            Pattern.compile("\\{\"type\":\"webhook\\.challenge\",\"challenge\":\"([0-9A-Za-z-]{1,128})\"\\}");

    /** A body that verify accepted. The text to answer with a 200 if it is a challenge, else null. */
    static String challengeAnswer(byte[] body) {
        Matcher match = CHALLENGE.matcher(new String(body, StandardCharsets.ISO_8859_1));
        return match.matches() ? match.group(1) : null;
    }

    /** The raw request body, the value of extract-signature, and seconds: 300, Instant.now().getEpochSecond(). */
    static boolean verify(byte[] body, String header, List<String> secrets, long tolerance, long now)
            throws GeneralSecurityException {
        if (secrets.isEmpty() || secrets.stream().anyMatch(secret -> secret == null || secret.isEmpty())) {
            throw new IllegalArgumentException("A signing secret is missing or empty.");
        }
        if (header == null || header.length() > 8192) return false;
        List<String> times = new ArrayList<>(), signatures = new ArrayList<>();
        for (String item : header.split(",")) {
            if (item.startsWith("t=")) times.add(item.substring(2));
            if (item.startsWith("v1=")) signatures.add(item.substring(3));
        }
        if (times.size() != 1 || !times.get(0).matches("0|[1-9][0-9]{0,14}")) return false;
        if (Math.abs(now - Long.parseLong(times.get(0))) >= tolerance) return false;
        int matches = 0;
        for (String secret : secrets) {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(secret.getBytes(StandardCharsets.UTF_8), "HmacSHA256"));
            mac.update((times.get(0) + ".").getBytes(StandardCharsets.UTF_8));
            byte[] expected = HexFormat.of().formatHex(mac.doFinal(body)).getBytes(StandardCharsets.UTF_8);
            for (String signature : signatures) {
                if (MessageDigest.isEqual(expected, signature.getBytes(StandardCharsets.UTF_8))) matches++;
            }
        }
        return matches > 0;
    }
}
