//! A connection over a stream.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests stop at the first surprise")]

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use quorate_env::timeout;
use quorate_keys::KeysReply;
use quorate_resp::{Answered, Common, Connection, Cursors, Door, Host, Job, Moment, Role, Store, Summary, serve};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};

/// How long a test waits for what it expects.
const PATIENCE: Duration = Duration::from_secs(30);

/// A store without keys. There is always another event.
struct Nothing;

impl Store for Nothing {
    async fn run(&self, job: Job) -> Answered {
        match job {
            Job::Run { commands, .. } => Answered::Ran(commands.iter().map(|_| KeysReply::Missing.into()).collect()),
            _ => std::future::pending().await,
        }
    }

    fn moment(&self) -> Moment {
        Moment { now: 1, seed: 1, space: 0, cursors: Arc::new(Cursors::new(1)) }
    }

    async fn event(&self) -> Option<(Bytes, Bytes)> {
        Some(("news".into(), "x".into()))
    }
}

impl Host for Nothing {
    fn anonymous(&self) -> Result<Role, String> {
        Ok(Role::Write)
    }

    fn clients(&self, but: u64) -> Vec<Summary> {
        let others = [1].into_iter().filter(|number| *number != but);
        others.map(|number| Connection::new(number, "here", 0, Arc::default()).summary()).collect()
    }
}

/// Has one client do what `first` says, and another one what `second` says, again and again until its reply is this.
/// Returns all that the first one gets, until its connection is closed.
async fn interfere(first: &str, second: &str, reply: &str) -> String {
    let common = Arc::<Common>::default();
    let door = |number, address: &'static str| Door::new(Connection::new(number, address, 0, Arc::clone(&common)));
    let (mut waiting, mut acting) = (door(1, "here"), door(2, "there"));
    let ((mut client, mut server), (mut other, mut beside)) = (tokio::io::duplex(1 << 10), tokio::io::duplex(1 << 10));
    let acts = async {
        client.write_all(first.as_bytes()).await.unwrap();
        let mut bytes = [0; 64];
        loop {
            other.write_all(second.as_bytes()).await.unwrap();
            let read = other.read(&mut bytes).await.unwrap();
            if bytes[..read] == *reply.as_bytes() {
                break;
            }
            tokio::task::yield_now().await;
        }
        let mut out = String::new();
        client.read_to_string(&mut out).await.unwrap();
        out
    };
    let serves = async {
        serve(&mut server, &mut waiting, &Nothing, &Nothing, std::future::pending()).await.unwrap();
        drop(server);
        std::future::pending::<()>().await;
    };
    let serves_other = serve(&mut beside, &mut acting, &Nothing, &Nothing, std::future::pending());
    tokio::select! {
        () = serves => unreachable!(),
        ended = serves_other => panic!("{ended:?}"),
        out = timeout(PATIENCE, acts) => out.unwrap(),
    }
}

#[tokio::test]
async fn a_client_ends_what_another_one_waits_for() {
    let wait = "BLPOP a 0\r\nQUIT\r\n";
    assert_eq!(interfere(wait, "CLIENT UNBLOCK 1\r\n", ":1\r\n").await, "*-1\r\n+OK\r\n");
    let told = "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n+OK\r\n";
    assert_eq!(interfere(wait, "CLIENT UNBLOCK 1 ERROR\r\n", ":1\r\n").await, told);
}

#[tokio::test]
async fn a_client_ends_the_connection_of_another_one() {
    // It may have begun to wait, or not.
    for (kill, reply) in [("ID 1", ":1"), ("here", "+OK"), ("ADDR here USER default", ":1")] {
        let kill = format!("CLIENT KILL {kill}\r\n");
        assert_eq!(interfere("BLPOP a 0\r\n", &kill, &format!("{reply}\r\n")).await, "", "{kill}");
    }
}

/// Sends pieces, and returns all replies, once the server has ended.
async fn talk(pieces: &[&str]) -> String {
    let (mut client, mut server) = tokio::io::duplex(16);
    let mut door = Door::new(Connection::new(1, "here".to_owned(), 0, Arc::default()));
    let send = async {
        let (mut read, mut write) = tokio::io::split(&mut client);
        let mut out = Vec::new();
        let sent = async {
            for piece in pieces {
                write.write_all(piece.as_bytes()).await.unwrap();
            }
            write.shutdown().await.unwrap();
        };
        let (_, read) = tokio::join!(sent, read.read_to_end(&mut out));
        read.unwrap();
        String::from_utf8(out).unwrap()
    };
    let serving = async {
        let ended = serve(&mut server, &mut door, &Nothing, &Nothing, std::future::pending()).await;
        drop(server);
        ended
    };
    let (ended, out) = tokio::join!(serving, send);
    ended.unwrap();
    out
}

#[tokio::test]
async fn requests_are_answered_however_they_arrive() {
    assert_eq!(talk(&["PING\r\n*2\r\n$3\r\nGE", "T\r\n$1\r\na\r\nECHO x\r\n"]).await, "+PONG\r\n$-1\r\n$1\r\nx\r\n");
    assert_eq!(talk(&["QUIT\r\n"]).await, "+OK\r\n");
}

#[tokio::test]
async fn a_client_that_goes_away_does_not_wait_any_more() {
    assert_eq!(talk(&["PING\r\nBLPOP a 0\r\n"]).await, "+PONG\r\n");
}

/// A client of version 3 that listens, and then sends requests without a pause.
struct Busy {
    reads_left: usize,
    written: Vec<u8>,
}

const LISTEN: &str = "HELLO 3\r\nSUBSCRIBE news\r\n";
const EVENT: &str = ">3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$1\r\nx\r\n";

impl AsyncRead for Busy {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let requests = if self.written.is_empty() { LISTEN } else { "PING\r\n" };
        if self.reads_left > 0 {
            self.reads_left -= 1;
            buf.put_slice(requests.as_bytes());
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Busy {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.written.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn neither_requests_nor_events_hold_up_the_others() {
    let mut client = Busy { reads_left: 1_000, written: Vec::new() };
    let mut door = Door::new(Connection::new(1, "here".to_owned(), 0, Arc::default()));
    serve(&mut client, &mut door, &Nothing, &Nothing, std::future::pending()).await.unwrap();
    let out = String::from_utf8(client.written).unwrap();
    assert_eq!(out.matches("+PONG").count(), 999);
    assert!(out.contains(EVENT));
}

#[tokio::test]
async fn a_client_that_waits_gets_events() {
    let (mut client, mut server) = tokio::io::duplex(1 << 10);
    let mut door = Door::new(Connection::new(1, "here".to_owned(), 0, Arc::default()));
    client.write_all(format!("{LISTEN}BLPOP a 0\r\n").as_bytes()).await.unwrap();
    let serving = serve(&mut server, &mut door, &Nothing, &Nothing, std::future::pending());
    let reading = async {
        let (mut out, mut bytes) = (String::new(), [0; 64]);
        while !out.contains(EVENT) {
            let read = client.read(&mut bytes).await.unwrap();
            out += std::str::from_utf8(&bytes[..read]).unwrap();
        }
        out
    };
    let out = tokio::select! {
        ended = serving => panic!("{ended:?}"),
        read = timeout(PATIENCE, reading) => read.unwrap(),
    };
    assert!(out.find("subscribe") < out.find(EVENT), "the reply comes first: {out}");
}
