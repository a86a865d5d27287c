//! Names in policies that no call of this server has. A policy that misspells a name protects nothing, silently.

use super::{TOOLS, find, run, words};
use crate::suggest::nearest;

const LIMITS: &str = "limits";

/// What is wrong with the name of a tool; `None` if it exists.
pub fn doubt_tool(name: &str) -> Option<String> {
    if find(name).is_some() {
        return None;
    }
    let known = || TOOLS.iter().map(|entry| entry.name);
    let same_words = known().find(|tool| words(tool) == words(name));
    let meant = same_words.or_else(|| nearest(name, known()));
    Some(format!("this server has no tool `{}`{}", name.escape_debug(), did_you_mean(meant)))
}

/// What is wrong with the path of an argument, such as `args.limits.memory_mb`, in the rules of a tool or of all; `None`
/// if a call can have it, or if the tool does not exist.
pub fn doubt_argument(tool: Option<&str>, path: &str) -> Option<String> {
    let entries: Vec<_> = match tool {
        Some(tool) => vec![find(tool)?],
        None => TOOLS.to_vec(),
    };
    let mut steps = path.strip_prefix("args.")?.split('.');
    let first = steps.next()?;
    let known = || entries.iter().flat_map(|entry| entry.properties.iter().copied());
    let whose = tool.map_or_else(|| "no tool has".to_owned(), |tool| format!("`{tool}` does not have"));
    if !known().any(|property| property == first) {
        let meant = nearest(first, known().chain(run::LIMITS));
        let meant = meant.map(|name| if run::LIMITS.contains(&name) { "limits" } else { name });
        return Some(format!("{whose} the argument `{}`{}", first.escape_debug(), did_you_mean(meant)));
    }
    let limit = steps.next().filter(|_| first == LIMITS)?;
    let is_known = run::LIMITS.contains(&limit);
    (!is_known).then(|| {
        let meant = nearest(limit, run::LIMITS);
        format!("there is no limit `{}`{}", limit.escape_debug(), did_you_mean(meant))
    })
}

fn did_you_mean(name: Option<&str>) -> String {
    name.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_call_has_are_doubted_with_the_nearest_one() {
        let told = |name| doubt_tool(name).unwrap_or_default();
        assert_eq!(told("run"), "");
        assert_eq!(
            told("sandbox-open"),
            "this server has no tool `sandbox-open`; did you mean `sandbox_open`?"
        );
        assert!(told("send_payment").ends_with("no tool `send_payment`"), "{}", told("send_payment"));

        let told = |tool, path| doubt_argument(tool, path).unwrap_or_default();
        for path in
            ["args.language", "args.limits.memory_mb", "args.variables.anything", "args.inputs.0.path"]
        {
            assert_eq!(told(Some("run"), path), "", "{path}");
        }
        assert!(told(Some("run"), "args.timeout").contains("did you mean `timeout_ms`?"));
        assert!(told(Some("run"), "args.limits.memory").contains("did you mean `memory_mb`?"));
        assert!(told(Some("run"), "args.path").starts_with("`run` does not have the argument `path`"));
        assert_eq!(told(None, "args.path"), "");
        assert_eq!(told(Some("send_payment"), "args.amount"), "", "the tool is doubted already");
    }
}
