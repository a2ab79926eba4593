//! The progress bar of an import: one line of the terminal that is redrawn.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Characters of the bar.
const WIDTH: u64 = 20;

/// A progress bar. It draws nothing if the standard error is not a terminal.
pub struct Bar {
    shown: bool,
    begun: Instant,
    total: Option<u64>,
    /// The state that an earlier run had reached, which does not count towards the speed of this one.
    before: State,
}

/// How far an import is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Bytes, or rows of a SQLite file, whose rows are written.
    pub taken: u64,
    /// Rows that are written.
    pub rows: u64,
    /// Bad lines.
    pub bad: u64,
}

impl Bar {
    /// A bar for an import of `total` bytes or rows.
    pub fn new(total: Option<u64>) -> Self {
        Self { shown: std::io::stderr().is_terminal(), begun: Instant::now(), total, before: State::default() }
    }

    /// Starts measuring the speed here: an earlier run wrote everything up to `state`.
    pub fn begin_at(&mut self, state: State) {
        (self.begun, self.before) = (Instant::now(), state);
    }

    /// Redraws the line.
    pub fn draw(&self, state: State) {
        if self.shown {
            // Ignore errors: an import continues without its terminal.
            let _ = write!(std::io::stderr(), "\r\x1b[K{}", line(state, self.before, self.total, self.begun.elapsed()));
        }
    }

    /// Erases the line.
    pub fn clear(&self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(state: State, before: State, total: Option<u64>, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64().max(0.001);
    let rate = (state.rows.saturating_sub(before.rows)) as f64 / seconds;
    let counts = format!("{} rows  {} rows/s", grouped(state.rows), grouped(rate as u64));
    let bad = if state.bad == 0 { String::new() } else { format!("  {} bad", grouped(state.bad)) };
    let Some(total) = total.filter(|total| *total > 0) else { return counts + &bad };
    let taken = state.taken.min(total);
    let full = taken.saturating_mul(WIDTH) / total;
    let bar: String = (0..WIDTH).map(|place| if place < full { '#' } else { '.' }).collect();
    let speed = taken.saturating_sub(before.taken) as f64 / seconds;
    let left = if speed > 0.0 {
        let seconds = ((total - taken) as f64 / speed).min(359_999.0) as u64;
        format!("  {}:{:02}:{:02} left", seconds / 3600, seconds / 60 % 60, seconds % 60)
    } else {
        String::new()
    };
    format!("[{bar}] {:3} %  {counts}{left}{bad}", taken.saturating_mul(100) / total)
}

/// A number with a comma between groups of three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_share_speed_and_time_left() {
        let before = State { taken: 1_000, rows: 500, bad: 0 };
        let state = State { taken: 5_000, rows: 20_500, bad: 3 };
        let text = line(state, before, Some(20_000), Duration::from_secs(2));
        assert_eq!(text, "[#####...............]  25 %  20,500 rows  10,000 rows/s  0:00:07 left  3 bad");
        let text = line(State { bad: 0, ..state }, State::default(), None, Duration::from_secs(1));
        assert_eq!(text, "20,500 rows  20,500 rows/s");
        let nothing = line(State::default(), State::default(), Some(0), Duration::ZERO);
        assert_eq!(nothing, "0 rows  0 rows/s");
    }
}
