//! Secrets: one run has them, and nothing that comes back or stays behind does.

use std::fs;

use functional::gate::Gate;
use functional::{files_beneath, outcome};
use harness::{User, state_dir, users};
use serde_json::{Value, json};

const VALUE: &str = "pl-S3cret/v+lue&0123456789";
const CONFIG: &str = "[access.token]\nabout = \"a token\"\nsecrets = { API_TOKEN = \"api\" }\n\
    [access.bound]\negress = [\"origin.example:@TLS loopback\"]\nsecrets = { BOUND_TOKEN = { secret = \"api\", hosts = [\"origin.example:@TLS loopback\"] } }\n";

fn set(gate: &Gate, user: User) {
    let ended = gate.palisade(user, &["secret", "set", "api"]).stdin(format!("{VALUE}\n").as_bytes()).end();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(gate.palisade(user, &["secret", "list"]).end().stdout, "api\n");
}

/// Every form of the value that is searched for.
fn is_clean(text: &str) -> bool {
    let hex: String = VALUE.bytes().map(|byte| format!("{byte:02x}")).collect();
    let forms = [
        VALUE,
        "cGwtUzNjcmV0L3YrbHVl",
        "wtUzNjcmV0L3YrbHVlJj",
        "bC1TM2NyZXQvditsdWUm",
        &hex,
        "pl-S3cret%2Fv%2Blue%26",
    ];
    forms.iter().all(|form| !text.contains(form))
}

#[test]
fn a_secret_is_given_to_the_run_that_asks_for_it() {
    let Some(gate) = Gate::start(CONFIG) else { return };
    for user in users() {
        set(&gate, user);
        let client = gate.client(user);
        let code = "import os, subprocess\nvalue = os.environ.get('API_TOKEN', '')\nprint(len(value), value[:3], len(subprocess.run(['sh', '-c', 'echo \"$API_TOKEN\"'], capture_output=True).stdout))";
        let run =
            |access: Value| client.call("run", json!({"language": "python", "code": code, "access": access}));
        let with = run(json!(["token"]));
        assert_eq!(with["stdout"], format!("{} pl- {}\n", VALUE.len(), VALUE.len() + 1), "{with:#}");
        assert_eq!(run(json!([]))["stdout"], "0  1\n");
        let note = with["isolation"]["guarantees"]["network_none"]["note"].as_str().unwrap();
        assert_eq!(note, "none but the gate: no host");
    }
}

#[test]
fn a_secret_is_taken_out_of_everything_that_a_program_reports() {
    let Some(gate) = Gate::start(CONFIG) else { return };
    set(&gate, User::Root);
    let client = gate.client(User::Root);
    let code = r#"
import os, sys, base64, json, urllib.parse, time
value = os.environ["API_TOKEN"]
for n in range(len(value)):
    sys.stdout.write(value[n]); sys.stdout.flush(); time.sleep(0.002)
print(); print(value, file=sys.stderr); print(json.dumps({"a": value})); print(value.encode().hex()); print(value.encode().hex().upper())
for n in range(3): print(base64.b64encode(b"x" * n + value.encode()).decode())
print(urllib.parse.quote(value, safe="")); print(urllib.parse.quote_plus(value)); print(value * 3)
os.write(1, b"." * 65530 + value.encode())
"#;
    for tail in [
        "\nvalue",
        "\nraise ValueError(value)",
        "\nclass Shown:\n  def _repr_html_(self): return '<b>' + value + '</b>'\nShown()",
    ] {
        let arguments = json!({"language": "python", "code": format!("{code}{tail}"), "access": ["token"]});
        let result = client.call("run", arguments);
        let text = result.to_string();
        assert!(is_clean(&text), "{tail}: {text}");
        assert!(text.matches("[redacted:API_TOKEN]").count() >= 10, "{tail}: {text}");
    }
}

#[test]
fn nothing_of_a_secret_stays_in_the_state_directory() {
    let Some(gate) = Gate::start(CONFIG) else { return };
    for user in users() {
        set(&gate, user);
        let client = gate.client(user);
        let sandbox = client.open(json!({"access": ["token"]}));
        let code = "import os; print(os.environ['API_TOKEN']); len(os.environ['API_TOKEN'])";
        for language_run in [json!({"access": ["token"]}), json!({})] {
            let result = client.run_with(&sandbox, "python", code, language_run.clone());
            let expected = if language_run.get("access").is_some() { "completed" } else { "failed" };
            assert_eq!(outcome(&result), expected, "what a run was given is taken back: {result:#}");
            client.call(
                "run",
                json!({"language": "bash", "code": "echo $API_TOKEN", "access": language_run["access"]}),
            );
        }
        drop(client);
        for path in files_beneath(&state_dir(user)) {
            let is_kept = path.ends_with("secrets/api");
            let Ok(bytes) = fs::read(&path) else { continue };
            let found = bytes.windows(VALUE.len()).any(|window| window == VALUE.as_bytes());
            assert_eq!(found, is_kept, "{}", path.display());
        }
    }
}

#[test]
fn a_secret_with_hosts_is_given_only_to_a_run_that_reaches_nothing_else() {
    let Some(gate) = Gate::start(CONFIG) else { return };
    set(&gate, User::Root);
    let client = gate.client(User::Root);
    let run = |access: Value| {
        client.call("run", json!({"language": "python", "code": "import os; print(len(os.environ['BOUND_TOKEN']))", "access": access}))
    };
    assert_eq!(run(json!(["bound"]))["stdout"], format!("{}\n", VALUE.len()));
    let result = run(json!(["bound", "web"]));
    assert_eq!(
        (outcome(&result), result["error"]["code"].as_str()),
        ("refused", Some("secret_hosts")),
        "{result:#}"
    );
}

#[test]
fn a_missing_secret_refuses_the_run_and_a_removed_one_is_gone() {
    let Some(gate) = Gate::start(CONFIG) else { return };
    set(&gate, User::Root);
    assert!(gate.palisade(User::Root, &["secret", "rm", "api"]).end().status.success());
    assert!(!gate.palisade(User::Root, &["secret", "rm", "api"]).end().status.success());
    let listed = gate.palisade(User::Root, &["access", "list"]).end();
    assert!(listed.stdout.contains("gives API_TOKEN (MISSING"), "{listed:?}");
    let client = gate.client(User::Root);
    let result = client.call("run", json!({"language": "python", "code": "1", "access": ["token"]}));
    assert_eq!((outcome(&result), result["error"]["code"].as_str()), ("refused", Some("secret_unavailable")));
}
