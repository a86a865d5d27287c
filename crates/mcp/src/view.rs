//! The result of a run in the form of the contract (docs/TOOLS.md). This is the only file that knows its
//! field names.
//!
//! A [`RunView`] borrows from the result and is serialized once. Its fields depend on the phase. A run that
//! did not start has no output, no usage and no wall. A run that continues has its output so far.

use std::borrow::Cow;
use std::collections::BTreeMap;

use engine::access::{GATE_NOTE, Reached, ToolsUse};
use engine::packages::PackageVersion;
use engine::{
    BuildReport, ContextName, Display, Execution, Lasting, RunError, RunPhase, RunResult, RunUsage, Value,
};
use policy::Clamp;
use sandbox::{Enforced, Enforcement, Guarantee, Kernel, Outcome};
use serde::Serialize;
use wire::Exit;

use crate::render;

/// The result of a run as the caller sees it.
#[derive(Debug, Serialize)]
pub struct RunView<'a> {
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated: Option<TruncatedView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<ValueView<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    displays: Vec<DisplayView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a RunError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    artifacts: Option<Vec<ArtifactView<'a>>>,
    #[serde(skip_serializing_if = "<[Reached]>::is_empty")]
    egress: &'a [Reached],
    /// What was installed for the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    packages: Option<&'a [PackageVersion]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    install_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<&'a ToolsUse>,
    #[serde(skip_serializing_if = "Option::is_none")]
    compile: Option<CompileView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<RunUsage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    isolation: Option<IsolationView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    clamped: Option<&'a [Clamp]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warnings: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<&'a str>,
}

/// The last value of a program.
#[derive(Debug, Serialize)]
struct ValueView<'a> {
    repr: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    json: Option<&'a serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mime: Option<&'a str>,
}

/// Streams and values whose shown part is shorter than the whole.
#[derive(Debug, Default, Serialize)]
struct TruncatedView {
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr_bytes: Option<usize>,
    /// Size of the value's text.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_bytes: Option<usize>,
    /// The address of the whole streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    uri: Option<String>,
}

/// Upper bounds on the data behind displays in an answer: of one display, and of all together. The rest is read
/// by its address.
const JSON_BYTES_MAX: usize = 4000;
const JSONS_BYTES_MAX: usize = 8000;

/// A display of a program, without its content.
#[derive(Debug, Serialize)]
struct DisplayView<'a> {
    mime: &'static str,
    size_bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    width: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    height: Option<u32>,
    #[serde(skip_serializing_if = "str::is_empty")]
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    uri: Option<String>,
    /// The data behind it, if it is short.
    #[serde(skip_serializing_if = "Option::is_none")]
    json: Option<serde_json::Value>,
    /// The address of that data.
    #[serde(skip_serializing_if = "Option::is_none")]
    json_uri: Option<String>,
}

/// A file that a run created or changed.
#[derive(Debug, Default, Serialize)]
pub struct ArtifactView<'a> {
    pub(crate) path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) uri: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mime_type: Option<&'a str>,
    pub(crate) size_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sha256: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) download_url: Option<String>,
}

#[derive(Debug, Serialize)]
struct CompileView {
    cached: bool,
    ms: f64,
}

/// The wall that the run used.
#[derive(Debug, Default, Serialize)]
pub(crate) struct IsolationView<'a> {
    backend: &'a str,
    /// Whose kernel its programs reach: `shared` or `own`.
    kernel: &'static str,
    /// The mechanism that keeps each guarantee.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    guarantees: BTreeMap<&'static str, GuaranteeView>,
    /// Guarantees that are not kept, and the reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    absent: BTreeMap<&'static str, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum GuaranteeView {
    By {
        by: Vec<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    Absent {
        absent: String,
    },
}

/// Identifiers of a run that outlives its answer.
pub(crate) struct KnownBy<'a> {
    pub(crate) run_id: &'a str,
    /// The address of the whole output.
    pub(crate) log_uri: &'a str,
    /// The address of each display.
    pub(crate) display_uris: Vec<(String, Option<String>)>,
}

impl<'a> RunView<'a> {
    /// A run with all of its fields. Each stream longer than `inline_bytes_max` is cut to its head and tail.
    pub fn whole(result: &'a RunResult, inline_bytes_max: usize) -> Self {
        let isolation = IsolationView::whole(&result.backend, &result.execution().enforced);
        let execution = Self::executed(result, result.execution(), inline_bytes_max);
        Self { isolation: Some(isolation), ..execution }
    }

    /// A finished run for a model: of the wall, only deviations.
    pub(crate) fn of(result: &'a RunResult, inline_bytes_max: usize) -> Self {
        match &result.phase {
            RunPhase::NotStarted => Self::not_started(result),
            RunPhase::Finished(execution) => Self::executed(result, execution, inline_bytes_max),
        }
    }

    fn executed(result: &'a RunResult, execution: &'a Execution, inline_bytes_max: usize) -> Self {
        let Execution { stdout, stderr, enforced, .. } = execution;
        // For a run whose server ended, only the output is known.
        let is_known = *enforced != Enforced::default();
        let shown = |output: &[u8]| {
            let is_shown = is_known || !output.is_empty();
            is_shown.then(|| render::text(output, inline_bytes_max))
        };
        let artifacts = execution.artifacts.iter().map(|file| ArtifactView {
            path: &file.path,
            size_bytes: file.content.len() as u64,
            ..ArtifactView::default()
        });
        let (exit_code, signal) = match execution.exit {
            Some(Exit::Code(code)) => (Some(code), None),
            Some(Exit::Signal(signal)) => (None, Some(signal)),
            None => (None, None),
        };
        Self {
            exit_code,
            signal,
            stdout: shown(stdout),
            stderr: shown(stderr),
            truncated: TruncatedView::of(execution, inline_bytes_max),
            value: execution.value.as_ref().map(|value| ValueView::of(value, inline_bytes_max)),
            displays: DisplayView::all(&execution.displays, inline_bytes_max),
            artifacts: (!execution.artifacts.is_empty()).then(|| artifacts.collect()),
            compile: execution.compile.as_ref().map(CompileView::of),
            usage: is_known.then(|| usage(&execution.usage)),
            isolation: is_known.then(|| IsolationView::exceptions(&result.backend, enforced)),
            ..Self::not_started(result)
        }
    }

    fn not_started(result: &'a RunResult) -> Self {
        let clamped = Some(result.clamped.as_slice());
        let (error, warnings) = (result.error.as_ref(), Some(result.warnings.as_slice()));
        // Packages that were there before are no news.
        let install_ms = result.install_ms.map(rounded);
        let packages = install_ms.map(|_| result.packages.as_slice());
        let (egress, tools) = (result.egress.as_slice(), result.tools.as_ref());
        Self { error, clamped, warnings, egress, tools, packages, install_ms, ..Self::empty(result.outcome) }
    }

    /// A run that continues, with head and tail of its output so far.
    pub(crate) fn running(
        run_id: &'a str,
        output: Option<(String, String)>,
        log_uri: Option<String>,
    ) -> Self {
        let (stdout, stderr) = output.unzip();
        let uri = log_uri.map(|uri| TruncatedView { uri: Some(uri), ..TruncatedView::default() });
        let empty = Self::empty(Outcome::Running);
        Self { run_id: Some(run_id), stdout, stderr, truncated: uri, ..empty }
    }

    /// Adds addresses of the parts that the answer does not contain.
    pub(crate) fn known_by(mut self, known: KnownBy<'a>) -> Self {
        self.run_id = Some(known.run_id);
        // The log has the streams, not the value.
        if let Some(truncated) = self.truncated.as_mut().filter(|truncated| truncated.stdout_bytes.is_some())
        {
            truncated.uri = Some(known.log_uri.to_owned());
        }
        for (display, (uri, json_uri)) in self.displays.iter_mut().zip(known.display_uris) {
            (display.uri, display.json_uri) = (Some(uri), json_uri);
        }
        self
    }

    /// Adds the sandbox and the files of a run in a persistent sandbox.
    pub(crate) fn in_sandbox(self, lasting: &'a Lasting, files: Vec<ArtifactView<'a>>) -> Self {
        let (sandbox_id, context) = (lasting.sandbox.as_str(), lasting.context.as_ref());
        let context = context.map(ContextName::as_str);
        Self { sandbox_id: Some(sandbox_id), context, artifacts: Some(files), ..self }
    }

    fn empty(outcome: Outcome) -> Self {
        Self {
            outcome: outcome.name(),
            exit_code: None,
            signal: None,
            stdout: None,
            stderr: None,
            truncated: None,
            value: None,
            displays: Vec::new(),
            error: None,
            artifacts: None,
            egress: &[],
            packages: None,
            install_ms: None,
            tools: None,
            compile: None,
            usage: None,
            isolation: None,
            clamped: None,
            warnings: None,
            run_id: None,
            sandbox_id: None,
            context: None,
        }
    }
}

impl TruncatedView {
    /// Sizes of the parts that are cut, or `None` if nothing is.
    fn of(execution: &Execution, inline_bytes_max: usize) -> Option<Self> {
        let is_stream_cut = execution.stdout.len().max(execution.stderr.len()) > inline_bytes_max;
        let value_bytes = execution.value.as_ref().map(|value| value.repr.len());
        let value_bytes = value_bytes.filter(|bytes| *bytes > inline_bytes_max);
        let of_streams = |bytes: usize| is_stream_cut.then_some(bytes);
        (is_stream_cut || value_bytes.is_some()).then(|| Self {
            stdout_bytes: of_streams(execution.stdout.len()),
            stderr_bytes: of_streams(execution.stderr.len()),
            value_bytes,
            uri: None,
        })
    }
}

impl<'a> ValueView<'a> {
    /// A long text is cut to its head and tail. Cut JSON would be no JSON, so a long one is left out.
    fn of(value: &'a Value, inline_bytes_max: usize) -> Self {
        let is_short = |json: &&serde_json::Value| match inline_bytes_max {
            usize::MAX => true,
            most => json.to_string().len() <= most,
        };
        let repr = match value.repr.len() <= inline_bytes_max {
            true => Cow::Borrowed(value.repr.as_str()),
            false => Cow::Owned(render::text(value.repr.as_bytes(), inline_bytes_max)),
        };
        Self { repr, json: value.json.as_ref().filter(is_short), mime: value.mime.as_deref() }
    }
}

impl CompileView {
    fn of(report: &BuildReport) -> Self {
        Self { cached: report.cached, ms: rounded(report.ms) }
    }
}

impl<'a> DisplayView<'a> {
    /// The displays, with the first data that is short. Without a bound for streams, data has none either.
    fn all(displays: &'a [Display], inline_bytes_max: usize) -> Vec<Self> {
        let (each, mut room) = match inline_bytes_max {
            usize::MAX => (usize::MAX, usize::MAX),
            _ => (JSON_BYTES_MAX, JSONS_BYTES_MAX),
        };
        let mut view = |display: &'a Display| {
            let json = display.json.as_deref().filter(|json| json.len() <= each.min(room));
            room -= json.map_or(0, str::len);
            Self::of(display, json)
        };
        displays.iter().map(&mut view).collect()
    }

    fn of(display: &'a Display, json: Option<&str>) -> Self {
        let (width, height) = display.pixels().unzip();
        Self {
            mime: display.kind.mime(),
            size_bytes: display.data.len(),
            width,
            height,
            text: &display.text,
            uri: None,
            // The engine has checked it. Only data that is nested too deeply fails here.
            json: json.and_then(|json| serde_json::from_str(json).ok()),
            json_uri: None,
        }
    }
}

impl<'a> IsolationView<'a> {
    fn of(backend: &'a str) -> Self {
        Self { backend, kernel: Kernel::of_wall(backend).name(), ..Self::default() }
    }

    /// A wall that was not examined, or that cannot be built.
    pub(crate) fn unknown(backend: &'a str, state: &'static str, reason: Option<&'a str>) -> Self {
        Self { state: Some(state), reason, ..Self::of(backend) }
    }

    pub(crate) fn in_state(self, state: &'static str) -> Self {
        Self { state: Some(state), ..self }
    }

    /// With the mechanism that keeps each guarantee.
    pub(crate) fn whole(backend: &'a str, enforced: &Enforced) -> Self {
        let guarantees = Guarantee::ALL.iter().map(|one| (one.name(), GuaranteeView::of(enforced.get(*one))));
        Self { guarantees: guarantees.collect(), ..Self::of(backend) }
    }

    /// With absent guarantees only. `get_capabilities` has the whole list with its notes, which are the same for
    /// every run.
    pub(crate) fn exceptions(backend: &'a str, enforced: &Enforced) -> Self {
        let mut view = Self::of(backend);
        for guarantee in Guarantee::ALL {
            if let Enforcement::Absent { reason } = enforced.get(guarantee) {
                view.absent.insert(guarantee.name(), reason);
            }
        }
        // A run with access is told what its network was.
        let network = enforced.get(Guarantee::NetworkNone);
        if matches!(&network, Enforcement::By { note: Some(note), .. } if note.starts_with(GATE_NOTE)) {
            view.guarantees.insert(Guarantee::NetworkNone.name(), GuaranteeView::of(network));
        }
        view
    }
}

impl GuaranteeView {
    fn of(enforcement: Enforcement) -> Self {
        match enforcement {
            Enforcement::By { mechanisms, note } => {
                let by = mechanisms.iter().map(|mechanism| mechanism.name()).collect();
                Self::By { by, note }
            }
            Enforcement::Absent { reason } => Self::Absent { absent: reason },
        }
    }
}

/// Rounds times to the microsecond.
fn usage(usage: &RunUsage) -> RunUsage {
    RunUsage {
        wall_ms: rounded(usage.wall_ms),
        cpu_ms: rounded(usage.cpu_ms),
        queued_ms: rounded(usage.queued_ms),
        start_ms: rounded(usage.start_ms),
        ..*usage
    }
}

fn rounded(ms: f64) -> f64 {
    (ms * 1000.0).round() / 1000.0
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
