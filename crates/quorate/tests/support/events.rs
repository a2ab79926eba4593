//! Records the log events of nodes for tests.
//!
//! All tests of a process share the events, so each looks for its own texts.

use std::fmt::{Debug, Write as _};
use std::sync::{Mutex, OnceLock};

use quorate_env::lock;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber, subscriber};

static EVENTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Keeper;

/// Starts to record events, except for those at the debug level.
pub fn keep() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| subscriber::set_global_default(Keeper).unwrap());
}

/// Returns whether an event with this text and fields was recorded; numbers are replaced by `N`.
pub fn is_logged(text: &str) -> bool {
    lock(&EVENTS).iter().any(|event| event == text)
}

/// Returns all events, for the message of a failed test.
pub fn all() -> Vec<String> {
    lock(&EVENTS).clone()
}

/// The message, followed by the fields.
#[derive(Default)]
struct Text(String, String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            write!(self.0, "{value:?}").unwrap();
        } else {
            write!(self.1, " {}={value:?}", field.name()).unwrap();
        }
    }
}

/// Replaces each run of digits, including hexadecimal ones, with `N`.
fn without_numbers(text: &str) -> String {
    let mut shown = String::new();
    for word in text.split_inclusive(|c: char| !c.is_ascii_hexdigit()) {
        let (word, end) = word.split_at(word.trim_end_matches(|c: char| !c.is_ascii_hexdigit()).len());
        let is_number = word.contains(|c: char| c.is_ascii_digit());
        shown.push_str(if is_number { "N" } else { word });
        shown.push_str(end);
    }
    shown
}

impl Subscriber for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.target().starts_with("quorate")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let shown = without_numbers(&(text.0 + &text.1));
        lock(&EVENTS).push(shown);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
