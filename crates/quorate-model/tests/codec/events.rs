//! The bytes of events never change, decoding reverses encoding, and the limits hold.

use quorate_model::events::limits::{CHANNEL_BYTES_MAX, FILTER_PARTS_MAX, PAYLOAD_BYTES_MAX};
use quorate_model::events::{
    EVENTS_LEVEL, Event, EventId, EventsAnswer, EventsCommand, EventsPage, EventsQuery, EventsReply, Filter,
};

use super::*;

pub(crate) fn any_command() -> impl Strategy<Value = EventsCommand> {
    (".{0,9}", any_bytes()).prop_map(|(channel, payload)| EventsCommand::Notify { channel, payload })
}

pub(crate) fn any_reply() -> impl Strategy<Value = EventsReply> {
    any_id().prop_map(EventsReply::Notified)
}

fn any_id() -> impl Strategy<Value = EventId> {
    any::<u64>().prop_map(EventId::from_number)
}

fn any_query() -> impl Strategy<Value = EventsQuery> {
    let texts = || vec(".{0,9}", 0..3);
    (proptest::option::of(any_id()), texts(), texts(), any::<u32>()).prop_map(|(after, channels, patterns, limit)| {
        EventsQuery { after, filter: Filter { channels, patterns }, limit }
    })
}

fn any_answer() -> impl Strategy<Value = EventsAnswer> {
    let event = (any_id(), ".{0,9}", any_bytes()).prop_map(|(id, channel, payload)| Event { id, channel, payload });
    let page = (vec(event, 0..4), any_id(), any::<bool>())
        .prop_map(|(events, upto, more)| EventsAnswer::Page(EventsPage { events, upto, more }));
    prop_oneof![3 => page, 1 => any_id().prop_map(|oldest| EventsAnswer::Gap { oldest })]
}

proptest! {
    #[test]
    fn queries_and_answers_survive(query in any_query(), answer in any_answer()) {
        let read = Read::Events(query);
        prop_assert_eq!(codec::decode_read(&codec::encode_read(&read)), Ok(read));
        let bytes = codec::encode_events_answer(&answer);
        prop_assert_eq!(codec::events_answer_len(&answer), bytes.len());
        prop_assert_eq!(codec::decode_events_answer(&bytes), Ok(answer));
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in vec(any::<u8>(), 0..60)) {
        drop(codec::decode_events_answer(&bytes.into()));
    }
}

#[test]
fn their_bytes_never_change() {
    let notify = |channel: &str, payload: &'static [u8]| {
        Command::Events(EventsCommand::Notify { channel: channel.to_owned(), payload: Bytes::from_static(payload) })
    };
    let proposal = golden_proposal_of(vec![notify("orders", &[0, 255]), notify("é", &[])]);
    assert_eq!(proposal.level_needed(), EVENTS_LEVEL);
    golden("proposal-events-6.hex", &codec::encode_proposal(&proposal).unwrap());
    let reply = Reply::of([CommandResult::Events(EventsReply::Notified(EventId::new(300, 1)))]);
    golden("reply-events-6.hex", &codec::encode_outcome(&Ok(reply)));
}

#[test]
fn limits_say_what_to_do() {
    let failure = |channel: &str, size: usize| {
        let notify = EventsCommand::Notify { channel: channel.to_owned(), payload: vec![0; size].into() };
        Proposal::new(None, vec![notify.into()])
            .check_limits()
            .map_or_else(|failure| failure.message, |()| "none".into())
    };
    assert_eq!(failure(&"x".repeat(CHANNEL_BYTES_MAX), PAYLOAD_BYTES_MAX), "none");
    let long = "257 bytes of the name of a channel: the limit is 256; give it a shorter name";
    assert_eq!(failure(&"x".repeat(CHANNEL_BYTES_MAX + 1), 0), long);
    let large = "1048577 bytes of an event: the limit is 1048576; store it in pieces";
    assert_eq!(failure("x", PAYLOAD_BYTES_MAX + 1), large);
    let name = "the name of a channel has at least one character, and no control characters; choose another";
    assert_eq!((failure("", 0).as_str(), failure("a\nb", 0).as_str()), (name, name));
    let query = |channels: usize, limit: u32| {
        let filter = Filter { channels: vec!["x".to_owned(); channels], patterns: Vec::new() };
        Read::Events(EventsQuery { after: None, filter, limit }).check_limits()
    };
    query(FILTER_PARTS_MAX, 1).unwrap();
    query(FILTER_PARTS_MAX + 1, 1).unwrap_err();
    assert_eq!(query(1, 0).unwrap_err().message, "a page of 0 events: it may have 1 to 1000");
    query(1, 1_001).unwrap_err();
}
