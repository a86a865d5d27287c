//! `Content-Disposition`: the browser saves the file under a name that cannot be misinterpreted (RFC 6266).

/// The plain name is for old clients; the encoded name is complete.
pub(crate) fn attachment(name: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "-_. ".contains(c) { c } else { '_' };
    let plain: String = name.chars().map(safe).collect();
    let plain = plain.trim_start_matches(['.', ' ']);
    let plain = if plain.is_empty() { "file" } else { plain };
    let shown: String = name.chars().map(|c| if c.is_control() || c == '/' { '_' } else { c }).collect();
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{}", mcp::percent::encode(&shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_quotes() {
        assert_eq!(attachment("a b.csv"), "attachment; filename=\"a b.csv\"; filename*=UTF-8''a%20b.csv");
        assert_eq!(
            attachment("x\"; evil=\"\r\nSet-Cookie: ä"),
            "attachment; filename=\"x__ evil____Set-Cookie_ _\"; \
             filename*=UTF-8''x%22%3B%20evil%3D%22__Set-Cookie%3A%20%C3%A4"
        );
        assert_eq!(attachment("..."), "attachment; filename=\"file\"; filename*=UTF-8''...");
    }
}
