//! The streams of a WebSocket. Each does its requests one by one; those of different streams run side by side.
//!
//! Invariant: a request is done with the rights that its user has when it begins. If they are not those of the request
//! before it, the transaction and the cursors of the stream are lost.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use quorate::Level;
use quorate::users::{Credentials, UserRole};

use super::super::encode::Cursor;
use super::super::stream::Stream;
use super::super::texts::Texts;
use super::super::{Done, batch, serve};
use super::io::Turn;
use super::message::Job;
use crate::door::Doors;
use crate::error::Problem;
use crate::json::Json;
use crate::login::Caller;
use crate::options::FETCH_BYTES_MAX;
use crate::work::Work;

/// A stream, and what waits for it.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// The stream, unless a request is using it.
    state: Option<Box<OpenStream>>,
    is_busy: bool,
    waiting: VecDeque<Asked>,
}

/// A stream and its cursors.
#[derive(Debug, Default)]
pub(super) struct OpenStream {
    stream: Stream,
    cursors: HashMap<i32, Cursor>,
    /// Who has used it last.
    user: Option<Caller>,
}

/// A request on a stream.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) id: i32,
    pub(super) job: Job,
    /// What the client had shown to log in when it sent the request.
    pub(super) shown: Option<Credentials>,
    /// The texts that the client had stored by then.
    pub(super) texts: Texts,
    /// The bytes that it keeps in memory.
    pub(super) bytes: usize,
    pub(super) turn: Option<Turn>,
}

/// A request that is done.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) stream_id: i32,
    pub(super) id: i32,
    pub(super) done: Done,
    pub(super) bytes: usize,
    /// The stream; `None` once it is closed.
    pub(super) state: Option<Box<OpenStream>>,
}

/// The connection of a request, as far as it concerns the request.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) doors: Doors,
    /// `host:port`.
    pub(super) from: String,
    pub(super) level: Level,
}

impl Lane {
    /// Adds a request to those that wait.
    pub(super) fn push(&mut self, asked: Asked) {
        self.waiting.push_back(asked);
    }

    /// Returns the next request, with the stream that it uses until [`Lane::give_back`], if none is running.
    pub(super) fn next(&mut self) -> Option<(Asked, Box<OpenStream>)> {
        if self.is_busy {
            return None;
        }
        let asked = self.waiting.pop_front()?;
        self.is_busy = true;
        Some((asked, self.state.take().unwrap_or_default()))
    }

    /// Takes the stream back for the next request.
    pub(super) fn give_back(&mut self, state: Box<OpenStream>) {
        (self.state, self.is_busy) = (Some(state), false);
    }

    /// Returns the requests that wait.
    pub(super) fn into_waiting(self) -> impl Iterator<Item = Asked> {
        self.waiting.into_iter()
    }
}

/// Does a request.
pub(super) async fn run(peer: Arc<Peer>, stream_id: i32, asked: Asked, mut state: Box<OpenStream>) -> Answered {
    let Asked { id, job, shown, texts, bytes, turn } = asked;
    let caller = peer.doors.caller(shown.as_ref(), &peer.from, UserRole::Read).await;
    let is_close = matches!(job, Job::Close);
    let done = match caller {
        Ok(caller) => {
            state.use_as(&caller);
            state.stream.texts = texts;
            let mut work = peer.doors.work(peer.level, caller);
            state.done(&mut work, job).await
        }
        Err(problem) => {
            state.lose("its user may not use it any more");
            Done::Problem(problem)
        }
    };
    drop(turn);
    Answered { stream_id, id, done, bytes, state: Some(state).filter(|_| !is_close) }
}

impl OpenStream {
    /// Notes who uses it.
    fn use_as(&mut self, caller: &Caller) {
        if self.user.as_ref().is_some_and(|user| user != caller) {
            self.lose("its user, or the role of its user, has changed");
        }
        self.user = Some(caller.clone());
    }

    fn lose(&mut self, why: &'static str) {
        self.stream = std::mem::take(&mut self.stream).without_transaction(why.into());
        self.cursors.clear();
    }

    async fn done(&mut self, work: &mut Work, job: Job) -> Done {
        let kind = job.kind();
        let done = match job {
            Job::Do(request) => return serve(&mut self.stream, work, request).await,
            Job::Open => Ok(None),
            Job::Close => {
                *self = Self::default();
                Ok(None)
            }
            Job::OpenCursor { cursor_id, batch } => batch::run(&mut self.stream, work, batch).await.map(|results| {
                self.cursors.insert(cursor_id, Cursor::new(results));
                None
            }),
            Job::FetchCursor { cursor_id, max_count } => {
                let cursor = self.cursors.get_mut(&cursor_id).ok_or(Problem::CursorClosed);
                cursor.map(|cursor| Some(entries(cursor, max_count)))
            }
            Job::CloseCursor { cursor_id } => {
                self.cursors.remove(&cursor_id);
                Ok(None)
            }
        };
        done.map_or_else(Done::Problem, |json| Done::Ok(kind, json))
    }
}

/// Writes the next entries of a cursor, and whether they are the last.
fn entries(cursor: &mut Cursor, max_count: u32) -> Json {
    let mut json = Json::default();
    json.raw("[");
    for number in 0..max_count {
        if cursor.is_done() || json.len() > FETCH_BYTES_MAX {
            break;
        }
        if number > 0 {
            json.raw(",");
        }
        cursor.write_next(&mut json);
    }
    json.raw(if cursor.is_done() { "],\"done\":true" } else { "],\"done\":false" });
    json
}
