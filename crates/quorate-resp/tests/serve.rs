//! A connection over a stream.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::sync::Arc;

use quorate_keys::KeysReply;
use quorate_resp::{Answered, Connection, Cursors, Door, Host, Job, Moment, Role, Store, serve};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// A store without keys.
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
}

impl Host for Nothing {
    fn anonymous(&self) -> Option<Role> {
        Some(Role::Write)
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
