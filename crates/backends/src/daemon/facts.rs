//! What an engine and its images are: whether they can be used, and what an operator should be warned of.
//!
//! Everything here is the engine's own word. It decides about warnings and about clear refusals, never about what is
//! enforced.

use std::time::{SystemTime, UNIX_EPOCH};

use ::sandbox::BackendError;

use super::Engine;
use super::api::{EngineFacts, ImageFacts};
use super::http::{CallError, Client};

/// An image older than this has missed several rounds of security updates.
const IMAGE_AGE_DAYS_MAX: u64 = 45;
const SECONDS_PER_DAY: u64 = 24 * 60 * 60;
/// The releases of runc with the fixes of November 2025.
const FIXED: [(u64, u64, u64); 3] = [(1, 2, 8), (1, 3, 3), (1, 4, 0)];
/// The first candidate of 1.4.0 with them.
const FIXED_CANDIDATE: u64 = 3;
const FIXES: &str = "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881";

/// What `palisade image check` and `doctor` tell about an image or an engine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageReport {
    /// The image, as the engine identifies it.
    pub id: String,
    /// The digests by which registries know it.
    pub digests: Vec<String>,
    /// When it was made, as its maker wrote it.
    pub created: String,
    /// Its age, if the time of its making can be read.
    pub age_days: Option<u64>,
    /// What an operator should know.
    pub warnings: Vec<String>,
}

/// Refuses engines whose containers cannot become sandboxes.
pub(super) fn is_usable(engine: Engine, facts: &EngineFacts) -> Result<(), BackendError> {
    let has = |name: &str| facts.security.iter().any(|option| option.split(',').any(|part| part == name));
    for (option, what) in
        [("name=rootless", "runs without root"), ("name=userns", "maps the users of containers")]
    {
        if has(option) {
            return Err(BackendError::Unsupported {
                what: format!("this {} {what}, and its sandboxes could not be examined", engine.name()),
                remedy:
                    "use an engine that runs as root and without userns-remap; the native wall needs no root"
                        .to_owned(),
            });
        }
    }
    Ok(())
}

/// Finds the configured image. A name without a digest may mean another image tomorrow, so it is refused unless allowed.
pub(super) async fn find_image(
    client: &Client,
    reference: &str,
    allow_tags: bool,
) -> Result<ImageFacts, BackendError> {
    let unsupported =
        |what: String, remedy: &str| BackendError::Unsupported { what, remedy: remedy.to_owned() };
    if !is_reference(reference) {
        return Err(unsupported(
            "the configured image is no valid reference".to_owned(),
            "write it as name@sha256:DIGEST",
        ));
    }
    if !allow_tags && !is_pinned(reference) {
        return Err(unsupported(
            format!("the image {reference} has no digest"),
            "write it as name@sha256:DIGEST (`palisade image check` prints it), or set allow_tags",
        ));
    }
    client.image(reference).await.map_err(|error| match error {
        error if error.is_absent() => unsupported(
            format!("the engine has no image {reference}"),
            "pull or import it; see deploy/images",
        ),
        error => BackendError::Build { step: "image".to_owned(), source: error.into() },
    })
}

/// Looks at an image and at the engine that would run it.
pub(super) async fn check(client: &Client, reference: &str) -> Result<ImageReport, CallError> {
    if !is_reference(reference) {
        return Err(CallError::Nonsense(format!("{reference:?} is no reference of an image")));
    }
    let (image, engine) = (client.image(reference).await?, client.facts().await?);
    let age_days = age_days(&image.created, now());
    let mut warnings = warnings(&engine);
    if let Some(warning) = age_days.and_then(age_warning) {
        warnings.push(warning);
    }
    if !is_pinned(reference) {
        let name = image.digests.first().cloned().unwrap_or_else(|| image.id.clone());
        warnings.push(format!("a tag can mean another image tomorrow; this one is {name}"));
    }
    Ok(ImageReport { id: image.id, digests: image.digests, created: image.created, age_days, warnings })
}

/// What an operator should know about an engine.
pub(super) fn warnings(engine: &EngineFacts) -> Vec<String> {
    let runtimes = engine.components.iter().filter(|(name, _)| name.contains("runc"));
    let behind = runtimes.filter_map(|(_, version)| {
        let version = version.lines().next().unwrap_or_default();
        let number = version.strip_prefix("runc version ").unwrap_or(version).trim();
        (!has_fixes(number)).then(|| {
            format!(
                "runc {number} is older than the fixes of November 2025 ({FIXES}: 1.2.8, 1.3.3, 1.4.0-rc.3); \
                 distributions may have added them to an older version, see its changelog"
            )
        })
    });
    behind.collect()
}

pub(super) fn age_warning(days: u64) -> Option<String> {
    (days > IMAGE_AGE_DAYS_MAX)
        .then(|| format!("the image is {days} days old, and lacks the security updates since; make it anew"))
}

/// Whether a version of runc has the fixes.
fn has_fixes(version: &str) -> bool {
    let (numbers, rest) = version.split_at(version.find(['-', '+', '~']).unwrap_or(version.len()));
    let mut parts = numbers.split('.').map(|part| part.parse::<u64>().unwrap_or(0));
    let found = (parts.next().unwrap_or(0), parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if found == (1, 4, 0)
        && let Some(candidate) = rest.strip_prefix("-rc.")
    {
        let digits: String = candidate.chars().take_while(char::is_ascii_digit).collect();
        return digits.parse::<u64>().is_ok_and(|number| number >= FIXED_CANDIDATE);
    }
    let of_series = FIXED.iter().find(|fixed| (fixed.0, fixed.1) == (found.0, found.1));
    of_series.map_or(found > FIXED[FIXED.len() - 1], |fixed| found >= *fixed)
}

/// Whether a reference names an image by its content.
fn is_pinned(reference: &str) -> bool {
    let digest = reference.rsplit_once("@sha256:").map(|(_, hex)| hex);
    let hex = digest.or_else(|| reference.strip_prefix("sha256:")).unwrap_or("");
    hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Letters of a reference: it becomes part of a path of the engine's interface.
fn is_reference(text: &str) -> bool {
    const LENGTH_MAX: usize = 512;
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:@".contains(&byte);
    !text.is_empty()
        && text.len() <= LENGTH_MAX
        && text.bytes().all(is_letter)
        && text.split(['/', ':', '@']).all(|part| !part.is_empty() && part != "." && part != "..")
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The age of something that was made at a time like `2026-11-18T09:05:33Z`.
pub(super) fn age_days(created: &str, now_s: u64) -> Option<u64> {
    let mut parts = created.get(..10)?.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Days since 1970-01-01 in the Gregorian calendar, with years that begin in March.
    let shifted = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = shifted * 365 + shifted.div_euclid(4) - shifted.div_euclid(100) + shifted.div_euclid(400);
    let made = u64::try_from(days + of_year - 719_468).ok()?;
    Some((now_s / SECONDS_PER_DAY).saturating_sub(made))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fixes_of_november_2025_are_known_by_version() {
        for fixed in ["1.2.8", "1.3.3", "1.3.4", "1.4.0", "1.4.0-rc.3", "1.4.1", "2.0.0", "1.3.3+ds1-1"] {
            assert!(has_fixes(fixed), "{fixed}");
        }
        for behind in ["1.1.5+ds1", "1.2.7", "1.3.2", "1.4.0-rc.2", "1.0.0-rc93", "", "unknown"] {
            assert!(!has_fixes(behind), "{behind}");
        }
    }

    #[test]
    fn a_runtime_behind_the_fixes_is_told_with_its_version() {
        let of = |name: &str, version: &str| EngineFacts {
            components: vec![(name.to_owned(), version.to_owned())],
            ..EngineFacts::default()
        };
        assert!(warnings(&of("runc", "1.1.5+ds1"))[0].starts_with("runc 1.1.5+ds1 is older"));
        let podman = of("OCI Runtime (/usr/sbin/runc)", "runc version 1.1.5+ds1\ncommit: x");
        assert!(warnings(&podman)[0].contains("distributions may have added them"));
        assert_eq!(warnings(&of("runc", "1.3.3")), [""; 0]);
    }

    #[test]
    fn an_age_is_counted_in_days() {
        let now = 1_794_992_876;
        assert_eq!(age_days("2026-11-18T09:05:33.19Z", now), Some(0));
        assert_eq!(age_days("2026-10-03T00:00:00Z", now), Some(46));
        assert_eq!(age_days("2024-02-29T00:00:00Z", 1_709_251_200), Some(1));
        assert_eq!(age_days("1970-01-01T00:00:00Z", 86_400), Some(1));
        assert_eq!(age_days("yesterday", now), None);
        assert!(age_warning(46).is_some() && age_warning(45).is_none());
    }

    #[test]
    fn a_reference_is_pinned_by_its_digest_only() {
        let digest = "a".repeat(64);
        for pinned in [format!("r/x@sha256:{digest}"), format!("sha256:{digest}")] {
            assert!(is_pinned(&pinned) && is_reference(&pinned), "{pinned}");
        }
        for loose in ["debian", "debian:12", "r:5000/x:1", "x@sha256:abc"] {
            assert!(!is_pinned(loose) && is_reference(loose), "{loose}");
        }
        for wrong in ["", "a b", "../x", "x?y", "x/../y", "x#", "x//y"] {
            assert!(!is_reference(wrong), "{wrong}");
        }
    }
}
