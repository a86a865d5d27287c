//! `/metrics`: counters and levels of this server for Prometheus (text exposition format 0.0.4).

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::telemetry::{BOUNDS_US, Discard, PoolSnapshot, Snapshot, Times};

/// The reason for refusing a caller before it reached a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    Host,
    Origin,
    Token,
    /// No slot was free.
    Connection,
    /// The connection lost its slot.
    Idle,
    Tls,
    Body,
    /// The file URL is invalid or expired.
    FileUrl,
    /// The peer is none of the proxies.
    Peer,
}

impl Refusal {
    const ALL: [Self; 9] = [
        Self::Host,
        Self::Origin,
        Self::Token,
        Self::Connection,
        Self::Idle,
        Self::Tls,
        Self::Body,
        Self::FileUrl,
        Self::Peer,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Origin => "origin",
            Self::Token => "token",
            Self::Connection => "connections_full",
            Self::Idle => "idle",
            Self::Tls => "tls",
            Self::Body => "body",
            Self::FileUrl => "link",
            Self::Peer => "peer",
        }
    }
}

/// The counters of the transport.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    refusals: [AtomicU64; Refusal::ALL.len()],
    pub(crate) requests: AtomicU64,
    pub(crate) request_bytes: AtomicU64,
}

impl Counters {
    pub(crate) fn refused(&self, refusal: Refusal) {
        self.refusals[refusal as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Values measured at the time of the request.
pub(crate) struct Levels {
    pub(crate) connections: usize,
    pub(crate) requests: usize,
    pub(crate) sessions: usize,
}

/// Renders the page.
pub(crate) fn page(counters: &Counters, levels: &Levels, runs: &Snapshot) -> String {
    let mut page = Page::default();
    page.head("palisade_info", "gauge", "The version that runs.");
    page.sample("palisade_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    page.head("palisade_http_refusals_total", "counter", "Connections and requests turned away, by reason.");
    for refusal in Refusal::ALL {
        let count = counters.refusals[refusal as usize].load(Ordering::Relaxed);
        page.sample("palisade_http_refusals_total", &[("reason", refusal.name())], count as f64);
    }
    let single = [
        (
            "palisade_http_requests_total",
            "counter",
            "Requests to /mcp.",
            counters.requests.load(Ordering::Relaxed),
        ),
        (
            "palisade_http_request_bytes_total",
            "counter",
            "Bytes of bodies of requests to /mcp.",
            counters.request_bytes.load(Ordering::Relaxed),
        ),
        ("palisade_http_connections", "gauge", "Open connections.", levels.connections as u64),
        ("palisade_http_requests_in_flight", "gauge", "Requests under way.", levels.requests as u64),
        (
            "palisade_mcp_sessions",
            "gauge",
            "Open sessions of clients that have sessions.",
            levels.sessions as u64,
        ),
    ];
    for (name, kind, help, value) in single {
        page.head(name, kind, help);
        page.sample(name, &[], value as f64);
    }
    put_runs(&mut page, runs);
    page.0
}

fn put_runs(page: &mut Page, runs: &Snapshot) {
    page.head("palisade_runs_total", "counter", "Runs that ended, by language and outcome.");
    for (language, outcome, count) in &runs.runs {
        let labels = [("language", *language), ("outcome", outcome.name())];
        page.sample("palisade_runs_total", &labels, *count as f64);
    }
    page.head("palisade_errors_total", "counter", "Errors that callers were told, by code.");
    for (code, count) in &runs.errors {
        page.sample("palisade_errors_total", &[("code", code)], *count as f64);
    }
    page.head("palisade_failures_total", "counter", "Failures that no caller sees, by kind.");
    for (kind, count) in &runs.failures {
        page.sample("palisade_failures_total", &[("kind", kind.name())], *count as f64);
    }
    put_egress(page, runs);
    let single = [
        ("palisade_output_bytes_total", "counter", "Bytes that programs wrote.", runs.output_bytes),
        (
            "palisade_store_failures_total",
            "counter",
            "Runs that the store did not take.",
            runs.store_failures,
        ),
        ("palisade_runs_live", "gauge", "Runs that have not ended.", runs.live),
        ("palisade_runs_waiting", "gauge", "Runs that wait for a place.", runs.waiting),
    ];
    for (name, kind, help, value) in single {
        page.head(name, kind, help);
        page.sample(name, &[], value as f64);
    }
    let name = "palisade_run_phase_seconds";
    page.head(name, "histogram", "How long the parts of runs took.");
    for times in &runs.phases {
        page.histogram(name, &[("phase", times.phase.name())], &times.times);
    }
    put_pools(page, &runs.pools);
}

/// What programs reached outside.
fn put_egress(page: &mut Page, runs: &Snapshot) {
    let egress = &runs.egress;
    page.head(
        "palisade_egress_connections_total",
        "counter",
        "Connections of programs to hosts, by verdict.",
    );
    for (verdict, count) in [("allowed", egress.allowed), ("refused", egress.refused)] {
        page.sample("palisade_egress_connections_total", &[("verdict", verdict)], count as f64);
    }
    page.head("palisade_egress_bytes_total", "counter", "Bytes between programs and hosts, by direction.");
    for (direction, count) in [("out", egress.bytes_out), ("in", egress.bytes_in)] {
        page.sample("palisade_egress_bytes_total", &[("direction", direction)], count as f64);
    }
}

/// The spares. A label names the wall where there are several.
fn put_pools(page: &mut Page, pools: &[PoolSnapshot]) {
    let of_wall = |pool: &PoolSnapshot| (pools.len() > 1).then_some(("wall", pool.wall));
    page.head("palisade_pool_spares", "gauge", "Sandboxes that are ready, by language and purpose.");
    for pool in pools {
        for level in &pool.levels {
            let labels = [("language", level.language.as_str()), ("purpose", level.purpose.name())];
            page.sample("palisade_pool_spares", &with(&labels, of_wall(pool)), level.ready as f64);
        }
    }
    page.head("palisade_pool_leases_total", "counter", "Runs that asked for a spare, by what they found.");
    for pool in pools {
        for (result, count) in [("hit", pool.hits), ("miss", pool.misses)] {
            let labels = with(&[("result", result)], of_wall(pool));
            page.sample("palisade_pool_leases_total", &labels, count as f64);
        }
    }
    page.head("palisade_pool_discards_total", "counter", "Spares that went unused, by reason.");
    for pool in pools {
        for (reason, count) in Discard::ALL.into_iter().zip(pool.discards) {
            let labels = with(&[("reason", reason.name())], of_wall(pool));
            page.sample("palisade_pool_discards_total", &labels, count as f64);
        }
    }
    page.head("palisade_pool_build_failures_total", "counter", "Spares that could not be built.");
    for pool in pools {
        let labels = with(&[], of_wall(pool));
        page.sample("palisade_pool_build_failures_total", &labels, pool.build_failures as f64);
    }
    let name = "palisade_pool_build_seconds";
    page.head(name, "histogram", "How long building a spare took, until its interpreter was ready.");
    for pool in pools {
        page.histogram(name, &with(&[], of_wall(pool)), &pool.builds);
    }
}

fn with<'a>(
    labels: &[(&'static str, &'a str)],
    wall: Option<(&'static str, &'a str)>,
) -> Vec<(&'static str, &'a str)> {
    labels.iter().copied().chain(wall).collect()
}

/// The text being built.
#[derive(Default)]
pub(crate) struct Page(String);

impl Page {
    pub(crate) fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n").unwrap_or_default();
    }

    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], times: &Times) {
        let bounds = BOUNDS_US.iter().map(|us| (*us as f64 / 1e6).to_string()).chain(["+Inf".to_owned()]);
        let mut total = 0;
        for (bound, count) in bounds.zip(&times.counts) {
            total += count;
            let labels = [labels, &[("le", bound.as_str())]].concat();
            self.sample(&format!("{name}_bucket"), &labels, total as f64);
        }
        self.sample(&format!("{name}_sum"), labels, times.sum_us as f64 / 1e6);
        self.sample(&format!("{name}_count"), labels, total as f64);
    }

    pub(crate) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> =
            labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        writeln!(self.0, "{name}{labels} {value}").unwrap_or_default();
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spares_name_their_wall_only_where_there_are_several() {
        let pool = |wall| PoolSnapshot { wall, hits: 3, ..PoolSnapshot::default() };
        let text = |pools: &[PoolSnapshot]| {
            let mut page = Page::default();
            put_pools(&mut page, pools);
            page.0
        };
        let one = text(&[pool("near")]);
        assert!(
            one.contains("palisade_pool_leases_total{result=\"hit\"} 3") && !one.contains("wall="),
            "{one}"
        );
        let two = text(&[pool("near"), pool("far")]);
        assert!(two.contains("palisade_pool_leases_total{result=\"hit\",wall=\"far\"} 3"), "{two}");
        assert_eq!(two.matches("# TYPE palisade_pool_leases_total").count(), 1, "{two}");
    }
}
