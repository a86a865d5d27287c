//! A program as a model meant it, where what it sent is certainly not what it meant.
//!
//! Models put programs into Markdown fences, begin them with a byte order mark, end lines as Windows does, and leave out
//! PHP's opening tag. None of these is ever the program that was wanted. Lines keep their numbers, except for those of
//! a fence.

const BYTE_ORDER_MARK: char = '\u{feff}';
const FENCE: &str = "```";

/// The program that was meant.
pub(crate) fn as_meant(language: &str, code: String) -> String {
    let code = match code.strip_prefix(BYTE_ORDER_MARK) {
        Some(rest) => rest.to_owned(),
        None => code,
    };
    let code = match unfenced(&code) {
        Some(inner) => inner.to_owned(),
        None => code,
    };
    match language {
        "bash" if code.contains("\r\n") => code.replace("\r\n", "\n"),
        "php" if !code.contains("<?") => format!("<?php {code}"),
        _ => code,
    }
}

/// The inside of a text that is one fenced block from its first line to its last.
fn unfenced(code: &str) -> Option<&str> {
    let (first, rest) = code.trim().strip_prefix(FENCE)?.split_once('\n')?;
    let is_info = first.trim().chars().all(|letter| letter.is_alphanumeric() || "+#-_.".contains(letter));
    let inner = rest.trim_end().strip_suffix(FENCE)?;
    let is_one = !inner.contains(FENCE) && (inner.is_empty() || inner.ends_with('\n'));
    (is_info && is_one).then_some(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(language: &str, code: &str) -> String {
        as_meant(language, code.to_owned())
    }

    #[test]
    fn a_fence_around_the_whole_program_is_taken_off() {
        assert_eq!(meant("python", "```python\nprint(1)\n```"), "print(1)\n");
        assert_eq!(meant("cpp", "\n```c++\nint x;\n\n```\n"), "int x;\n\n");
        assert_eq!(meant("python", "```\n1\n```"), "1\n");
        for other in [
            "print('```')",
            "```python\nprint(1)\n``` and then\n```\n2\n```",
            "```python print(1)```",
            "x = \"\"\"\n```\n\"\"\"",
            "```",
        ] {
            assert_eq!(meant("python", other), other, "{other}");
        }
    }

    #[test]
    fn marks_and_line_ends_of_other_systems_do_no_harm() {
        let windows = "\u{feff}echo 1\r\nfor i in 1; do\r\n:\r\ndone";
        assert_eq!(meant("bash", windows), "echo 1\nfor i in 1; do\n:\ndone");
        assert_eq!(meant("python", "\u{feff}s = 'a\r\nb'"), "s = 'a\r\nb'");
    }

    #[test]
    fn php_without_its_tag_is_php() {
        assert_eq!(meant("php", "echo 3+4;"), "<?php echo 3+4;");
        for whole in ["<?php echo 1;", "<?= 1 ?>", "text <?php echo 1; ?> text"] {
            assert_eq!(meant("php", whole), whole);
        }
    }
}
