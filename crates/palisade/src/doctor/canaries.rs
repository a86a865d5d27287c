//! For each guarantee, a small program that tries to break it, and the expected result.
//!
//! The programs are Bash, because every machine that can build the wall has it. A program prints `held` when
//! it could not break the guarantee, or ends with the outcome of the tested limit.

use std::time::{Instant, SystemTime};

use engine::{RunRequest, RunResult};
use policy::Ask;
use sandbox::{Guarantee, Outcome};

/// The test of one guarantee.
pub(super) struct Canary {
    code: String,
    ask: Ask,
    expected: Expected,
    started: Instant,
    marker: String,
}

/// The result that shows that the guarantee holds.
enum Expected {
    /// The program prints `held`.
    Held,
    /// The run ends with this outcome.
    Ends(Outcome),
    /// The run used at most this share of one core.
    CoreShare(f64),
    /// No process with its marker is alive afterwards.
    NothingLeft,
}

impl Canary {
    pub(super) fn of(guarantee: Guarantee) -> Self {
        let marker = format!("palisade-canary-{}", unique());
        let ask = Ask { timeout_ms: Some(10_000), ..Ask::default() };
        let (code, ask, expected) = match guarantee {
            Guarantee::FilesHidden => (hidden(), ask, Expected::Held),
            Guarantee::FilesReadonly => (READONLY.to_owned(), ask, Expected::Held),
            Guarantee::DiskLimited => (
                "head -c 40M /dev/zero > /workspace/big || exit 1".to_owned(),
                Ask { disk_mb: Some(8), ..ask },
                Expected::Ends(Outcome::DiskFull),
            ),
            Guarantee::NetworkNone => (NETWORK.to_owned(), ask, Expected::Held),
            Guarantee::ProcessesHidden => (PROCESSES.to_owned(), ask, Expected::Held),
            Guarantee::ProcessesLimited => (
                "for i in {1..64}; do sleep 5 & done 2>/dev/null; exit 1".to_owned(),
                // Bash retries a refused fork for seconds, and gives up when one of its children ends
                // meanwhile.
                Ask { processes: Some(16), timeout_ms: Some(30_000), ..ask },
                Expected::Ends(Outcome::ProcessLimit),
            ),
            Guarantee::MemoryLimited => (
                // One buffer, filled four times. A Bash variable grows by 128 bytes per read, which exceeds
                // the time limit on a slow machine. The control group's limit covers memory and disk
                // together.
                "dd if=/dev/zero of=/dev/null bs=200M count=4 2>/dev/null; exit 1".to_owned(),
                Ask { memory_mb: Some(32), disk_mb: Some(8), ..ask },
                Expected::Ends(Outcome::OutOfMemory),
            ),
            Guarantee::CpuLimited => (
                "end=$((SECONDS+1)); while ((SECONDS<end)); do :; done".to_owned(),
                Ask { cpus: Some(0.5), ..ask },
                Expected::CoreShare(0.5),
            ),
            Guarantee::TimeLimited => (
                "sleep 20".to_owned(),
                Ask { timeout_ms: Some(200), ..ask },
                Expected::Ends(Outcome::TimedOut),
            ),
            Guarantee::OutputLimited => (
                "head -c 1M /dev/zero".to_owned(),
                Ask { output_kb: Some(64), ..ask },
                Expected::Ends(Outcome::OutputLimit),
            ),
            Guarantee::PrivilegesNone => (PRIVILEGES.to_owned(), ask, Expected::Held),
            Guarantee::SyscallsFiltered => (SYSCALLS.to_owned(), ask, Expected::Held),
            Guarantee::TreeKilled => (
                format!("(exec -a {marker} setsid sleep 60) & sleep 0.05; exit 0"),
                ask,
                Expected::NothingLeft,
            ),
            Guarantee::IdentityHidden => (IDENTITY.to_owned(), ask, Expected::Held),
        };
        Self { code, ask, expected, started: Instant::now(), marker }
    }

    pub(super) fn request(&self) -> RunRequest {
        let language = "bash".to_owned();
        RunRequest { language, code: self.code.clone(), ask: self.ask.clone(), ..RunRequest::default() }
    }

    /// Whether the guarantee holds; the error says what was seen.
    pub(super) fn judge(&self, result: &RunResult) -> Result<(), String> {
        let stdout = String::from_utf8_lossy(&result.execution().stdout);
        if matches!(result.outcome, Outcome::Refused | Outcome::Unavailable) {
            let error = result.error.clone().unwrap_or_default();
            return Err(format!(
                "its canary could not run: {} {}",
                error.message,
                error.cause.unwrap_or_default()
            ));
        }
        match &self.expected {
            Expected::Held if stdout.trim() == "held" => Ok(()),
            Expected::Held => Err(format!("its canary says: {}", stdout.trim())),
            Expected::Ends(outcome) if result.outcome == *outcome => Ok(()),
            Expected::Ends(outcome) => {
                Err(format!("its canary ended as {} instead of {}", result.outcome.name(), outcome.name()))
            }
            Expected::CoreShare(share) => self.judge_share(result, *share),
            Expected::NothingLeft if is_alive(&self.marker) => Err("a process outlived its run".to_owned()),
            Expected::NothingLeft => Ok(()),
        }
    }

    /// The tolerance is large because the kernel assigns processor time in periods of a tenth of a second.
    fn judge_share(&self, result: &RunResult, share: f64) -> Result<(), String> {
        const SLACK_MS: f64 = 150.0;
        let allowed_ms = result.execution().usage.wall_ms * share + SLACK_MS;
        let limited_by_time_only = !result.enforced_by_cgroup(Guarantee::CpuLimited);
        if limited_by_time_only || result.execution().usage.cpu_ms <= allowed_ms {
            return Ok(());
        }
        let wall_ms = self.started.elapsed().as_millis();
        Err(format!(
            "its canary used {:.0} ms of processor time in {wall_ms} ms",
            result.execution().usage.cpu_ms
        ))
    }
}

/// Host paths that exist and must not exist in the sandbox.
fn hidden() -> String {
    let home = std::env::var("HOME").unwrap_or_default();
    let host_only =
        ["/root", "/var", "/run", "/sys", "/boot", "/etc/shadow", "/etc/machine-id", home.as_str()];
    let listed: Vec<String> = host_only
        .iter()
        .filter(|path| path.starts_with('/') && path.len() > 1 && !path.contains('\''))
        .map(|path| format!("'{path}'"))
        .collect();
    // A home may exist as the parent of an interpreter installed in it. Nothing else of that home may exist.
    format!(
        "for f in {}; do if [ -f \"$f\" ] || [ -e \"$f/.ssh\" ] || [ -e \"$f/.profile\" ] || [ -e \"$f/log\" ]; then echo \"$f is visible\"; exit; \
         fi; done; echo held",
        listed.join(" ")
    )
}

const READONLY: &str = r#"for f in /usr/x /etc/x /bin/x /palisade/x /x /proc/sys/kernel/hostname; do
  if (echo x > "$f") 2>/dev/null; then echo "$f was written"; exit; fi
done; echo held"#;

const NETWORK: &str = r#"while IFS=: read -r name rest; do
  name=${name// /}
  case $name in *"|"*|lo|"") ;; *) if [ "${rest//[ 0]/}" ]; then echo "interface $name"; exit; fi ;; esac
done < /proc/net/dev
while read -r _ destination _; do case $destination in Destination|"") ;; *) echo "route $destination"; exit ;; esac; done < /proc/net/route
echo held"#;

const PROCESSES: &str = r#"count=0
for p in /proc/[0-9]*; do count=$((count+1)); done
if ((count > 4)); then echo "$count processes are visible"; exit; fi
echo held"#;

const PRIVILEGES: &str = r#"while read -r name value _; do
  case $name in
    Cap*:) if [ "$value" != 0000000000000000 ]; then echo "$name $value"; exit; fi ;;
    NoNewPrivs:) if [ "$value" != 1 ]; then echo "$name $value"; exit; fi ;;
  esac
done < /proc/self/status; echo held"#;

const SYSCALLS: &str = r#"if unshare --user true 2>/dev/null; then echo "a user namespace was made"; exit; fi
while read -r name value _; do
  if [ "$name" = Seccomp: ] && [ "$value" != 2 ]; then echo "no filter"; exit; fi
done < /proc/self/status; echo held"#;

/// The variables are those of `engine/runtimes` and of `[tools.env]` in `runtimes/*/runtime.toml`. Any other one may
/// have come from the server. Behind an engine the user has a number
/// that no account has, from 0x30000000 on.
const IDENTITY: &str = r#"if [ "$UID" != 1000 ] && [ "$UID" -lt 805306368 ] || [ "$HOSTNAME" != palisade ]; then
  echo "$UID on $HOSTNAME"; exit
fi
if [ -e /etc/machine-id ]; then echo "the machine id is visible"; exit; fi
for name in $(compgen -e); do
  case $name in
    HOME|LANG|LOGNAME|OLDPWD|PATH|PWD|SHLVL|TMPDIR|USER|_) ;;
    CARGO_HOME|CARGO_NET_OFFLINE|GOENV|GOPATH|GOPROXY|GOSUMDB|GOTELEMETRY|GOTOOLCHAIN) ;;
    MPLBACKEND|PIP_DISABLE_PIP_VERSION_CHECK|PIP_RETRIES|PYTHONDONTWRITEBYTECODE|PYTHONUSERBASE) ;;
    OMP_NUM_THREADS|OPENBLAS_NUM_THREADS|MKL_NUM_THREADS|BLIS_NUM_THREADS|VECLIB_MAXIMUM_THREADS) ;;
    NUMEXPR_NUM_THREADS|NUMBA_NUM_THREADS|POLARS_MAX_THREADS|RAYON_NUM_THREADS|TOKIO_WORKER_THREADS) ;;
    GOMAXPROCS|PYTHON_CPU_COUNT|DOTNET_PROCESSOR_COUNT) ;;
    npm_config_audit|npm_config_fund|npm_config_offline|npm_config_update_notifier) ;;
    *) echo "$name is set"; exit ;;
  esac
done
echo held"#;

fn unique() -> String {
    let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    format!("{}-{nanos}", std::process::id())
}

fn is_alive(marker: &str) -> bool {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.any(|line| String::from_utf8_lossy(&line).contains(marker))
}
