//! Access for fuzzing: how the shell splits a script.

use crate::command;
use crate::script::{Item, Items};

/// The statements and commands of a script, each with its line. The script arrives in these pieces, which end at line
/// breaks. The commands are parsed too.
pub fn script<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<(String, u64)> {
    let mut items = Items::default();
    texts.into_iter().for_each(|text| items.push(text));
    let mut found: Vec<_> = std::iter::from_fn(|| items.next()).collect();
    found.extend(items.end());
    let text = |item| match item {
        Item::Statement(text) => text,
        Item::Command(line) => {
            drop(command::parse(&line));
            line
        }
    };
    found.into_iter().map(|(item, line)| (text(item), line)).collect()
}
