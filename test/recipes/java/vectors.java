import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

final class Vectors {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split("\\|", -1);
            List<String> secrets = new ArrayList<>();
            for (String secret : fields[4].split(":", -1)) secrets.add(text(secret));
            secrets.remove(0);
            long now = Long.parseLong(fields[2]);
            long tolerance = Long.parseLong(fields[3]);
            try {
                boolean right = Webhooks.verify(bytes(fields[1]), text(fields[0]), secrets, tolerance, now);
                String answer = Webhooks.challengeAnswer(bytes(fields[1]));
                System.out.println(right ? (answer == null ? "accept" : "answer " + answer) : "reject");
            } catch (IllegalArgumentException exception) {
                System.out.println("error");
            }
        }
    }

    private static byte[] bytes(String base64) {
        return Base64.getDecoder().decode(base64);
    }

    private static String text(String base64) {
        return new String(bytes(base64), StandardCharsets.UTF_8);
    }
}
