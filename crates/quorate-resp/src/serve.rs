//! Serves a connection: reads bytes, has jobs done, and writes replies.
//!
//! # Invariants
//!
//! - A client that does not read its replies is not read from either: what it sends next is read once the replies to
//!   what it has sent were written.
//! - A client that goes away while it waits is noticed.

use std::future::Future;
use std::io;
use std::pin::pin;

use bytes::BytesMut;
use quorate_env::timeout;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::args::Moment;
use crate::batch::{Answered, Job};
use crate::door::Door;
use crate::host::Host;
use crate::limits::{PIPELINE_BYTES_MAX, READ_BYTES, WRITE_STALL_MAX};

/// What does the jobs of connections.
pub trait Store {
    /// Does a job.
    fn run(&self, job: Job) -> impl Future<Output = Answered> + Send;

    /// Returns what commands depend on that are read now. The space is that of the connection.
    fn moment(&self) -> Moment;
}

/// Serves a connection until the client closes it, or the door does, after it has sent the reason.
///
/// # Errors
///
/// Those of the stream, and [`io::ErrorKind::TimedOut`] if the client does not read what is written.
pub async fn serve(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin + Send),
    door: &mut Door,
    store: &impl Store,
    host: &(dyn Host + Sync),
) -> io::Result<()> {
    let (mut input, mut out) = (BytesMut::new(), BytesMut::new());
    loop {
        loop {
            let mut batch = door.take(&mut input, store.moment(), host);
            if batch.is_empty() {
                break;
            }
            while let Some(job) = batch.job() {
                let answered = match job {
                    Job::Wait(_) => wait(stream, &mut input, store.run(job)).await?,
                    job => Some(store.run(job).await),
                };
                let Some(answered) = answered else { return Ok(()) };
                batch.answer(answered);
            }
            door.finish(batch, &mut out);
            write(stream, &mut out).await?;
        }
        if door.is_closing() {
            return stream.shutdown().await;
        }
        input.reserve(READ_BYTES);
        if stream.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
    }
}

/// Waits for an answer, and reads on meanwhile; none if the client has gone.
async fn wait(
    stream: &mut (impl AsyncRead + Unpin),
    input: &mut BytesMut,
    answer: impl Future<Output = Answered>,
) -> io::Result<Option<Answered>> {
    let mut answer = pin!(answer);
    loop {
        if input.len() >= PIPELINE_BYTES_MAX {
            return Ok(Some(answer.await));
        }
        tokio::select! {
            answered = &mut answer => return Ok(Some(answered)),
            read = stream.read_buf(input) => if read? == 0 { return Ok(None) },
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
