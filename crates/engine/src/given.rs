//! What a run is given besides its program: environment variables, proxies and secrets.
//!
//! All three become environment variables of the program and of its child processes. `request` moves the
//! variables whose name begins with `$` here; the engine's own callers set proxies and secrets. The values
//! reach a sandbox only after it was leased: by the driver's `given` message, or in the environment with which
//! the interpreter starts ([`Giving`]). They are in no key of the pool or of the build cache, in no zygote and in
//! no compiler's environment.
//!
//! `Debug` shows names and never a value, and nothing here can be serialized.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::access::{Redactor, TOOLS_VARIABLE};
use crate::result::RunError;
use crate::runtimes::Runtime;

/// The prefix of a variable that sets the environment.
pub(crate) const MARK: char = '$';
/// The largest environment that a run can be given: names and values together. It fits a frame to the guest
/// beside the arguments, and each `NAME=VALUE` is shorter than the 128 KiB that execve(2) accepts
/// (`MAX_ARG_STRLEN`).
pub const ENVIRONMENT_BYTES_MAX: usize = 96 << 10;
const NAME_BYTES_MAX: usize = 128;
/// Names that begin so belong to Palisade.
const OWN_NAMES: [&str; 2] = ["PALISADE_", "__palisade"];

/// A value that must not be shown. `Debug` prints no part of it, and it cannot be serialized.
#[derive(Clone, Default)]
pub struct Secret(String);

impl Secret {
    /// Takes over the value.
    pub fn new(value: String) -> Self {
        Self(value)
    }

    /// The value, for those who must compare or search for it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(..)")
    }
}

/// The address of an HTTP proxy. It has no user name and no password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl Proxy {
    fn url(&self) -> String {
        format!("http://{}:{}", self.host, self.port)
    }
}

/// The proxies of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    /// For `http:` addresses.
    pub http: Option<Proxy>,
    /// For `https:` addresses, and for every other scheme.
    pub https: Option<Proxy>,
    /// Hosts that are reached without a proxy.
    pub no_proxy: Vec<String>,
}

impl Proxies {
    /// The variables that tools read, in both letter cases: curl ignores `HTTP_PROXY`, other tools read only
    /// that form.
    fn variables(&self) -> Vec<(String, String)> {
        let no_proxy = (!self.no_proxy.is_empty()).then(|| self.no_proxy.join(","));
        let named = [
            ("http_proxy", self.http.as_ref().map(Proxy::url)),
            ("https_proxy", self.https.as_ref().map(Proxy::url)),
            ("all_proxy", self.https.as_ref().map(Proxy::url)),
            ("no_proxy", no_proxy),
        ];
        let given = named.into_iter().filter_map(|(name, value)| value.map(|value| (name, value)));
        given
            .flat_map(|(name, value)| [(name.to_owned(), value.clone()), (name.to_uppercase(), value)])
            .collect()
    }

    /// Fills the arguments of a runtime that does not read the variables.
    pub(crate) fn arguments(&self, form: &ProxyArguments) -> Vec<String> {
        let fill = |proxy: &Option<Proxy>, parts: &[String]| -> Vec<String> {
            let Some(Proxy { host, port }) = proxy else { return Vec::new() };
            parts
                .iter()
                .map(|part| part.replace("{host}", host).replace("{port}", &port.to_string()))
                .collect()
        };
        let mut arguments = fill(&self.http, &form.http);
        arguments.extend(fill(&self.https, &form.https));
        if !self.no_proxy.is_empty() {
            // `.example.org` means every host beneath it; the pattern for that is `*.example.org`.
            let pattern =
                |host: &String| if host.starts_with('.') { format!("*{host}") } else { host.clone() };
            let hosts = self.no_proxy.iter().map(pattern).collect::<Vec<_>>().join("|");
            arguments.extend(form.no_proxy.iter().map(|part| part.replace("{hosts}", &hosts)));
        }
        arguments
    }
}

/// The arguments by which a runtime learns of proxies, where it does not read the variables.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProxyArguments {
    /// `{host}` and `{port}` are those of the proxy.
    pub(crate) http: Vec<String>,
    pub(crate) https: Vec<String>,
    /// `{hosts}` are patterns, separated by `|`.
    pub(crate) no_proxy: Vec<String>,
}

/// What one run is given.
#[derive(Clone, Default)]
pub struct Given {
    environment: BTreeMap<String, String>,
    proxies: Proxies,
    secrets: BTreeMap<String, Secret>,
    /// Variables of Palisade itself, whose names callers cannot use.
    own: BTreeMap<&'static str, String>,
    /// Finds the secrets in what the program reports.
    redactor: Option<Arc<Redactor>>,
}

impl fmt::Debug for Given {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Given")
            .field("environment", &self.environment.keys())
            .field("proxies", &self.proxies)
            .field("secrets", &self.secrets.keys())
            .finish()
    }
}

impl Given {
    /// Adds an environment variable.
    pub fn set(&mut self, name: &str, value: String) {
        self.environment.insert(name.to_owned(), value);
    }

    /// Sets the proxies.
    pub fn set_proxies(&mut self, proxies: Proxies) {
        self.proxies = proxies;
    }

    /// Adds a secret as an environment variable of that name.
    pub fn set_secret(&mut self, name: &str, secret: Secret) {
        self.secrets.insert(name.to_owned(), secret);
    }

    /// Adds a variable of Palisade itself.
    pub(crate) fn set_own(&mut self, name: &'static str, value: String) {
        self.own.insert(name, value);
    }

    /// Has programs of that runtime find the command `tools`, if the run may call tools. The caller's own PATH stays.
    pub(crate) fn show_tools_command(&mut self, runtime: &Runtime) {
        let is_needed = self.own.contains_key(TOOLS_VARIABLE) && !self.environment.contains_key("PATH");
        if let Some(path) = runtime.path_with_links().filter(|_| is_needed) {
            self.set_own("PATH", path);
        }
    }

    /// Finds the secrets in what the program reports; `None` without secrets.
    pub(crate) fn redactor(&self) -> Option<&Arc<Redactor>> {
        self.redactor.as_ref()
    }

    pub(crate) fn set_redactor(&mut self, redactor: Option<Arc<Redactor>>) {
        self.redactor = redactor;
    }

    pub(crate) fn proxies(&self) -> &Proxies {
        &self.proxies
    }

    /// Moves the variables that set the environment out of the others, and checks names and values.
    pub(crate) fn take_marked(&mut self, variables: &mut Map<String, Value>) -> Result<(), RunError> {
        let marked: Vec<String> = variables.keys().filter(|name| name.starts_with(MARK)).cloned().collect();
        for key in marked {
            let name = &key[MARK.len_utf8()..];
            check_name(name)?;
            let value = text_of(name, variables.get(&key))?;
            self.set(name, value);
            variables.remove(&key);
        }
        Ok(())
    }

    /// Checks what does not depend on the language.
    pub(crate) fn check(&self) -> Result<(), RunError> {
        let pairs = self.pairs();
        for (name, value) in pairs.iter().filter(|(name, _)| !self.own.contains_key(name.as_str())) {
            check_name(name)?;
            if value.contains('\0') {
                let message =
                    format!("the value of the environment variable `{name}` contains a NUL character");
                return Err(RunError::bad("variables", &message, "pass such data by stdin or inputs"));
            }
        }
        let bytes: usize = pairs.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > ENVIRONMENT_BYTES_MAX {
            let message = format!(
                "the environment variables are too large: {bytes} bytes, and {ENVIRONMENT_BYTES_MAX} is the most"
            );
            return Err(RunError::bad("variables", &message, "pass large data by stdin or inputs"));
        }
        Ok(())
    }

    /// Checks what depends on the language. `is_live` means that the run takes place in an interpreter that
    /// runs already and outlives it.
    pub(crate) fn check_for(&self, runtime: &Runtime, is_live: bool) -> Result<(), RunError> {
        for (name, _) in self.pairs() {
            if runtime.refuses_environment(&name) {
                let message = format!("`${name}` would prevent {} programs from starting", runtime.name());
                return Err(RunError::bad(
                    "variables",
                    &message,
                    "leave it out, or set it for a child process",
                ));
            }
            if is_live && runtime.reads_at_start(&name) {
                let message = format!(
                    "`${name}` is read only when an interpreter starts, and that of this sandbox runs already"
                );
                let remedy = "run without sandbox_id, or set it for a child process";
                return Err(RunError::bad("variables", &message, remedy));
            }
        }
        Ok(())
    }

    /// Every name with its value. A secret replaces a variable of the caller with the same name; the caller's
    /// variables replace those of the proxies.
    pub(crate) fn pairs(&self) -> Vec<(String, String)> {
        let mut pairs: BTreeMap<String, String> = self.proxies.variables().into_iter().collect();
        pairs.extend(self.environment.clone());
        pairs.extend(self.secrets.iter().map(|(name, Secret(value))| (name.clone(), value.clone())));
        pairs.extend(self.own.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        pairs.into_iter().collect()
    }
}

/// How a fresh run gets what it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Giving {
    /// By a message to the driver, which may have started long before. This includes a run that is given
    /// nothing.
    ByMessage,
    /// In the environment with which its interpreter or program starts, after the lease.
    AtStart,
}

impl Giving {
    pub(crate) fn of(given: &Given, runtime: &Runtime) -> Self {
        let pairs = given.pairs();
        let needs_start = !runtime.takes_environment_by_message()
            || pairs.iter().any(|(name, _)| runtime.reads_at_start(name));
        if !pairs.is_empty() && needs_start { Self::AtStart } else { Self::ByMessage }
    }
}

/// How a runtime takes what its runs are given (`[environment]` of runtime.toml).
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EnvironmentRules {
    /// Whether the driver understands the message `given`. Otherwise the interpreter is started with the
    /// variables.
    pub(crate) given: Way,
    /// Names that the interpreter reads only when it starts, besides [`READ_AT_START`].
    pub(crate) at_start: Vec<String>,
    /// Names with which the driver cannot work.
    pub(crate) refused: Vec<String>,
    /// How the runtime learns of proxies, where it does not read the variables.
    pub(crate) proxy_arguments: ProxyArguments,
}

/// The way by which a runtime takes what its runs are given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    Message,
    #[default]
    Start,
}

/// Names that the dynamic loader, the C library or a library of linear algebra reads only at start. A `*` at
/// the end stands for any rest.
const READ_AT_START: [&str; 14] = [
    "LD_*",
    "GLIBC_TUNABLES",
    "MALLOC_*",
    "GCONV_PATH",
    "LOCPATH",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "OMP_*",
    "OPENBLAS_*",
    "MKL_*",
    "OPENSSL_*",
    "GODEBUG",
];

impl EnvironmentRules {
    pub(crate) fn reads_at_start(&self, name: &str) -> bool {
        READ_AT_START.iter().any(|pattern| matches(pattern, name))
            || self.at_start.iter().any(|pattern| matches(pattern, name))
    }

    pub(crate) fn refuses(&self, name: &str) -> bool {
        self.refused.iter().any(|pattern| matches(pattern, name))
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(name == pattern, |start| name.starts_with(start))
}

fn check_name(name: &str) -> Result<(), RunError> {
    let starts_well = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let is_plain = name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    let rule = if !starts_well || !is_plain {
        "after the $, a name is a letter or underscore followed by letters, digits or underscores (ASCII)"
    } else if name.len() > NAME_BYTES_MAX {
        "a name has at most 128 characters"
    } else if OWN_NAMES.iter().any(|own| name.starts_with(own)) {
        "names that start with PALISADE_ or __palisade belong to Palisade"
    } else {
        return Ok(());
    };
    let shown: String = name.chars().take(NAME_BYTES_MAX).collect();
    let message = format!("`${}` cannot be an environment variable: {rule}", shown.escape_debug());
    Err(RunError::bad("variables", &message, "rename it"))
}

/// The text of a value. Numbers and booleans are written as in JSON.
fn text_of(name: &str, value: Option<&Value>) -> Result<String, RunError> {
    let kind = match value {
        Some(Value::String(text)) => return Ok(text.clone()),
        Some(scalar @ (Value::Number(_) | Value::Bool(_))) => return Ok(scalar.to_string()),
        Some(Value::Array(_)) => "an array",
        Some(Value::Object(_)) => "an object",
        Some(Value::Null) | None => "null",
    };
    let message =
        format!("the environment variable `${name}` is {kind}, and the environment holds only text");
    let remedy = "give a string; leave the $ out to bind the value as a variable of the language";
    Err(RunError::bad("variables", &message, remedy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const MARKER: &str = "a-value-that-is-never-shown";

    fn taken(variables: Value) -> Result<(Given, Map<String, Value>), RunError> {
        let Value::Object(mut variables) = variables else { panic!() };
        let mut given = Given::default();
        given.take_marked(&mut variables)?;
        given.check()?;
        Ok((given, variables))
    }

    #[test]
    fn marked_variables_become_the_environment_and_the_others_stay() {
        let (given, left) = taken(json!({"$A": "x", "$N": 1.5, "$T": true, "$E": "", "a": [1]})).unwrap();
        let pairs = given.pairs();
        let pairs: Vec<(&str, &str)> =
            pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("A", "x"), ("E", ""), ("N", "1.5"), ("T", "true")]);
        assert_eq!(left.keys().collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn bad_names_and_values_are_refused_and_no_value_is_repeated() {
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for name in ["$", "$1A", "$A-B", "$A B", "$Ä", "$$A", "$A=B", "$PALISADE_X", &format!("${long}")] {
            let error = taken(json!({ name: MARKER })).unwrap_err();
            assert_eq!(error.code, "bad_variables", "{name}");
            assert!(!format!("{error:?}").contains(MARKER));
        }
        for value in [json!(null), json!([MARKER]), json!({"a": MARKER}), json!(format!("{MARKER}\0"))] {
            let error = taken(json!({ "$A": value })).unwrap_err();
            assert!(error.code == "bad_variables" && error.remedy.is_some());
            assert!(!format!("{error:?}").contains(MARKER));
        }
        taken(json!({ "$A": "x".repeat(ENVIRONMENT_BYTES_MAX - 1) })).unwrap();
        assert!(taken(json!({ "$A": "x".repeat(ENVIRONMENT_BYTES_MAX) })).is_err());
    }

    #[test]
    fn proxies_are_given_in_both_letter_cases() {
        let proxy = |port| Some(Proxy { host: "127.0.0.1".to_owned(), port });
        let mut given = Given::default();
        let no_proxy = vec!["localhost".to_owned(), ".example.org".to_owned()];
        given.set_proxies(Proxies { http: proxy(1), https: proxy(2), no_proxy });
        let pairs: BTreeMap<String, String> = given.pairs().into_iter().collect();
        assert_eq!(pairs.len(), 8);
        for (name, value) in [
            ("http_proxy", "http://127.0.0.1:1"),
            ("HTTP_PROXY", "http://127.0.0.1:1"),
            ("https_proxy", "http://127.0.0.1:2"),
            ("ALL_PROXY", "http://127.0.0.1:2"),
            ("NO_PROXY", "localhost,.example.org"),
        ] {
            assert_eq!(pairs[name], value);
        }
        let form = ProxyArguments {
            http: vec!["-DhttpHost={host}".to_owned(), "-DhttpPort={port}".to_owned()],
            https: Vec::new(),
            no_proxy: vec!["-Dnot={hosts}".to_owned()],
        };
        let arguments = ["-DhttpHost=127.0.0.1", "-DhttpPort=1", "-Dnot=localhost|*.example.org"];
        assert_eq!(given.proxies().arguments(&form), arguments);
        assert!(Proxies::default().arguments(&form).is_empty());
    }

    #[test]
    fn a_secret_is_given_and_never_shown() {
        let mut given = Given::default();
        given.set("TOKEN", "of the caller".to_owned());
        given.set("OTHER", MARKER.to_owned());
        given.set_secret("TOKEN", Secret::new(MARKER.to_owned()));
        assert_eq!(given.pairs()[1], ("TOKEN".to_owned(), MARKER.to_owned()));
        let request = crate::RunRequest { given, ..crate::RunRequest::default() };
        let shown = format!("{request:?} {request:#?} {:?}", Secret::new(MARKER.to_owned()));
        assert!(shown.contains("TOKEN") && !shown.contains(MARKER), "{shown}");
    }

    #[test]
    fn a_name_is_read_at_start_by_the_common_list_or_by_the_runtimes() {
        let rules = EnvironmentRules { at_start: vec!["PYTHON*".to_owned()], ..EnvironmentRules::default() };
        for name in ["LD_PRELOAD", "LC_ALL", "LANG", "PYTHONHASHSEED", "PYTHON", "TZ", "MALLOC_ARENA_MAX"] {
            assert!(rules.reads_at_start(name), "{name}");
        }
        for name in ["API_URL", "PATH", "HOME", "LANGUAGES", "ld_preload", "MY_LD_PRELOAD"] {
            assert!(!rules.reads_at_start(name), "{name}");
        }
    }
}
