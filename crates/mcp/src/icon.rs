//! The icon that clients may show: three stakes of a palisade, as a small SVG within the protocol itself.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::Icon;

const SVG: &str = "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'><g fill='#b8632b'>\
<path d='M3 10l4-6 4 6v19H3zM12 10l4-6 4 6v19h-8zM21 10l4-6 4 6v19h-8z'/></g>\
<path fill='#6b3815' d='M1 14h30v3H1zM1 22h30v3H1z'/></svg>";

/// The icon in the form that the protocol carries.
pub(crate) fn icons() -> Vec<Icon> {
    let source = format!("data:image/svg+xml;base64,{}", STANDARD.encode(SVG));
    vec![Icon::new(source).with_mime_type("image/svg+xml").with_sizes(vec!["any".to_owned()])]
}
