//! Reads the links of an HTML index (PEP 503): anchors with their attributes, and nothing else of HTML.

/// An attribute of an anchor, with entities resolved.
pub(super) type Attribute = (String, String);

/// Calls `take` with the attributes of each anchor.
pub(super) fn anchors(text: &str, mut take: impl FnMut(&[Attribute])) {
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        if let Some(comment) = rest.strip_prefix("!--") {
            rest = comment.split_once("-->").map_or("", |(_, after)| after);
            continue;
        }
        let is_anchor = rest.as_bytes().first().is_some_and(|byte| byte.eq_ignore_ascii_case(&b'a'))
            && rest.as_bytes().get(1).is_some_and(u8::is_ascii_whitespace);
        if !is_anchor {
            continue;
        }
        let (found, after) = attributes(&rest[1..]);
        take(&found);
        rest = after;
    }
}

fn attributes(text: &str) -> (Vec<Attribute>, &str) {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() && !rest.starts_with('>') {
        let end = rest.find(|c: char| c == '=' || c == '>' || c.is_whitespace()).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let after = after.trim_start();
        let Some(value) = after.strip_prefix('=') else {
            found.push((name.to_ascii_lowercase(), String::new()));
            rest = after.strip_prefix('/').unwrap_or(after).trim_start();
            continue;
        };
        let value = value.trim_start();
        let (value, after) = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => value[1..].split_once(quote).unwrap_or((&value[1..], "")),
            _ => value.split_at(value.find(|c: char| c == '>' || c.is_whitespace()).unwrap_or(value.len())),
        };
        found.push((name.to_ascii_lowercase(), resolved(value)));
        rest = after.trim_start();
    }
    (found, rest)
}

/// Resolves the entities that indexes use.
fn resolved(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        plain.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some((entity, after)) = rest.split_once(';').filter(|(entity, _)| entity.len() <= 8) else {
            plain.push('&');
            continue;
        };
        let number = |digits: &str, radix| u32::from_str_radix(digits, radix).ok().and_then(char::from_u32);
        let character = match entity {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            _ => match entity.strip_prefix('#') {
                Some(digits) => match digits.strip_prefix(['x', 'X']) {
                    Some(digits) => number(digits, 16),
                    None => number(digits, 10),
                },
                None => None,
            },
        };
        match character {
            Some(character) => {
                plain.push(character);
                rest = after;
            }
            None => plain.push('&'),
        }
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Vec<Vec<Attribute>> {
        let mut all = Vec::new();
        anchors(text, |found| all.push(found.to_vec()));
        all
    }

    #[test]
    fn anchors_give_their_attributes() {
        let text = "<!-- <a href=no> --><A HREF='x.whl#sha256=1' data-requires-python=\"&gt;=3.8&#44;&lt;4\" \
                    data-yanked>x</a><abbr href=no><a data-yanked=\"\" href=y.whl>";
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            read(text),
            [
                vec![
                    pair("href", "x.whl#sha256=1"),
                    pair("data-requires-python", ">=3.8,<4"),
                    pair("data-yanked", "")
                ],
                vec![pair("data-yanked", ""), pair("href", "y.whl")]
            ]
        );
    }

    proptest! {
        #![proptest_config(harness::properties())]

        #[test]
        fn any_text_is_read_to_its_end(text in "(<a |<!--|-->|[a-z\"'=&;# <>/]|\u{e9}){0,60}") {
            read(&text);
        }
    }
}
