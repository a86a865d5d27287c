//! The format of log lines, and which events are logged.

use std::sync::Mutex;

use serde_json::json;

use super::*;

/// Stores lines up to its capacity.
struct Memory {
    lines: Arc<Mutex<Vec<String>>>,
    has_room: Arc<Mutex<bool>>,
}

impl Sink for Memory {
    fn write(&self, line: &[u8]) -> bool {
        let has_room = *self.has_room.lock().unwrap();
        if has_room {
            self.lines.lock().unwrap().push(String::from_utf8(line.to_vec()).unwrap());
        }
        has_room
    }

    fn is_terminal(&self) -> bool {
        false
    }
}

struct Scene {
    log: Arc<Log>,
    lines: Arc<Mutex<Vec<String>>>,
    has_room: Arc<Mutex<bool>>,
}

impl Scene {
    fn new(level: LogLevel, format: LogFormat) -> Self {
        let (lines, has_room) = (Arc::default(), Arc::new(Mutex::new(true)));
        let sink = Memory { lines: Arc::clone(&lines), has_room: Arc::clone(&has_room) };
        let log = Arc::new(Log::new(Box::new(sink), Paint::off()));
        log.configure(level, format);
        Self { log, lines, has_room }
    }

    /// The lines written during `work`.
    fn during(&self, work: impl FnOnce()) -> Vec<String> {
        let subscriber = Registry::default().with(LogLayer::new(Arc::clone(&self.log)));
        tracing::subscriber::with_default(subscriber, work);
        std::mem::take(&mut self.lines.lock().unwrap())
    }
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

#[test]
fn a_line_is_one_json_object() {
    let scene = Scene::new(LogLevel::Info, LogFormat::Json);
    let lines = scene.during(|| {
        let cause: Option<&str> = None;
        tracing::info!(outcome = %"a\nb", wall_ms = 1.5, count = 3_u64, is_tls = true, cause, "run_ended");
    });
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].matches('\n').count(), 1);
    let mut line = parsed(&lines[0]);
    assert!(line["time_ms"].as_u64().unwrap() > 1_700_000_000_000);
    line.as_object_mut().unwrap().remove("time_ms");
    let wanted = json!({ "level": "info", "event": "run_ended", "outcome": "a\nb", "wall_ms": 1.5, "count": 3, "is_tls": true });
    assert_eq!(line, wanted);
}

#[test]
fn lines_that_nobody_could_read_are_counted_and_told() {
    let scene = Scene::new(LogLevel::Info, LogFormat::Json);
    *scene.has_room.lock().unwrap() = false;
    assert!(scene.during(|| (0..3).for_each(|_| tracing::info!("lost"))).is_empty());
    *scene.has_room.lock().unwrap() = true;
    let lines = scene.during(|| (0..2).for_each(|_| tracing::info!("seen")));
    assert_eq!(parsed(&lines[0])["lines_dropped"], 3);
    assert!(parsed(&lines[1]).get("lines_dropped").is_none());
}

#[test]
fn events_of_other_crates_never_get_through() {
    let scene = Scene::new(LogLevel::Trace, LogFormat::Json);
    let lines = scene.during(|| {
        tracing::error!(target: "rmcp::service", request = "SECRET", "SECRET");
        tracing::error!(target: "hyper::proto::h1", "SECRET");
        tracing::error!(target: "rustls", "SECRET");
        tracing::error!(target: "engineering::tool", "SECRET");
        tracing::error!(target: "palisade_plugin", "SECRET");
        tracing::error!(target: "", "SECRET");
        let theirs =
            tracing::error_span!(target: "rmcp::service", "request", run_id = "SECRET", principal = "SECRET");
        let _inside = theirs.enter();
        tracing::trace!(target: "engine", "own");
        tracing::error!(target: "mcp::tools::run", "own");
        tracing::error!(target: "service", "own");
    });
    assert!(!lines.concat().contains("SECRET"), "{lines:?}");
    assert_eq!(lines.len(), 3);
}

#[test]
fn an_event_says_which_run_it_is_about() {
    let scene = Scene::new(LogLevel::Info, LogFormat::Json);
    let lines = scene.during(|| {
        let outer = tracing::info_span!("run", run_id = "run_1", principal = "local", language = "python");
        let _outer = outer.enter();
        let inner = tracing::info_span!("live_run", sandbox_id = tracing::field::Empty);
        inner.record("sandbox_id", "sbx_1");
        let _inner = inner.enter();
        tracing::warn!(run_id = "run_2", "about_another");
        tracing::warn!("about_this");
    });
    let (another, this) = (parsed(&lines[0]), parsed(&lines[1]));
    assert_eq!(another["run_id"], "run_2");
    assert_eq!((&this["run_id"], &this["sandbox_id"]), (&json!("run_1"), &json!("sbx_1")));
    assert_eq!(this["principal"], "local");
    assert!(this.get("language").is_none(), "only what identifies a run is repeated: {this}");
}

#[test]
fn what_is_not_wanted_costs_no_formatting() {
    struct Untouchable;
    impl std::fmt::Display for Untouchable {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("a field of an event that is off was formatted")
        }
    }
    let scene = Scene::new(LogLevel::Error, LogFormat::Json);
    let layer = LogLayer::new(Arc::clone(&scene.log));
    let hint = tracing_subscriber::Layer::<Registry>::max_level_hint(&layer);
    assert_eq!(hint, Some(tracing::level_filters::LevelFilter::ERROR));
    let lines = scene.during(|| {
        tracing::warn!(reason = %Untouchable, "off");
        assert!(tracing::info_span!("run", run_id = %Untouchable).is_disabled());
    });
    assert!(lines.is_empty());
}

#[test]
fn a_line_for_people_is_readable_and_cannot_drive_the_terminal() {
    let scene = Scene::new(LogLevel::Info, LogFormat::Pretty);
    let lines = scene.during(|| {
        tracing::warn!(reason = %"not found", address = "127.0.0.1:8808", count = 2_u64, name = %"\x1b[2J", "listening");
    });
    let (time, rest) = lines[0].split_at(14);
    assert!(time.starts_with(|c: char| c.is_ascii_digit()) && time.ends_with("Z "), "{time:?}");
    let wanted = "WARN  listening reason=\"not found\" address=127.0.0.1:8808 count=2 name=\"\\u{1b}[2J\"\n";
    assert_eq!(rest, wanted);
}

#[test]
fn people_and_collectors_get_what_they_can_read() {
    assert_eq!(Shape::of(LogFormat::Auto, true), Shape::Pretty);
    assert_eq!(Shape::of(LogFormat::Auto, false), Shape::Json);
    assert_eq!(Shape::of(LogFormat::Json, true), Shape::Json);
    assert_eq!(Shape::of(LogFormat::Pretty, false), Shape::Pretty);
}
