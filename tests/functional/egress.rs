//! The web from inside of a sandbox: an allowed host is reached, and nothing else is.

use functional::gate::Gate;
use functional::http::Server;
use functional::{SOON, outcome, run_json, until};
use harness::{Build, Palisade, User, users};
use serde_json::{Value, json};

fn stdout(result: &Value) -> &str {
    assert_eq!(outcome(result), "completed", "{result:#}");
    result["stdout"].as_str().unwrap_or_default()
}

const FETCH: &str = r#"
import ssl, urllib.request
trust = ssl.create_default_context(cafile="certificate.pem")
def fetch(url):
    try: return urllib.request.urlopen(url, context=trust, timeout=20).read().decode().strip()
    except Exception as error: return str(getattr(error, "reason", error))
"#;

#[test]
fn a_program_reaches_an_allowed_host_and_the_result_tells_it() {
    let Some(gate) = Gate::start("") else { return };
    for user in users() {
        let code =
            "print(fetch('https://origin.example:@TLS/a')); print(fetch('http://origin.example:@PLAIN/b'))";
        let result = gate.run(user, "python", &gate.with_ports(&format!("{FETCH}{code}")));
        assert_eq!(stdout(&result), "hello /a\nhello /b\n");
        let egress = result["egress"].as_array().unwrap();
        assert_eq!(egress.len(), 2, "{egress:?}");
        for one in egress {
            assert_eq!(
                (one["verdict"].as_str(), one["address"].as_str()),
                (Some("allowed"), Some("127.0.0.1"))
            );
            assert!(one["bytes_in"].as_u64().unwrap() > 20 && one["connections"] == 1, "{one}");
        }
        let note = result["isolation"]["guarantees"]["network_none"]["note"].as_str().unwrap();
        assert_eq!(
            note,
            gate.with_ports("none but the gate: origin.example:@TLS, origin.example:@PLAIN http")
        );
    }
}

#[test]
fn a_program_reaches_nothing_else_and_no_other_name_is_looked_up() {
    let Some(gate) = Gate::start("") else { return };
    let code = r#"
for url in ["https://evil.example/", "http://evil.example/", "https://origin.example/", "https://origin.example:@PLAIN/",
            "http://origin.example:@TLS/", "https://127.0.0.1:@TLS/", "http://127.0.0.1:@PLAIN/", "http://2130706433:@PLAIN/", "http://[::1]:@PLAIN/",
            "https://origin.example.evil.example:@TLS/", "http://169.254.169.254/latest/meta-data/"]:
    import os
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ""
    print(fetch(url))
import socket
for name in ["evil.example", "origin.example"]:
    try: print(socket.getaddrinfo(name, 443))
    except OSError: print("no name")
for address in [("127.0.0.1", @TLS), ("127.0.0.1", @PLAIN), ("192.0.2.1", 443)]:
    try: socket.create_connection(address, timeout=5); print("connected")
    except OSError: print("no way")
"#;
    for user in users() {
        let result = gate.run(user, "python", &gate.with_ports(&format!("{FETCH}{code}")));
        let lines: Vec<&str> = stdout(&result).lines().collect();
        assert!(lines[..11].iter().all(|line| line.contains("Palisade: ")), "{lines:#?}");
        assert_eq!(lines[11..], ["no name", "no name", "no way", "no way", "no way"]);
        assert!(
            result["egress"].as_array().unwrap().iter().all(|one| one["verdict"] != "allowed"),
            "{result:#}"
        );
    }
    assert_eq!(gate.log(), Vec::<String>::new(), "nothing was looked up, and the origin saw nothing");
}

#[test]
fn a_redirect_to_a_denied_host_is_refused() {
    let Some(gate) = Gate::start("") else { return };
    let code = gate.with_ports("print(fetch('http://origin.example:@PLAIN/redirect?http://evil.example/x'))");
    let result = gate.run(User::Root, "python", &format!("{FETCH}{code}"));
    assert!(stdout(&result).contains("host_denied"), "{result:#}");
    assert!(!gate.log().iter().any(|line| line.contains("DNS evil")), "{:?}", gate.log());
}

#[test]
fn a_name_that_changes_its_address_during_a_run_keeps_the_first_one() {
    let Some(gate) = Gate::start(
        "[access.rebind]\negress = [\"rebind.example:@TLS loopback\", \"metadata.example:443\", \"private.example:443\"]\n",
    ) else {
        return;
    };
    let client = gate.client(User::Root);
    let certificate = std::fs::read_to_string(gate.certificate()).unwrap();
    let code = "for _ in range(3): print(fetch('https://rebind.example:@TLS/x'))\n\
                print(fetch('https://metadata.example/')); print(fetch('https://private.example/'))";
    let result = client.call(
        "run",
        json!({"language": "python", "code": gate.with_ports(&format!("{FETCH}{code}")), "access": ["rebind"],
               "inputs": [{"path": "certificate.pem", "text": certificate}]}),
    );
    let lines: Vec<&str> = stdout(&result).lines().collect();
    assert_eq!(lines[..3], ["hello /x"; 3]);
    assert!(lines[3..].iter().all(|line| line.contains("address_denied")), "{lines:?}");
    assert_eq!(gate.log().iter().filter(|line| *line == "DNS rebind.example").count(), 1);
}

#[test]
fn a_run_without_access_has_no_gate() {
    let Some(gate) = Gate::start("") else { return };
    let code = r#"
import os, socket
print([name for name in os.environ if name.lower() in ("http_proxy", "https_proxy", "all_proxy", "no_proxy")])
try: socket.create_connection(("127.0.0.1", 3128), timeout=5)
except OSError as error: print(type(error).__name__)
"#;
    let client = gate.client(User::Root);
    let plain = || client.call("run", json!({"language": "python", "code": code}));
    let with = || client.call("run", json!({"language": "python", "code": code, "access": ["web"]}));
    assert_eq!(stdout(&plain()), "[]\nConnectionRefusedError\n");
    assert!(stdout(&with()).contains("http_proxy"));
    let result = plain();
    assert_eq!(stdout(&result), "[]\nConnectionRefusedError\n");
    assert!(result.get("egress").is_none() && !result.to_string().contains("gate"), "{result:#}");
}

#[test]
fn the_run_after_one_with_access_finds_a_clean_network() {
    let Some(gate) = Gate::start("") else { return };
    let client = gate.client(User::Root);
    let fetch = gate.with_ports(
        "import urllib.request\nprint(urllib.request.urlopen('http://origin.example:@PLAIN/x').read())",
    );
    let look = "print([open(f'/proc/net/{n}').read().count('\\n') for n in ('tcp', 'tcp6', 'udp')])";
    for _ in 0..5 {
        stdout(&client.call("run", json!({"language": "python", "code": fetch, "access": ["web"]})));
        let result = client.call("run", json!({"language": "python", "code": look}));
        assert_eq!(stdout(&result), "[1, 1, 1]\n");
    }
}

#[test]
fn an_unknown_access_is_refused_with_the_names_there_are() {
    let Some(gate) = Gate::start("") else { return };
    let client = gate.client(User::Root);
    for tool in ["run", "sandbox_open"] {
        let mut arguments = json!({"access": ["wbe"]});
        if tool == "run" {
            arguments["language"] = "python".into();
            arguments["code"] = "1".into();
        }
        let result = client.call(tool, arguments);
        assert_eq!((outcome(&result), result["error"]["code"].as_str()), ("refused", Some("access_unknown")));
        assert!(result["error"]["remedy"].as_str().unwrap().contains("web"), "{result:#}");
    }
    let result = run_json(User::Root, "python", "1", &["--access", "web"]);
    assert_eq!(result["error"]["code"], "access_unknown", "nothing is offered where nothing is configured");
}

#[test]
fn a_persistent_sandbox_reaches_at_most_what_it_was_opened_with() {
    let Some(gate) = Gate::start("[access.other]\negress = [\"other.example:@TLS loopback\"]\n") else {
        return;
    };
    let client = gate.client(User::Root);
    let closed = client.open(json!({}));
    let open = client.open(json!({"access": ["web"]}));
    let fetch = gate.with_ports(
        "import urllib.request\nprint(urllib.request.urlopen('http://origin.example:@PLAIN/x').read())",
    );
    let run =
        |sandbox: &str, access: Value| client.run_with(sandbox, "python", &fetch, json!({"access": access}));
    for (sandbox, access) in
        [(&closed, json!(["web"])), (&open, json!(["other"])), (&open, json!(["web", "other"]))]
    {
        let result = run(sandbox, access);
        assert_eq!(result["error"]["code"], "access_not_open", "{result:#}");
    }
    assert_eq!(stdout(&run(&open, json!(["web"]))), "b'hello /x\\n'\n");
    assert_eq!(outcome(&run(&open, json!([]))), "failed", "each run asks for itself");
    let listed = client.call("sandbox_list", json!({})).to_string();
    assert!(listed.contains("\"access\":[\"web\"]"), "{listed}");
}

#[test]
fn a_child_cannot_connect_after_the_end_of_its_run() {
    let Some(gate) = Gate::start("") else { return };
    let client = gate.client(User::Root);
    let sandbox = client.open(json!({"access": ["web"]}));
    let child = gate.with_ports(
        r#"
import os, socket, sys, time
kept = socket.create_connection(("127.0.0.1", 3128))
if os.fork() == 0:
    os.setsid()
    while not os.path.exists("go"): time.sleep(0.02)
    said = []
    try: kept.sendall(b"GET http://origin.example:@PLAIN/late HTTP/1.1\r\n\r\n"); said.append(kept.recv(100) or b"end")
    except OSError as error: said.append(type(error).__name__)
    try: socket.create_connection(("127.0.0.1", 3128), timeout=5); said.append("connected")
    except OSError as error: said.append(type(error).__name__)
    open("said", "w").write(repr(said)); os._exit(0)
"#,
    );
    let result = client.run_with(&sandbox, "python", &child, json!({"access": ["web"]}));
    assert_eq!(outcome(&result), "completed", "{result:#}");
    let wait = r#"
import os, time
open("go", "w").close()
for _ in range(1000):
    if os.path.exists("said") and os.path.getsize("said"): break
    time.sleep(0.02)
print(open("said").read())
"#;
    let result = client.run_with(&sandbox, "python", wait, json!({}));
    let said = stdout(&result);
    assert!(
        said.contains("ConnectionRefusedError") && !said.contains("connected") && !said.contains("200"),
        "{said}"
    );
    assert!(!gate.log().iter().any(|line| line.contains("late")), "{:?}", gate.log());
}

#[test]
fn the_commands_show_what_is_reached() {
    let Some(gate) = Gate::start("") else { return };
    let end = |args: &[&str]| gate.palisade(User::Root, args).end();
    let listed = end(&["access", "list"]).stdout;
    assert!(listed.contains(&gate.with_ports("reaches origin.example:@TLS")), "{listed}");
    let tested = end(&["access", "test", "web", &gate.with_ports("origin.example:@TLS")]);
    assert!(tested.status.success() && tested.stdout.contains("127.0.0.1"), "{tested:?}");
    let tested = end(&["access", "test", "web", "evil.example:443"]);
    assert!(!tested.status.success() && tested.stderr.contains("host_denied"), "{tested:?}");
    let code = gate.with_ports(&format!(
        "{FETCH}\nfetch('https://origin.example:@TLS/a'); fetch('https://evil.example/')"
    ));
    gate.run(User::Root, "python", &code);
    let log = end(&["egress", "log", "-n", "1000"]).stdout;
    assert!(
        log.contains(&gate.with_ports("origin.example:@TLS at 127.0.0.1"))
            && log.contains("evil.example:443"),
        "{log}"
    );
}

#[test]
fn a_key_without_the_scope_reaches_nothing() {
    let Some(gate) = Gate::start("") else { return };
    let user = users()[0];
    let keys = |args: &[&str]| gate.palisade(user, &["keys"]).args(args).end().stdout.trim().to_owned();
    let (without, with) = (
        keys(&["create", "without", "--scope", "run", "--policy", "open"]),
        keys(&["create", "with", "--scope", "run,access", "--policy", "open"]),
    );
    let serve = gate.palisade(user, &["serve", "--listen", "127.0.0.1:0"]).env("PALISADE_LOG", "info");
    let server = Server::start_command(user, serve.into_command());
    let code = gate.with_ports(
        "import urllib.request\nprint(urllib.request.urlopen('http://origin.example:@PLAIN/a').read())",
    );
    let arguments = json!({"language": "python", "code": code, "access": ["web"]});
    let refused = functional::keys::call(&server, &without, "run", arguments.clone());
    assert_eq!(refused["error"]["code"], "insufficient_scope", "{refused:#}");
    let reached = functional::keys::call(&server, &with, "run", arguments);
    assert_eq!(reached["stdout"], "b'hello /a\\n'\n", "{reached:#}");
    assert_eq!(gate.log().iter().filter(|line| line.starts_with("GET")).count(), 1);
}

#[test]
fn what_a_run_reached_is_in_the_audit_and_in_its_receipt() {
    let Some(gate) = Gate::start("") else { return };
    let user = users()[0];
    let client = gate.client(user);
    let code = gate.with_ports(
        "import urllib.request\nprint(urllib.request.urlopen('http://origin.example:@PLAIN/a').status)",
    );
    let ran = client.call("run", json!({"language": "python", "code": code, "access": ["web"]}));
    assert_eq!(stdout(&ran), "200\n");
    let host = gate.with_ports("origin.example:@PLAIN");
    let tail = gate.palisade(user, &["audit", "tail", "-n", "50", "--json"]).end();
    for kind in ["egress_decided", "egress_ended"] {
        let is_told = |line: &str| line.contains(kind) && line.contains(&host);
        assert!(tail.stdout.lines().any(is_told), "{kind}: {tail:?}");
    }
    // Over standard input and output a run is stored behind its answer.
    let receipt = until(SOON, "the run has a receipt", || {
        let ended = gate.palisade(user, &["audit", "receipt", ran["run_id"].as_str().unwrap()]).end();
        ended.status.success().then_some(ended)
    });
    assert!(receipt.stdout.contains(&host), "{receipt:?}");
}

#[test]
fn the_product_knows_no_rule_for_loopback() {
    let Some(gate) = Gate::start("") else { return };
    let config = gate.folder().join("config");
    let list = |build| {
        let palisade = Palisade::new(build, users()[0], &["access", "list"]);
        palisade.env("XDG_CONFIG_HOME", config.to_str().unwrap()).end()
    };
    let (test, real) = (list(Build::Breach), list(Build::Real));
    assert!(test.status.success(), "{test:?}");
    assert!(!real.status.success() && real.stderr.contains("`loopback`"), "{real:?}");
}

#[test]
fn connections_that_hang_do_not_delay_the_end_of_a_run() {
    let Some(gate) = Gate::start(
        "[access.slow]\negress = [\"*.silent-zone.example:443\", \"origin.example:@TLS loopback\"]\n",
    ) else {
        return;
    };
    // Some wait for a resolver that never answers, some for a ClientHello, some for the end of a head.
    let code = gate.with_ports(
        r#"
import socket
kept = []
for number in range(45):
    link = socket.create_connection(("127.0.0.1", 3128))
    kept.append(link)
    link.sendall([b"CONNECT silent%d.silent-zone.example:443 HTTP/1.1\r\n\r\n" % number, b"CONNECT origin.example:@TLS HTTP/1.1\r\n\r\n", b"GET http://origin"][number % 3])
for link in kept[1::3]: link.recv(1)
print("leaving")
"#,
    );
    let client = gate.client(User::Root);
    let sandbox = client.open(json!({"access": ["slow"]}));
    for arguments in [json!({}), json!({"sandbox_id": sandbox})] {
        let mut arguments = arguments;
        arguments["language"] = "python".into();
        arguments["code"] = code.as_str().into();
        arguments["access"] = json!(["slow"]);
        let began = std::time::Instant::now();
        let result = client.call("run", arguments);
        assert_eq!(stdout(&result), "leaving\n");
        // The least patience of the gate is 10 s.
        assert!(began.elapsed().as_secs() < 8, "{:?}", began.elapsed());
        // The end of the run ends a tunnel in which nothing was said.
        let tunnels = result["egress"].as_array().unwrap().iter();
        let tunnels = tunnels.filter(|one| one["verdict"] == "allowed" || one["verdict"] == "not_tls");
        let count: u64 = tunnels.filter_map(|one| one["connections"].as_u64()).sum();
        assert_eq!(count, 15, "{result:#}");
    }
}

#[test]
fn metrics_count_connections_and_bytes() {
    let Some(gate) = Gate::start("") else { return };
    let user = users()[0];
    let serve = gate.palisade(user, &["serve", "--listen", "127.0.0.1:0"]).env("PALISADE_LOG", "info");
    let server = Server::start_command(user, serve.into_command());
    let keys =
        gate.palisade(user, &["keys", "create", "reaches", "--scope", "run,access", "--policy", "open"]);
    let key = keys.end().stdout.trim().to_owned();
    let code = gate.with_ports(
        "import urllib.request as u\nu.urlopen('http://origin.example:@PLAIN/a').read()\ntry: u.urlopen('http://evil.example/')\nexcept OSError: pass",
    );
    let arguments = json!({"language": "python", "code": code, "access": ["web"]});
    let ran = functional::keys::call(&server, &key, "run", arguments);
    assert_eq!(outcome(&ran), "completed", "{ran:#}");
    let metric = |name: &str| server.metric(name);
    assert_eq!(metric("palisade_egress_connections_total{verdict=\"allowed\"}"), 1.0);
    assert_eq!(metric("palisade_egress_connections_total{verdict=\"refused\"}"), 1.0);
    assert!(metric("palisade_egress_bytes_total{direction=\"in\"}") > 20.0);
}
