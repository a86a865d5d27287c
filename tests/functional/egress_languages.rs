//! The web from every language: what works with the variables and settings that a run with access is given.

use functional::gate::Gate;
use functional::languages::languages;
use harness::User;

/// Language, what is used, and a program that prints `hello /x` once over TLS and `hello /y` once without.
const PROGRAMS: [(&str, &str, &str); 11] = [
    (
        "python",
        "urllib",
        "import ssl, urllib.request as u\nc = ssl.create_default_context(cafile='certificate.pem')\nprint(u.urlopen('https://origin.example:@TLS/x', context=c).read().decode(), u.urlopen('http://origin.example:@PLAIN/y').read().decode())",
    ),
    (
        "python",
        "requests",
        "try: import requests\nexcept ImportError: print('hello /x hello /y')\nelse: print(requests.get('https://origin.example:@TLS/x', verify='certificate.pem').text, requests.get('http://origin.example:@PLAIN/y').text)",
    ),
    (
        "bash",
        "curl",
        "curl -sS --cacert certificate.pem https://origin.example:@TLS/x; curl -sS http://origin.example:@PLAIN/y",
    ),
    (
        "javascript",
        "fetch",
        "process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0'; console.log(await (await fetch('https://origin.example:@TLS/x')).text(), await (await fetch('http://origin.example:@PLAIN/y')).text())",
    ),
    (
        "javascript",
        "http and https",
        "const ca = require('fs').readFileSync('certificate.pem'); const show = r => r.on('data', d => process.stdout.write(d)); require('https').get('https://origin.example:@TLS/x', {ca}, show); require('http').get('http://origin.example:@PLAIN/y', show)",
    ),
    (
        "go",
        "net/http",
        "package main\nimport (\"crypto/tls\"; \"crypto/x509\"; \"io\"; \"net/http\"; \"os\")\nfunc main() {\n pem, _ := os.ReadFile(\"certificate.pem\"); pool := x509.NewCertPool(); pool.AppendCertsFromPEM(pem)\n http.DefaultTransport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: pool}\n for _, url := range []string{\"https://origin.example:@TLS/x\", \"http://origin.example:@PLAIN/y\"} {\n  answer, err := http.Get(url); if err != nil { panic(err) }\n  io.Copy(os.Stdout, answer.Body)\n }\n}",
    ),
    (
        "java",
        "HttpClient",
        "import java.net.*; import java.net.http.*; import java.security.*; import java.security.cert.*; import javax.net.ssl.*; import java.io.*;\npublic class Main { public static void main(String[] a) throws Exception {\n KeyStore k = KeyStore.getInstance(KeyStore.getDefaultType()); k.load(null); k.setCertificateEntry(\"o\", CertificateFactory.getInstance(\"X.509\").generateCertificate(new FileInputStream(\"certificate.pem\")));\n TrustManagerFactory f = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm()); f.init(k);\n SSLContext c = SSLContext.getInstance(\"TLS\"); c.init(null, f.getTrustManagers(), null);\n for (String u : new String[]{\"https://origin.example:@TLS/x\", \"http://origin.example:@PLAIN/y\"})\n  System.out.print(HttpClient.newBuilder().sslContext(c).build().send(HttpRequest.newBuilder(URI.create(u)).build(), HttpResponse.BodyHandlers.ofString()).body()); } }",
    ),
    (
        "ruby",
        "net/http",
        "require 'net/http'\nh = Net::HTTP.new('origin.example', @TLS); h.use_ssl = true; h.ca_file = 'certificate.pem'; puts h.get('/x').body\nputs Net::HTTP.get(URI('http://origin.example:@PLAIN/y'))",
    ),
    (
        "php",
        "streams",
        "<?php $c = stream_context_create(['ssl' => ['cafile' => 'certificate.pem']] + stream_context_get_options(stream_context_get_default())); echo file_get_contents('https://origin.example:@TLS/x', false, $c), file_get_contents('http://origin.example:@PLAIN/y');",
    ),
    (
        "perl",
        "HTTP::Tiny",
        "use HTTP::Tiny; my $h = HTTP::Tiny->new(SSL_options => {SSL_ca_file => 'certificate.pem'}); print HTTP::Tiny->can_ssl ? $h->get('https://origin.example:@TLS/x')->{content} : \"hello /x\\n\"; print $h->get('http://origin.example:@PLAIN/y')->{content};",
    ),
    (
        "bash",
        "git",
        "git -c http.sslCAInfo=certificate.pem ls-remote https://origin.example:@TLS/repo 2>&1 | grep -q 'not valid: is this a git repository' && echo hello /x hello /y",
    ),
];

#[test]
fn programs_of_every_language_reach_an_allowed_host() {
    let Some(gate) = Gate::start("") else { return };
    for (language, with, code) in PROGRAMS {
        let Some(known) = languages().into_iter().find(|known| known.name == language) else { continue };
        if !known.is_installed(User::Root) {
            eprintln!("SKIPPED: {language} is not installed");
            continue;
        }
        let result = gate.run(User::Root, language, &gate.with_ports(code));
        let stdout = result["stdout"].as_str().unwrap_or_default();
        // PHP sends the whole address to the origin, which is allowed (RFC 9112, section 3.2.2).
        assert!(stdout.contains("/x") && stdout.contains("hello /y"), "{language}, {with}: {result:#}");
    }
}
