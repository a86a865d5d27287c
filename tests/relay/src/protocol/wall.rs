//! Values of the contract in the form in which they pass: specs, usage, endings, errors.
//!
//! Every conversion names every field, so that a new field of the contract does not compile until it passes
//! too.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use sandbox::workspace::WorkspaceRef;
use sandbox::{
    BackendError, DiskHeld, Ending, Enforced, Guarantee, InventoryError, Layer, Limits, PlacedFile,
    ReadOnlyBind, SandboxSpec, Usage, ZygoteSpec,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A value whose encoding leaves fields out, which postcard cannot read back.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Json(String);

impl Json {
    pub(crate) fn of(value: &impl Serialize) -> Self {
        Self(serde_json::to_string(value).unwrap_or_default())
    }

    pub(crate) fn read<T: DeserializeOwned>(&self) -> io::Result<T> {
        Ok(serde_json::from_str(&self.0)?)
    }
}

/// A new sandbox.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Made {
    enforced: Json,
    pub(crate) build_us: u64,
}

impl Made {
    pub(crate) fn new(enforced: &Enforced, build_us: u64) -> Self {
        Self { enforced: Json::of(enforced), build_us }
    }

    pub(crate) fn enforced(&self) -> io::Result<Enforced> {
        self.enforced.read()
    }
}

/// Arguments and environment of a warm interpreter.
type ZygoteMessage = (Vec<String>, Vec<(String, String)>);

/// A spec without the paths of the client's machine: a layer is its digest and its place inside.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SpecMessage {
    limits: Limits,
    headroom: Option<Limits>,
    binds: Vec<(PathBuf, PathBuf, bool)>,
    pub(crate) layers: Vec<(String, PathBuf)>,
    attach_points: Vec<PathBuf>,
    executable_at: Option<PathBuf>,
    files: Vec<(PathBuf, Vec<u8>)>,
    links: Vec<(PathBuf, PathBuf)>,
    opening: Vec<u8>,
    zygote: Option<ZygoteMessage>,
    workspace: Option<WorkspaceRef>,
    absence_allowed: Vec<Guarantee>,
}

impl SpecMessage {
    pub(crate) fn of(spec: &SandboxSpec) -> Self {
        let SandboxSpec {
            limits,
            headroom,
            binds,
            layers,
            attach_points,
            // Directories of the client's machine are not on the relay's. Only the operator's own programs have some.
            folders: _,
            // The client keeps its layers until the relay has copied them.
            in_use: _,
            executable_at,
            files,
            links,
            opening,
            zygote,
            workspace,
            absence_allowed,
        } = spec;
        Self {
            limits: limits.clone(),
            headroom: headroom.clone(),
            binds: binds.iter().map(|bind| (bind.path.clone(), bind.target.clone(), bind.optional)).collect(),
            layers: layers.iter().map(|layer| (layer.digest.clone(), layer.target.clone())).collect(),
            attach_points: attach_points.clone(),
            executable_at: executable_at.clone(),
            files: files.iter().map(|file| (file.path.clone(), file.content.to_vec())).collect(),
            links: links.clone(),
            opening: opening.clone(),
            zygote: zygote.as_ref().map(|zygote| (zygote.argv.clone(), zygote.env.clone())),
            workspace: workspace.clone(),
            absence_allowed: absence_allowed.clone(),
        }
    }

    /// The spec on the relay's machine, where each layer is at the place that `layer_at` says.
    pub(crate) fn into_spec(self, layer_at: impl Fn(&str) -> PathBuf) -> SandboxSpec {
        let bind = |(path, target, optional)| ReadOnlyBind { path, target, optional };
        let layer = |(digest, target): (String, PathBuf)| Layer { path: layer_at(&digest), digest, target };
        let file = |(path, content): (PathBuf, Vec<u8>)| PlacedFile { path, content: Arc::from(content) };
        SandboxSpec {
            limits: self.limits,
            headroom: self.headroom,
            binds: self.binds.into_iter().map(bind).collect(),
            layers: self.layers.into_iter().map(layer).collect(),
            attach_points: self.attach_points,
            folders: Vec::new(),
            in_use: sandbox::InUse::default(),
            executable_at: self.executable_at,
            files: self.files.into_iter().map(file).collect(),
            links: self.links,
            opening: self.opening,
            zygote: self.zygote.map(|(argv, env)| ZygoteSpec { argv, env }),
            workspace: self.workspace,
            absence_allowed: self.absence_allowed,
        }
    }
}

/// [`DiskHeld`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Held {
    bytes: u64,
    inodes: u64,
}

impl From<DiskHeld> for Held {
    fn from(DiskHeld { bytes, inodes }: DiskHeld) -> Self {
        Self { bytes, inodes }
    }
}

impl From<Held> for DiskHeld {
    fn from(Held { bytes, inodes }: Held) -> Self {
        Self { bytes, inodes }
    }
}

/// [`Usage`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Counted {
    numbers: [u64; 5],
    disk_full: bool,
}

impl From<Usage> for Counted {
    fn from(usage: Usage) -> Self {
        let Usage { cpu_us, memory_peak_bytes, processes_peak, oom_kills, process_refusals, disk_full } =
            usage;
        Self { numbers: [cpu_us, memory_peak_bytes, processes_peak, oom_kills, process_refusals], disk_full }
    }
}

impl From<Counted> for Usage {
    fn from(Counted { numbers, disk_full }: Counted) -> Self {
        let [cpu_us, memory_peak_bytes, processes_peak, oom_kills, process_refusals] = numbers;
        Self { cpu_us, memory_peak_bytes, processes_peak, oom_kills, process_refusals, disk_full }
    }
}

/// [`Ending`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum EndingMessage {
    Memory,
    Cpu,
    Disk,
    KernelShare,
    Gone,
}

impl From<Ending> for EndingMessage {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Memory => Self::Memory,
            Ending::Cpu => Self::Cpu,
            Ending::Disk => Self::Disk,
            Ending::KernelShare => Self::KernelShare,
            Ending::Gone => Self::Gone,
        }
    }
}

impl From<EndingMessage> for Ending {
    fn from(ending: EndingMessage) -> Self {
        match ending {
            EndingMessage::Memory => Self::Memory,
            EndingMessage::Cpu => Self::Cpu,
            EndingMessage::Disk => Self::Disk,
            EndingMessage::KernelShare => Self::KernelShare,
            EndingMessage::Gone => Self::Gone,
        }
    }
}

/// [`BackendError`]. Reasons of the operating system pass as text with their error number.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum WallError {
    Unsupported { what: String, remedy: String },
    Build { step: String, errno: Option<i32>, reason: String },
    Unavailable { what: String, retry_after_ms: u64 },
    Suspended { what: String, cause: Option<String>, remedy: String, retry_after_ms: Option<u64> },
    Unverified { what: String },
    Unfit { what: String },
}

impl From<BackendError> for WallError {
    fn from(error: BackendError) -> Self {
        match error {
            BackendError::Unsupported { what, remedy } => Self::Unsupported { what, remedy },
            BackendError::Build { step, source } => {
                Self::Build { step, errno: source.raw_os_error(), reason: source.to_string() }
            }
            BackendError::Unavailable { what, retry_after_ms } => Self::Unavailable { what, retry_after_ms },
            BackendError::Suspended { what, cause, remedy, retry_after_ms } => {
                Self::Suspended { what, cause, remedy, retry_after_ms }
            }
            BackendError::Unverified { what } => Self::Unverified { what },
            BackendError::Unfit { what } => Self::Unfit { what },
        }
    }
}

impl From<WallError> for BackendError {
    fn from(error: WallError) -> Self {
        match error {
            WallError::Unsupported { what, remedy } => Self::Unsupported { what, remedy },
            WallError::Build { step, errno, reason } => {
                let source = errno.map_or_else(|| io::Error::other(reason), io::Error::from_raw_os_error);
                Self::Build { step, source }
            }
            WallError::Unavailable { what, retry_after_ms } => Self::Unavailable { what, retry_after_ms },
            WallError::Suspended { what, cause, remedy, retry_after_ms } => {
                Self::Suspended { what, cause, remedy, retry_after_ms }
            }
            WallError::Unverified { what } => Self::Unverified { what },
            WallError::Unfit { what } => Self::Unfit { what },
        }
    }
}

/// [`InventoryError`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum NoLanguage {
    Missing { commands: String },
    Broken { reason: String },
    Late { reason: String },
}

impl From<InventoryError> for NoLanguage {
    fn from(error: InventoryError) -> Self {
        match error {
            InventoryError::Missing { commands } => Self::Missing { commands },
            InventoryError::Broken { reason } => Self::Broken { reason },
            InventoryError::Late { reason } => Self::Late { reason },
        }
    }
}

impl From<NoLanguage> for InventoryError {
    fn from(error: NoLanguage) -> Self {
        match error {
            NoLanguage::Missing { commands } => Self::Missing { commands },
            NoLanguage::Broken { reason } => Self::Broken { reason },
            NoLanguage::Late { reason } => Self::Late { reason },
        }
    }
}
