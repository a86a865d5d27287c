//! Looks at the first bytes of an image: is it what it claims to be, and how large?

use crate::display::DisplayKind;

/// Width and height, if the bytes begin as such an image does.
pub(crate) fn pixels(kind: DisplayKind, data: &[u8]) -> Option<(u32, u32)> {
    match kind {
        DisplayKind::Png => of_png(data),
        DisplayKind::Jpeg => of_jpeg(data),
        DisplayKind::Gif => of_gif(data),
        DisplayKind::Webp => of_webp(data),
        _ => None,
    }
}

/// Signature, then the header chunk: https://www.w3.org/TR/png/#5DataRep.
fn of_png(data: &[u8]) -> Option<(u32, u32)> {
    let header = data.strip_prefix(b"\x89PNG\r\n\x1a\n")?.strip_prefix(b"\0\0\0\x0dIHDR")?;
    let side = |at: usize| header.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
    Some((side(0)?, side(4)?))
}

fn of_gif(data: &[u8]) -> Option<(u32, u32)> {
    let header = data.strip_prefix(b"GIF87a").or_else(|| data.strip_prefix(b"GIF89a"))?;
    Some((little(header, 0, 2)?, little(header, 2, 2)?))
}

/// Segments up to the one that begins a frame: ITU T.81, annex B.
fn of_jpeg(data: &[u8]) -> Option<(u32, u32)> {
    /// More segments than this before the frame are nonsense.
    const SEGMENTS_MAX: usize = 256;
    let mut rest = data.strip_prefix(b"\xff\xd8")?;
    for _ in 0..SEGMENTS_MAX {
        let [0xff, marker, high, low, body @ ..] = rest else { return None };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if matches!(marker, 0xc0..=0xcf) && !matches!(marker, 0xc4 | 0xc8 | 0xcc) {
            let side = |at: usize| body.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes);
            return Some((side(3)?.into(), side(1)?.into()));
        }
        rest = body.get(length.checked_sub(2)?..)?;
    }
    None
}

/// https://developers.google.com/speed/webp/docs/riff_container.
fn of_webp(data: &[u8]) -> Option<(u32, u32)> {
    let chunk = data.strip_prefix(b"RIFF")?.get(4..)?.strip_prefix(b"WEBP")?;
    let body = chunk.get(8..)?;
    match chunk.get(..4)? {
        b"VP8X" => Some((little(body, 4, 3)? + 1, little(body, 7, 3)? + 1)),
        b"VP8L" => {
            let bits = little(body.strip_prefix(b"\x2f")?, 0, 4)?;
            Some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
        }
        b"VP8 " => {
            let frame = body.get(3..)?.strip_prefix(b"\x9d\x01\x2a")?;
            Some((little(frame, 0, 2)? & 0x3fff, little(frame, 2, 2)? & 0x3fff))
        }
        _ => None,
    }
}

fn little(data: &[u8], at: usize, bytes: usize) -> Option<u32> {
    let part = data.get(at..at + bytes)?;
    Some(part.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The beginning of one.
    pub(crate) fn png(width: u32, height: u32) -> Vec<u8> {
        let sides = [width.to_be_bytes(), height.to_be_bytes()].concat();
        [&b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR"[..], &sides, b"\x08\x02\0\0\0"].concat()
    }

    #[test]
    fn the_size_of_each_kind_is_read() {
        let jpeg = b"\xff\xd8\xff\xe0\0\x04JF\xff\xdb\0\x03Q\xff\xc0\0\x11\x08\0\x10\0\x20\x03";
        let lossy = b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a\x20\0\x10\0";
        let lossless = b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f\x1f\xc0\x03\0";
        let extended = b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0\x1f\0\0\x0f\0\0";
        for (kind, data) in [
            (DisplayKind::Png, png(32, 16).as_slice()),
            (DisplayKind::Jpeg, jpeg),
            (DisplayKind::Gif, b"GIF89a\x20\0\x10\0"),
            (DisplayKind::Webp, lossy),
            (DisplayKind::Webp, lossless),
            (DisplayKind::Webp, extended),
        ] {
            assert_eq!(pixels(kind, data), Some((32, 16)), "{kind:?}");
            for end in 0..data.len() {
                // Cut anywhere it is an answer or none, never a panic.
                pixels(kind, &data[..end]);
            }
        }
    }

    #[test]
    fn other_bytes_have_no_size() {
        for kind in DisplayKind::ALL {
            assert_eq!(pixels(kind, b"<svg width='3' height='4'/>"), None, "{kind:?}");
        }
        assert_eq!(pixels(DisplayKind::Jpeg, &[0xff, 0xd8, 0xff, 0xe0, 0, 0, 0, 0]), None);
    }
}
