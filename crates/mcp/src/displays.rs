//! The displays of a run in an answer: a line of text for each, images as images, pages and data as embedded
//! resources.
//!
//! A display that does not fit into the answer is listed with the address at which it can be read.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use engine::{Display, DisplayKind, RunId};
use rmcp::model::{Annotations, ContentBlock, EmbeddedResource, ResourceContents, Role};

use super::resources;
use crate::render::{self, INLINE_BYTES_MAX};

/// Upper bound on all images of an answer together, as base64.
const INLINE_IMAGES_BYTES_MAX: usize = 4 << 20;
/// Upper bound on all texts of an answer together. Each text also has the bound of a stream.
const INLINE_TEXTS_BYTES_MAX: usize = 4 * INLINE_BYTES_MAX;

/// The displays of a finished run, and which of them the answer embeds.
pub(crate) struct Shown<'a> {
    id: &'a RunId,
    displays: &'a [Display],
    is_inline: Vec<bool>,
}

impl<'a> Shown<'a> {
    /// Embeds the first displays that fit.
    pub(crate) fn new(id: &'a RunId, displays: &'a [Display]) -> Self {
        let (mut images_room, mut texts_room) = (INLINE_IMAGES_BYTES_MAX, INLINE_TEXTS_BYTES_MAX);
        let fits = |display: &Display| {
            let (room, bytes, bytes_max) = if display.kind.is_raster() {
                (&mut images_room, display.data.len().div_ceil(3) * 4, INLINE_IMAGES_BYTES_MAX)
            } else {
                (&mut texts_room, display.data.len(), INLINE_BYTES_MAX)
            };
            let fits = bytes <= bytes_max.min(*room);
            *room -= if fits { bytes } else { 0 };
            fits
        };
        Self { id, displays, is_inline: displays.iter().map(fits).collect() }
    }

    /// A line about each display.
    pub(crate) fn lines(&self) -> Vec<String> {
        let numbered = self.displays.iter().zip(&self.is_inline).enumerate();
        let line = |(index, (display, is_inline)): (usize, (&Display, &bool))| {
            let words = render::display_line(index + 1, display);
            match is_inline {
                true => words,
                false => format!("{words} (too large to be shown here: read {})", self.uri(index)),
            }
        };
        numbered.map(line).collect()
    }

    /// The embedded displays.
    pub(crate) fn blocks(&self) -> Vec<ContentBlock> {
        let inline = self.displays.iter().enumerate().filter(|(index, _)| self.is_inline[*index]);
        inline.map(|(index, display)| block(display, &self.uri(index))).collect()
    }

    /// The address of each display, and of the data behind it if there is some.
    pub(crate) fn uris(&self) -> Vec<(String, Option<String>)> {
        let numbered = self.displays.iter().enumerate();
        let uris = numbered.map(|(index, display)| {
            let json = display.json.as_ref().map(|_| resources::display_json_uri(self.id, index + 1));
            (self.uri(index), json)
        });
        uris.collect()
    }

    /// The address of the display at that index.
    fn uri(&self, index: usize) -> String {
        resources::display_uri(self.id, index + 1)
    }
}

fn block(display: &Display, uri: &str) -> ContentBlock {
    if display.kind.is_raster() {
        return ContentBlock::image(STANDARD.encode(&display.data), display.kind.mime());
    }
    let embedded = EmbeddedResource::new(content(display, uri));
    // Pages and drawings are for people; a model reads the line about them.
    let is_for_eyes = matches!(display.kind, DisplayKind::Html | DisplayKind::Svg);
    let audience = Annotations::default().with_audience(vec![Role::User]);
    ContentBlock::Resource(if is_for_eyes { embedded.with_annotations(audience) } else { embedded })
}

/// The complete content of a display.
pub(crate) fn content(display: &Display, uri: &str) -> ResourceContents {
    let content = if display.kind.is_raster() {
        ResourceContents::blob(STANDARD.encode(&display.data), uri)
    } else {
        ResourceContents::text(render::visible(&display.data), uri)
    };
    content.with_mime_type(display.kind.mime())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn display(kind: DisplayKind, bytes: usize) -> Display {
        Display { kind, data: vec![b'x'; bytes], text: "words".to_owned(), json: None }
    }

    #[test]
    fn an_answer_holds_what_fits_and_names_the_rest() {
        let id = RunId::parse("run_0123456789abcdef0123456789abcdef").unwrap();
        let megabyte = 1 << 20;
        let displays = [
            display(DisplayKind::Png, 2 * megabyte),
            display(DisplayKind::Png, 2 * megabyte),
            display(DisplayKind::Png, megabyte / 2),
            display(DisplayKind::Html, INLINE_BYTES_MAX + 1),
            display(DisplayKind::Html, 10),
        ];
        let shown = Shown::new(&id, &displays);
        let kinds: Vec<_> =
            shown.blocks().iter().map(|block| serde_json::json!(block)["type"].clone()).collect();
        assert_eq!(kinds, ["image", "image", "resource"]);
        let lines = shown.lines();
        let named = lines.iter().map(|line| line.contains("read palisade://runs/")).collect::<Vec<_>>();
        assert_eq!(named, [false, true, false, true, false]);
        let answer = serde_json::to_string(&shown.blocks()).unwrap().len();
        assert!(answer < INLINE_IMAGES_BYTES_MAX + 2 * INLINE_TEXTS_BYTES_MAX);
    }
}
