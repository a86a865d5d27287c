//! Upstreams that lie, Palisade as its own upstream, and a server that is killed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use functional::http::Server;
use functional::{SOON, until};
use harness::mcp::Client;
use harness::{Build, binary};
use serde_json::json;

use super::{Upstream, is_alive, python};

/// How long an upstream may live after Palisade was killed.
const GONE_WITHIN: Duration = Duration::from_secs(2);

#[test]
fn sigkill_of_the_server_in_mid_call_leaves_no_upstream_for_two_seconds() {
    let upstream = Upstream::new();
    let mut client = upstream.client();
    let run = client.begin("run", python("print(tools.small.echo(a=1), flush=True); tools.small.sleep()"));
    until(SOON, "the call is with the upstream", || (upstream.noted("sleeps") == 1).then_some(()));
    let pid = upstream.pid().unwrap();
    assert!(is_alive(pid));
    client.kill();
    until(GONE_WITHIN, "the upstream is gone", || (!is_alive(pid)).then_some(()));
    assert!(run.answer().is_none());
}

#[test]
fn a_server_that_is_itself_an_upstream_offers_no_tools() {
    let upstream = Upstream::new();
    let client = Client::start(upstream.palisade(&["mcp"]).env("PALISADE_TOOLS_DEPTH", "1"));
    let result = client.call("run", python("1"));
    assert_eq!(result["error"]["code"], "access_unknown", "{result:#}");
}

/// What a program is told that calls a tool of Palisade, configured as its own upstream.
fn told_of_itself(section: &str) -> String {
    let upstream = Upstream::empty();
    upstream.configure(&section.replace("FOLDER", upstream.folder.path().to_str().unwrap()));
    let palisade = binary(Build::Real);
    symlink(palisade, upstream.path("other-name")).unwrap();
    let wrapper = upstream.path("wrapper.sh");
    fs::write(&wrapper, format!("#!/bin/sh\nunset PALISADE_TOOLS_DEPTH\nexec {} mcp\n", palisade.display()))
        .unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    let client = Client::start(upstream.palisade(&["mcp"]));
    let code = "try: print(tools.me.run(language='python', code='1'))\nexcept tools.Error as e: print(e)";
    let result = client.call("run", json!({"language": "python", "code": code, "access": ["me"]}));
    result["stdout"].as_str().unwrap_or_else(|| panic!("{result:#}")).to_owned()
}

#[test]
fn itself_as_upstream_by_a_link_is_refused() {
    let told = told_of_itself(
        "[tools.servers.me]\ncommand = \"FOLDER/other-name\"\nargs = [\"mcp\"]\nwall = \"none\"\n",
    );
    assert!(told.contains("Palisade itself"), "{told}");
}

#[test]
fn itself_as_upstream_by_a_wrapper_is_refused() {
    let told = told_of_itself("[tools.servers.me]\ncommand = \"FOLDER/wrapper.sh\"\nwall = \"none\"\n");
    assert!(told.contains("Palisade itself"), "{told}");
}

#[test]
fn itself_as_upstream_by_its_url_is_refused() {
    let server = Server::start();
    let section = format!(
        "[tools.servers.me]\nurl = \"http://{}/mcp\"\nheaders = {{ Authorization = \"Bearer {}\" }}\n",
        server.address, server.token
    );
    let told = told_of_itself(&section);
    assert!(told.contains("Palisade itself"), "{told}");
}

#[test]
fn results_with_instructions_reach_the_program_and_not_the_model() {
    let upstream = Upstream::new();
    let client = upstream.client();
    let code = "text = tools.small.preach()\nprint(type(text).__name__, len(text) > 20)";
    let whole = client.call_whole("run", python(code));
    assert_eq!(whole["structuredContent"]["stdout"], "str True\n", "{whole:#}");
    assert!(!whole.to_string().contains("ignore previous"), "{whole:#}");
    assert_eq!(upstream.noted("writes"), 0);
}

#[test]
fn credentials_are_redacted_from_results_errors_and_resources() {
    let upstream = Upstream::empty();
    let token = upstream.path("token");
    fs::write(&token, "tok-0123456789abcdef\n").unwrap();
    upstream.configure(&upstream.small(&format!("env = {{ TOKEN = \"${{file:{}}}\" }}", token.display())));
    let client = upstream.client();
    let code = "import json\nprint(json.dumps(tools.small.leak.raw()), tools.read('small', 'docs://x').text)\n\
                try: tools.small.leak(fails=True)\nexcept tools.Error as e: print(e, e.content)\n\
                display(tools.small.leak())";
    let whole = client.call_whole("run", python(code));
    assert!(!whole.to_string().contains("tok-0123456789abcdef"), "{whole:#}");
    let told = whole["structuredContent"]["stdout"].as_str().unwrap();
    assert!(told.matches("[redacted]").count() >= 6, "{whole:#}");
}

#[test]
fn a_crash_in_mid_call_is_told_to_the_program_and_the_server_is_started_again() {
    let upstream = Upstream::new();
    let client = upstream.client();
    let code = "try: tools.small.crash()\nexcept tools.Error as e: print(e.code, e.may_have_run)\n\
                print(tools.small.echo(a=2))";
    let result = client.call("run", python(code));
    assert_eq!(result["stdout"], "server_ended True\n{'a': 2}\n", "{result:#}");
}
