//! The measured programs: in each language the smallest one that prints something.

use super::scene::Language;

/// The output of every program, except the canaries of further languages.
const ONE: &str = "1\n";

/// One program, for Palisade and for rivals.
#[derive(Debug, Clone)]
pub(super) struct Program {
    /// The name in the table.
    pub(super) label: String,
    pub(super) language: String,
    pub(super) code: String,
    pub(super) stdout: String,
    /// Interpreter and flag with which a rival runs the code without a file, if that is possible.
    pub(super) plain: Option<Vec<String>>,
}

impl Program {
    /// The programs of a language; the first one has no imports.
    pub(super) fn of(language: &Language) -> Vec<Self> {
        let program = |label: &str, code: &str, flag: Option<&str>| Self {
            label: label.to_owned(),
            language: language.name.clone(),
            code: code.to_owned(),
            stdout: ONE.to_owned(),
            plain: flag.map(|flag| vec![language.interpreter.display().to_string(), flag.to_owned()]),
        };
        match language.name.as_str() {
            "python" => vec![
                program("python", "print(1)", Some("-c")),
                program("python+numpy", "import numpy; print(1)", Some("-c")),
                program("python+pandas", "import pandas; print(1)", Some("-c")),
            ],
            "javascript" => vec![program("javascript", "console.log(1)", Some("-e"))],
            // Node before 22.6 cannot run TypeScript, so there is no plain side.
            "typescript" => vec![program("typescript", "const one: number = 1; console.log(one)", None)],
            "bash" => vec![program("bash", "echo 1", Some("-c"))],
            name => {
                let (code, stdout) = language.canary.clone();
                vec![Self { code, stdout, ..program(name, "", None) }]
            }
        }
    }

    /// The command line without any wall.
    pub(super) fn plain_command(&self) -> Option<Vec<String>> {
        let mut command = self.plain.clone()?;
        command.push(self.code.clone());
        Some(command)
    }

    /// The same with another interpreter.
    pub(super) fn with_interpreter(&self, interpreter: &str) -> Self {
        let mut other = self.clone();
        if let Some(first) = other.plain.as_mut().and_then(|plain| plain.first_mut()) {
            interpreter.clone_into(first);
        }
        other
    }
}
