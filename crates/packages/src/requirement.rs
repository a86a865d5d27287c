//! Requirements of callers, parsed once: a name and the versions that will do. Nothing that a tool could take for an
//! option, an address or a path.
//!
//! Python: a name with extras, version specifiers and a marker (PEP 508), without ` @ URL`. JavaScript: a name with a
//! range or a tag, without git, file, http and alias forms. Go: [`crate::go::check`].

use engine::RunError;
use engine::packages::{Ecosystem, REQUIREMENT_BYTES_MAX};

use crate::go;

/// The longest name: that of npm.
const NAME_BYTES_MAX: usize = 214;

/// A requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The name of the package in its normal form.
    pub name: String,
    /// The whole requirement, for the tool.
    pub text: String,
}

/// The form of a name by which the ecosystem compares names (PEP 503).
pub(crate) fn normal_name(ecosystem: Ecosystem, name: &str) -> String {
    match ecosystem {
        Ecosystem::Npm => name.to_owned(),
        // Hosts of sources may ignore case where the go command does not.
        Ecosystem::Go => name.to_ascii_lowercase(),
        Ecosystem::Pypi => {
            let mut normal = String::with_capacity(name.len());
            let mut is_joint = false;
            for character in name.chars() {
                if matches!(character, '-' | '_' | '.') {
                    is_joint = true;
                    continue;
                }
                if is_joint {
                    normal.push('-');
                    is_joint = false;
                }
                normal.push(character.to_ascii_lowercase());
            }
            if is_joint {
                normal.push('-');
            }
            normal
        }
    }
}

/// Whether it is a name that an index can have. It is also fit to be a file name.
pub(crate) fn is_name(ecosystem: Ecosystem, name: &str) -> bool {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return false;
    }
    match ecosystem {
        Ecosystem::Go => go::is_module_path(name),
        Ecosystem::Pypi => {
            let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            let is_edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
            let bytes = name.as_bytes();
            bytes.iter().copied().all(is_inner) && is_edge(bytes.first()) && is_edge(bytes.last())
        }
        Ecosystem::Npm => {
            let part = |part: &str| {
                let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
                !part.is_empty() && !part.starts_with(['.', '_', '-']) && part.bytes().all(is_inner)
            };
            match name.strip_prefix('@') {
                Some(scoped) => scoped.split_once('/').is_some_and(|(scope, name)| part(scope) && part(name)),
                None => part(name) && !["node_modules", "favicon.ico"].contains(&name),
            }
        }
    }
}

/// Parses a requirement of a caller.
pub fn check_requirement(ecosystem: Ecosystem, text: &str) -> Result<Requirement, RunError> {
    let text = text.trim();
    if text.len() > REQUIREMENT_BYTES_MAX {
        return Err(bad(text, &format!("it is longer than {REQUIREMENT_BYTES_MAX} bytes"), ecosystem));
    }
    if let Some(odd) = text.chars().find(|character| !(' '..='~').contains(character)) {
        let reason = format!("it has the character U+{:04X}; names are ASCII", u32::from(odd));
        return Err(bad(text, &reason, ecosystem));
    }
    let parsed = match ecosystem {
        Ecosystem::Pypi => python(text),
        Ecosystem::Npm => javascript(text),
        Ecosystem::Go => go::check(text),
    };
    parsed.map_err(|reason| bad(text, reason, ecosystem))
}

fn bad(text: &str, reason: &str, ecosystem: Ecosystem) -> RunError {
    let shown: String = text.chars().take(80).map(|one| if one.is_control() { '?' } else { one }).collect();
    let mut error = RunError::new("bad_package", format!("`{shown}` is not a package that can be asked for"));
    error.cause = Some(reason.to_owned());
    error.remedy(match ecosystem {
        Ecosystem::Pypi => {
            "give a name and versions, such as `pandas`, `pandas>=2,<3` or `httpx[http2]==0.28.1`"
        }
        Ecosystem::Npm => {
            "give a name and a version, a range or a tag, such as `lodash`, `zod@^3` or `@types/node@20`"
        }
        Ecosystem::Go => {
            "give the path of an import, with a version if it matters, such as `github.com/google/uuid` or `gopkg.in/yaml.v3@v3.0.1`"
        }
    })
}

fn python(text: &str) -> Result<Requirement, &'static str> {
    if text.starts_with('-') {
        return Err("options are not taken");
    }
    if is_command(text, &["pip", "pip3", "uv", "conda"]) {
        return Err("it is a command; leave `install` and what comes before it out");
    }
    if text.contains('@') && !text.contains([' ', ':', '/']) {
        return Err("Python versions are written `name==1.2`; a package of npm begins with `npm:`");
    }
    if text.contains("://") || text.contains('@') || text.starts_with(['.', '/', '~']) {
        return Err("addresses and paths are not taken");
    }
    let end = text.bytes().position(|byte| !(byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)));
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    if !is_name(Ecosystem::Pypi, name) {
        return Err("it does not begin with a name of letters, digits, `-`, `_` and `.`");
    }
    let (rest, marker) = match rest.split_once(';') {
        Some((rest, marker)) => (rest, Some(marker.trim())),
        None => (rest, None),
    };
    let rest = rest.trim();
    let (extras, versions) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or("the list of extras does not end")?,
        None => ("", rest),
    };
    let are_extras = extras.is_empty() && !rest.starts_with('[')
        || !extras.is_empty() && extras.split(',').all(|extra| is_name(Ecosystem::Pypi, extra.trim()));
    if !are_extras {
        return Err("the extras are not names");
    }
    let versions = versions.trim();
    let versions = versions.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')).unwrap_or(versions);
    if !versions.is_empty() && !versions.split(',').all(|one| is_specifier(one.trim())) {
        return Err("after the name come version specifiers such as `==2.1` or `>=2,<3`");
    }
    if marker.is_some_and(|marker| !is_marker(marker)) {
        return Err("the marker after `;` is not one of PEP 508");
    }
    Ok(Requirement { name: normal_name(Ecosystem::Pypi, name), text: text.to_owned() })
}

/// Whether it is a command line that installs something.
fn is_command(text: &str, tools: &[&str]) -> bool {
    let mut words = text.split(' ');
    words.next().is_some_and(|first| tools.contains(&first))
        && words.any(|word| ["install", "add", "i"].contains(&word))
}

fn is_specifier(text: &str) -> bool {
    let operators = ["===", "==", "~=", "!=", "<=", ">=", "<", ">"];
    let Some(version) = operators.iter().find_map(|operator| text.strip_prefix(operator)) else {
        return false;
    };
    let version = version.trim();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".*+!-_".contains(&byte);
    !version.is_empty() && !version.starts_with('-') && version.bytes().all(is_plain)
}

fn is_marker(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b" ._'\"<>=!()~-".contains(&byte);
    !text.is_empty() && text.bytes().all(is_plain) && !text.contains("--")
}

fn javascript(text: &str) -> Result<Requirement, &'static str> {
    if text.starts_with('-') {
        return Err("options are not taken");
    }
    if is_command(text, &["npm", "pnpm", "yarn", "bun"]) {
        return Err("it is a command; leave `install` and what comes before it out");
    }
    let at = text.char_indices().skip(1).find(|(_, character)| *character == '@').map(|(at, _)| at);
    let (name, range) = match at {
        Some(at) => (&text[..at], Some(text[at + 1..].trim())),
        None => (text, None),
    };
    if !is_name(Ecosystem::Npm, name) {
        return Err("it does not begin with a name of the registry");
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b" .^~<>=|*+-xX".contains(&byte);
    match range {
        Some(range) if range.is_empty() || range.starts_with('-') || !range.bytes().all(is_plain) => {
            Err("after the name come a version, a range or a tag; addresses, paths and aliases are not taken")
        }
        _ => Ok(Requirement { name: name.to_owned(), text: text.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(ecosystem: Ecosystem, text: &str) -> String {
        check_requirement(ecosystem, text).map_or_else(|error| error.code, |good| good.name)
    }

    #[test]
    fn names_with_versions_extras_and_markers_are_taken() {
        for (text, name) in [
            ("six", "six"),
            ("Pandas>=2,<3", "pandas"),
            ("httpx[http2,socks] == 0.28.1", "httpx"),
            ("zope.interface~=5.0", "zope-interface"),
            ("numpy (>=1.0)", "numpy"),
            ("tomli; python_version < '3.11'", "tomli"),
        ] {
            assert_eq!(code(Ecosystem::Pypi, text), name, "{text}");
        }
        for (text, name) in [
            ("lodash", "lodash"),
            ("zod@^3", "zod"),
            ("@types/node@20", "@types/node"),
            ("typescript@latest", "typescript"),
            ("axios@>=1 <2", "axios"),
        ] {
            assert_eq!(code(Ecosystem::Npm, text), name, "{text}");
        }
    }

    #[test]
    fn a_requirement_that_injects_anything_is_refused() {
        for text in [
            "",
            "-e .",
            "--index-url=http://evil",
            "-r other.txt",
            "six --index-url http://evil",
            "six @ https://evil/six.whl",
            "six@file:///etc/passwd",
            "git+https://evil/x",
            "https://evil/x.whl",
            "./six",
            "/tmp/six",
            "../six",
            "six\n--index-url http://evil",
            "six\0",
            "six; $(id)",
            "six==1 --hash=sha256:00",
            "s\u{456}x",
            "\u{ff53}ix",
            "six\u{200b}",
            "six[",
            "six[]",
            "six[a;b]",
            "six=1",
            "six==",
            "six==-1",
            "pip install six",
            "uv pip install six",
            "six@1.15",
            "${HOME}",
        ] {
            assert_eq!(code(Ecosystem::Pypi, text), "bad_package", "{text:?}");
        }
        for text in [
            "",
            "-g",
            "--registry=http://evil",
            "lodash --registry http://evil",
            "lodash@http://evil/x.tgz",
            "lodash@npm:evil@1",
            "lodash@file:../x",
            "evil/repo",
            "github:evil/repo",
            "git+ssh://evil",
            "./x",
            "../x",
            "/x",
            "@scope",
            "@/x",
            "lodash@",
            "lodash@-1",
            "npm install lodash",
            "l\u{43e}dash",
            "lodash\nzod",
            "node_modules",
            ".bin",
        ] {
            assert_eq!(code(Ecosystem::Npm, text), "bad_package", "{text:?}");
        }
        assert_eq!(code(Ecosystem::Pypi, &"a".repeat(300)), "bad_package");
    }

    #[test]
    fn names_that_the_index_compares_equal_have_one_normal_form() {
        for name in ["Foo.Bar", "foo-bar", "FOO__bar", "foo-._bar"] {
            assert_eq!(normal_name(Ecosystem::Pypi, name), "foo-bar", "{name}");
        }
    }
}
