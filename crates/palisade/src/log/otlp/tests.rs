//! The exporter against a collector in the test.

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::json;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt;

use super::super::layer::LogLayer;
use super::super::{Log, Sink};
use super::*;

struct Nowhere;

impl Sink for Nowhere {
    fn write(&self, _: &[u8]) -> bool {
        true
    }

    fn is_terminal(&self) -> bool {
        false
    }
}

/// Answers one request with that status, and returns the request.
fn collector(status: u16) -> (String, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let heard = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            let count = stream.read(&mut piece).unwrap();
            bytes.extend_from_slice(&piece[..count]);
            let text = String::from_utf8(bytes.clone()).unwrap();
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.split("Content-Length: ").nth(1).unwrap().lines().next().unwrap();
            if body.len() >= length.parse::<usize>().unwrap() || count == 0 {
                write!(stream, "HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n").unwrap();
                return text;
            }
        }
    });
    (endpoint, heard)
}

/// Runs `work` while its spans are sent to that address, until all were sent.
fn during(endpoint: &str, failures: &Arc<Failures>, work: impl FnOnce()) {
    let log = Arc::new(Log::new(Box::new(Nowhere), terminal::Paint::off()));
    let exporter = Exporter::start(endpoint, Arc::clone(failures)).unwrap();
    assert!(log.exporter.set(exporter).is_ok());
    let subscriber = Registry::default().with(LogLayer::new(Arc::clone(&log)));
    tracing::subscriber::with_default(subscriber, work);
    log.exporter.get().unwrap().finish();
}

fn value_of<'a>(span: &'a Value, key: &str) -> &'a Value {
    let attributes = span["attributes"].as_array().unwrap();
    attributes.iter().find(|attribute| attribute["key"] == key).map_or(&Value::Null, |found| &found["value"])
}

#[test]
fn a_run_is_sent_with_id_outcome_and_duration_and_nothing_else() {
    let (endpoint, heard) = collector(200);
    let failures = Arc::default();
    during(&endpoint, &failures, || {
        let run = tracing::info_span!(
            "run",
            run_id = "run_1",
            outcome = tracing::field::Empty,
            code = "SECRET",
            stdout = "SECRET"
        );
        let _inside = run.enter();
        tracing::debug_span!("lease", is_spare = true, count = 3).in_scope(|| {});
        tracing::error_span!(target: "rmcp::service", "SECRET", run_id = "SECRET").in_scope(|| {});
        tracing::error!(text = "SECRET", "SECRET");
        run.record("outcome", "completed");
    });
    let request = heard.join().unwrap();
    assert!(request.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{request}");
    assert!(!request.contains("SECRET"), "{request}");
    let body: Value = serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
    let spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    let named = |name: &str| spans.iter().find(|span| span["name"] == name).unwrap();
    let (run, lease) = (named("run"), named("lease"));
    assert_eq!(spans.len(), 2);
    assert_eq!(value_of(run, "run_id"), &json!({ "stringValue": "run_1" }));
    assert_eq!(value_of(run, "outcome"), &json!({ "stringValue": "completed" }));
    assert_eq!(value_of(lease, "is_spare"), &json!({ "boolValue": true }));
    assert_eq!((&lease["traceId"], &lease["parentSpanId"]), (&run["traceId"], &run["spanId"]));
    assert!(run.get("parentSpanId").is_none());
    let time = |span: &Value, key: &str| span[key].as_str().unwrap().parse::<u128>().unwrap();
    assert!(time(run, "endTimeUnixNano") >= time(lease, "endTimeUnixNano"));
    assert!(time(lease, "startTimeUnixNano") >= time(run, "startTimeUnixNano"));
    assert_eq!(failures.counts()[FailureKind::Export as usize], 0);
}

#[test]
fn a_collector_that_refuses_or_is_not_there_is_counted() {
    let (endpoint, heard) = collector(503);
    let failures = Arc::default();
    during(&endpoint, &failures, || drop(tracing::info_span!("run").entered()));
    heard.join().unwrap();
    assert_eq!(failures.counts()[FailureKind::Export as usize], 1);
    // The port is closed by now.
    during(&endpoint, &failures, || drop(tracing::info_span!("run").entered()));
    assert_eq!(failures.counts()[FailureKind::Export as usize], 2);
}

#[test]
fn a_full_queue_holds_nobody_up_and_what_is_lost_is_counted() {
    // The collector accepts the connection and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let failures = Arc::<Failures>::default();
    let exporter = Exporter::start(&endpoint, Arc::clone(&failures)).unwrap();
    for _ in 0..QUEUE_MAX + 2 * BATCH_MAX {
        exporter.send(Traced::begin(None).unwrap().end("run", Fields::default()));
    }
    assert!(failures.counts()[FailureKind::Export as usize] > 0);
    let finishing = Instant::now();
    exporter.finish();
    assert!(finishing.elapsed() < 2 * FINISH_PATIENCE);
}

#[test]
fn addresses_are_completed_as_the_protocol_has_it() {
    let collector = |endpoint: &str| Collector::new(endpoint).unwrap();
    let whole = |collector: Collector| format!("{collector:?}");
    assert!(whole(collector("http://collector")).contains("port: 4318, path: \"/v1/traces\""));
    assert!(whole(collector("http://[::1]:9/base/")).contains("port: 9, path: \"/base/v1/traces\""));
}
