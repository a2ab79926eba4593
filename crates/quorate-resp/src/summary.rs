//! What others are shown of a connection: its line in `CLIENT LIST`.

use std::sync::Arc;

use bytes::Bytes;
use quorate_keys::Space;

use crate::frame::Protocol;

/// The nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// The command that a connection has sent last.
#[derive(Clone, Copy, Debug, Default)]
pub struct Called {
    /// The command that it is below, if it is.
    of: Option<&'static str>,
    name: Option<&'static str>,
}

impl Called {
    pub fn new(of: Option<&'static str>, name: &'static str) -> Self {
        Self { of, name: Some(name) }
    }

    fn text(self) -> String {
        let name = self.name.unwrap_or("NULL");
        self.of.map_or_else(|| name.to_owned(), |of| format!("{of}|{name}"))
    }
}

/// What others are shown of a connection.
#[derive(Clone, Debug)]
pub struct Summary {
    pub(crate) id: u64,
    pub(crate) address: Arc<str>,
    pub(crate) since: u64,
    pub(crate) labels: Labels,
    pub(crate) space: Space,
    pub(crate) channels: usize,
    pub(crate) patterns: usize,
    pub(crate) shards: usize,
    pub(crate) queued: Option<usize>,
    pub(crate) watched: usize,
    pub(crate) last: Called,
    pub(crate) user: Option<Bytes>,
    pub(crate) protocol: Protocol,
}

impl Summary {
    /// Whether the client listens to events.
    pub(crate) fn is_listening(&self) -> bool {
        self.channels + self.patterns + self.shards > 0
    }

    /// Returns the name of its user.
    pub(crate) fn user(&self) -> Bytes {
        self.user.clone().unwrap_or(Bytes::from_static(b"default"))
    }

    /// Returns the line of the connection in `CLIENT LIST`, at a time in nanoseconds since 1970.
    pub(crate) fn line(&self, now: u64) -> String {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let facts = [
            ("id", self.id.to_string()),
            ("addr", self.address.to_string()),
            ("name", text(&self.labels.name)),
            ("age", (now.saturating_sub(self.since) / SECOND).to_string()),
            ("db", self.space.to_string()),
            ("sub", self.channels.to_string()),
            ("psub", self.patterns.to_string()),
            ("ssub", self.shards.to_string()),
            ("multi", self.queued.map_or("-1".to_owned(), |queued| queued.to_string())),
            ("watch", self.watched.to_string()),
            ("cmd", self.last.text()),
            ("user", text(&self.user())),
            ("resp", if self.protocol == Protocol::Two { "2" } else { "3" }.to_owned()),
            ("lib-name", text(&self.labels.library)),
            ("lib-ver", text(&self.labels.version)),
        ];
        facts.map(|(name, fact)| format!("{name}={fact}")).join(" ")
    }
}

/// What a client says of itself.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    pub name: Bytes,
    pub library: Bytes,
    pub version: Bytes,
}
