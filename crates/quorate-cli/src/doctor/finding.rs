//! The findings of checks, and how they are printed.

use serde::Serialize;

use crate::error::{Error, Result};

/// The column at which the texts of findings begin.
const INDENT: usize = 24;

/// The width of a line, in columns.
const WIDTH: usize = 110;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Note,
    /// Must be fixed.
    Problem,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The name of the check.
    pub check: &'static str,
    /// Its severity.
    pub level: Level,
    /// What was found.
    pub what: String,
    /// What that means here, and what to do.
    pub means: String,
}

impl Finding {
    /// Creates a finding that all is as it should be.
    pub fn ok(check: &'static str, what: impl Into<String>, means: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, what: what.into(), means: means.into() }
    }

    /// Creates a finding that is worth knowing.
    pub fn note(check: &'static str, what: impl Into<String>, means: impl Into<String>) -> Self {
        Self { level: Level::Note, ..Self::ok(check, what, means) }
    }

    /// Creates a finding that must be fixed.
    pub fn problem(check: &'static str, what: impl Into<String>, means: impl Into<String>) -> Self {
        Self { level: Level::Problem, ..Self::ok(check, what, means) }
    }

    fn text(&self) -> String {
        let level = match self.level {
            Level::Ok => "OK",
            Level::Note => "note",
            Level::Problem => "PROBLEM",
        };
        let head = format!("{level:<9}{:<15}", self.check);
        let mut lines = wrapped(&self.what, WIDTH - INDENT).into_iter();
        let mut text = format!("{head}{}\n", lines.next().unwrap_or_default());
        for line in lines.chain(wrapped(&self.means, WIDTH - INDENT)) {
            text += &format!("{:INDENT$}{line}\n", "");
        }
        text
    }
}

/// All findings.
#[derive(Debug, Serialize)]
pub struct Report {
    problems: usize,
    notes: usize,
    findings: Vec<Finding>,
}

impl Report {
    /// Creates a report of these findings, in their order.
    pub fn new(findings: Vec<Finding>) -> Self {
        let count = |level| findings.iter().filter(|finding| finding.level == level).count();
        Self { problems: count(Level::Problem), notes: count(Level::Note), findings }
    }

    /// Returns the number of problems.
    pub fn problems(&self) -> usize {
        self.problems
    }

    /// Formats the report as text.
    pub fn text(&self) -> String {
        self.findings.iter().map(Finding::text).collect()
    }

    /// Formats the report as JSON.
    pub fn json(&self) -> Result<String> {
        let text = serde_json::to_string_pretty(self).map_err(Error::of)?;
        Ok(text + "\n")
    }
}

/// Breaks a text into lines of at most `width` columns; a longer word gets a line of its own.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_shows_findings_and_their_meaning() {
        let long = "word ".repeat(40);
        let findings = vec![
            Finding::ok("fsync", "fast", ""),
            Finding::note("voters", "4 voters", "one more or one less"),
            Finding::problem("space", "full", long.as_str()),
        ];
        let report = Report::new(findings);
        assert_eq!(report.problems(), 1);
        let text = report.text();
        let expected = "\
OK       fsync          fast
note     voters         4 voters
                        one more or one less
PROBLEM  space          full
                        word word";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.lines().all(|line| line.len() <= WIDTH) && text.lines().count() == 7, "{text}");
        let json: serde_json::Value = serde_json::from_str(&report.json().unwrap_or_default()).unwrap_or_default();
        assert_eq!((json["problems"].as_u64(), json["findings"][1]["level"].as_str()), (Some(1), Some("note")));
    }
}
