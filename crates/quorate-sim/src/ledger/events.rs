//! The events that a cluster holds and a listener heard, compared with the rows that were written with them.
//!
//! Invariant: rows and events of a batch take effect together, so the rows say which events there were, in which order.

use std::collections::BTreeMap;

use quorate::events::EventId;

use super::{Held, Key};

/// How many events a cluster without an archive keeps: those of so few batches that a listener is often too late for
/// some.
pub const EVENTS_KEPT: u32 = 12;

/// An event: its number, its channel and what it says.
pub type Event = (EventId, String, i64);

/// What a listener heard.
#[derive(Clone, Debug)]
pub enum Heard {
    Event(Event),
    /// That events which it did not hear are not kept any more.
    Gap,
}

/// The channels of the events of a batch, in their order, without its client.
const CHANNELS: [&str; 3] = ["told:", "signal:", "echo:"];

impl Heard {
    /// Returns the number of the event.
    pub fn id(&self) -> Option<EventId> {
        match self {
            Self::Event((id, ..)) => Some(*id),
            Self::Gap => None,
        }
    }
}

/// Returns the channels of all events that were added and what they say, in their order.
fn added(held: &Held) -> Vec<(String, i64)> {
    let of_batch = |(client, number): &Key| CHANNELS.map(|channel| (format!("{channel}{client}"), *number));
    held.signals.iter().flat_map(of_batch).collect()
}

/// Returns what is wrong with the events that the cluster holds. `rows` are those that were written with events.
pub fn wrong_held(held: &Held, rows: &BTreeMap<Key, u64>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut signals: BTreeMap<Key, u64> = BTreeMap::new();
    held.signals.iter().for_each(|key| *signals.entry(*key).or_default() += 1);
    if signals != *rows {
        wrong.push(format!("the rows with events are {rows:?}, and those of the triggers {signals:?}"));
    }
    let added = added(held);
    // A cluster with an archive keeps all.
    let count = if held.events.len() == added.len() { added.len() } else { EVENTS_KEPT as usize };
    let kept = added.split_at(added.len().saturating_sub(count)).1;
    let found = held.events.iter().map(|(_, channel, number)| (channel, number));
    if !found.eq(kept.iter().map(|(channel, number)| (channel, number))) {
        wrong.push(format!("the events are {:?}, and the rows say {kept:?}", held.events));
    }
    let is_whole = |batch: &[Event]| {
        batch.iter().all(|(id, ..)| batch.first().is_some_and(|(first, ..)| first.index() == id.index()))
    };
    if let Some(batch) = held.events.chunks(CHANNELS.len()).find(|batch| !is_whole(batch)) {
        wrong.push(format!("{batch:?} are not the events of one entry"));
    }
    wrong
}

/// Returns what is wrong with what a listener heard from the first event on, if something is: it must have heard each
/// event, but for those before which it was told of a gap.
pub fn wrong_heard(heard: &[Heard], held: &Held) -> Option<String> {
    let added = added(held);
    let (mut next, mut is_gap) = (0, false);
    for (place, heard) in heard.iter().enumerate() {
        let Heard::Event(event) = heard else {
            is_gap = true;
            continue;
        };
        let (id, channel, number) = event;
        let is_it = |(of, said): (&String, &i64)| of == channel && said == number;
        let passed = added.iter().skip(next).position(|(of, said)| is_it((of, said)));
        let is_other = |(own, of, said): &Event| is_it((of, said)) && own != id;
        if passed.is_none_or(|passed| (passed > 0) != is_gap) || held.events.iter().any(is_other) {
            let told = if is_gap { "after a gap" } else { "without a gap" };
            let expected = added.get(next);
            return Some(format!("a listener heard {event:?} {told}, as {place}, where {expected:?} was the next"));
        }
        (next, is_gap) = (next + passed.unwrap_or_default() + 1, false);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what is wrong with what a listener heard of two batches, given the numbers and channels of the events,
    /// or nothing for a gap.
    fn wrong(heard: &[Option<(u64, &str)>]) -> Option<String> {
        let held = Held { signals: vec![(1, 10), (1, 20)], ..Held::default() };
        let event = |(index, channel): (u64, &str)| {
            (EventId::new(index, 0), format!("{channel}:1"), (index * 10).cast_signed())
        };
        let heard: Vec<Heard> =
            heard.iter().map(|heard| heard.map_or(Heard::Gap, |heard| Heard::Event(event(heard)))).collect();
        wrong_heard(&heard, &held)
    }

    #[test]
    fn a_listener_hears_each_event_or_of_a_gap() {
        let [told, signal, echo, later] = [(1, "told"), (1, "signal"), (1, "echo"), (2, "told")].map(Some);
        assert_eq!(wrong(&[told, signal, echo, later]), None);
        assert_eq!(wrong(&[told, None, None, later]), None);
        for heard in [[told, later].as_slice(), &[told, None, signal], &[told, told], &[None, told], &[signal, told]] {
            assert!(wrong(heard).is_some(), "{heard:?}");
        }
    }
}
