//! The verdict of a trial, and the only place that prints it and turns it into an exit code.
//!
//! Invariant: the verdict is the last line on standard output, whatever it says.

use std::error::Error;
use std::process::ExitCode;

/// What a trial found.
#[derive(Debug)]
pub struct Verdict {
    /// The last line is the verdict with its figures; the lines before it are details.
    text: String,
    /// Whether what the trial proves holds.
    holds: bool,
}

impl Verdict {
    /// Creates a verdict from a line with the figures.
    pub fn new(text: String, holds: bool) -> Self {
        Self { text, holds }
    }

    /// Creates the verdict on a trial that an error ended: a violation that it found, or trouble of the machine. The
    /// first line of the error says what happened, so it is printed after the details.
    pub fn failed(error: &(dyn Error + 'static)) -> Self {
        let text = error.to_string();
        let text = match text.split_once('\n') {
            Some((headline, details)) => format!("{details}\nFAILED: {}", headline.trim_end_matches(':')),
            None => format!("FAILED: {text}"),
        };
        Self { text, holds: false }
    }

    /// Returns whether what the trial proves holds.
    pub fn holds(&self) -> bool {
        self.holds
    }

    /// Prints the verdict, and returns the exit code of the program.
    pub fn print(&self) -> ExitCode {
        println!("{}", self.text);
        if self.holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_an_error_is_the_last_line() {
        let text = |error: &str| Verdict::failed(&*Box::<dyn Error>::from(error)).text;
        assert_eq!(text("no node serves"), "FAILED: no node serves");
        assert_eq!(text("DIFFERENT in unit 7:\nSELECT 1\nplain: 1"), "SELECT 1\nplain: 1\nFAILED: DIFFERENT in unit 7");
    }
}
