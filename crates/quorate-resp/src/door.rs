//! A connection of a client: bytes come in, batches of requests go out, and bytes for the client.

use bytes::{Bytes, BytesMut};

use crate::args::Moment;
use crate::batch::Batch;
use crate::connection::Connection;
use crate::error::Refusal;
use crate::frame::Frame;
use crate::host::Host;
use crate::limits::BATCH_REQUESTS_MAX;
use crate::request::Reader;

/// What follows the seed of a command.
const SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// What became of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// How many requests it had.
    pub requests: usize,
    /// How many of them have failed.
    pub failed: usize,
    /// The first one for which the store was asked, as it was sent.
    pub first: Vec<Bytes>,
    /// For how many the store was asked.
    pub asking: usize,
    /// The name of the connection.
    pub name: Bytes,
}

/// A connection of a client.
#[derive(Debug)]
pub struct Door {
    connection: Connection,
    reader: Reader,
    /// A request that waits for the answers to those before it.
    held: Option<Vec<Bytes>>,
}

impl Door {
    /// Returns the door of a new connection.
    pub fn new(connection: Connection) -> Self {
        Self { connection, reader: Reader::default(), held: None }
    }

    /// Returns what is known of the connection.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Returns whether nothing more is read, and the connection is to be closed once all replies were sent.
    pub fn is_closing(&self) -> bool {
        self.connection.is_closing
    }

    /// Takes the requests that have arrived whole, in so far as they can be done together: none, if more bytes are
    /// needed. To be called again once the batch is [finished](Self::finish).
    pub fn take(&mut self, input: &mut BytesMut, mut moment: Moment, host: &dyn Host) -> Batch {
        let mut batch = Batch::at(self.connection.level.clone());
        self.connection.begin();
        while batch.len() < BATCH_REQUESTS_MAX && !self.connection.is_closing {
            let words = match self.held.take().map_or_else(|| self.read(input, host), |words| Ok(Some(words))) {
                Ok(Some(words)) => words,
                Ok(None) => break,
                Err(refusal) => {
                    self.connection.is_closing = true;
                    batch.push(Vec::new(), refusal.into(), self.connection.protocol, false);
                    break;
                }
            };
            let is_alone = self.connection.is_alone(&words);
            if is_alone && !batch.is_empty() {
                self.held = Some(words);
                break;
            }
            moment.seed = moment.seed.wrapping_add(SEED_STEP);
            self.run(words, &moment, host, &mut batch);
            if is_alone {
                break;
            }
        }
        batch
    }

    fn read(&mut self, input: &mut BytesMut, host: &dyn Host) -> Result<Option<Vec<Bytes>>, Frame> {
        let is_user = self.connection.role(host).is_ok();
        self.reader.next(input, is_user).map_err(Frame::error)
    }

    fn run(&mut self, words: Vec<Bytes>, moment: &Moment, host: &dyn Host, batch: &mut Batch) {
        let step = self.connection.run(&words, moment, host).unwrap_or_else(|refusal: Refusal| {
            self.connection.end_transaction(true);
            Frame::error(refusal).into()
        });
        let is_muted = self.connection.mutes();
        batch.push(words, step, self.connection.protocol, is_muted);
    }

    /// Writes the replies to a batch all jobs of which were answered.
    pub fn finish(&mut self, mut batch: Batch, out: &mut BytesMut) -> Done {
        let done = batch.done(self.connection.name().clone());
        self.connection.watched.append(&mut batch.watched);
        self.connection.end_transaction(batch.exec_failed);
        batch.write(out, |user, role, hello| {
            let frame = self.connection.log_in(user, role, hello);
            (frame, self.connection.protocol)
        });
        done
    }

    /// Writes an event of a channel, once for each subscription that it belongs to.
    pub fn event(&self, channel: &Bytes, payload: &Bytes, out: &mut BytesMut) {
        for frame in self.connection.subscriptions.event(channel, payload) {
            frame.write(self.connection.protocol, out);
        }
    }
}
