//! Calls that a human must allow, while the program waits: at the command line, by the form of the older era, and by the
//! form of the newer era. Nothing is replayed.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Stdio};

use functional::{SOON, until};
use serde_json::{Value, json};

use super::{Upstream, python};

/// Prints once before and once after the call, so that a replay would show.
const WRITES: &str = "print('begun', flush=True)\n\
                      try: print(tools.small.write(b=1))\n\
                      except tools.Error as e: print(e.code)";

/// The id of the question that waits.
fn asked(upstream: &Upstream) -> String {
    until(SOON, "a call waits", || {
        let ended = upstream.palisade(&["approvals", "list", "--json"]).end();
        let listed: Vec<Value> = serde_json::from_str(&ended.stdout).ok()?;
        listed.first().map(|one| one["id"].as_str().unwrap().to_owned())
    })
}

fn approve(upstream: &Upstream, id: &str) {
    let ended = upstream.palisade(&["approvals", "approve", id]).end();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
}

#[test]
fn a_call_that_asks_is_approved_at_the_command_line_while_the_program_waits() {
    let upstream = Upstream::new();
    let client = upstream.client();
    let run = client.begin("run", python(WRITES));
    let id = asked(&upstream);
    assert_eq!(upstream.noted("writes"), 0);
    approve(&upstream, &id);
    let result = run.result();
    assert_eq!(result["stdout"], "begun\n{'b': 1}\n", "{result:#}");
    assert_eq!(upstream.noted("writes"), 1);
}

#[test]
fn a_command_shows_the_question_of_a_call_and_no_line_of_a_log() {
    let upstream = Upstream::new();
    let accepted = upstream.palisade(&["tools", "accept", "small"]).end();
    assert_eq!((accepted.status.code(), accepted.stderr.as_str()), (Some(0), ""), "{accepted:?}");
    let called = upstream.palisade(&["tools", "call", "small.echo", "a=1"]).end();
    assert_eq!((called.status.code(), called.stderr.as_str()), (Some(0), ""), "{called:?}");
    let run = upstream.palisade(&["run", "--access", "small", "python", "-c", WRITES]);
    let ended = std::thread::scope(|scope| {
        let run = scope.spawn(|| run.end());
        approve(&upstream, &asked(&upstream));
        run.join().unwrap()
    });
    assert_eq!(ended.stdout, "begun\n{'b': 1}\n", "{ended:?}");
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert!(lines.len() == 1 && lines[0].contains("palisade approvals approve apr_"), "{ended:?}");
}

/// `palisade mcp` and a client that can show forms, in the older era or the newer one.
struct FormClient {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    is_modern: bool,
    next: u64,
}

impl FormClient {
    fn start(upstream: &Upstream, is_modern: bool) -> Self {
        let accepted = upstream.palisade(&["tools", "accept", "small"]).end();
        assert_eq!(accepted.status.code(), Some(0), "{accepted:?}");
        let mut command = upstream.palisade(&["mcp"]).into_command();
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut client = Self { child, lines, is_modern, next: 0 };
        if !is_modern {
            let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}},
                "clientInfo": {"name": "suite", "version": "1"}});
            let id = client.send("initialize", hello);
            client.answer(id);
            client.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        }
        client
    }

    fn write(&mut self, message: &Value) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn send(&mut self, method: &str, mut params: Value) -> u64 {
        self.next += 1;
        if self.is_modern {
            params["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
                "io.modelcontextprotocol/clientInfo": {"name": "suite", "version": "1"}});
        }
        let id = self.next;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    fn until(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message: Value = serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap();
            if is_it(&message) {
                return message;
            }
        }
    }

    fn answer(&mut self, id: u64) -> Value {
        self.until(|message| message["id"] == id && message.get("method").is_none())["result"].clone()
    }

    /// Calls `run`, and again with what the user answered to the questions of its answers.
    fn run_answering(&mut self, answer: &Value) -> (Value, Vec<Value>) {
        let (call, mut forms) = (json!({"name": "run", "arguments": python(WRITES)}), Vec::new());
        let mut id = self.send("tools/call", call.clone());
        if !self.is_modern {
            let form = self.until(|message| message["method"] == "elicitation/create");
            self.write(&json!({"jsonrpc": "2.0", "id": form["id"], "result": answer}));
            forms.push(form);
            return (self.answer(id), forms);
        }
        loop {
            let result = self.answer(id);
            if result["resultType"] != "input_required" {
                return (result, forms);
            }
            let mut again = call.clone();
            again["requestState"] = result["requestState"].clone();
            again["inputResponses"] = json!({ "approval": answer });
            forms.push(result["inputRequests"]["approval"].clone());
            id = self.send("tools/call", again);
        }
    }
}

impl Drop for FormClient {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn is_decided_by_form(is_modern: bool) {
    for (decision, told, writes) in
        [("approve", "begun\n{'b': 1}\n", 1), ("deny", "begun\napproval_denied\n", 0)]
    {
        let upstream = Upstream::new();
        let mut client = FormClient::start(&upstream, is_modern);
        let answer = json!({"action": "accept", "content": {"decision": decision}});
        let (result, forms) = client.run_answering(&answer);
        assert_eq!(result["structuredContent"]["stdout"], told, "{result:#}");
        assert_eq!((forms.len(), upstream.noted("writes")), (1, writes), "{forms:#?}");
        let message = forms[0]["params"]["message"].as_str().unwrap();
        assert!(message.contains("small.write") && message.contains("b: 1"), "{message}");
    }
}

#[test]
fn a_client_of_the_older_era_decides_by_a_form_while_the_program_waits() {
    is_decided_by_form(false);
}

#[test]
fn a_client_of_the_newer_era_decides_by_a_form_and_comes_back_to_the_same_run() {
    is_decided_by_form(true);
}

#[test]
fn a_form_without_a_choice_leaves_the_question_to_the_operator() {
    for is_modern in [false, true] {
        let upstream = Upstream::new();
        let mut client = FormClient::start(&upstream, is_modern);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let id = asked(&upstream);
                // The client answers first: the operator decides what is left open.
                until(SOON, "the form is answered", || upstream.path("answered").exists().then_some(()));
                approve(&upstream, &id);
            });
            let call = json!({"name": "run", "arguments": python(WRITES)});
            let id = client.send("tools/call", call.clone());
            let declined = json!({"action": "decline"});
            let id = match is_modern {
                false => {
                    let form = client.until(|message| message["method"] == "elicitation/create");
                    client.write(&json!({"jsonrpc": "2.0", "id": form["id"], "result": declined}));
                    id
                }
                true => {
                    let state = client.answer(id)["requestState"].clone();
                    let mut again = call;
                    again["requestState"] = state;
                    again["inputResponses"] = json!({ "approval": declined });
                    client.send("tools/call", again)
                }
            };
            std::fs::write(upstream.path("answered"), "").unwrap();
            let result = client.answer(id);
            assert_eq!(result["structuredContent"]["stdout"], "begun\n{'b': 1}\n", "{result:#}");
        });
        assert_eq!(upstream.noted("writes"), 1);
    }
}
