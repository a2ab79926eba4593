//! Draws lines, dots and texts as SVG that is legible on a light and on a dark background. It does not depend on what
//! is drawn.

use std::fmt::Write as _;

/// The classes of elements, with their colours for a light and for a dark background.
const STYLE: &str = "
text { font: 12px -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #424a53 }
.title { font-size: 14px; font-weight: 600; fill: #1f2328 }
.grid { stroke: #d1d9e0; stroke-width: 1 }
.strong { stroke: #59636e; stroke-width: 1.5 }
.blue { stroke: #0969da; fill: #0969da }
.sky { stroke: #54aeff; fill: #54aeff }
.orange { stroke: #d4661e; fill: #d4661e }
.sand { stroke: #e5a54b; fill: #e5a54b }
.green { stroke: #1a7f37; fill: #1a7f37 }
.gray { stroke: #818b98; fill: #818b98 }
.red { stroke: #cf222e; fill: #cf222e }
text.blue, text.sky, text.orange, text.sand, text.green, text.gray, text.red { stroke: none }
path { fill: none !important; stroke-width: 2; stroke-linejoin: round }
@media (prefers-color-scheme: dark) {
  text { fill: #b7bdc8 }
  .title { fill: #f0f6fc }
  .grid { stroke: #3d444d }
  .strong { stroke: #9198a1 }
  .blue { stroke: #4493f8; fill: #4493f8 }
  .sky { stroke: #79c0ff; fill: #79c0ff }
  .green { stroke: #3fb950; fill: #3fb950 }
  .red { stroke: #f85149; fill: #f85149 }
}
";

/// The point of a text that is placed at the given position.
#[derive(Clone, Copy)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture.
pub struct Svg {
    width: f64,
    height: f64,
    body: String,
}

/// A logarithmic scale.
#[derive(Clone, Copy)]
pub struct LogScale {
    /// The values at its ends.
    pub values: [f64; 2],
    /// The positions of its ends.
    pub ends: [f64; 2],
}

impl Svg {
    /// Creates a picture that contains only a title.
    pub fn new(width: f64, height: f64, title: &str) -> Self {
        let mut svg = Self { width, height, body: String::new() };
        svg.text([16.0, 24.0], Anchor::Start, "title", title);
        svg
    }

    /// Adds a line of text whose vertical centre is at `y`.
    pub fn text(&mut self, [x, y]: [f64; 2], anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let y = y + 4.0;
        self.push(&format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>"));
    }

    /// Adds a straight line.
    pub fn line(&mut self, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2], class: &str) {
        let points = format!("x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"");
        self.push(&format!("<line {points} stroke-width=\"2\" class=\"{class}\"/>"));
    }

    /// Adds a line through points.
    pub fn path(&mut self, points: &[[f64; 2]], class: &str) {
        let mut path = String::new();
        for (number, [x, y]) in points.iter().enumerate() {
            // Writing to a String never fails.
            let _ = write!(path, "{}{x:.1} {y:.1}", if number == 0 { "M" } else { " L" });
        }
        self.push(&format!("<path d=\"{path}\" class=\"{class}\"/>"));
    }

    /// Adds a dot.
    pub fn dot(&mut self, [x, y]: [f64; 2], radius: f64, class: &str) {
        self.push(&format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" class=\"{class}\"/>"));
    }

    fn push(&mut self, element: &str) {
        self.body.push_str(element);
        self.body.push('\n');
    }

    /// Returns the content of the file.
    pub fn file(&self) -> String {
        let Self { width, height, body } = self;
        let root = format!("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\"");
        format!("{root} width=\"{width}\" height=\"{height}\">\n<style>{STYLE}</style>\n{body}</svg>\n")
    }
}

impl LogScale {
    /// Creates a scale that covers all these values.
    pub fn of(values: impl Iterator<Item = f64> + Clone, ends: [f64; 2]) -> Self {
        let lowest = values.clone().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
        let highest = values.fold(0.0, f64::max);
        let values = if lowest <= highest { [lowest, highest] } else { [1.0, 10.0] };
        let [lowest, highest] = values;
        // The scale extends a little beyond the values on both sides.
        Self { values: [lowest / 1.25, highest * 1.25], ends }
    }

    /// Returns the position of a value.
    pub fn at(&self, value: f64) -> f64 {
        let [[low, high], [start, end]] = [self.values, self.ends];
        start + (value.max(low).ln() - low.ln()) / (high.ln() - low.ln()) * (end - start)
    }

    /// Returns round values on the scale: 1, 2 and 5 times each power of ten, or only the powers of ten if there are
    /// many.
    pub fn ticks(&self) -> Vec<f64> {
        /// With more ticks than this, only powers of ten are shown.
        const TICKS_MAX: usize = 9;
        let [low, high] = self.values;
        let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let ticks = |digits: &'static [f64]| {
            let all =
                decades.clone().flat_map(move |decade| digits.iter().map(move |digit| digit * 10f64.powi(decade)));
            all.filter(|tick| (low..=high).contains(tick)).collect::<Vec<_>>()
        };
        Some(ticks(&[1.0, 2.0, 5.0])).filter(|ticks| ticks.len() <= TICKS_MAX).unwrap_or_else(|| ticks(&[1.0]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_ten_are_equally_spaced() {
        let scale = LogScale { values: [1.0, 1000.0], ends: [300.0, 0.0] };
        assert_eq!([1.0, 10.0, 100.0, 1000.0].map(|value| scale.at(value).round()), [300.0, 200.0, 100.0, 0.0]);
        assert_eq!(scale.at(0.0), 300.0);
        assert_eq!(scale.ticks(), [1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(LogScale { values: [3.0, 60.0], ..scale }.ticks(), [5.0, 10.0, 20.0, 50.0]);
    }

    #[test]
    fn a_scale_covers_all_its_values() {
        let scale = LogScale::of([50.0, 2.0, 0.0].into_iter(), [0.0, 100.0]);
        assert!(scale.at(2.0) > 0.0 && scale.at(50.0) < 100.0);
        assert!(LogScale::of(std::iter::empty(), [0.0, 100.0]).at(5.0).is_finite());
    }

    #[test]
    fn texts_are_escaped() {
        let mut svg = Svg::new(10.0, 10.0, "a & b");
        svg.text([1.0, 2.0], Anchor::End, "grid", "<c>");
        let file = svg.file();
        assert!(file.contains(">a &amp; b</text>") && file.contains(">&lt;c&gt;</text>"), "{file}");
        assert!(file.starts_with("<svg") && file.ends_with("</svg>\n"));
    }
}
