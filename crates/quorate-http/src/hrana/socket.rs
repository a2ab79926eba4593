//! Hrana over WebSocket, with JSON: one connection with many streams.
//!
//! Invariants:
//! - Before a hello that is accepted nothing is done for a client.
//! - The requests of a stream are done one by one, in the order in which they came.
//! - All that a connection keeps is limited by named constants; beyond them it is not read, so its client has to wait.
//! - Everything runs in the task of the connection: when that ends, its streams end, which rolls back transactions.

mod handshake;
mod io;
mod lane;
mod message;
mod wire;

use std::collections::HashMap;
use std::future::{Future as _, poll_fn};
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use hyper::StatusCode;
use quorate::Level;
use quorate::users::{Credentials, UserRole};
use quorate_env::{Instant, Sleep, sleep_until};
use tokio::sync::oneshot;
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

pub(crate) use self::handshake::is_asked_for;
use self::io::{Io, Turn};
use self::lane::{Answered, Asked, Lane, Peer};
pub(crate) use self::message::fuzz_message;
use self::message::{Job, Message, Request};
use self::wire::Wire;
use super::Done;
use super::encode::{write_problem, write_response};
use super::texts::Texts;
use crate::door::Doors;
use crate::error::Problem;
use crate::json::Json;
use crate::login::Caller;
use crate::message::Answer;
use crate::options::{
    BODY_BYTES_MAX, HELLO_TIME_MAX, SOCKET_REQUESTS_MAX, SOCKET_SILENCE_MAX, SOCKET_STREAMS_MAX,
    SOCKET_WAITING_BYTES_MAX,
};
use crate::port::Takeover;

/// One connection.
struct Session {
    peer: Arc<Peer>,
    wire: Wire,
    /// What the request for the WebSocket showed to log in, for a hello without a token.
    of_head: Option<Credentials>,
    /// What the last hello that was accepted showed.
    shown: Option<Credentials>,
    greeted: Greeted,
    texts: Texts,
    lanes: HashMap<i32, Lane>,
    /// The streams of the cursors.
    cursors: HashMap<i32, i32>,
    running: FuturesUnordered<BoxFuture<'static, Finished>>,
    /// The requests that are not answered yet, and the bytes that they keep in memory.
    unanswered: usize,
    unanswered_bytes: usize,
    clock: SilenceClock,
    ending: oneshot::Receiver<()>,
    is_ending: bool,
}

/// Whether a hello was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Greeted {
    No,
    /// A hello is being checked. Until then nothing else is read.
    Asks,
    Yes,
}

/// Tells when a client has been silent for too long.
struct SilenceClock {
    timer: Pin<Box<Sleep>>,
    heard: Instant,
    has_pinged: bool,
}

enum Finished {
    Hello(Option<Credentials>, Result<Caller, Problem>),
    Request(Answered),
}

enum Event {
    Finished(Finished),
    Read(Option<Result<tungstenite::Message, tungstenite::Error>>),
    WriteFailed,
    TimeIsUp,
    Ending,
}

/// Why a connection ends.
#[derive(Debug)]
enum End {
    Broken,
    ByClient,
    Because(CloseCode, String),
}

type Flow = ControlFlow<End>;

/// Answers a request for a WebSocket, which runs on the connection of the request. `shown` is what the request shows to
/// log in.
pub(crate) fn open<B>(
    doors: &Doors,
    request: &mut hyper::Request<B>,
    level: Level,
    shown: Option<Credentials>,
    from: &str,
) -> Result<Answer, Problem> {
    let answer = handshake::accept(request)?;
    let not_here = Problem::NotOffered("this program does not serve WebSockets; use Hrana over HTTP");
    let takeover = request.extensions_mut().remove::<Takeover>().ok_or(not_here)?;
    let peer = Arc::new(Peer { doors: doors.clone(), from: from.to_owned(), level });
    let upgrade = hyper::upgrade::on(request);
    takeover.set(Box::new(move |ending| {
        let serving = async move {
            if let Ok(stream) = upgrade.await {
                let wire = Wire::new(Io::new(stream, peer.doors.large())).await;
                Session::new(peer, wire, shown, ending).serve().await;
            }
        };
        serving.boxed()
    }));
    Ok(answer)
}

impl Session {
    fn new(peer: Arc<Peer>, wire: Wire, of_head: Option<Credentials>, ending: oneshot::Receiver<()>) -> Self {
        Self {
            peer,
            wire,
            of_head,
            shown: None,
            greeted: Greeted::No,
            texts: Texts::default(),
            lanes: HashMap::new(),
            cursors: HashMap::new(),
            running: FuturesUnordered::new(),
            unanswered: 0,
            unanswered_bytes: 0,
            clock: SilenceClock::new(),
            ending,
            is_ending: false,
        }
    }

    async fn serve(mut self) {
        let end = loop {
            if self.is_ending && self.unanswered == 0 {
                break End::Because(CloseCode::Away, "the server ends this connection; open another one".to_owned());
            }
            let event = poll_fn(|cx| self.poll_event(cx)).await;
            if let ControlFlow::Break(end) = self.on_event(event) {
                break end;
            }
        };
        // All but the wire is dropped at once, which rolls back.
        let Self { wire, .. } = self;
        match end {
            End::Broken => {}
            End::ByClient => wire.close(None).await,
            End::Because(code, reason) => wire.close(Some((code, &reason))).await,
        }
    }

    /// Returns whether the next message may be read.
    fn may_read(&self) -> bool {
        !self.is_ending
            && self.greeted != Greeted::Asks
            && self.unanswered < SOCKET_REQUESTS_MAX
            && self.unanswered_bytes <= BODY_BYTES_MAX
            && self.wire.waiting() <= SOCKET_WAITING_BYTES_MAX
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if let Poll::Ready(Err(_)) = self.wire.poll_write(cx) {
            return Poll::Ready(Event::WriteFailed);
        }
        if !self.is_ending && self.ending.poll_unpin(cx).is_ready() {
            return Poll::Ready(Event::Ending);
        }
        if self.wire.waiting() <= SOCKET_WAITING_BYTES_MAX
            && let Poll::Ready(Some(finished)) = self.running.poll_next_unpin(cx)
        {
            return Poll::Ready(Event::Finished(finished));
        }
        if self.may_read()
            && let Poll::Ready(read) = self.wire.poll_read(cx)
        {
            return Poll::Ready(Event::Read(read));
        }
        self.clock.timer.as_mut().poll(cx).map(|()| Event::TimeIsUp)
    }

    fn on_event(&mut self, event: Event) -> Flow {
        match event {
            Event::Finished(Finished::Hello(shown, checked)) => self.on_hello(shown, checked),
            Event::Finished(Finished::Request(answered)) => self.on_answer(answered),
            Event::Read(None) | Event::WriteFailed => Flow::Break(End::Broken),
            Event::Read(Some(Err(error))) => Flow::Break(End::of(&error)),
            Event::Read(Some(Ok(message))) => self.on_message(message),
            Event::TimeIsUp => self.on_silence(),
            Event::Ending => {
                self.is_ending = true;
                Flow::Continue(())
            }
        }
    }

    fn on_message(&mut self, message: tungstenite::Message) -> Flow {
        if self.greeted == Greeted::Yes {
            self.clock.heard();
        }
        let text = match message {
            tungstenite::Message::Text(text) => text,
            tungstenite::Message::Close(_) => return Flow::Break(End::ByClient),
            tungstenite::Message::Binary(_) => {
                return Flow::Break(End::Because(CloseCode::Unsupported, "messages are texts, with JSON".to_owned()));
            }
            _ => return Flow::Continue(()),
        };
        let turn = self.wire.io().next_message();
        match Message::read(text.as_bytes()) {
            Err(problem) => Flow::Break(End::Because(CloseCode::Protocol, problem.to_string())),
            Ok(Message::Hello { token }) => {
                self.check_hello(token);
                Flow::Continue(())
            }
            Ok(Message::Request { .. }) if self.greeted != Greeted::Yes => {
                Flow::Break(End::Because(CloseCode::Policy, "the first message must be a hello".to_owned()))
            }
            Ok(Message::Request { id, request }) => {
                self.on_request(id, request, text.len(), turn);
                Flow::Continue(())
            }
        }
    }

    fn check_hello(&mut self, token: Option<String>) {
        let shown = token.map(Credentials::token).or_else(|| self.of_head.clone());
        let peer = Arc::clone(&self.peer);
        self.greeted = Greeted::Asks;
        let checking = async move {
            let checked = peer.doors.caller(shown.as_ref(), &peer.from, UserRole::Read).await;
            Finished::Hello(shown, checked)
        };
        self.running.push(checking.boxed());
    }

    fn on_hello(&mut self, shown: Option<Credentials>, checked: Result<Caller, Problem>) -> Flow {
        let mut json = Json::default();
        match checked {
            Ok(_) => {
                (self.shown, self.greeted) = (shown, Greeted::Yes);
                self.clock.heard();
                self.wire.io().let_in();
                json.raw("{\"type\":\"hello_ok\"}");
                self.wire.send_text(json.into_bytes());
                Flow::Continue(())
            }
            Err(problem) => {
                json.raw("{\"type\":\"hello_error\",\"error\":");
                write_problem(&mut json, &problem);
                json.raw("}");
                self.wire.send_text(json.into_bytes());
                Flow::Break(End::Because(CloseCode::Policy, problem.to_string()))
            }
        }
    }

    fn on_request(&mut self, id: i32, request: Result<Request, Problem>, bytes: usize, turn: Option<Turn>) {
        let placed = request.and_then(|request| self.place(request));
        let (stream_id, job) = match placed {
            Ok(ControlFlow::Continue(placed)) => placed,
            Ok(ControlFlow::Break(kind)) => return self.answer(id, Done::Ok(kind, None)),
            Err(problem) => return self.answer(id, Done::Problem(problem)),
        };
        // The texts may be forgotten while the request waits, but it keeps them.
        let bytes = bytes.saturating_add(self.texts.bytes());
        let asked = Asked { id, job, shown: self.shown.clone(), texts: self.texts.clone(), bytes, turn };
        self.unanswered = self.unanswered.saturating_add(1);
        self.unanswered_bytes = self.unanswered_bytes.saturating_add(bytes);
        self.lanes.entry(stream_id).or_default().push(asked);
        self.go_on(stream_id);
    }

    /// Returns on which stream a request runs, or the name of its response if it is done already.
    fn place(&mut self, request: Request) -> Result<ControlFlow<&'static str, (i32, Job)>, Problem> {
        let (stream_id, job) = match request {
            Request::StoreSql { sql_id, sql } => {
                self.texts.store(sql_id, sql)?;
                return Ok(ControlFlow::Break("store_sql"));
            }
            Request::CloseSql { sql_id } => {
                self.texts.forget(sql_id);
                return Ok(ControlFlow::Break("close_sql"));
            }
            Request::OnStream { stream_id, job } => (stream_id, job),
            Request::OnCursor { cursor_id, job } => match (self.cursors.get(&cursor_id).copied(), &job) {
                (None, Job::CloseCursor { .. }) => return Ok(ControlFlow::Break(job.kind())),
                (None, _) => return Err(Problem::CursorClosed),
                (Some(stream_id), Job::CloseCursor { .. }) => {
                    self.cursors.remove(&cursor_id);
                    (stream_id, job)
                }
                (Some(stream_id), _) => (stream_id, job),
            },
        };
        let is_open = self.lanes.contains_key(&stream_id);
        match &job {
            Job::Open if is_open => return Err(Problem::malformed("a stream with this id is open")),
            Job::Open if self.lanes.len() >= SOCKET_STREAMS_MAX => {
                return Err(Problem::TooManyStreams(SOCKET_STREAMS_MAX));
            }
            Job::Open => {}
            Job::Close if !is_open => return Ok(ControlFlow::Break(job.kind())),
            _ if !is_open => return Err(Problem::StreamClosed),
            Job::Close => self.cursors.retain(|_, stream| *stream != stream_id),
            Job::OpenCursor { cursor_id, .. } => self.add_cursor(*cursor_id, stream_id)?,
            _ => {}
        }
        Ok(ControlFlow::Continue((stream_id, job)))
    }

    fn add_cursor(&mut self, cursor_id: i32, stream_id: i32) -> Result<(), Problem> {
        if self.cursors.contains_key(&cursor_id) {
            return Err(Problem::malformed("a cursor with this id is open"));
        }
        if self.cursors.len() >= SOCKET_STREAMS_MAX {
            return Err(Problem::TooManyCursors(SOCKET_STREAMS_MAX));
        }
        self.cursors.insert(cursor_id, stream_id);
        Ok(())
    }

    /// Begins the next request on a stream, if none is running.
    fn go_on(&mut self, stream_id: i32) {
        let next = self.lanes.get_mut(&stream_id).and_then(Lane::next);
        if let Some((asked, state)) = next {
            let running = lane::run(Arc::clone(&self.peer), stream_id, asked, state);
            self.running.push(running.map(Finished::Request).boxed());
        }
    }

    fn on_answer(&mut self, answered: Answered) -> Flow {
        let Answered { stream_id, id, done, bytes, state } = answered;
        self.forget_request(bytes);
        let must_log_in = matches!(&done, Done::Problem(problem) if problem.status() == StatusCode::UNAUTHORIZED);
        self.answer(id, done);
        match (state, self.lanes.get_mut(&stream_id)) {
            (Some(state), Some(lane)) => lane.give_back(state),
            _ => {
                let late = self.lanes.remove(&stream_id).into_iter().flat_map(Lane::into_waiting);
                for asked in late.collect::<Vec<_>>() {
                    self.forget_request(asked.bytes);
                    self.answer(asked.id, Done::Problem(Problem::StreamClosed));
                }
            }
        }
        if must_log_in {
            // Each further request would count as a login that failed.
            return Flow::Break(End::Because(CloseCode::Policy, "log in again".to_owned()));
        }
        self.go_on(stream_id);
        Flow::Continue(())
    }

    fn forget_request(&mut self, bytes: usize) {
        self.unanswered = self.unanswered.saturating_sub(1);
        self.unanswered_bytes = self.unanswered_bytes.saturating_sub(bytes);
    }

    fn answer(&mut self, id: i32, done: Done) {
        let mut json = Json::default();
        match done {
            Done::Ok(kind, result) => {
                json.raw("{\"type\":\"response_ok\",\"request_id\":").integer(id).raw(",\"response\":");
                write_response(&mut json, kind, result);
            }
            Done::Problem(problem) => {
                json.raw("{\"type\":\"response_error\",\"request_id\":").integer(id).raw(",\"error\":");
                write_problem(&mut json, &problem);
            }
        }
        json.raw("}");
        self.wire.send_text(json.into_bytes());
    }

    fn on_silence(&mut self) -> Flow {
        if self.greeted != Greeted::Yes {
            return Flow::Break(End::Because(CloseCode::Policy, format!("no hello within {HELLO_TIME_MAX:?}")));
        }
        if !self.may_read() {
            // It may have spoken.
            self.clock.heard();
        }
        let now = Instant::now();
        if now < self.clock.heard + SOCKET_SILENCE_MAX {
            self.clock.wake_at(self.clock.heard + SOCKET_SILENCE_MAX);
        } else if self.clock.has_pinged {
            return Flow::Break(End::Broken);
        } else {
            self.clock.has_pinged = true;
            self.wire.send_ping();
            self.clock.wake_at(now + SOCKET_SILENCE_MAX);
        }
        Flow::Continue(())
    }
}

impl SilenceClock {
    fn new() -> Self {
        let now = Instant::now();
        Self { timer: Box::pin(sleep_until(now + HELLO_TIME_MAX)), heard: now, has_pinged: false }
    }

    fn heard(&mut self) {
        (self.heard, self.has_pinged) = (Instant::now(), false);
    }

    fn wake_at(&mut self, at: Instant) {
        self.timer = Box::pin(sleep_until(at));
    }
}

impl End {
    fn of(error: &tungstenite::Error) -> Self {
        use std::io::ErrorKind;
        match error {
            tungstenite::Error::Capacity(_) => {
                Self::Because(CloseCode::Size, format!("a message has at most {BODY_BYTES_MAX} bytes"))
            }
            tungstenite::Error::Utf8(_) => Self::Because(CloseCode::Invalid, "a text is not UTF-8".to_owned()),
            tungstenite::Error::Protocol(error) => Self::Because(CloseCode::Protocol, error.to_string()),
            tungstenite::Error::Io(error) if error.kind() == ErrorKind::FileTooLarge => {
                Self::Because(CloseCode::Size, "the hello is too large".to_owned())
            }
            tungstenite::Error::Io(error) if error.kind() == ErrorKind::TimedOut => {
                Self::Because(CloseCode::Policy, "a large message did not arrive in time".to_owned())
            }
            _ => Self::Broken,
        }
    }
}
