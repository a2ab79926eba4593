//! Serves a connection: reads bytes, has jobs done, and writes replies.
//!
//! # Invariants
//!
//! - A client that does not read its replies is not read from either: what it sends next is read once the replies to
//!   what it has sent were written.
//! - A client that goes away while it waits is noticed.
//! - A connection that does nothing holds little memory, however large its requests and replies were.
//! - A client that has the reply to SUBSCRIBE gets each event that is added later, or its connection is closed. It gets
//!   them while it waits, too, and however many requests it sends.
//! - A request that has begun has its reply before the connection is closed, unless the client waits.

use std::future::{Future, pending, ready};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use quorate_env::timeout;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::args::Moment;
use crate::batch::{Answered, Job};
use crate::control::Unblocked;
use crate::door::{Done, Door};
use crate::host::Host;
use crate::limits::{BUFFER_BYTES_KEPT, PIPELINE_BYTES_MAX, READ_BYTES, WRITE_STALL_MAX};

/// What does the jobs of a connection.
pub trait Store {
    /// Does a job.
    fn run(&self, job: Job) -> impl Future<Output = Answered> + Send;

    /// Returns what commands depend on that are read now. The space is that of the connection.
    fn moment(&self) -> Moment;

    /// Sees to it that [`event`](Self::event) returns each event that is added from now on. The client has asked for
    /// some of them, and has no answer yet. If that is not possible, it returns false, and the connection is closed.
    fn begin_listening(&self) -> impl Future<Output = bool> + Send {
        ready(true)
    }

    /// Is told that the client listens to nothing any more.
    fn end_listening(&self) {}

    /// Waits for the next event that the client may listen to: its channel, and what is said; none if events were
    /// missed, so that the connection must be closed. It is asked only while the client listens to something, and may
    /// be dropped at any time without losing an event.
    fn event(&self) -> impl Future<Output = Option<(Bytes, Bytes)>> + Send {
        pending()
    }

    /// Is told what became of requests.
    fn done(&self, _done: Done) {}

    /// Is told that the connection works, which it does until the result is dropped: it does requests, and writes
    /// replies or an event.
    fn work(&self) -> impl Send {}
}

/// Serves a connection until the client closes it, or `stopped` says so, or the door closes it after it has sent the
/// reason.
///
/// # Errors
///
/// Those of the stream, and [`io::ErrorKind::TimedOut`] if the client does not read what is written.
pub async fn serve(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin + Send),
    door: &mut Door,
    store: &impl Store,
    host: &(dyn Host + Sync),
    stopped: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let (input, out) = (BytesMut::new(), BytesMut::new());
    let control = Arc::clone(&door.connection().control);
    let stopped = async {
        tokio::select! {
            () = stopped => {}
            () = control.killed() => {}
        }
    };
    let mut serving = Serving { stream, door, store, input, out, listens: false };
    serving.run(host, pin!(stopped)).await?;
    timeout(WRITE_STALL_MAX, serving.stream.shutdown()).await.map_err(|_| stalled())?
}

/// The reply to a client whose wait another one has ended by an error.
const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";

fn stalled() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the client does not read its replies")
}

/// A connection that is served.
struct Serving<'a, S, T> {
    stream: &'a mut S,
    door: &'a mut Door,
    store: &'a T,
    /// The bytes that the client has sent, and that the door has not taken yet.
    input: BytesMut,
    /// The bytes to write to the client.
    out: BytesMut,
    /// Whether the store keeps events for the client.
    listens: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send, T: Store> Serving<'_, S, T> {
    /// Serves until the connection is to be closed.
    async fn run(
        &mut self,
        host: &(dyn Host + Sync),
        mut stopped: Pin<&mut impl Future<Output = ()>>,
    ) -> io::Result<()> {
        loop {
            let arrived = self.input.len();
            if !self.take(host, stopped.as_mut()).await? || self.door.is_closing() {
                return Ok(());
            }
            if self.input.is_empty() && arrived > BUFFER_BYTES_KEPT {
                self.input = BytesMut::new();
            }
            self.input.reserve(READ_BYTES);
            tokio::select! {
                () = &mut stopped => return Ok(()),
                read = self.stream.read_buf(&mut self.input) => if read? == 0 { return Ok(()) },
                event = self.store.event(), if self.listens => {
                    let _work = self.store.work();
                    if !self.push(event).await? { return Ok(()) }
                }
            }
        }
    }

    /// Does all requests that have arrived whole. Returns whether the connection goes on.
    async fn take(
        &mut self,
        host: &(dyn Host + Sync),
        mut stopped: Pin<&mut impl Future<Output = ()>>,
    ) -> io::Result<bool> {
        loop {
            let mut batch = self.door.take(&mut self.input, self.store.moment(), host);
            if batch.is_empty() {
                return Ok(true);
            }
            let _work = self.store.work();
            host.note(self.door.connection().summary());
            // Before the jobs, one of which may add an event that the client listens to.
            match (self.listens, self.door.connection().is_listening()) {
                (false, true) if !self.store.begin_listening().await => return Ok(false),
                (true, false) => self.store.end_listening(),
                _ => {}
            }
            self.listens = self.door.connection().is_listening();
            while let Some(job) = batch.job() {
                let answered = match job {
                    Job::Wait(_) => self.wait(self.store.run(job), stopped.as_mut()).await?,
                    job => Some(self.store.run(job).await),
                };
                let Some(answered) = answered else { return Ok(false) };
                batch.answer(answered);
            }
            self.store.done(self.door.finish(batch, &mut self.out));
            self.write().await?;
        }
    }

    /// Waits for an answer, and reads on and passes events on meanwhile; none if the connection is to be closed.
    async fn wait(
        &mut self,
        answer: impl Future<Output = Answered>,
        mut stopped: Pin<&mut impl Future<Output = ()>>,
    ) -> io::Result<Option<Answered>> {
        let control = Arc::clone(&self.door.connection().control);
        let _waiting = control.wait();
        let (mut answer, mut unblocked) = (pin!(answer), pin!(control.unblocked()));
        loop {
            let has_room = self.input.len() < PIPELINE_BYTES_MAX;
            tokio::select! {
                answered = &mut answer => return Ok(Some(answered)),
                how = &mut unblocked => return Ok(Some(match how {
                    Unblocked::Late => Answered::TimedOut,
                    Unblocked::Failed => Answered::Failed(UNBLOCKED.to_owned()),
                })),
                () = &mut stopped => return Ok(None),
                read = self.stream.read_buf(&mut self.input), if has_room => if read? == 0 { return Ok(None) },
                event = self.store.event(), if self.listens => if !self.push(event).await? { return Ok(None) },
            }
        }
    }

    /// Sends an event to the client. Returns whether there was one: else some were missed.
    async fn push(&mut self, event: Option<(Bytes, Bytes)>) -> io::Result<bool> {
        let Some((channel, payload)) = event else { return Ok(false) };
        self.door.event(&channel, &payload, &mut self.out);
        self.write().await?;
        Ok(true)
    }

    async fn write(&mut self) -> io::Result<()> {
        let bytes = self.out.len();
        while !self.out.is_empty() {
            timeout(WRITE_STALL_MAX, self.stream.write_buf(&mut self.out)).await.map_err(|_| stalled())??;
        }
        if bytes > BUFFER_BYTES_KEPT {
            self.out = BytesMut::new();
        }
        timeout(WRITE_STALL_MAX, self.stream.flush()).await.map_err(|_| stalled())?
    }
}
