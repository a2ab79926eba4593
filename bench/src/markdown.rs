//! What pages of figures consist of: tables, and paragraphs with lines of a bounded length.

/// The maximum length of a line outside of tables, in characters.
pub const LINE_MAX: usize = 118;

/// A table whose first row contains the titles. Columns without any content are omitted.
pub struct Table(Vec<Vec<String>>);

impl Table {
    pub fn new(titles: &[&str]) -> Self {
        Self(vec![titles.iter().map(|title| (*title).to_owned()).collect()])
    }

    pub fn line<const N: usize>(&mut self, cells: [&str; N]) {
        self.cells(cells.map(str::to_owned).into());
    }

    pub fn cells(&mut self, cells: Vec<String>) {
        self.0.push(cells);
    }

    pub fn is_empty(&self) -> bool {
        self.0.len() < 2
    }

    pub fn text(&self) -> String {
        let Some((titles, rows)) = self.0.split_first() else { return String::new() };
        let filled = |column: usize| rows.iter().any(|row| row.get(column).is_some_and(|cell| !cell.is_empty()));
        let columns: Vec<_> = (0..titles.len()).filter(|column| filled(*column)).collect();
        let text = |row: &[String]| {
            let cells = columns.iter().map(|column| row.get(*column).map(String::as_str).unwrap_or_default());
            format!("| {} |", cells.collect::<Vec<_>>().join(" | "))
        };
        let rule = format!("|{}", "---|".repeat(columns.len()));
        let lines = [text(titles), rule].into_iter().chain(rows.iter().map(|row| text(row)));
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Wraps a paragraph at [`LINE_MAX`].
pub fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + word.len() < LINE_MAX => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}
