//! What to do about common failures of programs that a sandbox causes: no network, no input, no files of the host.
//! `conclusion` asks for every failed program. The texts come from the program and only choose the advice.

use crate::missing::Repair;

/// How the libraries of the languages say that a name or a network is not there.
const NETWORK_WORDS: [&str; 12] = [
    "Name or service not known",
    "Temporary failure in name resolution",
    "Could not resolve host",
    "nodename nor servname",
    "getaddrinfo",
    "ENOTFOUND",
    "EAI_AGAIN",
    "Network is unreachable",
    "ENETUNREACH",
    "no such host",
    "UnknownHostException",
    "failed to lookup address",
];
/// How package managers say that they could not fetch anything, and interpreters that a package is not there.
const PACKAGE_WORDS: [&str; 9] = [
    "No matching distribution found for",
    "ENOTCACHED",
    "/var/lib/apt/lists",
    "Unable to locate package",
    "--offline was specified",
    "module lookup disabled",
    "/var/lib/dpkg/lock",
    "/var/lib/apt/lists/lock",
    "No module named '",
];
/// The same of compilers and interpreters of Ruby, R, Perl, Go, Rust and PHP. No server installs packages for them, except for
/// Go where the operator allows it (`missing::of_compiler`).
const OTHER_PACKAGE_WORDS: [&str; 11] = [
    "Could not find a valid gem",
    "cannot load such file -- ",
    "there is no package called",
    ".pm in @INC",
    "no required module provides package",
    "is not in std (",
    "cannot find package \"",
    "missing crate `",
    "missing a crate named `",
    "can't find crate for `",
    "vendor/autoload.php",
];
const INSTALLED_BY_NAME: &str = "a sandbox has no network to install from: name packages in `packages` of run, for example \
\"pypi:pandas\" or \"npm:zod\"; install_packages installs them in a sandbox";
const NO_PACKAGES: &str = "a sandbox has no network to install from: see get_capabilities for what is installed, or send the \
package's files with the program";
const NOT_OF_THIS_LANGUAGE: &str = "packages of this language cannot be installed here: use its standard library, send the \
package's files with the program, or write the program in Python, JavaScript or Go, whose packages can be named in `packages`";
const NO_NETWORK: &str = "a sandbox has no network: send the data with the program, as inputs or variables";
const NO_INPUT: &str = "the program read more input than there was: give the whole text as stdin";
const NO_FILE: &str =
    "a sandbox has only its own files: send the file with the program, as one of its inputs";
/// How JavaScript and Python say that a program returns from no function.
const RETURN_WORDS: [&str; 3] =
    ["Illegal return statement", "'return' outside function", "A 'return' statement can only be used"];
const NO_RETURN: &str =
    "a program is no function: write the value as the last expression, without `return`, or print it";
/// The end of standard error that is looked at.
const STDERR_BYTES_MAX: usize = 16 << 10;

/// What to do next about a failed program, if its words tell.
pub(crate) fn remedy(message: &str, stderr: &[u8], repair: &Repair) -> Option<&'static str> {
    let tail = String::from_utf8_lossy(&stderr[stderr.len().saturating_sub(STDERR_BYTES_MAX)..]);
    let says = |words: &str| message.contains(words) || tail.contains(words);
    if PACKAGE_WORDS.iter().any(|words| says(words)) {
        return Some(if *repair == Repair::Off { NO_PACKAGES } else { INSTALLED_BY_NAME });
    }
    let other = of_other_language(message, *repair != Repair::Off);
    if let Some(advice) = other.or_else(|| of_other_language(&tail, *repair != Repair::Off)) {
        return Some(advice);
    }
    if NETWORK_WORDS.iter().any(|words| says(words)) {
        return Some(NO_NETWORK);
    }
    if message.starts_with("EOFError: EOF when reading a line") {
        return Some(NO_INPUT);
    }
    if RETURN_WORDS.iter().any(|words| message.contains(words)) {
        return Some(NO_RETURN);
    }
    let is_no_file = message.contains("No such file or directory") || message.contains("ENOENT");
    is_no_file.then_some(NO_FILE)
}

/// What to do about a missing package of a language whose packages are not installed. Compilers say it, too.
pub(crate) fn of_other_language(said: &str, installs_others: bool) -> Option<&'static str> {
    let is_missing = OTHER_PACKAGE_WORDS.iter().any(|words| said.contains(words));
    is_missing.then_some(if installs_others { NOT_OF_THIS_LANGUAGE } else { NO_PACKAGES })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remedy(message: &str, stderr: &[u8]) -> Option<&'static str> {
        super::remedy(message, stderr, &Repair::Off)
    }

    #[test]
    fn the_words_of_the_failure_choose_the_advice() {
        let python = "URLError: <urlopen error [Errno -2] Name or service not known>";
        assert_eq!(remedy(python, b""), Some(NO_NETWORK));
        assert_eq!(
            remedy("exit status 6", b"curl: (6) Could not resolve host: example.com"),
            Some(NO_NETWORK)
        );
        assert_eq!(
            remedy("TypeError: fetch failed", b"cause: Error: getaddrinfo EAI_AGAIN"),
            Some(NO_NETWORK)
        );
        let npm = b"npm error code ENOTCACHED\nnpm error request failed";
        assert_eq!(remedy("the program exited with status 1", npm), Some(NO_PACKAGES));
        let pip = b"WARNING: Name or service not known\nERROR: No matching distribution found for left-pad";
        assert_eq!(remedy("the program exited with status 1", pip), Some(NO_PACKAGES));
        for missing in [
            "ModuleNotFoundError: No module named 'numpy'",
            "cannot load such file -- nokogiri (LoadError)",
            "Error in library(dplyr) : there is no package called \u{2018}dplyr\u{2019}",
            "Can't locate JSON/XS.pm in @INC (you may need to install the JSON::XS module)",
            "E: Could not open lock file /var/lib/dpkg/lock-frontend - open (13: Permission denied)",
        ] {
            assert_eq!(remedy("the program exited with status 1", missing.as_bytes()), Some(NO_PACKAGES));
        }
        assert_eq!(super::remedy("exit status 1", pip, &Repair::NextRun), Some(INSTALLED_BY_NAME));
        assert_eq!(remedy("EOFError: EOF when reading a line", b""), Some(NO_INPUT));
        assert_eq!(remedy("SyntaxError: 'return' outside function", b""), Some(NO_RETURN));
        let file = "FileNotFoundError: [Errno 2] No such file or directory: '/home/user/data.csv'";
        assert_eq!(remedy(file, b""), Some(NO_FILE));
        assert_eq!(remedy("ValueError: x", b"No such file or directory"), None, "of another command");
    }

    #[test]
    fn a_missing_package_of_a_language_without_a_registry_is_told_as_such() {
        for missing in [
            "cannot load such file -- nokogiri (LoadError)",
            "Error in library(dplyr) : there is no package called \u{2018}dplyr\u{2019}",
            "Can't locate JSON/XS.pm in @INC (you may need to install the JSON::XS module)",
            "main.go:3:8: no required module provides package github.com/google/uuid: go.mod file not found",
            "main.go:3:8: package uuid is not in std (/usr/local/go/src/uuid)",
            "main.go:2:8: cannot find package \"github.com/google/uuid\" in any of:",
            "error[E0432]: unresolved import `serde`\nhelp: you might be missing a crate named `serde`",
            "Failed opening required 'vendor/autoload.php'",
        ] {
            for repair in [Repair::NextRun, Repair::Off] {
                let wanted = if repair == Repair::Off { NO_PACKAGES } else { NOT_OF_THIS_LANGUAGE };
                assert_eq!(
                    super::remedy("exit status 1", missing.as_bytes(), &repair),
                    Some(wanted),
                    "{missing}"
                );
            }
        }
    }
}
