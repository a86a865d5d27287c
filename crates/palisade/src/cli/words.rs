//! Messages in the words of the command line.
//!
//! The engine and the server write remedies in the words of the MCP tools: `limits.memory_mb`, `sandbox_open`.
//! A user of a terminal has options and commands instead. This table is the only translation. JSON output is
//! for programs and keeps the names of the contract.

use serde_json::Value;

/// A word of the tools, and the words of the command line. A word with a longer form comes after it.
const TABLE: [(&str, &str); 26] = [
    ("limits.memory_mb", "--memory-mb"),
    ("memory_mb", "--memory-mb"),
    ("limits.cpus", "--cpus"),
    ("limits.processes", "--processes"),
    ("limits.disk_mb", "--disk-mb"),
    ("disk_mb", "--disk-mb"),
    ("limits.open_files", "--open-files"),
    ("open_files", "--open-files"),
    ("limits.output_kb", "--output-kb"),
    ("output_kb", "--output-kb"),
    ("limits.wait_ms", "the time to wait"),
    ("wait_ms", "the time to wait"),
    ("timeout_ms", "--timeout"),
    ("ttl_s", "--ttl"),
    ("sandbox_id", "id or name"),
    ("sandbox_open", "`palisade sandbox open`"),
    ("sandbox_list", "`palisade sandbox ls`"),
    ("sandbox_close", "`palisade sandbox rm`"),
    ("read_file", "`palisade sandbox cp`"),
    ("write_file", "`palisade sandbox cp`"),
    ("list_files", "`palisade sandbox exec ID bash -c ls`"),
    ("get_capabilities", "`palisade doctor`"),
    ("validate_code", "`palisade check`"),
    ("install_packages", "`palisade sandbox install`"),
    ("find_tools", "`palisade tools find`"),
    ("run_id", "id of the run"),
];

/// The message with the words of the command line.
pub(crate) fn of_command_line(message: &str) -> String {
    let message = with_package_commands(message);
    TABLE.iter().fold(message, |text, (word, own)| replace_word(&text, word, own))
}

/// Calls that install packages, as commands: `"packages": ["a"]` is `--package a`.
fn with_package_commands(message: &str) -> String {
    const LIST: &str = "\"packages\": ";
    const CALL: &str = "call install_packages ";
    let quoted =
        |name: &str| match name.chars().all(|letter| letter.is_alphanumeric() || "-_.@/:".contains(letter)) {
            true => name.to_owned(),
            false => format!("'{}'", name.replace('\'', "")),
        };
    let first = |text: &str| serde_json::Deserializer::from_str(text).into_iter::<Value>().next()?.ok();
    let rest = |text: &str| {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        values.next();
        text[values.byte_offset()..].to_owned()
    };
    if let Some((before, after)) = message.split_once(CALL)
        && let Some(call) = first(after)
    {
        let text = |name: &str| call[name].as_str().unwrap_or_default().to_owned();
        let names: Vec<String> = names_in(&call["packages"]).map(|name| quoted(&name)).collect();
        let (id, language) = (text("sandbox_id"), text("language"));
        let command = format!("`palisade sandbox install {id} --language {language} {}`", names.join(" "));
        return format!("{before}{command}{}", rest(after));
    }
    if let Some((before, after)) = message.split_once(LIST)
        && let Some(list) = first(after)
    {
        let options: Vec<String> =
            names_in(&list).map(|name| format!("--package {}", quoted(&name))).collect();
        return format!("{before}{}{}", options.join(" "), rest(after));
    }
    message.to_owned()
}

fn names_in(list: &Value) -> impl Iterator<Item = String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(terminal::plain)
}

/// The option that sets a limit, by the name of the limit in a result.
pub(crate) fn option_of(limit: &str) -> String {
    let limit = terminal::plain(limit);
    match TABLE.iter().find(|(word, _)| *word == limit || word.strip_prefix("limits.") == Some(&limit)) {
        Some((_, own)) => (*own).to_owned(),
        None => limit,
    }
}

/// What is said about a limit that is other than asked for. The unit is the end of its name.
pub(crate) fn clamped(limit: &str, given: &str, asked: &str) -> String {
    let unit = limit.rsplit('_').next().filter(|unit| matches!(*unit, "ms" | "s" | "mb" | "kb"));
    let unit =
        unit.map(|unit| format!(" {}", unit.replace("mb", "MB").replace("kb", "kB"))).unwrap_or_default();
    format!("{} is {given}{unit} instead of the {asked}{unit} asked for", option_of(limit))
}

/// Replaces a word where it stands alone, together with backquotes around it.
fn replace_word(text: &str, word: &str, own: &str) -> String {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, behind) = (&rest[..at], &rest[at + word.len()..]);
        let begins = !before.ends_with(is_part);
        let ends = !behind.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let (quoted_before, quoted_behind) = (before.strip_suffix('`'), behind.strip_prefix('`'));
        match (begins && ends, quoted_before, quoted_behind) {
            (false, ..) => {
                replaced.push_str(&rest[..at + word.len()]);
                rest = behind;
            }
            (true, Some(before), Some(behind)) if own.starts_with('`') => {
                replaced.push_str(before);
                replaced.push_str(own);
                rest = behind;
            }
            (true, ..) => {
                replaced.push_str(before);
                replaced.push_str(own);
                rest = behind;
            }
        }
    }
    replaced + rest
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn remedies_name_options_and_commands() {
        for (of_tools, of_command_line_) in [
            ("give a larger limits.memory_mb, or less", "give a larger --memory-mb, or less"),
            ("a larger disk_mb", "a larger --disk-mb"),
            ("with `sandbox_open`, or", "with `palisade sandbox open`, or"),
            ("see sandbox_list;", "see `palisade sandbox ls`;"),
            ("`timeout_ms` must be", "`--timeout` must be"),
            ("my_memory_mb admission.memory_mb memory_mbs", "my_memory_mb admission.memory_mb memory_mbs"),
        ] {
            assert_eq!(of_command_line(of_tools), of_command_line_);
        }
        assert_eq!(option_of("cpus"), "--cpus");
        assert_eq!(option_of("timeout_ms"), "--timeout");
    }

    #[test]
    fn every_name_of_a_tool_and_of_its_arguments_has_other_words_here() {
        for name in mcp::vocabulary().iter().filter(|name| name.contains('_')) {
            assert_ne!(of_command_line(name), *name, "{name} has no translation");
        }
    }

    /// All texts of the crates that write remedies, after translation, hold no name of a tool or argument.
    #[test]
    fn no_remedy_speaks_of_tools() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let names: Vec<String> = mcp::vocabulary().into_iter().filter(|name| name.contains('_')).collect();
        let mut texts = 0;
        for file in
            ["engine", "policy", "sandbox", "backends"].iter().flat_map(|name| sources(&crates.join(name)))
        {
            for text in literals(&std::fs::read_to_string(file).unwrap()) {
                texts += 1;
                let translated = of_command_line(&text);
                for name in &names {
                    let is_left = replace_word(&translated, name, "") != translated;
                    // The configuration has settings of similar names.
                    assert!(!is_left, "{text}");
                }
            }
        }
        assert!(texts > 100, "the texts were not found");
    }

    fn sources(folder: &Path) -> Vec<std::path::PathBuf> {
        let mut found = Vec::new();
        let mut open = vec![folder.join("src")];
        while let Some(next) = open.pop() {
            for entry in std::fs::read_dir(next).unwrap().flatten() {
                match entry.file_type().unwrap().is_dir() {
                    true => open.push(entry.path()),
                    false => found.push(entry.path()),
                }
            }
        }
        found
    }

    /// String literals that are prose: with a blank inside.
    fn literals(source: &str) -> Vec<String> {
        let mut parts = source.split('"');
        let mut found = Vec::new();
        while let (Some(_), Some(text)) = (parts.next(), parts.next()) {
            if text.contains(' ') && !text.contains('\n') {
                found.push(text.to_owned());
            }
        }
        found
    }

    #[test]
    fn calls_that_install_packages_become_commands() {
        assert_eq!(
            of_command_line("run it again with \"packages\": [\"pandas\", \"httpx>=0.27\"]"),
            "run it again with --package pandas --package 'httpx>=0.27'"
        );
        let call = "call install_packages {\"sandbox_id\": \"sbx_1\", \"language\": \"python\", \"packages\": [\"pandas\"]}, then run it again";
        assert_eq!(
            of_command_line(call),
            "`palisade sandbox install sbx_1 --language python pandas`, then run it again"
        );
    }
}
