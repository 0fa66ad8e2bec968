import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { URL_REFUSALS } from "../../../src/base/model/url-refusals.ts";
import { judgeAddress } from "../../../src/egress/rules/address.ts";
import { parseUnsafeAllowedTargets } from "../../../src/egress/rules/host.ts";
import { judgeTargetUrl, TARGET_URL_LENGTH_MAX } from "../../../src/egress/rules/target-url.ts";
import { TARGET_URL_CASES } from "./target-url-cases.ts";

function codeOf(text: string, lifted: readonly string[] = []): string {
  const judged = judgeTargetUrl(text, { unsafeAllowedTargets: parseUnsafeAllowedTargets(lifted) });
  return judged.verdict === "refuse" ? judged.code : "allow";
}

describe("the list of URLs", () => {
  it("is whole", () => {
    expect(TARGET_URL_CASES).toHaveLength(325);
  });

  // Those with DNS answers are for the connector to refuse; their text is in order.
  it.each(TARGET_URL_CASES.map((row) => ({ ...row, name: JSON.stringify(row.url).slice(0, 80) })))(
    "$name: $verdict ($reason)",
    ({ url, verdict, dns_answers }) => {
      expect(judgeTargetUrl(url).verdict).toBe(dns_answers === undefined ? verdict : "allow");
    },
  );

  it("meets every code of refusal, each with a sentence", () => {
    const codes = new Set<string>();
    for (const { url } of TARGET_URL_CASES) {
      const judged = judgeTargetUrl(url);
      if (judged.verdict === "allow") continue;
      codes.add(judged.code);
      expect(judged.message).toMatch(/^(The|Port) .+\. .+\.$/s);
    }
    expect([...codes].sort()).toEqual(Object.keys(URL_REFUSALS).sort());
  });
});

describe("judgeTargetUrl", () => {
  it.each([
    ["http://example.com/", "url_not_https"],
    ["", "url_not_https"],
    ["http://example.com/?https://example.com/", "url_not_https"],
    ["https:///https://example.com/", "url_malformed"],
    ["https:example.com", "url_malformed"],
    ["https:///example.com/", "url_malformed"],
    ["https://exa mple.com/", "url_has_control_characters"],
    ["https://example.com/\u007f", "url_has_control_characters"],
    ["https://example.com/\u0085", "url_has_control_characters"],
    ["https://example.com/\u3000", "url_has_control_characters"],
    ["https://example.com/\ufeff", "url_has_control_characters"],
    ["https://example.com/\ud800", "url_malformed"],
    ["https://example.com\\x", "url_has_backslash"],
    ["https://example.com/?a\\b", "url_has_backslash"],
    ["https://u:p@example.com/", "url_has_credentials"],
    ["https://@example.com/", "url_has_credentials"],
    ["https://example.com/#", "url_has_fragment"],
    ["https://localhost./", "name_malformed"],
    ["https://xn--bcher-kva.localhost/", "name_not_public"],
    ["https://127.1/", "address_not_public"],
    ["https://[::1]/", "address_not_public"],
    ["https://example.com:22/", "port_not_allowed"],
  ])("gives %j the code %s", (text, code) => {
    expect(codeOf(text)).toBe(code);
  });

  it.each([
    "https://example.com/@user",
    "https://example.com?@",
    "https://example.com/?mail=a@b.c",
    "https://notlocalhost.com/",
    "https://localhost.com/",
    "https://local.example.com/",
    "https://mylocal.io/",
    "https://internal-api.example.com/",
    "https://metadata.google.com/",
    "https://example.com/",
    "https://example.org/",
    "https://example.co/",
    "https://svc.example.com/",
    "https://consul.io/",
    "https://mail.example.com/",
    "https://kubernetes.default/",
    "https://x-metadata.packet.net/",
    "https://metadata.cloud.ibm.com/",
    "https://goog.metadata.goog.example.com/",
    "https://example.co.uk/",
    "https://a_b.example.com/",
    "https://--1.sslip.io/",
    "https://-a-.example.com/",
    "HTTPS://EXAMPLE.COM/",
  ])("allows %s", (text) => {
    expect(codeOf(text)).toBe("allow");
  });

  it.each([
    "https://x.metadata.goog/",
    "https://metadata.google.internal/",
    "https://instance-data.ec2.internal/",
    "https://metadata.tencentyun.com/",
    "https://metadata.platformequinix.com/",
    "https://metadata.packet.net/",
    "https://api.metadata.cloud.ibm.com/",
    "https://kubernetes.default.svc/",
    "https://api.prod.svc.cluster.local/",
    "https://vault.service.consul/",
    "https://hooks.example/",
    "https://a.test/",
    "https://a.invalid/",
    "https://a.localhost/",
    "https://a.alt/",
    "https://a.mail/",
    "https://x.y.home.arpa/",
    "https://1.0.0.127.in-addr.arpa/",
    "https://abc.onion/",
    "https://a.corp/",
    "https://a.private/",
    "https://a.lan/",
    "https://com/",
  ])("refuses the name of %s", (text) => {
    expect(codeOf(text)).toBe("name_not_public");
  });

  it("gives the form to store and request, parsed", () => {
    const judged = judgeTargetUrl("HTTPS://Bücher.Example.com:443/a/../b?c=é");
    expect(judged).toMatchObject({ verdict: "allow", href: "https://xn--bcher-kva.example.com/b?c=%C3%A9" });
    expect(judged.verdict === "allow" && judged.url.href).toBe(
      "https://xn--bcher-kva.example.com/b?c=%C3%A9",
    );
  });

  it.each([
    [443, "allow"],
    [442, "port_not_allowed"],
    [444, "port_not_allowed"],
    [1023, "port_not_allowed"],
    [1024, "allow"],
    [2374, "allow"],
    [2375, "port_not_allowed"],
    [2380, "port_not_allowed"],
    [2381, "allow"],
    [5670, "allow"],
    [5671, "port_not_allowed"],
    [5672, "port_not_allowed"],
    [5673, "allow"],
    [6659, "allow"],
    [6660, "port_not_allowed"],
    [6669, "port_not_allowed"],
    [6670, "allow"],
    [27016, "allow"],
    [27017, "port_not_allowed"],
    [27019, "port_not_allowed"],
    [27020, "allow"],
    [49999, "allow"],
    [50000, "port_not_allowed"],
    [50001, "allow"],
    [65535, "allow"],
  ])("judges port %i: %s", (port, code) => {
    expect(codeOf(`https://example.com:${port}/`)).toBe(code);
  });

  it.each(
    Object.entries({
      "SQL Server": 1433,
      Oracle: 1521,
      NFS: 2049,
      ZooKeeper: 2181,
      etcd: 2379,
      MySQL: 3306,
      "remote desktops": 3389,
      "Erlang's nodes": 4369,
      PostgreSQL: 5432,
      VNC: 5900,
      CouchDB: 5984,
      Redis: 6379,
      "Kubernetes' API": 6443,
      "IRC over TLS": 6697,
      InfluxDB: 8086,
      Consul: 8500,
      Cassandra: 9042,
      Kafka: 9092,
      Elasticsearch: 9200,
      "Elasticsearch's nodes": 9300,
      kubelet: 10_250,
      "kubelet, to read": 10_255,
      memcached: 11_211,
      "RabbitMQ's management": 15_672,
      "RabbitMQ's nodes": 25_672,
    }),
  )("refuses the port of %s", (_, port) => {
    expect(codeOf(`https://example.com:${port}/`)).toBe("port_not_allowed");
  });

  it("bounds the text and the normal form alike, to the character", () => {
    const base = "https://example.com/";
    const ascii = (length: number) => base + "a".repeat(length - base.length);
    expect(codeOf(ascii(TARGET_URL_LENGTH_MAX))).toBe("allow");
    expect(codeOf(ascii(TARGET_URL_LENGTH_MAX + 1))).toBe("url_too_long");
    expect(codeOf(`${base}${"a/../".repeat(TARGET_URL_LENGTH_MAX / 5)}`)).toBe("url_too_long");
    const encoded = (letters: number) => `${base}${"é".repeat(letters)}`;
    const lettersMax = Math.floor((TARGET_URL_LENGTH_MAX - base.length) / 6);
    expect(codeOf(encoded(lettersMax))).toBe("allow");
    expect(codeOf(encoded(lettersMax + 1))).toBe("url_too_long");
  });

  it("bounds labels and names", () => {
    const label = "a".repeat(63);
    expect(codeOf(`https://${label}.com/`)).toBe("allow");
    expect(codeOf(`https://${label}a.com/`)).toBe("name_malformed");
    const name = (last: number) => `https://${label}.${label}.${label}.${"a".repeat(last)}.com/`;
    expect(codeOf(name(253 - 3 * 64 - 4))).toBe("allow");
    expect(codeOf(name(253 - 3 * 64 - 3))).toBe("name_malformed");
  });

  it.each([
    [`https://${"a.".repeat(126)}com/`, /longer than 253/],
    [`https://${"a".repeat(64)}.com/`, /longer than 63/],
    ["https://example.com./", /ends in a dot/],
    ["https://a..example.com/", /empty part/],
    ["https://a*.example.com/", /characters other than/],
    ["https://intranet/", /"intranet" has no domain/],
    ["https://git.corp/", /"git\.corp" belongs to "corp"/],
    ["https://api.svc.cluster.local/", /belongs to "cluster\.local"/],
    ["https://10.0.0.1/", /10\.0\.0\.1 is not public \(private network\)/],
    [`https://example.com/${"a".repeat(2_029)}`, /takes 2049 characters.* to 2048/],
    ["https://example.com:25/", /Port 25/],
  ])("says of %.50s what is wrong with it", (text, message) => {
    expect(judgeTargetUrl(text)).toMatchObject({
      verdict: "refuse",
      message: expect.stringMatching(message),
    });
  });

  it("gives an allowed URL's normal form the same verdict and the same form", () => {
    // Not fc.webUrl, which takes more than a second to make, and gives less to normalize.
    const label = fc.string({ unit: fc.constantFrom(..."aZ9-_é"), minLength: 1, maxLength: 9 });
    const rest = fc.string({ unit: fc.constantFrom(...`aZ9é\u{1f600}/.%2eE?&=;:@!$'()*+,~[]{}|^"<>\``) });
    fc.assert(
      fc.property(label, label, rest, (first, second, end) => {
        const judged = judgeTargetUrl(`https://${first}.${second}.com/${end}`);
        fc.pre(judged.verdict === "allow");
        expect(judged.verdict === "allow" && judgeTargetUrl(judged.href)).toMatchObject({
          href: judged.href,
        });
      }),
    );
  });

  it("never throws, and allows nothing that is not https to a plain host", () => {
    const piece = fc.oneof(
      fc.constantFrom(
        "https://",
        "https:",
        "http://",
        "@",
        "/",
        "\\",
        "#",
        "?",
        ":",
        ".",
        "[",
        "]",
        "%00",
        "\t",
        "127.0.0.1",
      ),
      fc.string({ unit: fc.nat(0xffff).map((code) => String.fromCharCode(code)), maxLength: 5 }),
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 8 }), (pieces) => {
        const judged = judgeTargetUrl(pieces.join(""));
        if (judged.verdict === "refuse") return;
        expect(judged.href).toMatch(/^https:\/\/(\[[0-9a-f:]+\]|[a-z0-9._-]+)(:\d+)?\/[^\s\\#]*$/);
        expect(judged.url.username + judged.url.password + judged.url.hash).toBe("");
      }),
      { numRuns: 2_000 },
    );
  });
});

describe("an IPv4 address in any spelling that the parser takes", () => {
  const number = fc.oneof(
    fc.bigInt({ min: 0n, max: (1n << 32n) - 1n }),
    fc.constantFrom(0x7f000001n, 0xa9fea9fen, 0x0a000001n, 0xc0a80001n, 0xac100001n, 0x64400001n),
  );
  const radix = fc.constantFrom(
    (value: bigint) => value.toString(10),
    (value: bigint) => `0x${value.toString(16)}`,
    (value: bigint) => `0X000${value.toString(16).toUpperCase()}`,
    (value: bigint) => `0${value.toString(8)}`,
    (value: bigint) => `00000${value.toString(8)}`,
  );
  const disguise = fc.constantFrom(
    (text: string) => text,
    (text: string) => text.replace(/[0-9a-fx]/gi, (letter) => `%${letter.charCodeAt(0).toString(16)}`),
    (text: string) =>
      text.replace(/[0-9A-Za-z]/g, (letter) => String.fromCharCode(letter.charCodeAt(0) + 0xfee0)),
    (text: string) => text.replaceAll(".", "。"),
    (text: string) => text.replaceAll(".", "%2E"),
    (text: string) => text.replace(/\d/g, (digit) => String.fromCodePoint(0x1d7ce + Number(digit))),
    (text: string) => text.split("").join("\u00ad"),
  );
  const spelling = fc
    .record({
      number,
      parts: fc.integer({ min: 1, max: 4 }),
      radixes: fc.array(radix, { minLength: 4, maxLength: 4 }),
      disguise,
    })
    .map(({ number: value, parts, radixes, disguise: dress }) => {
      const leading = Array.from(
        { length: parts - 1 },
        (_, index) => (value >> BigInt(24 - 8 * index)) & 0xffn,
      );
      const rest = value & ((1n << BigInt(8 * (5 - parts))) - 1n);
      const text = [...leading, rest].map((part, index) => (radixes[index] ?? String)(part)).join(".");
      const dotted = [24n, 16n, 8n, 0n].map((shift) => (value >> shift) & 0xffn).join(".");
      return { url: `https://${dress(text)}/`, dotted };
    });

  it("is judged as that address", () => {
    fc.assert(
      fc.property(spelling, ({ url, dotted }) => {
        const expected = judgeAddress(dotted).verdict;
        const judged = judgeTargetUrl(url);
        expect([url, judged.verdict]).toEqual([url, expected]);
        if (judged.verdict === "refuse") expect(judged.code).toBe("address_not_public");
        else expect(judged.href).toBe(`https://${dotted}/`);
      }),
      { numRuns: 3_000 },
    );
  });
});

describe("a target allowed unsafely", () => {
  const lifted = ["localhost:8443", "*.localhost:9443", "127.0.0.1:5432", "[::1]:80"];

  it.each([
    "https://localhost:8443/hook",
    "https://LOCALHOST:8443/",
    "https://a.localhost:9443/",
    "https://a.b.localhost:9443/",
    "https://127.0.0.1:5432/",
    "https://127.1:5432/",
    "https://[::1]:80/",
    "https://[0::1]:80/",
  ])("is allowed as %s", (text) => {
    expect(codeOf(text, lifted)).toBe("allow");
  });

  it.each([
    ["https://localhost:8444/", "name_not_public"],
    ["https://localhost/", "name_not_public"],
    ["https://localhost:9443/", "name_not_public"],
    ["https://xlocalhost:8443/", "name_not_public"],
    ["https://a.localhost:8443/", "name_not_public"],
    ["https://.localhost:9443/", "name_malformed"],
    ["https://127.0.0.2:5432/", "address_not_public"],
    ["https://127.0.0.1:5433/", "address_not_public"],
    ["https://[::1]:81/", "address_not_public"],
    ["https://example.com:5432/", "port_not_allowed"],
    ["http://localhost:8443/", "url_not_https"],
    ["https://u@localhost:8443/", "url_has_credentials"],
    ["https://localhost:8443/#x", "url_has_fragment"],
    ["https://localhost.:8443/", "name_malformed"],
    ["https://a.*.localhost:9443/", "name_malformed"],
  ])("lifts nothing for %s", (text, code) => {
    expect(codeOf(text, lifted)).toBe(code);
  });
});
