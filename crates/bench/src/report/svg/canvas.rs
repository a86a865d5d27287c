//! An SVG drawing built element by element, with colours for light and dark pages.

use std::fmt::Write;

const STYLE: &str = "\
text{font:13px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:#1f2328}\
.title{font-size:17px;font-weight:600}.head{font-weight:600}.soft{fill:#59636e;font-size:12px}.strong{font-weight:600}\
.page{fill:#ffffff}.grid{stroke:#e1e6eb;stroke-width:1}.axis{stroke:#8c959f;stroke-width:1}\
.whisker{stroke:#1f2328;stroke-width:1.4;stroke-opacity:.65}\
.c0{fill:#c2571a}.c1{fill:#57606a}.c2{fill:#0969da}.c3{fill:#8250df}.c4{fill:#1a7f37}.c9{fill:#a9b6c4}\
.l0{stroke:#c2571a}.l1{stroke:#57606a}.l2{stroke:#0969da}.l3{stroke:#8250df}.l4{stroke:#1a7f37}\
.line{fill:none;stroke-width:2.2;stroke-linejoin:round}.dash{stroke-dasharray:5 4;stroke-opacity:.75}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.soft{fill:#9198a1}.page{fill:#0d1117}.grid{stroke:#262c36}\
.axis{stroke:#656c76}.whisker{stroke:#e6edf3}.c0{fill:#f0883e}.c1{fill:#9198a1}.c2{fill:#4493f8}.c3{fill:#ab7df8}\
.c4{fill:#3fb950}.c9{fill:#3d4753}.l0{stroke:#f0883e}.l1{stroke:#9198a1}.l2{stroke:#4493f8}.l3{stroke:#ab7df8}.l4{stroke:#3fb950}}";

/// The anchor of a text.
#[derive(Debug, Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A drawing.
pub(super) struct Canvas {
    width: f64,
    body: String,
    title: String,
}

impl Canvas {
    pub(super) fn new(width: f64, title: &str) -> Self {
        Self { width, body: String::new(), title: title.to_owned() }
    }

    pub(super) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(text);
        self.add(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" class="{class}">{text}</text>"#
        ));
    }

    /// A text that is rotated to read upwards.
    pub(super) fn upright(&mut self, (x, y): (f64, f64), class: &str, text: &str) {
        let text = escaped(text);
        self.add(format_args!(
            r#"<text transform="translate({x:.1} {y:.1}) rotate(-90)" text-anchor="middle" class="{class}">{text}</text>"#
        ));
    }

    pub(super) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        self.add(format_args!(
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" class="{class}"/>"#
        ));
    }

    pub(super) fn bar(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), class: &str) {
        let width = width.max(1.0);
        self.add(format_args!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="2" class="{class}"/>"#
        ));
    }

    pub(super) fn curve(&mut self, points: &[(f64, f64)], class: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.add(format_args!(r#"<polyline points="{}" class="line {class}"/>"#, points.join(" ")));
    }

    /// A spot with a tooltip.
    pub(super) fn spot(&mut self, (x, y): (f64, f64), class: &str, told: &str) {
        let told = escaped(told);
        self.add(format_args!(
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.6" class="{class}"><title>{told}</title></circle>"#
        ));
    }

    /// The complete drawing with that height.
    pub(super) fn finish(self, height: f64) -> String {
        let (width, title) = (self.width, escaped(&self.title));
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0} {height:.0}" width="{width:.0}" height="{height:.0}" role="img" aria-label="{title}"><title>{title}</title><style>{STYLE}</style><rect width="100%" height="100%" class="page"/>{}</svg>
"#,
            self.body
        )
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        self.body.write_fmt(element).ok();
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_break_the_drawing() {
        let mut canvas = Canvas::new(100.0, "a < \"b\"");
        canvas.text((0.0, 0.0), Anchor::Start, "head", "x & <y>");
        let svg = canvas.finish(50.0);
        assert!(svg.contains("x &amp; &lt;y&gt;") && svg.contains("a &lt; &quot;b&quot;"));
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    }
}
