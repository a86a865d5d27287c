//! Properties that hold for all input from a caller or a program, however hostile. The seeded tests below and
//! the fuzz targets (`fuzz/`) call these functions, so that both assert the same. They are not part of the
//! product.

use crate::display::{DISPLAY_BYTES_MAX, DISPLAYS_BYTES_MAX, DISPLAYS_MAX, DisplayKind, is_whole_image};
use crate::driver::{DISPLAY_SAID_BYTES_MAX, Done, DriverDecoder, FIELDS_MAX, SAID_BYTES_MAX};
use crate::image;
use crate::workspace::{FILE_PATH_BYTES_MAX, FilePath};
use crate::{Display, Principal, RunId, SandboxAddress, SandboxId};

/// An accepted path names a file below the workspace, and parsing its text again gives the same path.
pub fn file_path(text: &str) {
    let Ok(path) = FilePath::parse(text) else { return };
    let parsed = path.as_str();
    assert!(!parsed.starts_with('/') && !parsed.contains('\0'), "{text:?}");
    assert!(!parsed.is_empty() && parsed.len() <= FILE_PATH_BYTES_MAX, "{text:?}");
    assert!(parsed.split('/').all(|name| !["", ".", ".."].contains(&name)), "{text:?}");
    assert_eq!(FilePath::parse(parsed).ok(), Some(path.clone()), "{text:?}");
    assert_eq!(
        FilePath::parse(&format!("/workspace/{parsed}")).ok().as_ref(),
        fits_mounted(&path),
        "{text:?}"
    );
}

/// The same path, unless its longer form is too long.
fn fits_mounted(path: &FilePath) -> Option<&FilePath> {
    (path.as_str().len() + "/workspace/".len() <= FILE_PATH_BYTES_MAX).then_some(path)
}

/// An accepted id prints as it was read.
pub fn ids(text: &str) {
    if let Some(id) = RunId::parse(text) {
        assert_eq!(id.to_string(), text);
    }
    if let Some(id) = SandboxId::parse(text) {
        assert_eq!(id.to_string(), text);
    }
    if let Ok(address) = SandboxAddress::parse(text) {
        assert_eq!(address.to_string(), text);
    }
    if let Some(principal) = Principal::new(text) {
        assert_eq!(principal.as_str(), text);
    }
}

/// The engine's interpretation of a driver's messages.
#[derive(Debug, PartialEq)]
struct Understood {
    messages: Vec<Vec<String>>,
    done: Option<Done>,
    leaving: Option<u8>,
    is_ready: bool,
    displays: (Vec<Display>, Vec<String>),
}

/// Parses a driver's messages in pieces of that size: the piece size changes nothing, and everything is
/// bounded.
pub fn driver_words(words: &[u8], piece_bytes: usize) {
    let understood = hear(words, piece_bytes.max(1));
    assert_eq!(understood, hear(words, words.len().max(1)), "pieces of {piece_bytes} bytes");
    assert!(understood.messages.iter().all(|fields| fields.len() <= FIELDS_MAX));
    let (displays, warnings) = &understood.displays;
    assert!(displays.len() <= DISPLAYS_MAX && warnings.len() <= 3);
    assert!(displays.iter().all(|display| display.data.len() <= DISPLAY_BYTES_MAX));
    assert!(displays.iter().map(Display::bytes).sum::<usize>() <= DISPLAYS_BYTES_MAX);
}

fn hear(words: &[u8], piece_bytes: usize) -> Understood {
    let mut decoder = DriverDecoder::default();
    for piece in words.chunks(piece_bytes) {
        decoder.feed(piece);
        let (said, unfinished) = decoder.held_bytes();
        assert!(said <= SAID_BYTES_MAX && unfinished <= DISPLAY_SAID_BYTES_MAX.max(SAID_BYTES_MAX));
    }
    Understood {
        messages: decoder.messages(),
        done: decoder.done(),
        leaving: decoder.leaving(),
        is_ready: decoder.is_ready(),
        displays: decoder.take_displays(),
    }
}

/// Parses bytes that claim to be an image: an accepted image has a size that image readers accept.
pub fn image(data: &[u8]) {
    for kind in DisplayKind::ALL {
        let size = image::pixels(kind, data);
        if is_whole_image(kind.mime(), data) {
            assert!(size.is_some_and(|(width, height)| width.min(height) > 0 && width.max(height) <= 8000));
        }
    }
}

#[cfg(test)]
mod tests {
    use harness::Chance;
    use proptest::prelude::*;

    use super::*;

    const WORDS: [&[u8]; 22] = [
        b"1\0ready\0",
        b"10\0done\x001\0ok\x000\0\0\0\x0042\x0042\0\0",
        b"10\0done\x001\0error\x001\0boom\x003\x007\0\0\0\0",
        b"2\0leaving\x007\0",
        b"4\0display\0text/html\0<b>x</b>\0bold\0",
        b"4\0display\0image/png\0iVBORw0KGgo=\0\0",
        b"5\0display\0text/html\0<b>x</b>\0bold\0{\"a\":1}\0",
        b"5\0display\0text/html\0<b>x</b>\0bold\0{\"a\":\0",
        b"4\0display\0",
        b"4\0displax\0",
        b"0\0",
        b"64\0",
        b"65\0",
        b"+2\0",
        b"-1\0",
        b"\0",
        b"done\0",
        b"\xff\xfe\0",
        b"10",
        b"4\0display",
        b"99999999999999999999\0",
        b"a\0",
    ];

    /// A seeded stream of hostile paths: no accepted path has a part that leads upwards or to the root.
    #[test]
    fn random_joins_stay_in_the_workspace() {
        let parts =
            ["..", ".", "", "/", "a", "b\0", "//", "...", "ä", "a/..", "../", "%2e%2e", "\\..", "/workspace"];
        let mut chance = Chance::new(0x9e37_79b9_7f4a_7c15);
        for _ in 0..200_000 {
            file_path(&chance.joined(&parts, 6));
        }
    }

    proptest! {
        #![proptest_config(harness::properties())]

        #[test]
        fn any_text_is_refused_or_stays_in_the_workspace(text in any::<String>()) {
            file_path(&text);
        }
    }

    #[test]
    fn driver_words_mean_the_same_in_any_pieces() {
        let mut chance = Chance::new(0x5eed_0101);
        for _ in 0..20_000 {
            let mut words = Vec::new();
            for _ in 0..chance.below(8) {
                words.extend_from_slice(WORDS[chance.below(WORDS.len())]);
                words.extend(chance.bytes(2));
            }
            driver_words(&words, 1 + chance.below(12));
        }
    }

    #[test]
    fn floods_of_driver_words_are_cut_at_the_same_place_in_any_pieces() {
        for begin in [&b"2\0a\0"[..], b"4\0display\0text/plain\0", b"", b"4\0display\0"] {
            let mut words = b"1\0ready\0".to_vec();
            words.extend_from_slice(begin);
            words.extend(std::iter::repeat_n(b'x', DISPLAY_SAID_BYTES_MAX + 1));
            words.extend_from_slice(b"\0\x001\0ready\0");
            driver_words(&words, 4093);
        }
    }

    #[test]
    fn damaged_images_are_measured_without_harm() {
        let whole = image::tests::all();
        let mut chance = Chance::new(0x5eed_0102);
        for _ in 0..20_000 {
            let (_, mut data) = whole[chance.below(whole.len())].clone();
            for _ in 0..chance.below(4) {
                let place = chance.below(data.len());
                data[place] = chance.bytes(1).first().copied().unwrap_or(0xff);
            }
            data.truncate(chance.below(2 * data.len()));
            image(&data);
        }
    }

    #[test]
    fn ids_are_written_as_they_are_read() {
        let mut chance = Chance::new(0x5eed_0103);
        let parts = ["run_", "sbx_", "run", "0", "f", "0123456789abcdef", "Z", "-", "é", "\0", " ", "local"];
        for _ in 0..20_000 {
            ids(&chance.joined(&parts, 5));
        }
    }
}
