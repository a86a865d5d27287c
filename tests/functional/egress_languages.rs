//! The web from every language: what works with the variables and settings that a run with access is given.

use std::fs;
use std::path::Path;

use functional::gate::Gate;
use functional::languages::languages;
use functional::outcome;
use harness::{SEARCH_PATH, User};

/// Language, what is used, and a program that prints `hello /x` once over TLS and `hello /y` once without.
const PROGRAMS: [(&str, &str, &str); 9] = [
    (
        "python",
        "urllib",
        "import ssl, urllib.request as u\nc = ssl.create_default_context(cafile='certificate.pem')\nprint(u.urlopen('https://origin.example:@TLS/x', context=c).read().decode(), u.urlopen('http://origin.example:@PLAIN/y').read().decode())",
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
        "use HTTP::Tiny; my $h = HTTP::Tiny->new(verify_SSL => 1, SSL_options => {SSL_ca_file => 'certificate.pem'}); print $h->get('https://origin.example:@TLS/x')->{content}, $h->get('http://origin.example:@PLAIN/y')->{content};",
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

#[test]
fn popular_python_clients_reach_an_allowed_host() {
    let Some(gate) = Gate::start("") else { return };
    let bin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-venv/bin");
    let Ok(bin) = fs::canonicalize(bin) else {
        eprintln!("SKIPPED: no test environment with packages: run scripts/setup-tests.sh");
        return;
    };
    let path = format!("{}:{SEARCH_PATH}", bin.display());
    for code in [
        "import requests\nprint(requests.get('https://origin.example:@TLS/x', verify='certificate.pem').text, requests.get('http://origin.example:@PLAIN/y').text)",
        "import httpx, ssl\nclient = httpx.Client(verify=ssl.create_default_context(cafile='certificate.pem'))\nprint(client.get('https://origin.example:@TLS/x').text, client.get('http://origin.example:@PLAIN/y').text)",
        "import asyncio, httpx, ssl\nasync def main():\n  async with httpx.AsyncClient(verify=ssl.create_default_context(cafile='certificate.pem')) as client:\n    print((await client.get('https://origin.example:@TLS/x')).text, (await client.get('http://origin.example:@PLAIN/y')).text)\nasyncio.run(main())",
    ] {
        let result = gate.run_on(&path, User::Root, "python", &gate.with_ports(code));
        assert_eq!(result["stdout"], "hello /x\n hello /y\n\n", "{code}: {result:#}");
    }
    let wrong = gate.with_ports("import httpx\ntry: print(httpx.get('https://evil.example:@TLS/x').text)\nexcept httpx.ProxyError as error: print(error)");
    let result = gate.run_on(&path, User::Root, "python", &wrong);
    assert!(result["stdout"].as_str().unwrap().contains("Palisade: host_denied"), "{result:#}");
    assert!(!gate.log().iter().any(|line| line.contains("evil")), "{:?}", gate.log());
}

#[test]
fn git_clones_a_repository_of_an_allowed_host_over_tls() {
    let Some(gate) = Gate::start("") else { return };
    gate.serve_repository("some.git", "hello from the repository\n");
    let code = "git -c http.sslCAInfo=$PWD/certificate.pem clone --quiet https://origin.example:@TLS/git/some.git copy && cat copy/file && git -C copy log --format=%s";
    let result = gate.run(User::Root, "bash", &gate.with_ports(code));
    assert_eq!(result["stdout"], "hello from the repository\na file\n", "{result:#}");
    let denied = "git clone --quiet https://evil.example/some.git other 2>&1; echo status $?";
    let result = gate.run(User::Root, "bash", denied);
    let stdout = result["stdout"].as_str().unwrap_or_default();
    assert_eq!(outcome(&result), "completed", "{result:#}");
    assert!(stdout.contains("403") && stdout.ends_with("status 128\n"), "{stdout}");
}
