//! LCS: the longest sequence of bytes that two strings have in common. The bytes of it need not be neighbours.

use bytes::Bytes;
use quorate_keys::{KeysCommand, KeysReply, StringCommand};
use quorate_model::FailureKind;

use crate::args::{Args, Planned};
use crate::error::Refusal;
use crate::frame::Frame;
use crate::plan::all;
use crate::replies;
use crate::table::{Spec, TWO, read};

/// The row of LCS.
pub const COMMANDS: &[Spec] =
    &[read("lcs", -3, TWO, "7.0.0", "Returns the longest sequence that two strings have in common.", lcs).costly()];

/// The most cells of the table of two strings: the product of their lengths. So the length of a sequence fits a `u16`.
const LCS_CELLS_MAX: usize = 1 << 22;

/// What is asked for.
#[derive(Debug, Default)]
struct Options {
    length: bool,
    places: bool,
    match_min: usize,
    match_lengths: bool,
}

impl Options {
    fn read(args: &mut Args) -> Result<Self, Refusal> {
        let mut options = Self::default();
        while !args.is_empty() {
            if args.option("IDX") {
                options.places = true;
            } else if args.option("LEN") {
                options.length = true;
            } else if args.option("WITHMATCHLEN") {
                options.match_lengths = true;
            } else if args.left() > 1 && args.option("MINMATCHLEN") {
                options.match_min = usize::try_from(args.integer()?).unwrap_or(0);
            } else {
                return Err(Refusal::Syntax);
            }
        }
        if options.length && options.places {
            return Err(Refusal::Text("ERR If you want both the length and indexes, please just use IDX."));
        }
        Ok(options)
    }
}

fn lcs(args: &mut Args) -> Planned {
    let get = |key| KeysCommand::String(StringCommand::Get { key });
    let commands = vec![get(args.next()?), get(args.next()?)];
    // Keys of the wrong type come before wrong words.
    let options = Options::read(args);
    args.rest();
    args.plan_all(commands, |answers| match all(answers).as_deref() {
        Ok([first, second]) => match (text(first), text(second), options) {
            (Ok(first), Ok(second), Ok(options)) => reply(&first, &second, &options),
            (Err(frame), ..) | (_, Err(frame), _) => frame,
            (.., Err(refusal)) => Frame::error(refusal),
        },
        Ok(others) => others.first().map_or(Frame::Null, replies::unexpected),
        Err(failure) if failure.kind == FailureKind::WrongType => {
            Frame::error("ERR The specified keys must contain string values")
        }
        Err(failure) => failure.clone().into(),
    })
}

fn text(reply: &KeysReply) -> Result<Bytes, Frame> {
    match reply {
        KeysReply::Value(value) => Ok(value.clone()),
        KeysReply::Missing => Ok(Bytes::new()),
        other => Err(replies::unexpected(other)),
    }
}

fn reply(first: &[u8], second: &[u8], options: &Options) -> Frame {
    let Some(table) = Table::new(first, second) else {
        return Frame::error("ERR the lengths of both strings, multiplied, may be at most 4194304");
    };
    let length = Frame::count(table.at(first.len(), second.len()).into());
    if options.length {
        return length;
    }
    let common = table.common();
    if !options.places {
        let bytes = common.iter().rev().filter_map(|run| first.get(run.first..run.first + run.length));
        return Frame::bulk(bytes.collect::<Vec<_>>().concat());
    }
    let runs = common.iter().filter(|run| run.length >= options.match_min);
    let runs = runs.map(|run| {
        let range = |from: usize| [from, from + run.length - 1].map(|place| Frame::count(place as u64));
        let ranges = [run.first, run.second].map(|from| Frame::Array(range(from).into()));
        let length = options.match_lengths.then(|| Frame::count(run.length as u64));
        Frame::Array(ranges.into_iter().chain(length).collect())
    });
    Frame::Map(vec![(Frame::bulk("matches"), Frame::Array(runs.collect())), (Frame::bulk("len"), length)])
}

/// Bytes that follow each other in both strings: where they begin in each, and their number.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: usize,
    second: usize,
    length: usize,
}

/// The length of the common sequence of each beginning of one string and each beginning of the other.
struct Table<'a> {
    first: &'a [u8],
    second: &'a [u8],
    cells: Vec<u16>,
}

impl<'a> Table<'a> {
    /// Returns the table of two strings; none if it is too large.
    fn new(first: &'a [u8], second: &'a [u8]) -> Option<Self> {
        first.len().checked_mul(second.len()).filter(|cells| *cells <= LCS_CELLS_MAX)?;
        let mut table = Self { first, second, cells: Vec::with_capacity(first.len() * second.len()) };
        for (row, byte) in first.iter().enumerate() {
            // The cells on the left, and above on the left.
            let (mut left, mut before) = (0, 0);
            for (column, other) in second.iter().enumerate() {
                let above = table.at(row, column + 1);
                let cell = if byte == other { before + 1 } else { above.max(left) };
                (left, before) = (cell, above);
                table.cells.push(cell);
            }
        }
        Some(table)
    }

    /// Returns the length of the common sequence of the first bytes of both strings: so many of each.
    fn at(&self, first: usize, second: usize) -> u16 {
        match (first.checked_sub(1), second.checked_sub(1)) {
            (Some(row), Some(column)) => self.cells.get(row * self.second.len() + column).copied().unwrap_or(0),
            _ => 0,
        }
    }

    /// Returns the runs of the common sequence, the last one first. Of several sequences, it is that of Redis.
    fn common(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let (mut first, mut second) = (self.first.len(), self.second.len());
        while first > 0 && second > 0 {
            if self.first.get(first - 1) == self.second.get(second - 1) {
                match runs.last_mut() {
                    Some(run) if (run.first, run.second) == (first, second) => {
                        *run = Run { first: first - 1, second: second - 1, length: run.length + 1 };
                    }
                    _ => runs.push(Run { first: first - 1, second: second - 1, length: 1 }),
                }
                (first, second) = (first - 1, second - 1);
            } else if self.at(first - 1, second) > self.at(first, second - 1) {
                first -= 1;
            } else {
                second -= 1;
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_in_both_strings_and_as_long_as_its_runs() {
        let runs = Table::new(b"ohmytext", b"mynewtext").map(|table| table.common()).unwrap_or_default();
        let runs: Vec<_> = runs.iter().map(|run| (run.first, run.second, run.length)).collect();
        assert_eq!(runs, [(4, 5, 4), (2, 0, 2)]);
        assert_eq!(reply(b"ohmytext", b"mynewtext", &Options::default()), Frame::bulk("mytext"));
    }

    #[test]
    fn strings_that_would_take_too_long_are_refused() {
        let (long, short) = (vec![b'a'; LCS_CELLS_MAX / 2 + 1], b"aa");
        assert_eq!(reply(long.split_at(1).1, short, &Options::default()), Frame::bulk("aa"));
        assert!(matches!(reply(&long, short, &Options::default()), Frame::Error(_)));
        let equal = vec![b'a'; 2_048];
        assert_eq!(reply(&equal, &equal, &Options { length: true, ..Options::default() }), Frame::Integer(2_048));
    }
}
