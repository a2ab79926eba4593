//! The part of CSV that the files need: fields separated by commas, quoted if they contain a comma, a quote or a
//! newline.

use std::borrow::Cow;

/// The records of a CSV text, one after another.
pub struct Records<'a>(pub &'a str);

impl<'a> Iterator for Records<'a> {
    type Item = Vec<Cow<'a, str>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let mut record = Vec::new();
        loop {
            record.push(self.field());
            match self.0.strip_prefix(',') {
                Some(rest) => self.0 = rest,
                None => break,
            }
        }
        self.0 = self.0.strip_prefix('\r').unwrap_or(self.0);
        self.0 = self.0.strip_prefix('\n').unwrap_or(self.0);
        Some(record)
    }
}

impl<'a> Records<'a> {
    fn field(&mut self) -> Cow<'a, str> {
        match self.0.strip_prefix('"') {
            Some(quoted) => self.quoted(quoted),
            None => Cow::Borrowed(self.take(self.0.find([',', '\r', '\n']))),
        }
    }

    /// Reads a quoted field, in which two quotes stand for one.
    fn quoted(&mut self, inside: &'a str) -> Cow<'a, str> {
        self.0 = inside;
        let mut field = Cow::Borrowed(self.take(self.0.find('"')));
        while let Some(rest) = self.0.strip_prefix("\"\"") {
            self.0 = rest;
            let more = self.take(self.0.find('"'));
            field = Cow::Owned(format!("{field}\"{more}"));
        }
        self.0 = self.0.strip_prefix('"').unwrap_or(self.0);
        field
    }

    fn take(&mut self, length: Option<usize>) -> &'a str {
        let (taken, rest) = self.0.split_at(length.unwrap_or(self.0.len()));
        self.0 = rest;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_end_at_commas_and_lines_unless_quoted() {
        let records: Vec<_> = Records("a,,b\r\n\"c,\nd\",\"e\"\"f\"\"\"\n,\n").collect();
        assert_eq!(records, [vec!["a", "", "b"], vec!["c,\nd", "e\"f\""], vec!["", ""]]);
    }
}
