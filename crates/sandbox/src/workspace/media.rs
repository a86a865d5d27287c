//! The media type of a file, from its name suffix and its first bytes, with a small table of common formats.
//!
//! A name is only a claim. Where a format has a signature, the bytes must have it; otherwise the file is
//! `application/octet-stream`. A file that is handed to a model or a browser as an image therefore is one.

/// How many of the first bytes are examined.
pub const HEAD_BYTES: usize = 512;
/// The type of a file that is not recognised.
const UNKNOWN: &str = "application/octet-stream";
const TEXT: &str = "text/plain";

/// Signatures at the beginning, and their media types.
const MARKS: [(&[u8], &str); 12] = [
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"SQLite format 3\0", "application/vnd.sqlite3"),
    (b"PAR1", "application/vnd.apache.parquet"),
    (b"\x7fELF", "application/x-elf"),
    (b"OggS", "audio/ogg"),
    (b"\0asm", "application/wasm"),
];

/// Name suffixes in lower case, and the media types that they claim.
const NAMES: [(&str, &str); 46] = [
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("svg", "image/svg+xml"),
    ("pdf", "application/pdf"),
    ("zip", "application/zip"),
    ("gz", "application/gzip"),
    ("tgz", "application/gzip"),
    ("tar", "application/x-tar"),
    ("sqlite", "application/vnd.sqlite3"),
    ("db", "application/vnd.sqlite3"),
    ("parquet", "application/vnd.apache.parquet"),
    ("wasm", "application/wasm"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("mp3", "audio/mpeg"),
    ("wav", "audio/wav"),
    ("ogg", "audio/ogg"),
    ("mp4", "video/mp4"),
    ("json", "application/json"),
    ("ndjson", "application/x-ndjson"),
    ("jsonl", "application/x-ndjson"),
    ("ipynb", "application/x-ipynb+json"),
    ("xml", "application/xml"),
    ("csv", "text/csv"),
    ("tsv", "text/tab-separated-values"),
    ("html", "text/html"),
    ("htm", "text/html"),
    ("css", "text/css"),
    ("md", "text/markdown"),
    ("txt", TEXT),
    ("log", TEXT),
    ("js", "text/javascript"),
    ("mjs", "text/javascript"),
    ("ts", "text/x-typescript"),
    ("py", "text/x-python"),
    ("sh", "text/x-shellscript"),
    ("rs", "text/x-rust"),
    ("go", "text/x-go"),
    ("c", "text/x-c"),
    ("toml", "application/toml"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
];

/// Formats whose signature is that of their ZIP container.
const ZIPPED: &str = "application/vnd.openxmlformats-officedocument.";

/// The media type of a file with that name and these first bytes.
pub fn media_type(name: &str, head: &[u8]) -> &'static str {
    let head = &head[..head.len().min(HEAD_BYTES)];
    let marked = mark(head);
    let Some(claimed) = claim(name) else {
        return marked.unwrap_or(if is_text(head) { TEXT } else { UNKNOWN });
    };
    match marked {
        Some("application/zip") if claimed.starts_with(ZIPPED) => claimed,
        Some(marked) => marked,
        None if head.is_empty() => claimed,
        None if has_mark(claimed) => {
            if is_text(head) {
                TEXT
            } else {
                UNKNOWN
            }
        }
        None if is_textual(claimed) && !is_text(head) => UNKNOWN,
        None => claimed,
    }
}

/// Whether models and browsers can show it as an image.
pub fn is_image(media_type: &str) -> bool {
    ["image/png", "image/jpeg", "image/gif", "image/webp"].contains(&media_type)
}

fn claim(name: &str) -> Option<&'static str> {
    let end = name.rsplit_once('.')?.1.to_ascii_lowercase();
    NAMES.iter().find(|(known, _)| *known == end).map(|(_, media_type)| *media_type)
}

fn mark(head: &[u8]) -> Option<&'static str> {
    if head.starts_with(b"RIFF") {
        return match head.get(8..12) {
            Some(b"WEBP") => Some("image/webp"),
            Some(b"WAVE") => Some("audio/wav"),
            _ => None,
        };
    }
    MARKS.iter().find(|(mark, _)| head.starts_with(mark)).map(|(_, media_type)| *media_type)
}

fn has_mark(media_type: &str) -> bool {
    let others = ["image/webp", "audio/wav"];
    media_type.starts_with(ZIPPED)
        || others.contains(&media_type)
        || MARKS.iter().any(|(_, marked)| *marked == media_type)
}

fn is_textual(media_type: &str) -> bool {
    let others = ["json", "xml", "toml", "yaml", "ndjson"];
    media_type.starts_with("text/") || others.iter().any(|end| media_type.ends_with(end))
}

/// Whether the bytes are UTF-8 without NUL. A character may be cut off at the end.
fn is_text(head: &[u8]) -> bool {
    !head.contains(&0)
        && match std::str::from_utf8(head) {
            Ok(_) => true,
            Err(error) => error.error_len().is_none(),
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";

    #[test]
    fn names_claim_and_bytes_prove() {
        for (name, head, wanted) in [
            ("a.png", PNG, "image/png"),
            ("a.PNG", PNG, "image/png"),
            ("a.txt", PNG, "image/png"),
            ("a.png", b"<script>".as_slice(), "text/plain"),
            ("a.png", b"\x00\x01", "application/octet-stream"),
            ("a.csv", b"a,b\n1,2\n", "text/csv"),
            ("a.csv", b"a\0b", "application/octet-stream"),
            (
                "a.xlsx",
                b"PK\x03\x04rest",
                "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
            ),
            ("a.xlsx", b"\0\0", "application/octet-stream"),
            ("a", b"plain", "text/plain"),
            ("a", b"\xff\xfe\0", "application/octet-stream"),
            ("Makefile", "\u{20ac}".as_bytes().split_at(2).0, "text/plain"),
            ("a.webp", b"RIFF\0\0\0\0WEBP", "image/webp"),
            ("new.json", b"", "application/json"),
        ] {
            assert_eq!(media_type(name, head), wanted, "{name} {head:?}");
        }
        assert!(is_image("image/png") && !is_image("image/svg+xml"));
    }
}
