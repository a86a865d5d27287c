//! `palisade policy test`: calls that must be allowed or denied, from the policies themselves or from a file.

use std::path::Path;

use ::policy::{Book, Bound, Case, Rules, Subject, Syntax};
use engine::{Caller, Key};
use terminal::plain;

use super::{caller, keys, with_settings};
use crate::options::Options;

pub(super) const AFTER_HELP: &str = "\
A file of cases is YAML or JSON:
  cases:
    - {principal: key:ci-main, tool: run, args: {language: python, code: x}, expect: allow}
    - {policy: locked-down, tool: run, args: {language: bash}, expect: deny, rule: /tools/run/require/args.language-in}

Exit status: 0 when all come true, 1 when one does not or a file is refused.";

/// Tests the examples of all policies, or the cases of a file.
pub(super) fn test(options: &Options, file: Option<&Path>) -> Result<(String, bool), String> {
    let (book, settings) = with_settings(options)?;
    match file {
        None => Ok((examples(&book), true)),
        Some(path) => cases(&book, &keys(&settings), path),
    }
}

/// A book whose examples do not come true is not in force, so these have come true.
fn examples(book: &Book) -> String {
    let count = |name: &&str| book.get(name).map_or(0, |named| named.rules.examples().len());
    book.names().iter().map(|name| format!("{name:14} {} examples come true\n", count(name))).collect()
}

fn cases(book: &Book, keys: &[Key], path: &Path) -> Result<(String, bool), String> {
    let syntax = path.file_name().and_then(|name| Syntax::of_name(name.to_str()?));
    let syntax =
        syntax.ok_or_else(|| format!("{}: a file of cases is named .json, .yaml or .yml", path.display()))?;
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let cases = ::policy::read_cases(&text, syntax)
        .map_err(|flaw| format!("{}: {}", path.display(), plain(&flaw.to_string())))?;
    let (mut told, mut failed) = (String::new(), 0);
    for case in &cases {
        if let Err(message) = check(book, keys, case) {
            failed += 1;
            let place = format!("{}:{}", path.display(), case.at.line);
            told.push_str(&format!("{place}: the call of {} {}\n", plain(&case.tool), plain(&message)));
        }
    }
    told.push_str(&format!("{} of {} cases come true", cases.len() - failed, cases.len()));
    Ok((told, failed == 0))
}

fn check(book: &Book, keys: &[Key], case: &Case) -> Result<(), String> {
    let bound = match &case.subject {
        Subject::Own => book.of(&Caller::local()),
        Subject::Principal(label) => book.of(&caller(label, keys)?),
        Subject::Policy(name) => {
            let named =
                book.get(name).ok_or_else(|| format!("is about the policy {name}, which does not exist"))?;
            Bound::By(std::sync::Arc::clone(named))
        }
    };
    let case = match &case.arguments {
        serde_json::Value::Object(given) => {
            Case { arguments: mcp::judged_arguments(given.clone()), ..case.clone() }
        }
        _ => case.clone(),
    };
    match bound {
        Bound::By(named) => case.check(&named.rules),
        Bound::Free => case.check(&Rules::open()),
        Bound::Nothing => case.check(&Rules::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_come_true_or_are_told_with_their_line() {
        let folder = harness::TestFolder::new();
        let binding = ::policy::Binding { callers: "key:*".to_owned(), policy: "locked-down".to_owned() };
        let book = Book::new(&[], vec![binding]).unwrap();
        let path = folder.file(
            "cases.yaml",
            "cases:\n  - {principal: local, tool: sandbox_open, expect: allow}\n  - {principal: key:x, tool: sandbox_open, expect: deny, rule: /hide}\n  - {principal: stranger, tool: run, expect: deny}\n  - {principal: key:x, tool: run, args: {language: py, code: x, stdin: null}, expect: allow}\n",
        );
        let (told, is_well) = cases(&book, &[], &path).unwrap();
        assert!(is_well && told == "4 of 4 cases come true", "{told}");
        let path = folder.file(
            "wrong.yaml",
            "- {policy: ci, tool: run, expect: allow}\n- {policy: ci, tool: sandbox_open, expect: allow}\n- {policy: none, tool: run, expect: allow}\n",
        );
        let (told, is_well) = cases(&book, &[], &path).unwrap();
        assert!(!is_well && told.ends_with("1 of 3 cases come true"), "{told}");
        assert!(told.contains("wrong.yaml:2: the call of sandbox_open expects `allow`"), "{told}");
        assert!(cases(&book, &[], &folder.file("bad.yaml", "- {tool: run, expect: 1}\n")).is_err());
        assert!(examples(&book).contains("locked-down    6 examples come true"), "{}", examples(&book));
    }
}
