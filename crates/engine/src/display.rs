//! Displays: figures, tables and drawings that a program shows besides text.
//!
//! The program supplies them and may lie. Each display is checked against a short list of kinds, bounded, and
//! only ever shown. A display that does not fit, or is not what it claims to be, is left out with a message.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::image;

/// The most displays kept of one run.
pub const DISPLAYS_MAX: usize = 16;
/// The most bytes of one display.
pub const DISPLAY_BYTES_MAX: usize = 2 << 20;
/// The most bytes of all displays of a run.
pub const DISPLAYS_BYTES_MAX: usize = 8 << 20;
/// The most bytes of the data behind one display.
pub(crate) const JSON_BYTES_MAX: usize = 256 << 10;
/// The most characters of a description.
const TEXT_CHARACTERS_MAX: usize = 200;
/// The most pixels of each side of an image. Image readers refuse more, and decoding it would be expensive for
/// them.
const SIDE_PIXELS_MAX: u32 = 8000;

/// The kind of a display.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisplayKind {
    /// A raster image.
    Png,
    /// A raster image.
    Jpeg,
    /// A raster image.
    Gif,
    /// A raster image.
    Webp,
    /// A vector image as text.
    Svg,
    /// An HTML page or fragment.
    Html,
    /// Text with markup.
    Markdown,
    /// A formula.
    Latex,
    /// Plain text.
    Plain,
    /// Data.
    Json,
}

impl DisplayKind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Png,
        Self::Jpeg,
        Self::Gif,
        Self::Webp,
        Self::Svg,
        Self::Html,
        Self::Markdown,
        Self::Latex,
        Self::Plain,
        Self::Json,
    ];

    /// Its media type.
    pub fn mime(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
            Self::Svg => "image/svg+xml",
            Self::Html => "text/html",
            Self::Markdown => "text/markdown",
            Self::Latex => "text/latex",
            Self::Plain => "text/plain",
            Self::Json => "application/json",
        }
    }

    /// The suffix of such a file's name.
    pub fn ending(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::Jpeg => "jpg",
            Self::Gif => "gif",
            Self::Webp => "webp",
            Self::Svg => "svg",
            Self::Html => "html",
            Self::Markdown => "md",
            Self::Latex => "tex",
            Self::Plain => "txt",
            Self::Json => "json",
        }
    }

    /// Whether it is a raster image. Every other kind is text.
    pub fn is_raster(self) -> bool {
        matches!(self, Self::Png | Self::Jpeg | Self::Gif | Self::Webp)
    }

    /// The kind of a media type, or `None` if it is not on the list.
    pub fn from_mime(mime: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.mime() == mime)
    }
}

/// Something that a program displayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Display {
    /// The kind. Raster images were examined; everything else is UTF-8 text.
    pub kind: DisplayKind,
    /// The image or the text.
    pub data: Vec<u8>,
    /// The program's description; may be empty.
    pub text: String,
    /// The data behind it as JSON: the rows of a table, the series of a chart.
    pub json: Option<String>,
}

impl Display {
    /// The size of its content and data.
    pub fn bytes(&self) -> usize {
        self.data.len() + self.json.as_ref().map_or(0, String::len)
    }

    /// Width and height of a raster image.
    pub fn pixels(&self) -> Option<(u32, u32)> {
        image::pixels(self.kind, &self.data)
    }
}

/// Why a display was left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeftOut {
    TooLarge,
    TooMany,
    NotAsClaimed,
}

/// The displays of one run, within the limits.
#[derive(Debug, Default)]
pub(crate) struct Displays {
    kept: Vec<Display>,
    bytes: usize,
    too_large: u64,
    too_many: u64,
    not_as_claimed: u64,
}

impl Displays {
    /// Takes a display from a driver: media type, content (base64 for raster images), description, and the data
    /// behind it, which may be empty. Empty content means that the driver could not fit it in.
    pub(crate) fn take(&mut self, mime: &str, content: &str, text: &str, json: &str) {
        match self.check(mime, content) {
            Ok((kind, data)) => {
                self.bytes += data.len();
                let json = self.check_json(json);
                self.bytes += json.as_ref().map_or(0, String::len);
                self.kept.push(Display { kind, data, text: plain(text), json });
            }
            Err(LeftOut::TooLarge) => self.too_large += 1,
            Err(LeftOut::TooMany) => self.too_many += 1,
            Err(LeftOut::NotAsClaimed) => self.not_as_claimed += 1,
        }
    }

    /// Counts a display message that was longer than the limit.
    pub(crate) fn miss(&mut self) {
        self.too_large += 1;
    }

    fn check(&self, mime: &str, content: &str) -> Result<(DisplayKind, Vec<u8>), LeftOut> {
        if self.kept.len() >= DISPLAYS_MAX {
            return Err(LeftOut::TooMany);
        }
        if content.is_empty() {
            return Err(LeftOut::TooLarge);
        }
        let kind = DisplayKind::from_mime(mime).unwrap_or(DisplayKind::Plain);
        let (kind, data) = if kind.is_raster() {
            (kind, pixels(kind, content)?)
        } else {
            (as_text(kind, content), content.as_bytes().to_vec())
        };
        if data.len() > DISPLAY_BYTES_MAX || data.len() > DISPLAYS_BYTES_MAX - self.bytes {
            return Err(LeftOut::TooLarge);
        }
        Ok((kind, data))
    }

    /// Data that is no JSON object, or too large, is left out; the display itself stays.
    fn check_json(&self, json: &str) -> Option<String> {
        let room = JSON_BYTES_MAX.min(DISPLAYS_BYTES_MAX - self.bytes);
        (json.starts_with('{') && json.len() <= room && is_json(json)).then(|| json.to_owned())
    }

    /// Returns the displays that were kept, and messages about the others.
    pub(crate) fn into_parts(self) -> (Vec<Display>, Vec<String>) {
        let reasons = [
            (
                self.too_large,
                format!(
                    "more than {} MB each or {} MB together",
                    DISPLAY_BYTES_MAX >> 20,
                    DISPLAYS_BYTES_MAX >> 20
                ),
            ),
            (self.too_many, format!("more than {DISPLAYS_MAX} in one run")),
            (self.not_as_claimed, "not an image of the type it claims, or one of too many pixels".to_owned()),
        ];
        let told = reasons.into_iter().filter(|(count, _)| *count > 0);
        let warnings = told.map(|(count, why)| format!("displays left out: {count} ({why})"));
        let warnings = warnings.collect();
        (self.kept, warnings)
    }
}

/// Whether a file of that media type is a complete raster image, small enough for image readers.
pub fn is_whole_image(media_type: &str, data: &[u8]) -> bool {
    DisplayKind::from_mime(media_type).is_some_and(|kind| is_fit(kind, data))
}

fn is_fit(kind: DisplayKind, data: &[u8]) -> bool {
    let sides = 1..=SIDE_PIXELS_MAX;
    image::pixels(kind, data).is_some_and(|(width, height)| sides.contains(&width) && sides.contains(&height))
}

fn pixels(kind: DisplayKind, content: &str) -> Result<Vec<u8>, LeftOut> {
    let data = STANDARD.decode(content).map_err(|_| LeftOut::NotAsClaimed)?;
    if is_fit(kind, &data) { Ok(data) } else { Err(LeftOut::NotAsClaimed) }
}

/// Text that is not what it claims to be is plain text.
fn as_text(kind: DisplayKind, content: &str) -> DisplayKind {
    let holds = match kind {
        DisplayKind::Svg => content.contains("<svg"),
        DisplayKind::Json => is_json(content),
        _ => true,
    };
    if holds { kind } else { DisplayKind::Plain }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// Reduces the text to one short line.
fn plain(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().filter(|character| !character.is_control()).take(TEXT_CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(mime: &str, content: &str) -> (Vec<Display>, Vec<String>) {
        let mut displays = Displays::default();
        displays.take(mime, content, "what\n it\u{7} is", "");
        displays.into_parts()
    }

    fn png(width: u32, height: u32) -> String {
        STANDARD.encode(image::tests::png(width, height))
    }

    #[test]
    fn an_image_that_is_one_is_kept() {
        let (kept, warnings) = shown("image/png", &png(640, 480));
        assert_eq!((kept[0].kind, kept[0].pixels()), (DisplayKind::Png, Some((640, 480))));
        assert_eq!((kept[0].text.as_str(), warnings.len()), ("what it is", 0));
    }

    #[test]
    fn an_image_that_is_none_is_left_out_with_a_word() {
        let jpeg_as_png = STANDARD.encode(b"\xff\xd8\xff\xe0 and so on, for long enough to be something");
        for content in [jpeg_as_png.as_str(), "no base64!", "AAAA", &png(60_000, 10), &png(0, 10)] {
            let (kept, warnings) = shown("image/png", content);
            assert!(kept.is_empty() && warnings[0].contains("left out"), "{content}");
        }
    }

    #[test]
    fn text_of_an_unknown_or_wrong_type_is_plain() {
        for (mime, content, kind) in [
            ("text/html", "<b>x</b>", DisplayKind::Html),
            ("text/x-unheard-of", "<b>x</b>", DisplayKind::Plain),
            ("application/json", "{\"a\": 1}", DisplayKind::Json),
            ("application/json", "{\"a\": ", DisplayKind::Plain),
            ("image/svg+xml", "<svg/>", DisplayKind::Svg),
            ("image/svg+xml", "<script>", DisplayKind::Plain),
        ] {
            assert_eq!(shown(mime, content).0[0].kind, kind, "{mime} {content}");
        }
    }

    #[test]
    fn data_stays_with_its_display_if_it_is_json_within_the_bound() {
        let of_bytes = |bytes: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(bytes - 8));
        let (long, short) = (of_bytes(JSON_BYTES_MAX + 1), of_bytes(JSON_BYTES_MAX));
        for (json, is_kept) in [
            ("{\"a\":[1]}", true),
            ("", false),
            ("[1]", false),
            ("{\"a\"", false),
            (&long, false),
            (&short, true),
        ] {
            let mut displays = Displays::default();
            displays.take("text/html", "<b>x</b>", "", json);
            let (kept, warnings) = displays.into_parts();
            assert_eq!((kept[0].json.as_deref(), warnings.len()), (is_kept.then_some(json), 0));
        }
        let mut displays = Displays::default();
        (0..DISPLAYS_MAX).for_each(|_| displays.take("text/plain", &"x".repeat(500_000), "", &short));
        assert!(displays.into_parts().0.iter().map(Display::bytes).sum::<usize>() <= DISPLAYS_BYTES_MAX);
    }

    #[test]
    fn a_flood_is_bounded_in_number_and_in_bytes() {
        let mut displays = Displays::default();
        let large = "x".repeat(DISPLAY_BYTES_MAX);
        for _ in 0..1000 {
            displays.take("text/plain", &large, "", "");
        }
        displays.take("text/plain", &format!("{large}x"), "", "");
        for _ in 0..1000 {
            displays.take("text/plain", "x", "", "");
        }
        let (kept, warnings) = displays.into_parts();
        // Once all bytes are used up, even a small display does not fit.
        assert_eq!(kept.len(), DISPLAYS_BYTES_MAX / DISPLAY_BYTES_MAX);
        assert_eq!(warnings.len(), 1);
        let mut displays = Displays::default();
        for _ in 0..1000 {
            displays.take("text/plain", "x", "", "");
        }
        let (kept, warnings) = displays.into_parts();
        assert_eq!((kept.len(), warnings.len()), (DISPLAYS_MAX, 1));
    }
}
