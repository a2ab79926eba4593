//! What a program may set for its doors, and the limits that it can't.

use std::sync::Arc;
use std::time::Duration;

use quorate::admin::Admin;
use quorate::users::Users;
use quorate::{HOLD_MAX, Level, TlsConfig};

use crate::cluster::Cluster;

/// The most bytes of the body of a request.
pub const BODY_BYTES_MAX: usize = 16 << 20;

/// The most bytes of a body that is read at once. Larger ones, and those of unknown length, take turns.
pub const SMALL_BODY_BYTES_MAX: usize = 64 << 10;

/// The most requests with larger bodies at once. Further ones wait.
pub const LARGE_BODIES_MAX: usize = 32;

/// The most bytes of the values in one answer, over all of its statements.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The most rows of one result.
pub const ROWS_MAX: usize = 1_000_000;

/// The most streams of Hrana that are open at once. One more closes the idle stream that was used longest ago.
pub const STREAMS_MAX: usize = 4_096;

/// The most streams, and the most cursors, of a WebSocket.
pub const SOCKET_STREAMS_MAX: usize = 128;

/// The most requests of a WebSocket that are not answered yet. Until one is answered, no further message is read.
pub const SOCKET_REQUESTS_MAX: usize = 256;

/// The most bytes of answers of a WebSocket that wait to be written, beside the answer that exceeds it. While more
/// wait, its requests do not go on, and no further message is read.
pub const SOCKET_WAITING_BYTES_MAX: usize = 4 << 20;

/// The time within which a WebSocket must say a hello that is accepted.
pub const HELLO_TIME_MAX: Duration = Duration::from_secs(10);

/// The time without a message after which a WebSocket is pinged, and the time within which it must then send one.
pub const SOCKET_SILENCE_MAX: Duration = Duration::from_secs(30);

/// The time within which the client of a WebSocket that the server closes must read what the server has written, and
/// answer with a close frame.
pub const SOCKET_CLOSE_TIME_MAX: Duration = Duration::from_secs(2);

/// The most bytes of a frame that a WebSocket is sent. A longer answer has several.
pub const FRAME_BYTES_MAX: usize = 64 << 10;

/// The bytes after which the answer to `fetch_cursor` has no further entry.
pub const FETCH_BYTES_MAX: usize = 1 << 20;

/// The most SQL texts that a stream, or a WebSocket, keeps for its client.
pub const STORED_TEXTS_MAX: usize = 256;

/// The most bytes of the SQL texts that a stream, or a WebSocket, keeps for its client.
pub const STORED_BYTES_MAX: usize = 4 << 20;

/// The most bytes of the header `Idempotency-Key`.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 128;

/// The longest time that a request waits for a lock.
pub const LOCK_WAIT_MAX: Duration = Duration::from_secs(60);

/// The most statements of one request to rqlite's endpoints, and requests or steps of one to Hrana's.
pub const STATEMENTS_MAX: usize = quorate::limits::COMMANDS_MAX;

/// The most rows of a page of huststore's endpoints.
pub const HUSTSTORE_ROWS_MAX: u64 = 1_000;

/// The most rows before a page of huststore's endpoints. They are read, so long lists are better read by `GET /keys`.
pub const HUSTSTORE_OFFSET_MAX: u64 = 1_000_000;

/// What a program may set for its doors. [`Options::default`] suits most.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The level of reads for which a request names none. The default, [`Level::Linearizable`], is what clients of a
    /// single server expect, whichever node they are connected to.
    pub level: Level,
    /// How long a stream of Hrana is kept between two requests.
    pub stream_idle: Duration,
    /// How long an interactive transaction may last, and how long its beginning may wait for others. The library limits
    /// it to [`HOLD_MAX`], because other writes wait while it is open.
    pub transaction_time: Duration,
    /// The URL of this server as its clients see it. A stream stays on the server that opened it, so set this if a load
    /// balancer stands before several.
    pub base_url: Option<String>,
    /// The origins of web pages that may use the doors, such as `https://app.example`. Requests from other pages are
    /// refused, because a page could otherwise use a server that only its visitor can reach.
    pub origins: Vec<String>,
    /// Who may use the doors. `None` for everyone, as for a cluster without users.
    pub users: Option<Users>,
    /// TLS for the port of [`serve`](crate::serve()).
    pub tls: Option<TlsConfig>,
    /// Whether a port that other machines can reach may do without TLS, and without users. Anyone who can connect may
    /// then read and write everything.
    pub insecure: bool,
    /// Whether the doors have the endpoints of huststore for keys, `/hustdb/...` (`docs/huststore.md`). Some of them
    /// write by `GET`, as its clients do.
    pub huststore: bool,
    /// What makes the backups of `/db/backup`. Without it, the doors send none.
    pub backups: Option<Admin>,
    /// What is known of the cluster, for the endpoints of rqlite that show it.
    pub cluster: Option<Arc<dyn Cluster>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            level: Level::Linearizable,
            stream_idle: Duration::from_secs(60),
            transaction_time: HOLD_MAX,
            base_url: None,
            origins: Vec::new(),
            users: None,
            tls: None,
            insecure: false,
            huststore: false,
            backups: None,
            cluster: None,
        }
    }
}

impl Options {
    /// Sets [`Options::level`].
    #[must_use]
    pub fn with_level(self, level: Level) -> Self {
        Self { level, ..self }
    }

    /// Sets [`Options::stream_idle`].
    #[must_use]
    pub fn with_stream_idle(self, stream_idle: Duration) -> Self {
        Self { stream_idle, ..self }
    }

    /// Sets [`Options::transaction_time`].
    #[must_use]
    pub fn with_transaction_time(self, transaction_time: Duration) -> Self {
        Self { transaction_time, ..self }
    }

    /// Sets [`Options::base_url`].
    #[must_use]
    pub fn with_base_url(self, base_url: impl Into<String>) -> Self {
        Self { base_url: Some(base_url.into()), ..self }
    }

    /// Sets [`Options::origins`].
    #[must_use]
    pub fn with_origins(self, origins: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { origins: origins.into_iter().map(Into::into).collect(), ..self }
    }

    /// Sets [`Options::users`].
    #[must_use]
    pub fn with_users(self, users: Users) -> Self {
        Self { users: Some(users), ..self }
    }

    /// Sets [`Options::tls`].
    #[must_use]
    pub fn with_tls(self, tls: TlsConfig) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Sets [`Options::insecure`].
    #[must_use]
    pub fn with_insecure(self, insecure: bool) -> Self {
        Self { insecure, ..self }
    }

    /// Sets [`Options::huststore`].
    #[must_use]
    pub fn with_huststore(self, huststore: bool) -> Self {
        Self { huststore, ..self }
    }

    /// Sets [`Options::backups`].
    #[must_use]
    pub fn with_backups(self, backups: Admin) -> Self {
        Self { backups: Some(backups), ..self }
    }

    /// Sets [`Options::cluster`].
    #[must_use]
    pub fn with_cluster(self, cluster: Arc<dyn Cluster>) -> Self {
        Self { cluster: Some(cluster), ..self }
    }
}
