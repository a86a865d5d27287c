//! Examines an image without decoding it: whether its format is as claimed, whether it is complete, and its
//! size. `display` calls it for every raster image.
//!
//! An image that is only a header, or is truncated, is not accepted, because every receiver would have to
//! refuse it. Only the structure is examined, in one pass over bounded input; pixels are never decoded here.

use crate::display::DisplayKind;

/// An image with more parts than this is refused.
const PARTS_MAX: usize = 100_000;

/// Width and height, if the bytes are a complete image of that kind.
pub(crate) fn pixels(kind: DisplayKind, data: &[u8]) -> Option<(u32, u32)> {
    match kind {
        DisplayKind::Png => of_png(data),
        DisplayKind::Jpeg => of_jpeg(data),
        DisplayKind::Gif => of_gif(data),
        DisplayKind::Webp => of_webp(data),
        _ => None,
    }
}

/// Signature, header chunk, at least one chunk of pixels, end chunk: https://www.w3.org/TR/png/#5DataRep.
fn of_png(data: &[u8]) -> Option<(u32, u32)> {
    const CHECKSUM_BYTES: usize = 4;
    let mut rest = data.strip_prefix(b"\x89PNG\r\n\x1a\n")?;
    let header = rest.strip_prefix(b"\0\0\0\x0dIHDR")?;
    let side = |at: usize| header.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
    let size = (side(0)?, side(4)?);
    let mut has_pixels = false;
    for _ in 0..PARTS_MAX {
        let (length, chunk) = rest.split_first_chunk::<4>()?;
        let (name, body) = chunk.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        rest = body.get(length.checked_add(CHECKSUM_BYTES)?..)?;
        match name {
            b"IDAT" => has_pixels |= length > 0,
            b"IEND" => return has_pixels.then_some(size),
            _ => {}
        }
    }
    None
}

/// Header, blocks with at least one image among them, trailer: https://www.w3.org/Graphics/GIF/spec-gif89a.txt.
fn of_gif(data: &[u8]) -> Option<(u32, u32)> {
    let header = data.strip_prefix(b"GIF87a").or_else(|| data.strip_prefix(b"GIF89a"))?;
    let size = (little(header, 0, 2)?, little(header, 2, 2)?);
    let mut rest = header.get(7 + colors(*header.get(4)?)..)?;
    let mut has_image = false;
    for _ in 0..PARTS_MAX {
        let (kind, body) = rest.split_first()?;
        rest = match kind {
            // An extension: its label, then its sub-blocks.
            0x21 => after_pieces(body.get(1..)?)?,
            // An image: its position, its colours, its code size, then its sub-blocks.
            0x2c => {
                let codes = body.get(9 + colors(*body.get(8)?)..)?.get(1..)?;
                has_image |= *codes.first()? > 0;
                after_pieces(codes)?
            }
            0x3b => return has_image.then_some(size),
            _ => return None,
        };
    }
    None
}

/// The size in bytes of the colour table that these flags announce.
fn colors(flags: u8) -> usize {
    if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) }
}

/// Each sub-block begins with its length; a zero length ends the list.
fn after_pieces(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        let (length, body) = rest.split_first()?;
        rest = body.get(usize::from(*length)..)?;
        if *length == 0 {
            return Some(rest);
        }
    }
}

/// Segments up to the frame header and on to the first scan, then pixels, then the end marker: ITU T.81, annex
/// B.
fn of_jpeg(data: &[u8]) -> Option<(u32, u32)> {
    /// An image with more segments than this before the pixels is refused.
    const SEGMENTS_MAX: usize = 1024;
    const SCAN: u8 = 0xda;
    const END: &[u8] = b"\xff\xd9";
    let mut rest = data.strip_prefix(b"\xff\xd8")?;
    let mut size = None;
    for _ in 0..SEGMENTS_MAX {
        let [0xff, marker, high, low, body @ ..] = rest else { return None };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if matches!(marker, 0xc0..=0xcf) && !matches!(marker, 0xc4 | 0xc8 | 0xcc) {
            let side = |at: usize| body.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes);
            size = Some((side(3)?.into(), side(1)?.into()));
        }
        rest = body.get(length.checked_sub(2)?..)?;
        if *marker == SCAN {
            // The end marker cannot occur among the pixels: there, a zero byte follows each 0xFF.
            let end = rest.windows(END.len()).position(|bytes| bytes == END)?;
            return size.filter(|_| end > 0);
        }
    }
    None
}

/// A container of the announced length, with pixels in it:
/// https://developers.google.com/speed/webp/docs/riff_container.
fn of_webp(data: &[u8]) -> Option<(u32, u32)> {
    let after_length = data.strip_prefix(b"RIFF")?.get(4..)?;
    let length = usize::try_from(little(data, 4, 4)?).ok()?;
    let mut rest = after_length.get(..length)?.strip_prefix(b"WEBP")?;
    let size = size_in_webp(rest)?;
    for _ in 0..PARTS_MAX {
        let name = rest.get(..4)?;
        let length = usize::try_from(little(rest, 4, 4)?).ok()?;
        let body = rest.get(8..)?.get(..length)?;
        if matches!(name, b"VP8 " | b"VP8L" | b"ANMF") && !body.is_empty() {
            return Some(size);
        }
        // Chunks begin at even offsets.
        rest = rest.get(8 + length + length % 2..)?;
    }
    None
}

fn size_in_webp(chunk: &[u8]) -> Option<(u32, u32)> {
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

    /// A file with the structure of a PNG image. Its pixels and checksums are invalid.
    pub(crate) fn png(width: u32, height: u32) -> Vec<u8> {
        let sides = [width.to_be_bytes(), height.to_be_bytes()].concat();
        let header = [&b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR"[..], &sides, b"\x08\x02\0\0\0sum."].concat();
        [&header[..], b"\0\0\0\x04tEXta\0bcsum.", b"\0\0\0\x02IDATxxsum.", b"\0\0\0\0IENDsum."].concat()
    }

    fn jpeg() -> Vec<u8> {
        let header = b"\xff\xd8\xff\xe0\0\x04JF\xff\xdb\0\x03Q\xff\xc0\0\x08\x08\0\x10\0\x20\x03";
        [&header[..], b"\xff\xda\0\x03S", b"pixels\xff\0more\xff\xd9"].concat()
    }

    fn gif() -> Vec<u8> {
        let header = b"GIF89a\x20\0\x10\0\x80\0\0ABCDEF";
        let image = b"\x2c\0\0\0\0\x20\0\x10\0\0\x02\x03abc\0";
        [&header[..], b"\x21\xf9\x04abcd\0", image, b"\x3b"].concat()
    }

    fn webp(chunks: &[&[u8]]) -> Vec<u8> {
        let mut body = b"WEBP".to_vec();
        for chunk in chunks {
            let length = u32::try_from(chunk.len() - 4).unwrap();
            body.extend([&chunk[..4], &length.to_le_bytes(), &chunk[4..]].concat());
            body.resize(body.len().next_multiple_of(2), 0);
        }
        [b"RIFF", &u32::try_from(body.len()).unwrap().to_le_bytes()[..], &body].concat()
    }

    pub(crate) fn all() -> Vec<(DisplayKind, Vec<u8>)> {
        let extended = b"VP8X\0\0\0\0\x1f\0\0\x0f\0\0";
        vec![
            (DisplayKind::Png, png(32, 16)),
            (DisplayKind::Jpeg, jpeg()),
            (DisplayKind::Gif, gif()),
            (DisplayKind::Webp, webp(&[b"VP8 \0\0\0\x9d\x01\x2a\x20\0\x10\0pixels"])),
            (DisplayKind::Webp, webp(&[b"VP8L\x2f\x1f\xc0\x03\0pixels"])),
            (DisplayKind::Webp, webp(&[extended, b"ICCPodd", b"VP8Lpixels"])),
        ]
    }

    #[test]
    fn the_size_of_each_kind_is_read() {
        for (kind, data) in all() {
            assert_eq!(pixels(kind, &data), Some((32, 16)), "{kind:?}");
        }
    }

    #[test]
    fn an_image_that_is_only_a_header_or_breaks_off_is_none() {
        for (kind, data) in all() {
            for end in 0..data.len() {
                let found = pixels(kind, &data[..end]);
                assert_eq!(found, None, "{kind:?} cut at {end} of {}", data.len());
            }
        }
        let header_only = &png(640, 480)[..33];
        assert_eq!(pixels(DisplayKind::Png, header_only), None, "a header of 33 bytes");
        assert_eq!(pixels(DisplayKind::Webp, &webp(&[b"VP8X\0\0\0\0\x1f\0\0\x0f\0\0"])), None);
    }

    #[test]
    fn other_bytes_have_no_size() {
        for kind in DisplayKind::ALL {
            assert_eq!(pixels(kind, b"<svg width='3' height='4'/>"), None, "{kind:?}");
        }
        assert_eq!(pixels(DisplayKind::Jpeg, &[0xff, 0xd8, 0xff, 0xe0, 0, 0, 0, 0]), None);
    }
}
