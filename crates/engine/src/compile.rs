//! Compiles a program, or recalls its product from the build cache.
//!
//! ```text
//! key of everything that takes part -> recalled? -> admit -> sandbox -> place files -> compiler -> read product -> store
//! ```
//! The compiler runs in a separate sandbox with its own limits. It sees only the program and the inputs that
//! take part. Its sandbox is destroyed before the program's sandbox is created. The host reads the product back
//! as bounded files and stores it under a key that was computed before. Even if a program manipulates the
//! compiler, only an identical request gets that product.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use sandbox::{Limits, Outcome, Sandbox, SandboxSpec};
use tokio::time::{Instant, timeout_at};
use wire::{Exit, FileKind, ToGuest};

use crate::builds::{BUILD_BYTES_MAX, BUILD_FILES_MAX, Build, BuildFile, Key, KeyMaker};
use crate::conversation::{Conversation, Overflow, StopSignals};
use crate::diagnostics::Said;
use crate::guest_client::{self, GuestError, GuestReader, GuestWriter};
use crate::missing::Repair;
use crate::output::Output;
use crate::packages::{ShownPackages, Shows};
use crate::request::{RunRequest, is_plain_path};
use crate::result::{BuildReport, Execution, RunError, RunUsage};
use crate::runtimes::{BUILD_FOLDER, CompileCall, CpuShare, Runtime};
use crate::unstarted::Unstarted;
use crate::verdict::{self, End};
use crate::{Engine, Wall, advice, damage, missing};

/// A file that creates the product's folder. It is not part of the product.
const MARK: &str = ".made";
/// How long reading the product back may take.
const READ_PATIENCE: Duration = Duration::from_secs(30);
/// The most files that are listed: inputs, product, and other files that the compiler left in the workspace.
const LISTED_MAX: u32 = 8192;

/// A compiled program.
pub(crate) struct Built {
    pub(crate) build: Build,
    pub(crate) report: BuildReport,
}

/// What surrounds a compilation.
pub(crate) struct CompileContext<'a> {
    pub(crate) wall: &'a Wall,
    pub(crate) runtime: &'a Runtime,
    /// The packages that the program may import.
    pub(crate) shown: &'a ShownPackages,
    /// How a package that is missing can be installed.
    pub(crate) repair: &'a Repair,
}

/// The outcome of a compilation.
struct Attempt {
    end: End,
    output: Output,
    product: Result<Vec<BuildFile>, String>,
}

impl Engine {
    /// The product of a program, or why there is none. `None` for a language that is not compiled.
    pub(crate) async fn compile(
        &self,
        of: &CompileContext<'_>,
        request: &RunRequest,
    ) -> Result<Option<Built>, Unstarted> {
        let CompileContext { wall, runtime, shown, .. } = of;
        if !runtime.is_compiled() {
            return Ok(None);
        }
        let inputs = runtime.compiled_inputs(&request.code, &request.inputs);
        let source = request.source_in(runtime);
        let call = CompileCall { source, code: &request.code, inputs, variables: &request.variables };
        let identity = wall.runtimes().identity(runtime).await?;
        let key = key(runtime, &call, &identity, shown);
        let (builds, wanted) = (self.builds.clone(), key.clone());
        // On a blocking thread: every byte of a product is read before it is used.
        let recalled = tokio::task::spawn_blocking(move || builds.recall(&wanted)).await.ok().flatten();
        if let Some(build) = recalled.filter(|_| !request.compile_anew) {
            return Ok(Some(Built { build, report: BuildReport { cached: true, ms: 0.0 } }));
        }
        self.compile_anew(of, &call, key).await.map(Some)
    }

    async fn compile_anew(
        &self,
        of: &CompileContext<'_>,
        call: &CompileCall<'_>,
        key: Key,
    ) -> Result<Built, Unstarted> {
        let CompileContext { wall, runtime, shown, .. } = of;
        let mut limits = runtime.compile_limits(&self.policy().maxima).unwrap_or_default();
        // On a small machine the compiler gets the memory that is available.
        limits.memory_bytes = limits.memory_bytes.min(self.admission.memory_bytes_max());
        let _permit = self.admit(limits.memory_bytes).await.map_err(Unstarted::busy)?;
        let started = Instant::now();
        let mut spec = SandboxSpec {
            limits: limits.clone(),
            binds: runtime.read_only_binds(),
            executable_at: runtime.executable_at(),
            files: runtime.compile_files(call.variables),
            absence_allowed: self.policy().absence_allowed.clone(),
            ..SandboxSpec::default()
        };
        shown.add_to_compiler(runtime.name(), &mut spec);
        let mut sandbox = wall.create(&spec).await?;
        let attempt = attempt(sandbox.as_mut(), runtime, call, &limits).await;
        let usage = sandbox.destroy().await.unwrap_or_default();
        let ms = started.elapsed().as_secs_f64() * 1000.0;
        let report = BuildReport { cached: false, ms };
        if attempt.end != End::Compile(Exit::Code(0)) {
            let execution = Execution {
                enforced: sandbox.enforced().clone(),
                compile: Some(report),
                usage: RunUsage {
                    cpu_ms: usage.cpu_us as f64 / 1000.0,
                    memory_peak_bytes: usage.memory_peak_bytes,
                    ..RunUsage::default()
                },
                ..Execution::default()
            };
            let verdict = verdict::judge(attempt.end, &usage, &limits);
            let errors = |text: &str| runtime.compile_errors(text, call.source, 1);
            let mut unstarted = not_compiled(execution, verdict, attempt.output, errors);
            if unstarted.outcome == Outcome::CompileFailed {
                let said = unstarted.compilation.as_ref().map(|said| String::from_utf8_lossy(&said.stderr));
                let advice = damage::remedy(runtime.name(), call.code)
                    .or_else(|| runtime.frame_remedy(call))
                    .or_else(|| self.advice_on_packages(of, &said.unwrap_or_default()));
                unstarted.error.remedy = advice.or(unstarted.error.remedy);
            }
            return Err(unstarted);
        }
        let files = attempt.product.map_err(|reason| Unstarted::from(broken(&reason)))?;
        let builds = self.builds.clone();
        let stored = tokio::task::spawn_blocking(move || builds.store(&key, &files)).await;
        let build = stored
            .map_err(|error| error.to_string())
            .and_then(|stored| stored.map_err(|error| error.to_string()));
        let build =
            build.map_err(|reason| Unstarted::from(broken(&format!("it could not be kept: {reason}"))))?;
        Ok(Built { build, report })
    }

    /// What to do about packages that the compiler did not find.
    fn advice_on_packages(&self, of: &CompileContext<'_>, said: &str) -> Option<String> {
        let installs_others = !self.offered_packages().is_empty();
        missing::of_compiler(of.runtime.name(), said, of.shown, of.repair)
            .or_else(|| advice::of_other_language(said, installs_others).map(str::to_owned))
    }
}

/// The key of everything that the product depends on.
fn key(runtime: &Runtime, call: &CompileCall<'_>, identity: &str, shown: &ShownPackages) -> Key {
    let mut key = KeyMaker::new();
    key.add("language", runtime.name().as_bytes());
    if let Some(set) = shown.compiled_in(runtime.name()) {
        key.add("packages", set.layer.digest.as_bytes());
    }
    runtime.add_to_key(&mut key, identity);
    for part in runtime.compile_command(call) {
        key.add("argument", part.as_bytes());
    }
    // The number of threads does not change a product.
    for (name, value) in runtime.own_environment() {
        key.add("environment", format!("{name}={value}").as_bytes());
    }
    for file in runtime.compile_files(call.variables) {
        key.add("placed", file.path.as_os_str().as_encoded_bytes());
        key.add("content", &file.content);
    }
    key.add("source", call.source.as_bytes());
    key.add("code", call.code.as_bytes());
    for input in &call.inputs {
        key.add("input", input.path.as_bytes());
        key.add("content", &input.content);
    }
    key.key()
}

fn broken(reason: &str) -> RunError {
    let mut error = RunError::new("build_failed", "what the compiler made cannot be used");
    error.cause = Some(reason.to_owned());
    error.remedy("make the program smaller; if it persists ask the operator to run `palisade doctor`")
}

/// The result of a program that did not compile: the compiler's output, and the position of the first error.
fn not_compiled(
    mut execution: Execution,
    verdict: verdict::Verdict,
    output: Output,
    errors: impl Fn(&str) -> Vec<Said>,
) -> Unstarted {
    let mut error = verdict.error.unwrap_or_default();
    let mut said = output.stdout;
    said.extend(output.stderr);
    if verdict.outcome == Outcome::CompileFailed {
        let first = errors(&String::from_utf8_lossy(&said)).pop();
        if let Some(first) = first {
            error.cause = Some(std::mem::take(&mut error.message));
            (error.message, error.line, error.column) = (first.message, first.line, first.column);
        }
        execution.exit = Some(Exit::Code(1));
    } else {
        error.message = format!("while compiling: {}", error.message);
        error.remedy = Some("make the program smaller; a compiler has limits of its own".to_owned());
    }
    execution.stderr = said;
    Unstarted { outcome: verdict.outcome, error, compilation: Some(Box::new(execution)) }
}

/// Runs the compiler and reads its product. The compiler's time limit bounds every wait.
async fn attempt(
    sandbox: &mut dyn Sandbox,
    runtime: &Runtime,
    call: &CompileCall<'_>,
    limits: &Limits,
) -> Attempt {
    let deadline = Instant::now() + Duration::from_millis(limits.wall_ms);
    let failed = |end: End| Attempt { end, output: Output::default(), product: unread() };
    let stream = sandbox.take_stream();
    let mut conversation = match timeout_at(deadline, open(stream, runtime, call, limits)).await {
        Ok(Ok(conversation)) => conversation,
        Ok(Err(_)) => return failed(End::Lost),
        Err(_) => return failed(End::Clock),
    };
    let mut end = match conversation.follow(sandbox, &mut StopSignals::default(), deadline).await.end() {
        End::Program(exit) => End::Compile(exit),
        End::Unplaced(_) | End::NotStarted(_) => End::Lost,
        limit => limit,
    };
    let mut product = unread();
    if end == End::Compile(Exit::Code(0)) {
        let channel = &mut conversation.channel;
        let read = tokio::time::timeout(READ_PATIENCE, collect(&mut channel.reader, &mut channel.writer));
        tokio::select! {
            biased;
            read = read => product = read.unwrap_or_else(|_| Err("it could not be read in time".to_owned())),
            () = tokio::time::sleep_until(deadline) => end = End::Clock,
            ending = sandbox.watch() => end = End::Watch(ending),
        }
    }
    let (_, said) = conversation.into_parts();
    Attempt { end, output: said.output, product }
}

fn unread() -> Result<Vec<BuildFile>, String> {
    Err("it was not read".to_owned())
}

async fn open(
    stream: Option<UnixStream>,
    runtime: &Runtime,
    call: &CompileCall<'_>,
    limits: &Limits,
) -> Result<Conversation<'static>, GuestError> {
    let guest = guest_client::connect(stream.ok_or(GuestError::Gone)?).await?;
    // Compiler output beyond the limit does not affect the product.
    let mut conversation = Conversation::once(guest, limits.output_bytes, Overflow::LeftOut);
    for input in &call.inputs {
        conversation.place(&input.path, &input.content).await?;
    }
    conversation.place(call.source, call.code.as_bytes()).await?;
    conversation.place(&format!("{BUILD_FOLDER}/{MARK}"), &[]).await?;
    conversation
        .start(runtime.compile_command(call), runtime.environment(CpuShare::of(limits), Shows::NOTHING))?;
    conversation.end_input()?;
    conversation.send().await?;
    Ok(conversation)
}

/// Reads the files that the compiler left below its folder, within bounds.
async fn collect(reader: &mut GuestReader, writer: &mut GuestWriter) -> Result<Vec<BuildFile>, String> {
    let told = |error: GuestError| error.to_string();
    // Processes that the compiler left behind must not write any more.
    writer.send(&ToGuest::KillRest).await.map_err(told)?;
    let listed = guest_client::list_files(reader, writer, LISTED_MAX).await.map_err(told)?;
    let prefix = format!("{BUILD_FOLDER}/");
    let mut files: Vec<BuildFile> = Vec::new();
    let mut room = BUILD_BYTES_MAX;
    for entry in listed.iter().filter(|entry| entry.kind == FileKind::Regular) {
        let Some(path) = entry.path.strip_prefix(&prefix).filter(|path| *path != MARK) else { continue };
        if !is_plain_path(path) {
            return Err("a name in it is not plain".to_owned());
        }
        if entry.size_bytes > room as u64 || files.len() >= BUILD_FILES_MAX {
            return Err(format!("it is larger than {} MB or {BUILD_FILES_MAX} files", BUILD_BYTES_MAX >> 20));
        }
        // One byte more than allowed, to notice a file that has grown.
        let content = guest_client::read_file(reader, writer, &entry.path, room + 1).await.map_err(told)?;
        room = room.checked_sub(content.len()).ok_or("it is too large")?;
        files.push(BuildFile { path: path.to_owned(), content });
    }
    if files.is_empty() { Err("it is empty".to_owned()) } else { Ok(files) }
}
