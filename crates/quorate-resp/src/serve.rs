//! Serves a connection: reads bytes, has jobs done, and writes replies.
//!
//! # Invariants
//!
//! - A client that does not read its replies is not read from either: what it sends next is read once the replies to
//!   what it has sent were written.
//! - A client that goes away while it waits is noticed.
//! - A client that has the reply to SUBSCRIBE gets each event that is added later, or its connection is closed.
//! - A request that has begun has its reply before the connection is closed, unless the client waits.

use std::future::{Future, pending, ready};
use std::io;
use std::pin::{Pin, pin};

use bytes::{Bytes, BytesMut};
use quorate_env::timeout;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::args::Moment;
use crate::batch::{Answered, Job};
use crate::door::{Done, Door};
use crate::host::Host;
use crate::limits::{PIPELINE_BYTES_MAX, READ_BYTES, WRITE_STALL_MAX};

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
    let (mut input, mut out) = (BytesMut::new(), BytesMut::new());
    let (mut stopped, mut listens) = (pin!(stopped), false);
    loop {
        loop {
            let mut batch = door.take(&mut input, store.moment(), host);
            if batch.is_empty() {
                break;
            }
            host.note(door.connection().summary());
            // Before the jobs, one of which may add an event that the client listens to.
            match (listens, door.connection().is_listening()) {
                (false, true) if !store.begin_listening().await => return stream.shutdown().await,
                (true, false) => store.end_listening(),
                _ => {}
            }
            listens = door.connection().is_listening();
            while let Some(job) = batch.job() {
                let answered = match job {
                    Job::Wait(_) => wait(stream, &mut input, store.run(job), stopped.as_mut()).await?,
                    job => Some(store.run(job).await),
                };
                let Some(answered) = answered else { return stream.shutdown().await };
                batch.answer(answered);
            }
            store.done(door.finish(batch, &mut out));
            write(stream, &mut out).await?;
        }
        if door.is_closing() {
            return stream.shutdown().await;
        }
        input.reserve(READ_BYTES);
        tokio::select! {
            biased;
            () = &mut stopped => return stream.shutdown().await,
            read = stream.read_buf(&mut input) => if read? == 0 { return Ok(()) },
            event = store.event(), if listens => {
                let Some((channel, payload)) = event else { return stream.shutdown().await };
                door.event(&channel, &payload, &mut out);
                write(stream, &mut out).await?;
            }
        }
    }
}

/// Waits for an answer, and reads on meanwhile; none if the client has gone, or the server stops.
async fn wait(
    stream: &mut (impl AsyncRead + Unpin),
    input: &mut BytesMut,
    answer: impl Future<Output = Answered>,
    mut stopped: Pin<&mut impl Future<Output = ()>>,
) -> io::Result<Option<Answered>> {
    let mut answer = pin!(answer);
    loop {
        let has_room = input.len() < PIPELINE_BYTES_MAX;
        tokio::select! {
            answered = &mut answer => return Ok(Some(answered)),
            () = &mut stopped => return Ok(None),
            read = stream.read_buf(input), if has_room => if read? == 0 { return Ok(None) },
        }
    }
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), out: &mut BytesMut) -> io::Result<()> {
    let stalled = || io::Error::new(io::ErrorKind::TimedOut, "the client does not read its replies");
    while !out.is_empty() {
        timeout(WRITE_STALL_MAX, stream.write_buf(out)).await.map_err(|_| stalled())??;
    }
    timeout(WRITE_STALL_MAX, stream.flush()).await.map_err(|_| stalled())?
}
