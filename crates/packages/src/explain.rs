//! Why an installation failed: from what the tool printed, and from what the broker withheld, to one error.

use engine::RunError;
use engine::packages::{Built, Ecosystem};
use sandbox::Outcome;
use sandbox::workspace::FileError;

use crate::clock::day;
use crate::errors;
use crate::fetch::FetchError;
use crate::go;
use crate::index::Withheld;
use crate::nearest;
use crate::requirement::Requirement;
use crate::session::{Note, Session};

/// The most bytes of a tool's output that an error repeats.
const SAID_BYTES_MAX: usize = 2000;
/// The most releases of a package that an error names.
const RELEASES_MAX: usize = 5;
/// Lines of tools that say nothing about a failure.
const IDLE_LINES: [&str; 2] = ["Using CPython", "npm error A complete log"];
/// SIGXFSZ: a file grew beyond the bound of the builder's disk.
const SIGNAL_FILE_SIZE: i32 = 25;

/// The error of a requirement whose index shows that it cannot be installed. `None` if the tool must decide.
pub(crate) fn at_once(session: &Session, requirement: &Requirement) -> Option<RunError> {
    let notes = session.notes();
    let name = &requirement.name;
    let known = notes.iter().find_map(|note| match note {
        Note::Missing { name: missing } if missing == name => Some(not_found(session, name)),
        Note::Denied { name: denied, reason } if denied == name => Some(denied_error(name, reason)),
        Note::Elsewhere { name: other } if other == name => Some(errors::elsewhere(name)),
        Note::Failed { name: failed, error } if failed == name => Some(mirror(name, error)),
        _ => None,
    });
    known.or_else(|| {
        let is_empty =
            notes.iter().any(|note| matches!(note, Note::Nothing { name: empty } if empty == name));
        is_empty.then(|| nothing_left(session, name, &notes))
    })
}

/// The error of a build that failed.
pub(crate) fn failure(session: &Session, requirements: &[Requirement], built: &Built) -> RunError {
    let notes = session.notes();
    match built.outcome {
        Outcome::TimedOut => return errors::timed_out(session.supply.config.patience.install.as_secs()),
        Outcome::DiskFull => return no_room(session),
        _ if built.signal == Some(SIGNAL_FILE_SIZE) => return no_room(session),
        Outcome::OutOfMemory => return errors::failed("the installer ran out of memory"),
        _ => {}
    }
    if let Some(unread) = &built.unread {
        return match unread {
            FileError::Failed(reason) if !is_disk(reason) => errors::unusable(reason),
            FileError::Failed(reason) => errors::disk(reason),
            error => errors::failed(error),
        };
    }
    let said = said(built);
    for note in &notes {
        match note {
            Note::Failed { name, error } => return mirror(name, error),
            Note::Denied { name, reason } => return denied_error(name, reason),
            Note::Elsewhere { name } => return errors::elsewhere(name),
            _ => {}
        }
    }
    if session.ecosystem == Ecosystem::Go {
        return go::explain::by_words(session, requirements, &said);
    }
    if let Some(error) = requirements.iter().find_map(|wanted| withheld_version(wanted, &notes)) {
        return error;
    }
    let missing = notes.iter().find_map(|note| match note {
        Note::Missing { name } => Some(name),
        _ => None,
    });
    if let Some(name) = missing {
        return not_found(session, name);
    }
    let empty = notes.iter().find_map(|note| match note {
        Note::Nothing { name } => Some(name),
        _ => None,
    });
    if let Some(name) = empty {
        return nothing_left(session, name, &notes);
    }
    by_words(&said, &notes, &releases(session, requirements))
}

/// Whether a wrong answer of the mirror that is kept may be the reason: the next installation would fail by it again.
pub(crate) fn may_be_stored(error: &RunError) -> bool {
    let others =
        ["package_not_found", "packages_conflict", "package_denied", "packages_timeout", "packages_off"];
    !others.contains(&error.code.as_ref())
}

/// The builder's disk was full: by its own bound, or because the state directory's is.
fn no_room(session: &Session) -> RunError {
    let (config, needed) = (&session.supply.config, session.supply.config.builder_disk_bytes());
    let free = rustix::fs::statvfs(&config.state_dir).map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    if free.is_ok_and(|free| free < needed) {
        return errors::disk("the disk of the state directory is full");
    }
    let mut error = errors::unusable("the packages need more disk than one installation may use");
    error.remedy = Some("ask for fewer or smaller packages".to_owned());
    error
}

/// The newest releases of packages for which a version was named.
fn releases(session: &Session, requirements: &[Requirement]) -> String {
    let has_version = |wanted: &&Requirement| wanted.text.contains(['=', '<', '>', '@']);
    let newest = |wanted: &Requirement| {
        let versions = session.newest(&wanted.name, RELEASES_MAX);
        (!versions.is_empty()).then(|| format!("{} has {}", wanted.name, versions.join(", ")))
    };
    requirements.iter().filter(has_version).filter_map(newest).collect::<Vec<_>>().join("; ")
}

/// The error of a tool that gives no other sign than its words.
fn by_words(said: &str, notes: &[Note], releases: &str) -> RunError {
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    let young =
        notes.iter().filter(|note| matches!(note, Note::Withheld { why: Withheld::TooYoung { .. }, .. }));
    let young = young.count();
    let mut error = if has(&["invalid package format", "invalid metadata", "was invalid"]) {
        RunError::new("package_refused", "a file of a package cannot be used")
            .remedy("choose another version or another package")
    } else if has(&[
        "no wheels",
        "no usable wheels",
        "building from source is disabled",
        "Wheels are required",
    ]) {
        RunError::new("package_no_wheel", "a package has no ready-built file for this machine").remedy(
            "choose another version, or a package that does the same; building from source is off here",
        )
    } else if has(&["there is no version of", "there are no versions of", "No matching version found"]) {
        RunError::new("package_not_found", "no release has the version that was asked for").remedy(
            match releases {
                "" => "ask for another version, or for the package without one".to_owned(),
                releases => format!("ask for another version ({releases}), or for the package without one"),
            },
        )
    } else if has(&["No solution found", "ERESOLVE", "ETARGET", "notarget", "unsatisfiable"]) {
        RunError::new("packages_conflict", "no versions of the packages fit together")
            .remedy("loosen or remove version limits, or install the packages in separate calls")
    } else if has(&["No space left", "ENOSPC"]) {
        return errors::disk("the builder's disk is full");
    } else if has(&["hash mismatch", "Hash mismatch", "EINTEGRITY"]) {
        RunError::new("package_hash_mismatch", "a file differs from the digest in the index")
            .remedy("choose another version, and tell the operator")
    } else if has(&[
        "Failed to extract",
        "Failed to read",
        "is invalid",
        "corrupt",
        "zip",
        "Metadata",
        "metadata",
        "TAR_",
    ]) {
        RunError::new("package_refused", "a file of a package cannot be used")
            .remedy("choose another version or another package")
    } else {
        RunError::new("packages_failed", "the installation did not work")
            .remedy("try again; if it persists ask the operator to run `palisade doctor`")
    };
    error.cause = Some(said.to_owned());
    if young > 0
        && error.code == "packages_conflict"
        && let Some(cause) = &mut error.cause
    {
        cause.push_str(&format!("\n{young} files are too young for this server"));
    }
    error
}

/// The end of what the tool printed.
fn said(built: &Built) -> String {
    let text = String::from_utf8_lossy(if built.stderr.is_empty() { &built.stdout } else { &built.stderr });
    let is_told = |line: &&str| !IDLE_LINES.iter().any(|idle| line.starts_with(idle));
    let text = text.trim().lines().filter(is_told).collect::<Vec<_>>().join("\n");
    let mut from = text.len().saturating_sub(SAID_BYTES_MAX);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text[from..].chars().filter(|one| !one.is_control() || *one == '\n').collect()
}

fn is_disk(reason: &str) -> bool {
    reason.contains("No space left") || reason.contains("cannot be stored")
}

fn not_found(session: &Session, name: &str) -> RunError {
    let (supply, ecosystem) = (&session.supply, session.ecosystem);
    let known = supply.mirror(ecosystem).map(|mirror| supply.documents.known_names(ecosystem, mirror));
    let near = nearest::names(ecosystem, name, &known.unwrap_or_default());
    let error =
        RunError::new("package_not_found", format!("there is no {} package `{name}`", title(ecosystem)));
    if nearest::is_standard(ecosystem, name) {
        return error.remedy(format!("leave `{name}` out: it comes with the language, import it as it is"));
    }
    match near.is_empty() {
        true => error.remedy("check the name: a package is not always named like the module that it has"),
        false => error.remedy(format!("did you mean {}?", near.join(", "))),
    }
}

fn title(ecosystem: Ecosystem) -> &'static str {
    match ecosystem {
        Ecosystem::Pypi => "Python",
        Ecosystem::Npm => "npm",
        Ecosystem::Go => "Go",
    }
}

pub(crate) fn denied_error(name: &str, reason: &str) -> RunError {
    let mut error = RunError::new("package_denied", format!("this server does not install `{name}`"));
    error.cause = Some(reason.to_owned());
    error.remedy("use another package; the operator decides by packages.allow and packages.deny")
}

pub(crate) fn mirror(name: &str, error: &FetchError) -> RunError {
    match error {
        FetchError::Mismatch => {
            let mut told =
                RunError::new("package_hash_mismatch", format!("a file of `{name}` differs from its digest"));
            told.cause = Some(error.to_string());
            told.remedy("choose another version, and tell the operator: the mirror is damaged or hostile")
        }
        FetchError::Disk(reason) => errors::disk(reason),
        FetchError::TooLarge(_) | FetchError::Elsewhere(_) | FetchError::Endless => {
            let mut told = errors::unusable(error);
            told.message = format!("`{name}` cannot be fetched");
            told
        }
        _ => {
            let mut told = RunError::new("mirror_unreachable", format!("the mirror did not give `{name}`"));
            told.cause = Some(error.to_string());
            told.retryable = true;
            told.retry_after_ms = Some(5000);
            told.remedy("try again in a moment; `palisade doctor` shows which mirrors answer")
        }
    }
}

/// The error of a package of which nothing may be installed.
fn nothing_left(session: &Session, name: &str, notes: &[Note]) -> RunError {
    let withheld: Vec<(&String, &Withheld)> = notes
        .iter()
        .filter_map(|note| match note {
            Note::Withheld { name: own, version, why } if own == name => Some((version, why)),
            _ => None,
        })
        .collect();
    let any = |wanted: fn(&Withheld) -> bool| withheld.iter().find(|(_, why)| wanted(why));
    if let Some((version, why)) = any(|why| matches!(why, Withheld::TooYoung { .. })) {
        return too_young(name, version, why);
    }
    if let Some(package) = nearest::by_module(session.ecosystem, name) {
        return not_found(session, name).remedy(format!("ask for `{package}`: it has the module `{name}`"));
    }
    if any(|why| *why == Withheld::Source).is_some() {
        return RunError::new("package_no_wheel", format!("`{name}` has no ready-built files")).remedy(
            "use another package; building from source is off on this server (packages.source_builds)",
        );
    }
    if any(|why| *why == Withheld::Yanked).is_some() {
        let mut error = not_found(session, name);
        error.cause = Some("all its releases were withdrawn (yanked)".to_owned());
        return error;
    }
    if any(|why| *why == Withheld::Elsewhere).is_some() {
        return errors::unusable(format!(
            "the files of `{name}` are on a host that is neither the mirror nor in packages.file_hosts"
        ));
    }
    if any(|why| *why == Withheld::NoDigest).is_some() {
        return errors::unusable(format!("the index has no strong digests of the files of `{name}`"));
    }
    let mut error = not_found(session, name);
    error.cause = Some("the index has no files of it".to_owned());
    error
}

/// The error of a requirement that names a version that is withheld.
fn withheld_version(requirement: &Requirement, notes: &[Note]) -> Option<RunError> {
    notes.iter().find_map(|note| match note {
        Note::Withheld { name, version, why } if *name == requirement.name => {
            let is_named = requirement.text.ends_with(&format!("=={version}"))
                || requirement.text.ends_with(&format!("@{version}"));
            match why {
                Withheld::TooYoung { .. } if is_named => Some(too_young(name, version, why)),
                Withheld::Yanked if is_named => {
                    let message = format!("{name} {version} was withdrawn (yanked)");
                    Some(RunError::new("package_not_found", message).remedy("choose another version"))
                }
                _ => None,
            }
        }
        _ => None,
    })
}

pub(crate) fn too_young(name: &str, version: &str, why: &Withheld) -> RunError {
    let mut error =
        RunError::new("package_too_young", format!("{name} {version} is too young to be installed"));
    error.cause = Some(match why {
        Withheld::TooYoung { until_ms: Some(until) } => {
            format!("it may be installed from {} on", day(*until))
        }
        _ => "the mirror does not say when it was released".to_owned(),
    });
    error.remedy("ask for an older version; the operator decides by packages.min_age_days")
}
