//! Names of modules and versions: what a proxy may be asked for, and what a caller may ask for.
//!
//! A path is compared and stored as it is. In addresses an upper-case letter is written as `!` and the lower-case one, so that
//! file systems that fold case keep modules apart ("Module proxies" in the Go reference).

use crate::requirement::Requirement;

/// The longest path of a module, and the longest version.
const PATH_BYTES_MAX: usize = 200;
const VERSION_BYTES_MAX: usize = 100;
/// Queries for versions that are not versions themselves.
const OPERATORS: [&str; 4] = [">=", "<=", ">", "<"];

/// A module in one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Module {
    pub(crate) path: String,
    pub(crate) version: String,
}

impl Module {
    pub(crate) fn new(path: &str, version: &str) -> Option<Self> {
        let is_module = is_module_path(path) && is_version(version);
        is_module.then(|| Self { path: path.to_owned(), version: version.to_owned() })
    }

    /// The path of one of its documents below a proxy.
    pub(crate) fn document(&self, ending: &str) -> String {
        format!("{}/@v/{}.{ending}", escaped(&self.path), escaped(&self.version))
    }
}

/// Whether it is the path of a module that a proxy can serve: a host with a dot, and names.
pub(crate) fn is_module_path(path: &str) -> bool {
    let is_part = |part: &str| {
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        !part.is_empty() && !part.starts_with('.') && !part.ends_with('.') && part.bytes().all(is_inner)
    };
    let host = path.split('/').next().unwrap_or_default();
    let is_host = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    path.len() <= PATH_BYTES_MAX
        && host.contains('.')
        && !host.starts_with('-')
        && host.bytes().all(is_host)
        && path.split('/').all(is_part)
}

/// Whether it is a whole version, such as `v1.2.3`, `v1.2.3-rc.1` or `v2.0.0+incompatible`.
pub(crate) fn is_version(version: &str) -> bool {
    let Some(rest) = version.strip_prefix('v').filter(|rest| rest.len() < VERSION_BYTES_MAX) else {
        return false;
    };
    let rest = rest.strip_suffix("+incompatible").unwrap_or(rest);
    let (numbers, before) =
        rest.split_once('-').map_or((rest, None), |(numbers, rest)| (numbers, Some(rest)));
    let is_number =
        |part: &str| !part.is_empty() && part.len() <= 20 && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    numbers.split('.').count() == 3
        && numbers.split('.').all(is_number)
        && before.is_none_or(|before| !before.is_empty() && before.bytes().all(is_inner))
}

/// The form of a path or a version in addresses.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_ascii_uppercase() {
            out.push('!');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

/// The reverse. `None` for what [`escaped`] does not write.
pub(crate) fn unescaped(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '!' => out.push(letters.next().filter(char::is_ascii_lowercase)?.to_ascii_uppercase()),
            letter if letter.is_ascii_uppercase() => return None,
            letter => out.push(letter),
        }
    }
    Some(out)
}

/// Parses a requirement: the path of a module or of a package in it, and a version query.
pub(crate) fn check(text: &str) -> Result<Requirement, &'static str> {
    if text.starts_with('-') {
        return Err("options are not taken");
    }
    if text.split(' ').next() == Some("go") {
        return Err("it is a command; leave `go get` and what comes before the path out");
    }
    let (path, version) = text.split_once('@').map_or((text, None), |(path, version)| (path, Some(version)));
    if path.contains("://") {
        return Err("addresses are not taken; leave out `https://`");
    }
    let host = path.split('/').next().unwrap_or_default();
    if !host.contains('.') && is_module_path(&format!("host.example/{path}")) {
        return Err("a path without a host belongs to the standard library, which needs no package");
    }
    if !is_module_path(path) || !path.contains('/') {
        return Err("it is not the path of a module, which begins with a host");
    }
    let name = path.to_owned();
    let Some(version) = version.map(str::trim).filter(|version| *version != "latest") else {
        return Ok(Requirement { text: name.clone(), name });
    };
    let operator =
        OPERATORS.iter().find(|operator| version.starts_with(**operator)).copied().unwrap_or_default();
    let plain = version[operator.len()..].trim();
    let numbers = plain.strip_prefix('v').unwrap_or(plain);
    let is_prefix = !numbers.is_empty()
        && numbers.split('.').count() < 3
        && numbers.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    if !is_prefix && !is_version(&format!("v{numbers}")) {
        return Err("after `@` comes a version; branches and commits are not taken");
    }
    Ok(Requirement { text: format!("{name}@{operator}v{numbers}"), name })
}

/// Sorts versions as the go command compares them, the newest last. Pre-releases come before all releases: they are chosen only
/// where no release is left.
pub(crate) fn order(version: &str) -> (bool, [u64; 3], String) {
    let plain = version.trim_start_matches('v').split('+').next().unwrap_or_default();
    let (numbers, before) = plain.split_once('-').unwrap_or((plain, ""));
    let mut parts = numbers.split('.').map(|part| part.parse().unwrap_or(u64::MAX));
    let mut part = || parts.next().unwrap_or_default();
    (before.is_empty(), [part(), part(), part()], before.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> String {
        check(text).map_or_else(|reason| format!("error: {reason}"), |found| found.text)
    }

    #[test]
    fn modules_and_packages_in_them_are_taken_with_version_queries() {
        for (given, wanted) in [
            ("github.com/google/uuid", "github.com/google/uuid"),
            ("github.com/google/uuid@latest", "github.com/google/uuid"),
            ("github.com/google/uuid@v1.6.0", "github.com/google/uuid@v1.6.0"),
            ("github.com/google/uuid@1.6.0", "github.com/google/uuid@v1.6.0"),
            ("golang.org/x/text/cases@v0", "golang.org/x/text/cases@v0"),
            ("gopkg.in/yaml.v3@>=v3.0.0", "gopkg.in/yaml.v3@>=v3.0.0"),
            ("github.com/Azure/azure-sdk@< v68.0", "github.com/Azure/azure-sdk@<v68.0"),
            (
                "github.com/docker/docker@v20.10.7+incompatible",
                "github.com/docker/docker@v20.10.7+incompatible",
            ),
            ("k8s.io/api@v0.30.0-rc.1", "k8s.io/api@v0.30.0-rc.1"),
        ] {
            assert_eq!(text(given), wanted, "{given}");
        }
    }

    #[test]
    fn what_a_go_command_could_take_for_something_else_is_refused() {
        for given in [
            "",
            "uuid",
            "encoding/json",
            "github.com",
            "-u",
            "--",
            "./x",
            "../x",
            "/x",
            "github.com/../x",
            "github.com/x/..",
            "github.com//x",
            "github.com/x/",
            "github.com/.git/x",
            "github.com/x/...",
            "https://github.com/x/y",
            "github.com/x@master",
            "github.com/x@",
            "github.com/x@none",
            "github.com/x@upgrade",
            "github.com/x@v1.2.3/../..",
            "github.com/x@-u",
            "github.com/x y",
            "github.com/x@v1 -u",
            "go get github.com/x",
            "GitHub.com/x/y",
            "github.com:443/x",
            "user@github.com/x",
            "github.com/x@@v1",
            "github.com/x!y",
            "github.com/%2e%2e/x",
            "golang.org/toolchain?x",
        ] {
            assert!(check(given).is_err(), "{given}: {}", text(given));
        }
    }

    #[test]
    fn escapes_are_read_in_one_form_only() {
        for (plain, form) in [("github.com/Azure/X", "github.com/!azure/!x"), ("v1.0.0-RC1", "v1.0.0-!r!c1")]
        {
            assert_eq!(escaped(plain), form);
            assert_eq!(unescaped(form).as_deref(), Some(plain));
        }
        for form in
            ["github.com/Azure", "github.com/!Azure", "github.com/!", "github.com/!!a", "github.com/!1"]
        {
            assert_eq!(unescaped(form), None, "{form}");
        }
    }

    #[test]
    fn whole_versions_are_told_from_queries() {
        for version in ["v1.2.3", "v0.0.0-20161128191214-064e2069ce9c", "v2.0.0+incompatible", "v1.0.0-rc.1"]
        {
            assert!(is_version(version), "{version}");
        }
        for version in [
            "",
            "v1",
            "v1.2",
            "1.2.3",
            "v1.2.3.4",
            "v1.2.3-",
            "v1.2.3/..",
            "v1.2.3+x",
            "v1..3",
            "latest",
            "v1.2.x",
        ] {
            assert!(!is_version(version), "{version}");
        }
        let mut versions = ["v1.10.0", "v2.0.0-rc", "v1.9.0", "v1.10.1"];
        versions.sort_by_key(|version| order(version));
        assert_eq!(versions, ["v2.0.0-rc", "v1.9.0", "v1.10.0", "v1.10.1"]);
    }
}
