//! The changes of an entry, line by line, without showing secrets.

use serde_json::{Map, Value, json};

/// For longer texts the old one is shown whole, then the new one.
const LINES_MAX: usize = 200;

/// The differences as `-` and `+` lines.
pub(crate) fn of_entries(old: &Value, new: &Value) -> String {
    let text = |entry| serde_json::to_string_pretty(&without_secrets(entry)).unwrap_or_default();
    lines(&text(old), &text(new))
}

/// Replaces the values of variables and headers, because they are often keys. The names remain.
fn without_secrets(entry: &Value) -> Value {
    const SECRET: [&str; 4] = ["env", "headers", "http_headers", "env_http_headers"];
    let Some(fields) = entry.as_object() else { return entry.clone() };
    let hide = |value: &Value| match value.as_object() {
        Some(inner) => {
            Value::Object(inner.keys().map(|name| (name.clone(), json!("(hidden)"))).collect::<Map<_, _>>())
        }
        None => json!("(hidden)"),
    };
    let shown = fields.iter().map(|(key, value)| {
        (key.clone(), if SECRET.contains(&key.as_str()) { hide(value) } else { value.clone() })
    });
    Value::Object(shown.collect())
}

fn lines(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let mut text = String::new();
    let mut push = |sign: char, line: &str| {
        let line: String = line.chars().filter(|c| !c.is_control()).collect();
        text.push_str(&format!("{sign} {line}\n"));
    };
    if old.len() > LINES_MAX || new.len() > LINES_MAX {
        old.iter().take(LINES_MAX).for_each(|line| push('-', line));
        new.iter().take(LINES_MAX).for_each(|line| push('+', line));
        return text;
    }
    // common[i][j]: the number of lines that old[i..] and new[j..] share, in order.
    let mut common = vec![vec![0_usize; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i][j] = if old[i] == new[j] {
                common[i + 1][j + 1] + 1
            } else {
                common[i + 1][j].max(common[i][j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            push(' ', old[i]);
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || (i < old.len() && common[i + 1][j] >= common[i][j + 1]) {
            push('-', old[i]);
            i += 1;
        } else {
            push('+', new[j]);
            j += 1;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_marked() {
        let old = json!({ "command": "/old", "args": ["mcp"] });
        let new = json!({ "command": "/new", "args": ["mcp"] });
        let expected = "  {\n-   \"command\": \"/old\",\n+   \"command\": \"/new\",\n    \"args\": [\n      \"mcp\"\n    ]\n  }\n";
        assert_eq!(of_entries(&old, &new), expected);
    }

    #[test]
    fn secrets_are_not_shown() {
        let old = json!({ "command": "x", "env": { "API_KEY": "s3cret" }, "headers": "s3cret" });
        let text = of_entries(&old, &json!({}));
        assert!(text.contains("API_KEY") && !text.contains("s3cret"), "{text}");
    }
}
