//! The programs of `examples/`, as their own words say.

use functional::gate::Gate;
use harness::{Ended, users};

const TOKEN: &str = "example-token-0123456789";
const SECRETS: &str = "secrets = { API_TOKEN = \"api\" }\n";

fn example(gate: &Gate, language: &str, name: &str, address: &str) -> Ended {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let certificate = gate.certificate();
    let options =
        ["--input", certificate.to_str().unwrap(), "--env", "SSL_CERT_FILE=/workspace/certificate.pem"];
    let program = format!("{folder}/{name}");
    let args =
        [&["run", language, "--access", "web", "--timeout", "60s"][..], &options, &[&program, address]];
    gate.palisade(users()[0], &args.concat()).end()
}

#[test]
fn a_program_fetches_a_page_of_an_allowed_host() {
    let Some(gate) = Gate::start("") else { return };
    let ended = example(&gate, "python", "fetch.py", &gate.with_ports("https://origin.example:@TLS/status"));
    assert_eq!(ended.stdout, "200 hello /status\n", "{ended:?}");
    let refused = example(&gate, "python", "fetch.py", "https://elsewhere.example/");
    assert!(refused.stderr.contains("host_denied"), "{refused:?}");
}

#[test]
fn a_program_sends_a_token_that_its_output_does_not_contain() {
    let Some(gate) = Gate::start(SECRETS) else { return };
    let set =
        gate.palisade(users()[0], &["secret", "set", "api"]).stdin(format!("{TOKEN}\n").as_bytes()).end();
    assert!(set.status.success(), "{set:?}");
    let ended = example(&gate, "bash", "token.sh", &gate.with_ports("http://origin.example:@PLAIN/items"));
    // The origin answers with what it was sent.
    assert!(ended.status.success() && ended.stdout.starts_with("token="), "{ended:?}");
    assert!(!ended.stdout.contains(TOKEN) && ended.stdout.len() > "token=".len(), "{ended:?}");
}
