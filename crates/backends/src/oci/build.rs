//! Builds one sandbox with a runtime: groups, bundle, `create`, `start`, report, examination from outside.

use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ::sandbox::{BackendError, Sandbox, SandboxSpec, StartPhases, WORKSPACE};
use jail::{Bind, JailPlan, Message, Stage, StagedRoot, container_plan, container_report};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::config::{Bundle, GUEST_AT, SETUP_ID};
use super::home::Container;
use super::runtime::{Runtime, Streams};
use super::{OciBackend, OciRuntime, contents, network, sentry};
use crate::host::{refuse_folders, workspace_of};
use crate::native::cgroup::CgroupSet;
use crate::native::sandbox::NativeSandbox;
use crate::native::{at, micros, verify};

/// How long the guest may take from `start` to its report.
const GUEST_PATIENCE: Duration = Duration::from_secs(15);
/// How long gVisor's gofer may take until it has its root, and the pause between two looks.
const GOFER_PATIENCE: Duration = Duration::from_secs(5);
const GOFER_PAUSE: Duration = Duration::from_millis(5);
/// Lines of a runtime that are read before the guest's report.
const LINES_MAX: usize = 256;

/// What was made for the guest before it exists.
struct Prepared {
    plan: JailPlan,
    container: Arc<Container>,
    cgroups: CgroupSet,
    /// The server's end of the guest's stream.
    stream: UnixStream,
    /// Where the runtime and the guest tell what happens.
    report: UnixStream,
}

impl OciBackend {
    pub(super) async fn build(&self, spec: &SandboxSpec) -> Result<NativeSandbox, BackendError> {
        let started = Instant::now();
        let mut phases = StartPhases::default();
        let (prepared, theirs, report_theirs) = self.prepare(spec)?;
        phases.parts_us.push(("bundle", micros(started)));
        let runtime = self.home.runtime()?.clone();

        let asked = Instant::now();
        self.create_container(&runtime, &prepared, theirs, report_theirs).await?;
        phases.parts_us.push(("create", micros(asked)));
        // crun removes the limit of memory from a group that exists.
        prepared.cgroups.limit_again(&spec.limits).map_err(at("cgroup"))?;
        let (pid, pidfd) = process_of(&prepared.container).map_err(at("pid"))?;
        let has_kernel = runtime.kind == OciRuntime::Gvisor;
        let gofer = match has_kernel {
            true => Some(gofer_of(&prepared.cgroups, pid).await.map_err(at("gofer"))?),
            false => None,
        };
        let opener = gofer.as_ref().map_or(pid, |(gofer, _)| *gofer);
        if !has_kernel {
            network::make_small(pid).map_err(at("network settings"))?;
        }
        let scratch = scratch_of(opener).map_err(at("scratch"))?;
        // Looked at when the guest is up.
        let space = scratch.try_clone().map_err(at("scratch"))?;
        let Prepared { plan, container, cgroups, stream, report } = prepared;
        // From here on dropping the sandbox kills the process and removes groups and container.
        let mut sandbox = NativeSandbox::new((pid, pidfd), cgroups, spec, scratch, &self.local.deaths)?;
        sandbox.keep_container(Box::new(Arc::clone(&container)));
        if let Some(gofer) = gofer {
            sandbox.note_kernel(gofer)?;
        }
        if let Some((path, _)) = &plan.workspace {
            sandbox.watch_workspace(path.clone());
        }

        let asked = Instant::now();
        self.call(&runtime, &container, "start").await?;
        phases.parts_us.push(("start", micros(asked)));
        let asked = Instant::now();
        let abi = until_built(report).await?;
        phases.parts_us.push(("guest", micros(asked)));

        let looked = Instant::now();
        let setup_id = Some(SETUP_ID);
        let seen =
            verify::Seen { pid, plan: &plan, limits: &spec.limits, cgroups: sandbox.cgroups(), setup_id };
        let enforced = if has_kernel { sentry::enforced(&seen, opener)? } else { seen.enforced(abi)? };
        contents::examine(opener, &plan, &space)?;
        if !has_kernel {
            verify::is_hidden(pid, SETUP_ID)?;
            // gVisor has mounts of its own, at which the host can attach nothing.
            if !spec.attach_points.is_empty() {
                sandbox.allow_attaching(spec, &self.local.spawner).map_err(at("mounts"))?;
            }
        }
        sandbox.become_ready(enforced, stream);
        if spec.workspace.is_some() {
            sandbox.measure_anew(&spec.limits, None).await;
        }
        phases.parts_us.push(("verify", micros(looked)));
        phases.parts_us.push(("total", micros(started)));
        Ok(sandbox.with_phases(phases))
    }

    /// Groups, plan, bundle and streams. Returns also the ends of the streams that the runtime gets.
    fn prepare(&self, spec: &SandboxSpec) -> Result<(Prepared, OwnedFd, OwnedFd), BackendError> {
        let local = &self.local;
        refuse_folders(spec)?;
        let number = local.made.fetch_add(1, Ordering::Relaxed);
        let workspace = workspace_of(local.workspaces.as_deref(), spec)?;
        let id_map = local.identity(spec, workspace.as_deref(), number)?;
        let container = Arc::new(self.home.bundle(number)?);
        let cgroups = local.cgroups.fresh(number, &spec.limits).map_err(at("cgroup"))?;
        let mut plan = local.system.plan(spec, id_map, &local.cgroups, &cgroups);
        plan.workspace = workspace.map(|path| (path, PathBuf::from(WORKSPACE)));
        plan.files = local.system.files(spec);
        plan.linger_ms = local.deaths.linger_ms();
        let guest = self.home.runtime()?.guest.clone();
        plan.binds.push(Bind { path: guest, target: GUEST_AT.into(), optional: false });
        self.write_bundle(&container, &plan, &cgroups, number).map_err(at("bundle"))?;
        let (mut stream, theirs) = UnixStream::pair().map_err(at("stream"))?;
        stream.write_all(&container_plan(&plan).map_err(at("plan"))?).map_err(at("plan"))?;
        stream.write_all(&spec.opening).map_err(at("opening"))?;
        let (report, report_theirs) = UnixStream::pair().map_err(at("report"))?;
        let prepared = Prepared { plan, container, cgroups, stream, report };
        Ok((prepared, theirs.into(), report_theirs.into()))
    }

    fn write_bundle(
        &self,
        container: &Container,
        plan: &JailPlan,
        cgroups: &CgroupSet,
        number: u64,
    ) -> io::Result<()> {
        let [root, scratch] = self.home.places().map_err(io::Error::other)?;
        let (view, cgroups_path) = self.home.cgroup_view(cgroups.unified_directory().as_deref(), number);
        let staged = StagedRoot { plan: plan.clone(), at: root.clone(), scratch_at: scratch.clone() };
        let stage = Stage { root: Some(staged), ..view };
        fs::write(container.file("stage"), jail::encode_stage(&stage)?)?;
        let bundle = Bundle { runtime: self.home.kind(), plan, root, scratch, cgroups_path: &cgroups_path };
        fs::write(container.file("config.json"), serde_json::to_vec(&bundle.json())?)
    }

    async fn create_container(
        &self,
        runtime: &Runtime,
        prepared: &Prepared,
        stream: OwnedFd,
        report: OwnedFd,
    ) -> Result<(), BackendError> {
        let (runtime, container) = (runtime.clone(), Arc::clone(&prepared.container));
        let called = tokio::task::spawn_blocking(move || {
            // Standard input is the stream in both directions. A second number for it would not do: gVisor shuts the
            // socket down when one of them is closed.
            let streams =
                Streams { input: stream.into(), output: Stdio::null(), errors: Stdio::from(report) };
            let (folder, pid) = (text(&container.folder), text(&container.file("pid")));
            let arguments = ["create", "--bundle", &folder, "--pid-file", &pid, &container.id];
            runtime.call(&container.file("stage"), &container.file("log"), &arguments, streams)
        });
        match called.await.map_err(io::Error::other).flatten() {
            Ok(()) => Ok(()),
            Err(error) => Err(at("create")(with_words(error, &prepared.report))),
        }
    }

    async fn call(
        &self,
        runtime: &Runtime,
        container: &Arc<Container>,
        verb: &'static str,
    ) -> Result<(), BackendError> {
        let (runtime, container) = (runtime.clone(), Arc::clone(container));
        let called = tokio::task::spawn_blocking(move || {
            runtime.call_quietly(&container.surroundings(), &container.file("log"), &[verb, &container.id])
        });
        called.await.map_err(io::Error::other).flatten().map_err(at(verb))
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The error of a command, with what it wrote to the guest's standard error.
fn with_words(error: io::Error, report: &UnixStream) -> io::Error {
    const WORDS_BYTES_MAX: usize = 2000;
    let mut bytes = vec![0; WORDS_BYTES_MAX];
    let count = report
        .set_nonblocking(true)
        .and_then(|()| Ok(rustix::io::read(report, bytes.as_mut_slice())?))
        .unwrap_or(0);
    let words = String::from_utf8_lossy(&bytes[..count]).trim().replace('\n', "; ");
    if words.is_empty() { error } else { io::Error::new(error.kind(), format!("{error}: {words}")) }
}

/// Process 1, as the runtime tells. That it is the right one shows in the examination: it is in groups that were made
/// for this sandbox alone.
fn process_of(container: &Container) -> io::Result<(i32, OwnedFd)> {
    let told = fs::read_to_string(container.file("pid"))?;
    let pid = told.trim().parse::<i32>().map_err(io::Error::other)?;
    Ok((pid, pidfd_of(pid)?))
}

fn pidfd_of(pid: i32) -> io::Result<OwnedFd> {
    let process = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?;
    Ok(rustix::process::pidfd_open(process, PidfdFlags::empty())?)
}

/// The process of gVisor that has the sandbox's files. It changes its root after it has told gVisor's kernel its mounts, so
/// `create` may return earlier.
async fn gofer_of(cgroups: &CgroupSet, sentry: i32) -> io::Result<(i32, OwnedFd)> {
    let started = Instant::now();
    loop {
        match gofer_now(cgroups, sentry) {
            Err(_) if started.elapsed() < GOFER_PATIENCE => tokio::time::sleep(GOFER_PAUSE).await,
            found => return found,
        }
    }
}

fn gofer_now(cgroups: &CgroupSet, sentry: i32) -> io::Result<(i32, OwnedFd)> {
    let listed = || cgroups.processes().ok_or(io::ErrorKind::NotFound)?;
    let pid = sentry::gofer(&listed()?, sentry)?;
    let pidfd = pidfd_of(pid)?;
    // The number may have been another process's when it was opened, but not while it is in these groups.
    if listed()?.contains(&pid) { Ok((pid, pidfd)) } else { Err(io::Error::other("it has ended")) }
}

/// The writable space. No program runs inside yet that could put another directory in its place.
fn scratch_of(pid: i32) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(format!("/proc/{pid}/root/tmp"), flags, Mode::empty())?)
}

/// Waits for the guest's report; returns the version of Landlock in force.
async fn until_built(report: UnixStream) -> Result<u32, BackendError> {
    report.set_nonblocking(true).map_err(at("report"))?;
    let report = tokio::net::UnixStream::from_std(report).map_err(at("report"))?;
    let mut lines = BufReader::new(report).lines();
    let mut words = Vec::new();
    let read = async {
        while let Some(line) = lines.next_line().await? {
            if let Some(message) = container_report(&line) {
                return Ok(Some(message));
            }
            words.push(line);
            if words.len() > LINES_MAX {
                break;
            }
        }
        Ok(None)
    };
    let late = |_| at("guest")(io::Error::from(io::ErrorKind::TimedOut));
    let message = tokio::time::timeout(GUEST_PATIENCE, read).await.map_err(late)?;
    match message.map_err(at("report"))? {
        Some(Message::Built { landlock_abi, .. }) => Ok(landlock_abi),
        Some(Message::Failed(error)) => {
            Err(BackendError::Build { step: error.step.clone(), source: error.source() })
        }
        _ => Err(at("guest")(io::Error::other(format!("it did not report: {}", words.join("; "))))),
    }
}
