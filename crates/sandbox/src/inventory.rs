//! The languages of a wall: the engine describes a language, and the wall says whether it has it and what a
//! sandbox needs for it.
//!
//! The native wall looks at the host's PATH; another wall looks inside its image. The engine knows the
//! commands, the probe and the probe's files of a language, but not where an interpreter is. Paths in a
//! [`Toolchain`] belong to the wall's own world: the engine passes them back in a spec and never opens them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::BoxFuture;

/// Finds the toolchains of a wall.
pub trait Inventory: Send + Sync {
    /// Looks for a language and determines what its sandboxes need. The answer holds for as long as the wall
    /// does not change; the caller caches it.
    fn find<'a>(&'a self, question: &'a ToolchainQuery) -> BoxFuture<'a, Result<Toolchain, InventoryError>>;

    /// A text that changes when the toolchain or one of its files changes. It is part of the key of compiled
    /// programs. No two walls give the same text for toolchains that differ.
    fn identity<'a>(&'a self, toolchain: &'a Toolchain) -> BoxFuture<'a, Result<String, InventoryError>>;
}

/// The name and the content of a file.
pub type NamedBytes = (String, Arc<[u8]>);

/// What the engine knows about a language.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolchainQuery {
    /// Its name, which an operator may use to name an interpreter.
    pub language: String,
    /// The commands to look for, in this order.
    pub commands: Vec<String>,
    /// The probe: a program and its arguments, which prints a [`Toolchain`] as JSON. `{interpreter}` stands for
    /// the command that was found, `{folder}` for a directory that holds `files`, `{out}` for the path at which
    /// the probe may leave a compiled driver.
    pub probe: Vec<String>,
    /// Names and contents of the files that the probe needs.
    #[serde(with = "named_bytes")]
    pub files: Vec<NamedBytes>,
    /// Files of a version manager that decide which toolchain a command leads to. `~` is the home directory of
    /// the wall's operator.
    pub settings: Vec<String>,
}

/// A toolchain of a wall, as its probe describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Toolchain {
    /// Its version.
    pub version: String,
    /// The interpreter or compiler, as seen inside a sandbox.
    pub executable: String,
    /// Paths of the wall that its sandboxes need beyond those that every sandbox has.
    pub binds: Vec<PathBuf>,
    /// The paths that a compiled program needs. `binds` are then those of the compiler.
    #[serde(default)]
    pub run_binds: Vec<PathBuf>,
    /// Programs of the toolchain that commands refer to as `{tool name}`.
    #[serde(default)]
    pub programs: BTreeMap<String, String>,
    /// Files besides the executable whose change means another toolchain.
    #[serde(default)]
    pub watch: Vec<PathBuf>,
    /// Variables that its programs need.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Installed packages and their versions.
    #[serde(default)]
    pub packages: BTreeMap<String, String>,
    /// Its commands for programs of all languages.
    #[serde(default)]
    pub tools: Tools,
    /// Modules that are part of the interpreter, where the check of a program needs them.
    #[serde(default)]
    pub modules: Vec<String>,
    /// The driver in the form that the probe compiled, if it did.
    #[serde(default, with = "optional_bytes", skip_serializing_if = "Option::is_none")]
    pub driver: Option<Arc<[u8]>>,
}

/// The commands of a toolchain that programs of all languages find on their PATH.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tools {
    /// Name and absolute path of each. The wall leaves out those that [`crate::PROGRAM_PATH`] finds anyway.
    pub commands: BTreeMap<String, String>,
    /// Paths of the wall that they need beyond those that every sandbox has.
    pub binds: Vec<PathBuf>,
}

/// Why a wall does not have a language.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InventoryError {
    /// No such toolchain is installed.
    #[error("none of {commands}")]
    Missing {
        /// The commands that were looked for, and where.
        commands: String,
    },
    /// The toolchain does not work. Another attempt finds the same.
    #[error("{reason}")]
    Broken {
        /// The probe's message.
        reason: String,
    },
    /// The toolchain could not be examined now: the machine is busy, or the wall is not available. Another
    /// attempt may succeed.
    #[error("{reason}")]
    Late {
        /// What went wrong.
        reason: String,
    },
}

/// Serializes named contents, which are shared allocations.
mod named_bytes {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::NamedBytes;

    pub(super) fn serialize<S: Serializer>(files: &[NamedBytes], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(files.iter().map(|(name, content)| (name, &**content)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<NamedBytes>, D::Error> {
        let files = Vec::<(String, Vec<u8>)>::deserialize(deserializer)?;
        Ok(files.into_iter().map(|(name, content)| (name, content.into())).collect())
    }
}

/// Serializes a shared allocation that may be absent.
mod optional_bytes {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        content: &Option<Arc<[u8]>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        content.as_deref().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Arc<[u8]>>, D::Error> {
        Ok(Option::<Vec<u8>>::deserialize(deserializer)?.map(Arc::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_and_answer_can_be_sent_to_another_machine() {
        let question = ToolchainQuery {
            language: "x".to_owned(),
            files: vec![("probe".to_owned(), Arc::from(&b"\0\xff"[..]))],
            ..ToolchainQuery::default()
        };
        let sent = serde_json::to_string(&question).unwrap();
        assert_eq!(serde_json::from_str::<ToolchainQuery>(&sent).unwrap(), question);
        for driver in [None, Some(Arc::from(&b"compiled"[..]))] {
            let answer = Toolchain { version: "1".to_owned(), driver, ..Toolchain::default() };
            let sent = serde_json::to_string(&answer).unwrap();
            assert_eq!(serde_json::from_str::<Toolchain>(&sent).unwrap(), answer);
        }
    }
}
