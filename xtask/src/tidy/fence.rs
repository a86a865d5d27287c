//! Restricts `unsafe` to two places, and requires a safety comment for every block there.
//!
//! The comment must be within a few lines above the block. A comment that begins earlier and extends to those
//! lines counts as a whole.

use super::Violation;
use crate::lexer::Comment;
use crate::tree::{File, Tree};

const RULE: &str = "unsafe-fence";

/// Number of lines above an unsafe block that are searched for its safety comment.
const REASON_LINES_MAX: usize = 4;

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    tree.rust_files().flat_map(check_file).collect()
}

fn is_inside(path: &str) -> bool {
    path.starts_with("crates/jail/src/sys/")
        || path == "crates/guest/src/sys.rs"
        || path == "crates/zygote/src/lib.rs"
}

fn check_file(file: &File) -> Vec<Violation> {
    let mut violations = Vec::new();
    let tokens = &file.lexed.tokens;
    for (index, token) in tokens.iter().enumerate().filter(|(_, token)| token.is_word("unsafe")) {
        let opens_block = tokens.get(index + 1).is_some_and(|next| next.is_punctuation('{'));
        if !is_inside(&file.path) {
            let message = "`unsafe` belongs to jail/src/sys/, guest/src/sys.rs and zygote/src/lib.rs only";
            violations.push(Violation::new(&file.path, token.line, RULE, message));
        } else if opens_block && !has_reason(&file.lexed.comments, token.line) {
            let message = format!("no `// SAFETY:` reason in the {REASON_LINES_MAX} lines above this block");
            violations.push(Violation::new(&file.path, token.line, RULE, message));
        }
    }
    violations
}

fn has_reason(comments: &[Comment], block: usize) -> bool {
    let mut first = block.saturating_sub(REASON_LINES_MAX);
    for comment in comments.iter().rev().filter(|comment| comment.line < block) {
        if comment.line < first {
            break;
        }
        if comment.text.contains("SAFETY:") {
            return true;
        }
        first = first.min(comment.line.saturating_sub(1));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::tests::places;
    use super::*;

    fn found(path: &str, source: &str) -> Vec<String> {
        places(&check(&Tree::of(&[(path, source)])))
    }

    #[test]
    fn the_token_is_refused_outside_the_fence() {
        assert_eq!(
            found("crates/engine/src/a.rs", "\nunsafe fn f() {}"),
            ["crates/engine/src/a.rs:2: unsafe-fence"]
        );
        assert_eq!(found("crates/jail/src/system.rs", "unsafe { f() }").len(), 1);
        assert_eq!(found("crates/guest/src/sys/more.rs", "// SAFETY: x\nunsafe { f() }").len(), 1);
        assert_eq!(found("tests/functional/a.rs", "#[unsafe(no_mangle)] fn f() {}").len(), 1);
    }

    #[test]
    fn the_word_in_prose_and_longer_names_is_not_the_token() {
        let source = "// unsafe\n#![deny(unsafe_code)]\nconst A: &str = \"unsafe\";\n";
        assert!(found("crates/engine/src/a.rs", source).is_empty());
    }

    #[test]
    fn a_block_with_its_reason_passes() {
        let near = "// SAFETY: the descriptor is ours.\nlet a =\n    b(\n    unsafe { f() });";
        assert!(found("crates/jail/src/sys/a.rs", near).is_empty());
        let long = "// SAFETY: one\n// two\n// three\n// four\n// five\n// six\nunsafe { f() }";
        assert!(found("crates/guest/src/sys.rs", long).is_empty());
    }

    #[test]
    fn a_block_without_its_reason_is_reported() {
        assert_eq!(found("crates/jail/src/sys/a.rs", "// quick\nunsafe { f() }").len(), 1);
        let far = "// SAFETY: far\n\n\n\n\nunsafe { f() }";
        assert_eq!(found("crates/jail/src/sys/a.rs", far), ["crates/jail/src/sys/a.rs:6: unsafe-fence"]);
        assert_eq!(found("crates/jail/src/sys/a.rs", "let a = \"SAFETY:\";\nunsafe { f() }").len(), 1);
    }

    #[test]
    fn declarations_inside_the_fence_need_no_reason_here() {
        assert!(found("crates/jail/src/sys/a.rs", "unsafe extern \"C\" { fn f(); }").is_empty());
    }
}
