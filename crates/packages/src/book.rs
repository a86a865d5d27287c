//! [`Packages`]: the package book of a server. Recalls layers, and builds those that are missing.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use engine::links::{Grant, ListenAt};
use engine::packages::{
    Builder, Built, Ecosystem, PackageBook, PackageCall, PackageSet, PackageVersion, REQUIREMENTS_MAX,
};
use engine::{Caller, Engine, RunError, Runtime};
use sandbox::workspace::{FilePath, TreeBounds};
use sandbox::{Layer, Limits, Outcome};
use sha2::{Digest, Sha256};

use crate::blobs::Blobs;
use crate::broker::{IndexBroker, PORT};
use crate::fetch::{Fetcher, MirrorHealth};
use crate::files::hex;
use crate::flights::{Boarding, Flights, landed};
use crate::index::{Documents, pypi};
use crate::layers::{Draft, FORMAT, Harvest, Harvested, InUse, Layers, Manifest, SetEntry, Used, make_room};
use crate::requirement::{Requirement, check_requirement};
use crate::session::{Offer, Session, Supply};
use crate::settings::PackagesConfig;
use crate::tools::{self, Job};
use crate::{clock, errors, explain, inventory};

/// How often a process asks for the lock that another one holds.
const LOCK_PACE: Duration = Duration::from_millis(50);
/// What a builder may use beside memory, disk and time.
const PROCESSES: u32 = 256;
const OPEN_FILES: u32 = 4096;
const OUTPUT_BYTES: u64 = 256 << 10;
/// The workspace of a builder holds the product, the archives and what is being unpacked.
const INODES_FACTOR: u64 = 3;
/// How long reading the product out may take.
const HARVEST_PATIENCE: Duration = Duration::from_secs(300);

/// The beginning of the key of the resolver's layer. All others are digests.
pub(crate) const RESOLVER_KEY: &str = "uv-";

/// The packages of a server.
pub struct Packages {
    inner: Arc<Inner>,
}

struct Inner {
    supply: Arc<Supply>,
    layers: Arc<Layers>,
    flights: Flights,
    tool: tokio::sync::Mutex<()>,
    engine: Weak<Engine>,
}

/// The folder of packages in a state directory.
pub(crate) fn folder(state_dir: &Path) -> PathBuf {
    state_dir.join("packages")
}

/// Everything that an installation needs to know about its call.
struct Order {
    key: String,
    caller: Caller,
    wall: String,
    ecosystem: Ecosystem,
    requirements: Vec<Requirement>,
    present: Vec<PackageVersion>,
    runtime: Arc<Runtime>,
    session: Arc<Session>,
}

impl Packages {
    /// Packages as configured, for an engine.
    pub fn new(config: PackagesConfig, engine: &Arc<Engine>) -> Self {
        let folder = folder(&config.state_dir);
        let fetcher = Arc::new(Fetcher::new(&config));
        let documents = Documents::new(folder.join("index"), Arc::clone(&fetcher), &config);
        let (layers, blobs) = (Arc::new(Layers::new(&folder)), Blobs::new(folder.join("blobs")));
        let supply = Arc::new(Supply { config, fetcher, documents, blobs });
        let (flights, tool, engine) =
            (Flights::default(), tokio::sync::Mutex::default(), Arc::downgrade(engine));
        Self { inner: Arc::new(Inner { supply, layers, flights, tool, engine }) }
    }

    /// Whether the mirrors answer.
    pub async fn health(&self) -> Vec<(Ecosystem, String, MirrorHealth)> {
        let mut all = Vec::new();
        for (ecosystem, mirror) in &self.inner.supply.config.mirrors {
            let (supply, asked) = (Arc::clone(&self.inner.supply), mirror.clone());
            let health = self.inner.supply.fetcher.aside(async move { supply.fetcher.health(&asked).await });
            let health = health.await.unwrap_or_else(|error| MirrorHealth { answer: Err(error.to_string()) });
            all.push((*ecosystem, mirror.base.to_string(), health));
        }
        all
    }
}

impl PackageBook for Packages {
    fn offered(&self) -> Vec<Ecosystem> {
        self.inner.supply.config.mirrors.keys().copied().collect()
    }

    fn minimum_age(&self) -> std::time::Duration {
        self.inner.supply.config.min_age
    }

    fn recall(&self, call: &PackageCall<'_>) -> Option<PackageSet> {
        let engine = self.inner.engine.upgrade()?;
        let runtime = engine.wall(Some(call.wall))?.runtimes().known(language(call.ecosystem))?;
        let used = self.inner.layers.recall(&self.inner.key(call, &runtime))?;
        self.inner.refusal(&used.manifest).is_none().then(|| set(call, used, true))
    }

    fn prepare<'a>(
        &'a self,
        call: PackageCall<'a>,
    ) -> Pin<Box<dyn Future<Output = Result<PackageSet, RunError>> + Send + 'a>> {
        Box::pin(async move {
            let inner = &self.inner;
            let order = inner.order(&call).await?;
            let denied = match inner.layers.recall(&order.key) {
                Some(used) => match inner.refusal(&used.manifest) {
                    None => return Ok(set(&call, used, true)),
                    refused => refused,
                },
                None => None,
            };
            if denied.is_some() {
                // The tool may find other versions without the package that is denied now.
                inner.layers.forget_set(&order.key);
            }
            let (key, order) = (order.key.clone(), Arc::new(order));
            let passenger = match inner.flights.board(&key) {
                Boarding::Passenger(passenger) => passenger,
                Boarding::Pilot(pilot) => {
                    let passenger = pilot.subscribe();
                    let inner = Arc::clone(inner);
                    tokio::spawn(async move {
                        let result = inner.install(&order).await;
                        inner.flights.land(&order.key, &pilot, result);
                    });
                    passenger
                }
            };
            let digest = landed(passenger).await?;
            let used = inner.layers.use_layer(&digest);
            let used = used.ok_or_else(|| errors::failed("the layer was removed at once"))?;
            Ok(set(&call, used, false))
        })
    }
}

fn language(ecosystem: Ecosystem) -> &'static str {
    match ecosystem {
        Ecosystem::Pypi => "python",
        Ecosystem::Npm => "javascript",
        Ecosystem::Go => "go",
    }
}

fn set(call: &PackageCall<'_>, used: Used, was_cached: bool) -> PackageSet {
    let Used { manifest, files, in_use } = used;
    let target = call.ecosystem.target();
    PackageSet {
        ecosystem: call.ecosystem,
        layer: Layer { digest: manifest.digest.clone(), path: files, target: target.into() },
        requirements: call.requirements.to_vec(),
        packages: manifest.versions(),
        modules: manifest.modules.clone(),
        was_cached,
        in_use: Arc::new(in_use),
    }
}

/// What a layer says about itself. Fails if the product holds something that was not fetched.
fn manifest(order: &Order, made: &Harvested) -> Result<Manifest, RunError> {
    let taken = order.session.taken();
    let packages = inventory::packages(order.ecosystem, made, &taken).map_err(errors::unusable)?;
    Ok(Manifest {
        format: FORMAT,
        digest: made.digest(),
        ecosystem: order.ecosystem,
        interpreter: format!("{} {}", language(order.ecosystem), order.runtime.version()),
        made_ms: clock::now_ms(),
        bytes: made.bytes,
        entries: made.entries.len() as u64,
        packages,
        modules: inventory::modules(order.ecosystem, made),
    })
}

impl Inner {
    /// The key of a set: everything that the layer depends on.
    fn key(&self, call: &PackageCall<'_>, runtime: &Runtime) -> String {
        let config = &self.supply.config;
        let mut hasher = Sha256::new();
        let mut add = |text: &str| {
            hasher.update((text.len() as u64).to_le_bytes());
            hasher.update(text);
        };
        add("palisade packages 1");
        add(call.ecosystem.name());
        add(call.wall);
        add(runtime.version());
        add(runtime.executable());
        add(std::env::consts::ARCH);
        add(if config.source_builds { "source" } else { "" });
        add(if config.install_scripts { "scripts" } else { "" });
        if call.ecosystem == Ecosystem::Go {
            add(&config.go_sumdb);
        }
        for requirement in call.requirements {
            add(requirement);
        }
        add("present");
        for one in call.present {
            add(&one.name);
            add(&one.version);
        }
        hex(&hasher.finalize())
    }

    /// Why a layer may not be used any more: the rules may have changed since it was built.
    fn refusal(&self, manifest: &Manifest) -> Option<(String, String)> {
        let rules = &self.supply.config.rules;
        manifest.packages.iter().find_map(|package| {
            let reason = rules.refusal(manifest.ecosystem, &package.name)?;
            Some((package.name.clone(), reason))
        })
    }

    /// Checks a call.
    async fn order(&self, call: &PackageCall<'_>) -> Result<Order, RunError> {
        let supply = &self.supply;
        supply.mirror(call.ecosystem).ok_or_else(|| errors::no_mirror(call.ecosystem))?;
        if call.requirements.is_empty() || call.requirements.len() > REQUIREMENTS_MAX {
            let message = format!("ask for 1 to {REQUIREMENTS_MAX} packages at once");
            return Err(RunError::new("bad_package", message).remedy("split the list"));
        }
        let mut requirements = Vec::new();
        for text in call.requirements {
            let requirement = check_requirement(call.ecosystem, text)?;
            if let Some(reason) = supply.config.rules.refusal(call.ecosystem, &requirement.name) {
                return Err(explain::denied_error(&requirement.name, &reason));
            }
            requirements.push(requirement);
        }
        let engine = self.engine.upgrade().ok_or_else(errors::off)?;
        let wall = engine.wall(Some(call.wall)).ok_or_else(errors::off)?;
        let runtime = wall
            .runtimes()
            .find(language(call.ecosystem))
            .await
            .map_err(|error| RunError::new(error.code(), error.to_string()).remedy(error.remedy()))?;
        let session = Session::new(Arc::clone(supply), call.ecosystem, call.progress.clone());
        Ok(Order {
            key: self.key(call, &runtime),
            caller: call.caller.clone(),
            wall: call.wall.to_owned(),
            ecosystem: call.ecosystem,
            requirements,
            present: call.present.to_vec(),
            runtime,
            session: Arc::new(session),
        })
    }

    /// Builds a layer, unless another server did meanwhile. Returns its digest.
    async fn install(&self, order: &Order) -> Result<String, RunError> {
        let patience = self.supply.config.patience.install;
        let late = || errors::timed_out(patience.as_secs());
        let until = Instant::now() + patience;
        let _lock = loop {
            if let Some(lock) = self.layers.lock_set(&order.key).map_err(errors::disk)? {
                break lock;
            }
            if Instant::now() > until {
                return Err(late());
            }
            order.session.tell("another server installs the same packages");
            tokio::time::sleep(LOCK_PACE).await;
        };
        if let Some(used) = self.layers.recall(&order.key) {
            return Ok(used.manifest.digest.clone());
        }
        let installed = tokio::time::timeout(patience, self.build(order)).await;
        let noted = installed.unwrap_or_else(|_| Err(late())).and_then(|digest| {
            let requirements = order.requirements.iter().map(|one| one.text.clone()).collect();
            let entry = SetEntry { digest: digest.clone(), ecosystem: order.ecosystem, requirements };
            self.layers.note_set(&order.key, &entry).map_err(errors::disk).map(|()| digest)
        });
        if let Err(error) = &noted
            && explain::may_be_stored(error)
        {
            let session = Arc::clone(&order.session);
            self.on_disk(move |_| session.doubt_finals()).await?;
        }
        // Also after a failure: what was fetched stays.
        let kept = self.keep_size().await;
        noted.and_then(|digest| kept.map(|()| digest))
    }

    /// Removes what was used least recently, if the store is too large.
    async fn keep_size(&self) -> Result<(), RunError> {
        let supply = Arc::clone(&self.supply);
        self.on_disk(move |layers| {
            if let Ok(_whole) = layers.lock() {
                let fetched = [supply.blobs.folder(), supply.documents.folder()];
                make_room(layers, fetched, supply.config.bounds.kept_bytes_max, None);
            }
        })
        .await
    }

    /// Work that waits for the disk or for the lock of the folder, on a thread where it delays no other call.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Layers) -> T + Send + 'static,
    ) -> Result<T, RunError> {
        let layers = Arc::clone(&self.layers);
        tokio::task::spawn_blocking(move || work(&layers)).await.map_err(errors::failed)
    }

    async fn build(&self, order: &Order) -> Result<String, RunError> {
        self.supply.blobs.sweep();
        self.look_up(order).await?;
        let job = self.job(order, &order.present).await?;
        order.session.tell("resolving");
        let (mut draft, mut made, mut built) = self.execute(order, job).await?;
        let is_unfit = built.outcome != Outcome::Completed && !order.present.is_empty();
        if is_unfit {
            // The versions that are there do not fit. The set is then complete for itself.
            let job = self.job(order, &[]).await?;
            (draft, made, built) = self.execute(order, job).await?;
        }
        if built.outcome != Outcome::Completed || built.unread.is_some() || !made.is_complete {
            tracing::debug!(outcome = built.outcome.name(), said = %String::from_utf8_lossy(&built.stderr), "installation_failed");
            return Err(explain::failure(&order.session, &order.requirements, &built));
        }
        let manifest = manifest(order, &made)?;
        // A package may bring others in its own file, for which no index was asked.
        if let Some((name, reason)) = self.refusal(&manifest) {
            return Err(explain::denied_error(&name, &reason));
        }
        self.publish(order, draft, manifest).await
    }

    async fn publish(&self, order: &Order, draft: Draft, manifest: Manifest) -> Result<String, RunError> {
        let (digest, count) = (manifest.digest.clone(), manifest.packages.len());
        let bom = inventory::cyclonedx(&manifest);
        let published = self.on_disk(move |layers| layers.publish(draft, &manifest, &bom));
        published.await?.map_err(errors::disk)?;
        order.session.tell(format!("installed {count} packages"));
        Ok(digest)
    }

    /// Reads the index of every requirement, before anything is started: most errors show here.
    async fn look_up(&self, order: &Order) -> Result<(), RunError> {
        if order.ecosystem == Ecosystem::Go {
            // Only the resolver finds out which part of a path is the module.
            return Ok(());
        }
        order.session.tell("reading the index");
        let base = crate::broker::base();
        let pages = order.requirements.iter().map(|wanted| order.session.page(&wanted.name, &base));
        futures_util::future::join_all(pages).await;
        let known = order.requirements.iter().find_map(|wanted| explain::at_once(&order.session, wanted));
        known.map_or(Ok(()), Err)
    }

    async fn job(&self, order: &Order, present: &[PackageVersion]) -> Result<Job, RunError> {
        let (config, interpreter) = (&self.supply.config, order.runtime.executable());
        match order.ecosystem {
            Ecosystem::Npm => {
                Ok(tools::npm::install(interpreter, &order.requirements, present, config.install_scripts))
            }
            Ecosystem::Go => {
                Ok(tools::go::install(interpreter, &order.requirements, present, &config.go_sumdb))
            }
            Ecosystem::Pypi => {
                let tool = self.resolver(order).await?;
                let texts: Vec<String> = order.requirements.iter().map(|one| one.text.clone()).collect();
                let (requirements, source_builds) = (texts.as_slice(), config.source_builds);
                let install = tools::uv::Install { interpreter, requirements, present, source_builds };
                Ok(tools::uv::install(&install, tool))
            }
        }
    }

    /// Runs a job behind the wall, and takes its product.
    async fn execute(&self, order: &Order, job: Job) -> Result<(Draft, Harvested, Built), RunError> {
        let engine = self.engine.upgrade().ok_or_else(errors::off)?;
        let bounds = &self.supply.config.bounds;
        let draft = self.on_disk(Layers::draft).await?.map_err(errors::disk)?;
        let (harvest, sink) = Harvest::new(draft.files(), inventory::is_noted).shared();
        let wall_ms = u64::try_from(self.supply.config.patience.install.as_millis()).unwrap_or(u64::MAX);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let limits = Limits {
            wall_ms,
            memory_bytes: bounds.memory_bytes,
            cpus_milli: u32::try_from(cores).unwrap_or(1).saturating_mul(1000),
            processes: PROCESSES,
            disk_bytes: self.supply.config.builder_disk_bytes(),
            disk_inodes: bounds.layer_entries_max.saturating_mul(INODES_FACTOR),
            open_files: OPEN_FILES,
            output_bytes: OUTPUT_BYTES,
        };
        let broker = Arc::new(IndexBroker(Arc::clone(&order.session)));
        let builder = Builder {
            caller: &order.caller,
            wall: &order.wall,
            language: job.language,
            limits,
            layers: job.layers,
            grants: vec![Grant { at: ListenAt::Loopback(PORT), broker }],
            files: job.files,
            argv: job.argv,
            env: job.env,
            product: FilePath::parse(job.product).map_err(errors::failed)?,
            bounds: TreeBounds {
                entries_max: bounds.layer_entries_max,
                bytes_max: bounds.layer_bytes_max,
                patience: HARVEST_PATIENCE,
            },
        };
        let built = engine.build(builder, sink).await?;
        drop(job.in_use);
        Ok((draft, Harvest::take(&harvest), built))
    }

    /// The layer of the resolver. Its wheel is fetched and unpacked at the first use.
    async fn resolver(&self, order: &Order) -> Result<(Layer, InUse), RunError> {
        let _turn = self.tool.lock().await;
        let Some((file, wheel)) = tools::uv::wheel() else {
            return Err(errors::failed("there is no resolver for this kind of processor"));
        };
        let key = format!("{RESOLVER_KEY}{}", wheel.digest());
        let shown = |used: Used| {
            let Used { manifest, files, in_use } = used;
            (Layer { digest: manifest.digest.clone(), path: files, target: "/".into() }, in_use)
        };
        if let Some(used) = self.layers.recall(&key) {
            return Ok(shown(used));
        }
        order.session.tell("fetching the resolver");
        let session = Session::new(Arc::clone(&self.supply), Ecosystem::Pypi, None);
        let mirror = self.supply.mirror(Ecosystem::Pypi).ok_or_else(errors::off)?.clone();
        let url = match self.supply.blobs.open(&wheel) {
            Some(_) => mirror.base.to_string(),
            None => {
                let supply = Arc::clone(&self.supply);
                let files = self.supply.fetcher.aside(async move {
                    pypi::project(&supply.documents.counted(&|_| Ok(())), &mirror, "uv").await
                });
                let files = files.await.and_then(std::convert::identity);
                let files = files.map_err(|error| explain::mirror("uv", &error))?;
                let found = files.into_iter().find(|one| one.blob.as_ref() == Some(&wheel));
                found.map(|one| one.url).ok_or_else(|| {
                    let reason = format!("the mirror does not have uv {}", tools::uv::VERSION);
                    errors::failed(reason)
                })?
            }
        };
        session.offer(Offer {
            name: "uv".to_owned(),
            version: tools::uv::VERSION.to_owned(),
            url,
            blob: wheel.clone(),
            metadata: None,
        });
        let session = Arc::new(session);
        let job = tools::uv::unpack(order.runtime.executable(), file, &wheel);
        let own = Order {
            key: key.clone(),
            caller: order.caller.clone(),
            wall: order.wall.clone(),
            ecosystem: Ecosystem::Pypi,
            requirements: Vec::new(),
            present: Vec::new(),
            runtime: Arc::clone(&order.runtime),
            session,
        };
        let (draft, made, built) = self.execute(&own, job).await?;
        if built.outcome != Outcome::Completed || !tools::uv::is_tool(&made) {
            return Err(explain::failure(&own.session, &[], &built));
        }
        let digest = self.publish(&own, draft, manifest(&own, &made)?).await?;
        let entry = SetEntry { digest: digest.clone(), ecosystem: Ecosystem::Pypi, requirements: Vec::new() };
        self.layers.note_set(&key, &entry).map_err(errors::disk)?;
        let used = self.layers.use_layer(&digest);
        used.map(shown).ok_or_else(|| errors::failed("the resolver was removed at once"))
    }
}
