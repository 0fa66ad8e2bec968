/**
 * Everything that is given must hold. Texts are in small letters; of white space in a body one space is left, and
 * between the parts of a JSON text none.
 */
export type AnswerRule = {
  /** Who answered. */
  readonly name: string;
  readonly status?: number;
  /** The header's value has this in it; an empty text: there is such a header. */
  readonly header?: readonly [name: string, part: string];
  /** `Location` leads to one of these hosts, or to a name below one. */
  readonly host?: readonly string[];
  /** The path and query of `Location` have all of these. */
  readonly path?: readonly string[];
  /** One of Cloudflare's own error numbers, as its answers have them in plain text and in JSON. */
  readonly code?: readonly number[];
  /** The body begins with one of these. */
  readonly begins?: readonly string[];
  /** The body is HTML or XML that has all of these; the first tells most. */
  readonly page?: readonly string[];
  /** What goes on after "NAME answered: "; absent: what its kind says. */
  readonly said?: string;
};

const BEHIND = "the tunnel runs, but nothing answers behind it";
const FAILING = "the application there has crashed, does not start, or takes too long";
const NO_PATH = "it has nothing at this path that takes a POST";

/**
 * What shows who answered, kind by kind, the first that holds. `Server` or `Via` alone shows nothing, since CDNs and
 * proxies add theirs to what applications answer. A sign is a header that only such an answer has, or the words of its
 * page. Words that applications use, too, are no rule: "404 page not found" is Traefik's, and any Go program's.
 */
export const ANSWER_RULES = {
  tunnel: [
    { name: "ngrok", header: ["ngrok-error-code", "err_ngrok_3200"] },
    { name: "ngrok", header: ["ngrok-error-code", "err_ngrok_8012"], said: BEHIND },
    { name: "ngrok", header: ["ngrok-error-code", "err_ngrok_3004"], said: BEHIND },
    { name: "ngrok", header: ["ngrok-error-code", "err_ngrok_"], said: "it does not pass the request on" },
    { name: "ngrok", page: ["err_ngrok_3200"] },
    { name: "Cloudflare Tunnel", code: [1033] },
    { name: "Cloudflare Tunnel", page: ["<title>cloudflare tunnel error |"] },
    { name: "Cloudflare Tunnel", page: ["<title>argo tunnel error |"] },
    { name: "localtunnel", begins: ["503 - tunnel unavailable", "localtunnel error: no active client"] },
    { name: "localhost.run", begins: ["no tunnel here :(", "<h1>no tunnel here :("] },
    { name: "frp", page: ["faithfully yours, frp."] },
  ],
  platform: [
    { name: "Heroku", page: ["herokucdn.com/error-pages/no-such-app"] },
    { name: "Heroku", page: ["herokucdn.com/error-pages/maintenance"], said: "it is in maintenance mode" },
    { name: "Heroku", page: ["herokucdn.com/error-pages/application-error"], said: FAILING },
    { name: "Vercel", header: ["x-vercel-error", "deployment_"] },
    { name: "Vercel", header: ["x-vercel-error", "not_found"], said: NO_PATH },
    { name: "Vercel", header: ["x-vercel-error", ""], said: FAILING },
    { name: "Vercel", begins: ["the deployment could not be found on vercel."] },
    { name: "Netlify", header: ["server", "netlify"], begins: ["not found - request id:"] },
    { name: "Render", header: ["x-render-routing", "no-server"] },
    { name: "Render", header: ["x-render-routing", "suspend"], said: "the service is suspended" },
    { name: "Render", header: ["x-render-routing", "error"], said: FAILING },
    { name: "Railway", header: ["x-railway-fallback", "true"], status: 502, said: FAILING },
    { name: "Railway", header: ["x-railway-fallback", "true"] },
    { name: "Railway", begins: ['{"status":"error","code":404,"message":"application not found"'] },
    { name: "GitHub Pages", page: ["<title>site not found &middot; github pages"] },
    { name: "GitHub Pages", page: ["<title>page not found &middot; github pages"], said: NO_PATH },
    { name: "GitHub Pages", header: ["server", "github.com"], page: ["<h1>405 not allowed"], said: NO_PATH },
    { name: "Amazon S3", header: ["server", "amazons3"], page: ["<error><code>"], said: NO_PATH },
    { name: "Amazon S3", header: ["server", "amazons3"], page: ["<li>code: "], said: NO_PATH },
    { name: "Google Cloud Storage", header: ["server", "uploadserver"], page: ["<error><code>"] },
    { name: "Azure Storage", header: ["server", "windows-azure-"], page: ["<error><code>"], said: NO_PATH },
    { name: "Azure App Service", page: ["<title>web app - unavailable"] },
    { name: "Azure App Service", page: ["<title>microsoft azure web app - error 404"] },
    { name: "Azure Static Web Apps", page: ["<title>azure static web apps - 404"], said: NO_PATH },
    {
      name: "Google Cloud",
      header: ["server", "google frontend"],
      page: ["<body text=#000000 bgcolor=#ffffff>", "<h1>error: "],
      said: "it did not hand the request to the application, or got no answer from it",
    },
    { name: "Google", page: ["<title>error 404 (not found)!!1"] },
    {
      name: "Amazon API Gateway",
      status: 403,
      header: ["x-amzn-requestid", ""],
      begins: ['{"message":"missing authentication token"}'],
      said: NO_PATH,
    },
    { name: "Cloud Foundry", begins: ["404 not found: requested route"] },
    { name: "Cloud Foundry", begins: ["502 bad gateway: registered endpoint failed"], said: FAILING },
    { name: "Supabase", begins: ['{"code":"not_found","message":"requested function was not found"'] },
    { name: "Fastly", begins: ["fastly error: unknown domain"] },
    { name: "Fastly", page: ["fastly error: unknown domain"] },
    { name: "Pantheon", page: ["<title>404 - unknown site"] },
    { name: "PythonAnywhere", page: ["<title>coming soon: pythonanywhere"] },
    { name: "cPanel", path: ["/cgi-sys/suspendedpage.cgi"], said: "the account is suspended" },
    { name: "Cloudflare Workers", code: [1101, 1102], said: FAILING },
    { name: "Cloudflare Workers", page: ["<title>worker threw exception |"], said: FAILING },
  ],
  waf: [
    { name: "Cloudflare", header: ["cf-mitigated", "challenge"] },
    { name: "Cloudflare", code: [1005, 1006, 1007, 1008, 1009, 1010, 1012, 1015, 1020] },
    { name: "Cloudflare", page: ["<title>attention required! | cloudflare"] },
    { name: "Cloudflare", page: [" used cloudflare to restrict access</title>"] },
    { name: "Cloudflare", header: ["server", "cloudflare"], page: ["<title>just a moment...</title>"] },
    { name: "Vercel", header: ["x-vercel-mitigated", ""] },
    { name: "Vercel", page: ["<title>vercel security checkpoint"] },
    { name: "AWS WAF", header: ["x-amzn-waf-action", ""] },
    { name: "AWS WAF", status: 403, header: ["server", "awselb/"], page: ["<center><h1>403 forbidden"] },
    { name: "Amazon CloudFront", page: ["request blocked.", "error: the request could not be satisfied"] },
    { name: "Amazon CloudFront", page: ["block access from your country", "could not be satisfied"] },
    { name: "Akamai", header: ["server", "akamaighost"], page: ["<h1>access denied</h1>"] },
    { name: "Akamai", page: ["reference #18.", "you don't have permission to access"] },
    { name: "Imperva", page: ["incapsula incident id"] },
    { name: "Imperva", page: ["/_incapsula_resource?"] },
    { name: "Azure Front Door", header: ["x-azure-ref", ""], page: ["the request is blocked."] },
    { name: "Azure Application Gateway", status: 403, page: ["<center>microsoft-azure-application-gateway"] },
    { name: "Google Cloud Armor", header: ["via", "google"], page: ["<title>403</title>403 forbidden"] },
    { name: "Sucuri", page: ["cdn.sucuri.net/"] },
    { name: "F5 BIG-IP", page: ["the requested url was rejected. please consult with your administrator."] },
    { name: "ModSecurity", page: ["this error was generated by mod_security"] },
    { name: "ModSecurity", page: ["a request has been blocked by mod security"] },
    { name: "Wordfence", page: ["generated by wordfence"] },
    { name: "Imunify360", begins: ['{"message":"access denied by imunify360 bot-protection'] },
    { name: "SiteGround", page: ["/.well-known/sgcaptcha/"] },
    { name: "DataDome", begins: ['{"url":"https://geo.captcha-delivery.com/'] },
    { name: "DataDome", page: ["captcha-delivery.com"] },
    { name: "HUMAN", page: ['content="px-captcha"'] },
    { name: "DDoS-Guard", header: ["server", "ddos-guard"], page: ["<title>ddos-guard</title>"] },
    { name: "Palo Alto Networks", page: ["<title>web page blocked", "in accordance with company policy"] },
    { name: "Alibaba Cloud", page: ["errors.aliyun.com"] },
    { name: "CrowdSec", page: ["<title>crowdsec ban</title>"] },
  ],
  login: [
    { name: "Cloudflare Access", host: ["cloudflareaccess.com"] },
    { name: "Cloudflare Access", header: ["www-authenticate", "cloudflare-access"] },
    { name: "Cloudflare Access", page: ["cloudflare access</title>"] },
    { name: "Okta", host: ["okta.com", "oktapreview.com", "okta-emea.com"] },
    { name: "Auth0", host: ["auth0.com"] },
    { name: "Microsoft Entra ID", host: ["login.microsoftonline.com", "login.windows.net", "b2clogin.com"] },
    { name: "Microsoft Entra ID", header: ["www-authenticate", 'authorization_uri="https://login.'] },
    { name: "Azure App Service", path: ["/.auth/login/"] },
    { name: "Google IAP", begins: ["invalid iap credentials"] },
    { name: "Google", host: ["accounts.google.com"] },
    { name: "OneLogin", host: ["onelogin.com"] },
    { name: "Ping Identity", host: ["pingone.com", "pingone.eu"] },
    { name: "Amazon Cognito", host: ["amazoncognito.com"] },
    { name: "Duo", host: ["duosecurity.com"] },
    { name: "GitHub", host: ["github.com"], path: ["/login/oauth/"] },
    { name: "Microsoft dev tunnels", host: ["tunnels.api.visualstudio.com"] },
    { name: "Vercel", host: ["vercel.com"], path: ["/sso-api"] },
    { name: "Vercel", page: ["vercel.com/sso-api"] },
    { name: "Vercel", begins: ['{"error":{"message":"protected deployment"'] },
    { name: "Keycloak", path: ["/protocol/openid-connect/auth?"] },
    { name: "AD FS", path: ["/adfs/ls/?"] },
    { name: "authentik", path: ["/outpost.goauthentik.io/start"] },
    { name: "Authelia", path: ["&rm=post", "?rd=http"] },
    { name: "OAuth2 Proxy", path: ["/oauth2/", "?rd="] },
    { name: "Pomerium", path: ["/.pomerium/sign_in"] },
    { name: "SAML", path: ["samlrequest="] },
    { name: "OpenID Connect", path: ["response_type=", "client_id=", "redirect_uri="] },
  ],
  parked: [
    { name: "GoDaddy", page: ['window.location.href="/lander"'] },
    { name: "Sedo", page: ["sedoparking.com"] },
    { name: "ParkingCrew", page: ["parkingcrew.net"] },
    { name: "Bodis", page: ['<script>window.park = "ey'] },
    { name: "Hostinger", page: ["<title>parked domain name on hostinger"] },
    { name: "HugeDomains", host: ["hugedomains.com"] },
    { name: "Dan.com", host: ["dan.com"] },
    { name: "Afternic", host: ["afternic.com"] },
    { name: "Namecheap", host: ["parkingpage.namecheap.com"] },
  ],
  captive_portal: [
    { name: "Captive portal", status: 511 },
    { name: "Captive portal", page: ["<wispaccessgatewayparam"] },
    { name: "FortiGate", page: [":1003/fgtauth?"] },
    { name: "FortiGate", path: ["/fgtauth?"] },
    { name: "Cisco Meraki", host: ["network-auth.com"] },
    { name: "Aruba", host: ["securelogin.arubanetworks.com"] },
    { name: "UniFi", path: ["/guest/s/", "ap="] },
    { name: "CoovaChilli", path: ["res=notyet", "uamip="] },
    { name: "pfSense", path: ["/index.php?zone=", "redirurl="] },
    { name: "Cisco ISE", path: ["/portal/gateway?sessionid=", "action=cwa"] },
  ],
  proxy: [
    { name: "nginx", page: ["<hr><center>nginx", "<center><h1>"] },
    { name: "OpenResty", page: ["<hr><center>openresty", "<center><h1>"] },
    { name: "Tengine", page: ["<hr><center>tengine", "<center><h1>"] },
    { name: "Angie", page: ["<hr><center>angie", "<center><h1>"] },
    { name: "Azure Application Gateway", page: ["<hr><center>microsoft-azure-application-gateway"] },
    { name: "Cloudflare", page: ["<hr><center>cloudflare", "<center><h1>"] },
    { name: "Cloudflare", code: [500, 502, 503, 504, 520, 521, 522, 523, 524, 525, 526] },
    { name: "Cloudflare", code: [1000, 1001, 1002, 1003, 1004, 1013, 1014, 1016, 1018, 1019, 1023] },
    { name: "Cloudflare", header: ["server", "cloudflare"], page: ["cf_styles-css"] },
    { name: "AWS load balancer", header: ["server", "awselb/"], page: ["<center><h1>"] },
    { name: "Apache", page: ["<address>apache", "-//ietf//dtd html 2.0//en"] },
    {
      name: "Apache",
      header: ["server", "apache"],
      begins: ['<!doctype html public "-//ietf//dtd html 2.0//en"> <html><head> <title>'],
    },
    { name: "LiteSpeed", page: ['font-size:150px; line-height:150px; font-weight:bold;">'] },
    {
      name: "HAProxy",
      begins: [
        "<html><body><h1>400 bad request</h1> your browser sent an invalid request.",
        "<html><body><h1>401 unauthorized</h1> you need a valid user and password to access this content.",
        "<html><body><h1>403 forbidden</h1> request forbidden by administrative rules.",
        "<html><body><h1>408 request time-out</h1> your browser didn't send a complete request in time.",
        "<html><body><h1>502 bad gateway</h1> the server returned an invalid or incomplete response.",
        "<html><body><h1>503 service unavailable</h1> no server is available to handle this request.",
        "<html><body><h1>504 gateway time-out</h1> the server didn't respond in time.",
      ],
    },
    {
      name: "Envoy",
      begins: [
        "upstream connect error or disconnect/reset before headers",
        "no healthy upstream",
        "upstream request timeout",
        "rbac: access denied",
      ],
    },
    { name: "Traefik", status: 503, begins: ["no available server"] },
    { name: "Kubernetes ingress", begins: ["default backend - 404", "response 404 (backend notfound)"] },
    {
      name: "Kong",
      begins: [
        '{"message":"no route matched with those values"',
        '{"message":"an invalid response was received from the upstream server"',
        '{"message":"the upstream server is timing out"',
        '{"message":"failure to get a peer from the ring-balancer"',
      ],
    },
    { name: "APISIX", begins: ['{"error_msg":"404 route not found"'] },
    { name: "IIS", page: ["fieldset{padding:0 15px 10px 15px;}"] },
    { name: "IIS", page: ["<hr><p>http error "] },
    { name: "IIS", begins: ["the page cannot be displayed because an internal server error has occurred."] },
    { name: "Varnish", page: ["guru meditation:", "varnish cache server"] },
    { name: "Fastly", page: ["guru mediation:", "varnish cache server"] },
    { name: "Fastly", page: ["details: cache-", "varnish cache server"] },
    { name: "Squid", page: ["<title>error: the requested url could not be retrieved"] },
    { name: "Amazon CloudFront", page: ["<title>error: the request could not be satisfied"] },
    { name: "Akamai", header: ["server", "akamaighost"], page: ["<p> reference", "<title>"] },
    { name: "Azure Front Door", header: ["x-azure-ref", ""], page: ["our services aren't available"] },
    { name: "Google Cloud", page: ["<body text=#000000 bgcolor=#ffffff>", "<h1>error: "] },
  ],
} as const satisfies Readonly<Record<string, readonly AnswerRule[]>>;
