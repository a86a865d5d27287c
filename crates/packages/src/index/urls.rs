//! Addresses in documents: relative ones are resolved against the address of the document (RFC 3986, section 5.2).

/// The longest address.
const URL_BYTES_MAX: usize = 4096;

/// Resolves an address. `None` if it is not one of http or https.
pub(crate) fn join(base: &str, reference: &str) -> Option<String> {
    let reference = reference.trim();
    if reference.len() > URL_BYTES_MAX || !reference.bytes().all(|byte| (0x21..0x7f).contains(&byte)) {
        return None;
    }
    let (scheme, rest) = base.split_once("://")?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if reference.starts_with("https://") || reference.starts_with("http://") {
        return Some(reference.to_owned());
    }
    if let Some(other) = reference.strip_prefix("//") {
        return Some(format!("{scheme}://{other}"));
    }
    let until = reference.find(['/', '?', '#']).unwrap_or(reference.len());
    if reference[..until].contains(':') {
        return None;
    }
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let merged = match reference.strip_prefix('/') {
        Some(absolute) => absolute.to_owned(),
        None => format!("{}{reference}", &path[..path.rfind('/').map_or(0, |at| at + 1)]),
    };
    let (path, tail) = merged.split_at(merged.find(['?', '#']).unwrap_or(merged.len()));
    let mut names: Vec<&str> = Vec::new();
    for name in path.split('/') {
        match name {
            "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    Some(format!("{scheme}://{authority}/{}{tail}", names.join("/")))
}

/// The last name of an address, without its query and fragment, with percent signs resolved.
pub(crate) fn last_name(url: &str) -> Option<String> {
    let path = url.split(['?', '#']).next()?;
    let name = path.rsplit('/').next()?;
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (high, low) = (digit(rest.next())?, digit(rest.next())?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_resolved_as_browsers_do() {
        let base = "https://mirror.example/root/simple/six/";
        for (reference, wanted) in [
            ("https://files.example/a.whl#sha256=00", Some("https://files.example/a.whl#sha256=00")),
            ("../../files/a.whl#x", Some("https://mirror.example/root/files/a.whl#x")),
            ("/files/a.whl", Some("https://mirror.example/files/a.whl")),
            ("a.whl", Some("https://mirror.example/root/simple/six/a.whl")),
            ("//other.example/a.whl", Some("https://other.example/a.whl")),
            ("../../../../../../etc/passwd", Some("https://mirror.example/etc/passwd")),
            ("file:///etc/passwd", None),
            ("javascript:alert(1)", None),
            ("a b.whl", None),
        ] {
            assert_eq!(join(base, reference).as_deref(), wanted, "{reference}");
        }
        assert_eq!(last_name("https://h/x/a%2Bb-1.whl#f").as_deref(), Some("a+b-1.whl"));
        assert_eq!(last_name("https://h/x/%zz"), None);
    }
}
