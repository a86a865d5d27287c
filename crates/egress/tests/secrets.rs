//! Secrets that are bound to hosts: which runs are given them.

use std::collections::BTreeMap;
use std::sync::Arc;

use egress::{Bundle, Gateway, GatewayConfig, Resolver, SecretGrant};
use engine::Caller;
use engine::access::{AccessBook, AccessCall, ReachLog, Secrets};
use harness::TestFolder;

/// The code with which a run is refused, or `None` if it is given the secret. The secret is bound to these hosts.
fn refusal(hosts: &[&str], reaches: &[&str], calls_tools: bool) -> Option<String> {
    let folder = TestFolder::new();
    let secrets = Secrets::new(folder.path());
    secrets.set("key", "a-value-of-some-length").unwrap();
    let rules = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    let grant =
        SecretGrant { variable: "KEY".to_owned(), secret: "key".parse().unwrap(), hosts: rules(hosts) };
    let bundle = Bundle { rules: rules(reaches), secrets: vec![grant], ..Bundle::default() };
    let gateway = Gateway::new(GatewayConfig {
        bundles: BTreeMap::from([("deploy".to_owned(), bundle)]),
        resolver: Resolver::System,
        upstream: None,
        secrets,
        log: Arc::new(ReachLog::new(folder.path())),
    });
    let (caller, names) = (Caller::local(), ["deploy".to_owned()]);
    let call = AccessCall { caller: &caller, run_id: None, sandbox: None, names: &names, calls_tools };
    match gateway.open(&call) {
        Ok(opened) => {
            assert_eq!(opened.secrets.len(), 1);
            None
        }
        Err(error) => Some(error.code.to_string()),
    }
}

#[test]
fn a_secret_with_hosts_is_not_given_to_a_run_that_calls_tools_of_other_servers() {
    let bound = ["deploy.example.org"];
    assert_eq!(refusal(&bound, &bound, false), None);
    assert_eq!(refusal(&bound, &bound, true).as_deref(), Some("secret_hosts"));
    assert_eq!(refusal(&[], &bound, true), None, "it is bound to nothing");
}

#[test]
fn a_secret_with_hosts_is_not_given_beside_a_wider_rule_or_another_port() {
    for other in ["*.example.org", "deploy.example.org:8443", "deploy.example.org:80 http", "10.0.0.1:443"] {
        let reaches = ["deploy.example.org", other];
        assert_eq!(
            refusal(&["deploy.example.org"], &reaches, false).as_deref(),
            Some("secret_hosts"),
            "{other}"
        );
    }
}
