//! The events that a cluster holds and a listener heard, compared with the rows that were written with them.
//!
//! Invariant: rows and events of a batch take effect together, so the rows say which events there must be.

use std::collections::BTreeMap;

use quorate::events::EventId;

use super::Key;

/// An event: its number, its channel and what it says.
pub type Event = (EventId, String, i64);

/// The channels of the events of a batch, in their order, without its client.
const CHANNELS: [&str; 3] = ["told:", "signal:", "echo:"];

/// Returns what is wrong with the events that the cluster holds. `rows` are those that were written with events.
pub fn wrong_held(held: &[Event], rows: &BTreeMap<Key, u64>) -> Vec<String> {
    let mut wrong = Vec::new();
    for prefix in CHANNELS {
        let mut found: BTreeMap<Key, u64> = BTreeMap::new();
        let of_channel = held
            .iter()
            .filter_map(|(_, channel, number)| Some((channel.strip_prefix(prefix)?.parse::<i64>().ok()?, *number)));
        of_channel.for_each(|key| *found.entry(key).or_default() += 1);
        if found != *rows {
            wrong.push(format!("the events on {prefix} are {found:?}, and the rows are {rows:?}"));
        }
    }
    let is_whole = |batch: &[Event]| {
        let is_in_place = |((id, channel, number), prefix): (&Event, &str)| {
            let first = batch.first().map(|(id, _, number)| (id.index(), number));
            channel.starts_with(prefix) && first == Some((id.index(), number))
        };
        batch.len() == CHANNELS.len() && batch.iter().zip(CHANNELS).all(is_in_place)
    };
    if let Some(batch) = held.chunks(CHANNELS.len()).find(|batch| !is_whole(batch)) {
        wrong.push(format!("{batch:?} are not the events of one batch in their order"));
    }
    wrong
}

/// Returns what is wrong with the events that a listener heard from the first one on, if something is.
pub fn wrong_heard(heard: &[Event], held: &[Event]) -> Option<String> {
    let first = heard.iter().zip(held).position(|(heard, held)| heard != held);
    let place = first.or_else(|| (heard.len() > held.len()).then_some(held.len()))?;
    let (heard, held) = (heard.get(place), held.get(place));
    Some(format!("a listener heard {heard:?} as event {place}, and the cluster holds {held:?} there"))
}
