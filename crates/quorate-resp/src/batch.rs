//! The requests of a client that arrived together, and what is still to be done for them.
//!
//! # Invariants
//!
//! - What a request reads was written by all requests before it, and by none after it, but for the further pages of a
//!   large hash or set that is read between writes.
//! - There are at most three jobs: what is read before the first write; the writes, with what is read between them; and
//!   what is read after the last write. A request that [continues](Plan::continues), and each further page of one, has
//!   jobs of its own.

use bytes::{Bytes, BytesMut};
use quorate_model::Command;

use crate::door::Done;
use crate::frame::{Frame, Protocol};
use crate::host::Role;
use crate::plan::{Finish, Outcome, Plan, Premise, Results, Wait};

/// What is to be done for a batch.
#[derive(Debug)]
pub enum Job {
    /// The store is asked, by one command after the other, if the premises hold. Nothing of other clients happens
    /// between them.
    Run {
        /// Whether any command may change something; then they are proposed together.
        is_write: bool,
        /// The terms of a transaction.
        terms: Terms,
        /// The commands.
        commands: Vec<Command>,
        /// The level of reads that the client has chosen, as it has named it.
        level: Option<Bytes>,
    },
    /// A user logs in.
    Login {
        /// The name.
        user: Bytes,
        /// The password, or the token.
        password: Bytes,
    },
    /// A client waits until a key changes, which may be at once.
    Wait(Wait),
}

/// What a request asks for beside its commands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Terms {
    /// What has to hold before the first command, for any of them to run.
    pub premises: Vec<Premise>,
    /// Whether all commands take effect, or none; else each succeeds or fails by itself.
    pub is_atomic: bool,
    /// The client's name for the request, by which it is recognised if it is sent again.
    pub key: Option<Bytes>,
}

/// The result of a job.
#[derive(Debug)]
pub enum Answered {
    /// The result of each command.
    Ran(Results),
    /// A premise did not hold, so nothing ran.
    Conflict,
    /// The role of the user, if the password is right.
    Login(Option<Role>),
    /// A key has changed, or may have.
    Woken,
    /// The time to wait has come.
    TimedOut,
    /// The job failed as a whole, with this error, its code in front.
    Failed(String),
}

/// What a request asks for.
#[derive(Debug)]
pub enum Step {
    /// It has its replies: one, but for subscriptions.
    Replies(Vec<Frame>),
    /// The store is asked.
    Plan(Plan),
    /// The store is asked, for a client that has named the request.
    Named(Bytes, Plan),
    /// A transaction.
    Exec(Terms, Vec<Part>),
    /// A user logs in, and perhaps changes the protocol.
    Login {
        /// The name.
        user: Bytes,
        /// The password, or the token.
        password: Bytes,
        /// What HELLO asks for.
        hello: Option<Hello>,
    },
}

/// What HELLO asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The version of the protocol.
    pub protocol: Protocol,
    /// The name of the connection.
    pub name: Option<Bytes>,
}

impl From<Frame> for Step {
    fn from(frame: Frame) -> Self {
        Self::Replies(vec![frame])
    }
}

/// A command of a request: a transaction has several.
pub enum Part {
    /// It has its reply.
    Done(Frame),
    /// The store is to be asked.
    Open(Plan),
    /// The store is being asked.
    Asked(Finish),
    /// The client waits, and the store is asked again then.
    Waiting(Wait, Plan),
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Done(_) => "Done",
            Self::Open(_) => "Open",
            Self::Asked(_) => "Asked",
            Self::Waiting(..) => "Waiting",
        })
    }
}

/// A request.
#[derive(Debug)]
pub(crate) struct Slot {
    /// How its reply is written.
    pub protocol: Protocol,
    /// Whether the client wants no reply.
    pub is_muted: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    Replies(Vec<Frame>),
    Work { is_exec: bool, terms: Terms, parts: Vec<Part> },
    Login { user: Bytes, password: Bytes, hello: Option<Hello> },
    LoggedIn { user: Bytes, role: Option<Role>, hello: Option<Hello> },
}

/// A part of a request, some commands of which a job has.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    slot: usize,
    part: usize,
    commands: usize,
}

/// The requests of a client that arrived together.
#[derive(Debug, Default)]
pub struct Batch {
    slots: Vec<Slot>,
    /// Whose commands the job has that runs.
    asked: Vec<Asked>,
    /// The request whose terms the job has that runs.
    guarded: Option<usize>,
    /// The level of reads that the client has chosen.
    level: Option<Bytes>,
    /// The first request for which the store is asked, and how many there are.
    first: Vec<Bytes>,
    asking: usize,
    /// Whether a transaction has no replies to its commands: it did not run, or may not have.
    pub(crate) exec_failed: bool,
    /// What the next transaction depends on.
    pub(crate) watched: Vec<Premise>,
}

impl Batch {
    /// Returns no requests of a client that has chosen a level of its reads.
    pub(crate) fn at(level: Option<Bytes>) -> Self {
        Self { level, ..Self::default() }
    }

    /// Adds a request that was sent as these words.
    pub(crate) fn push(&mut self, words: Vec<Bytes>, step: Step, protocol: Protocol, is_muted: bool) {
        let state = match step {
            Step::Replies(frames) => State::Replies(frames),
            Step::Plan(plan) => State::one(Terms::default(), plan),
            Step::Named(key, plan) => State::one(Terms { key: Some(key), ..Terms::default() }, plan),
            Step::Exec(terms, parts) => State::Work { is_exec: true, terms, parts },
            Step::Login { user, password, hello } => State::Login { user, password, hello },
        };
        if matches!(state, State::Work { .. }) {
            if self.asking == 0 {
                self.first = words;
            }
            self.asking += 1;
        }
        self.slots.push(Slot { protocol, is_muted, state });
    }

    /// Returns how many requests there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether there are no requests.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns what is to be done next, if anything. Its answer is to be given by [`Batch::answer`].
    pub fn job(&mut self) -> Option<Job> {
        for (place, slot) in self.slots.iter().enumerate() {
            if let State::Login { user, password, .. } = &slot.state {
                self.asked = vec![Asked { slot: place, ..Asked::default() }];
                return Some(Job::Login { user: user.clone(), password: password.clone() });
            }
            if let Some(wait) = slot.wait() {
                self.asked = vec![Asked { slot: place, ..Asked::default() }];
                return Some(Job::Wait(wait.clone()));
            }
        }
        let end = self.end();
        let slots = self.slots.get(..end).unwrap_or_default();
        let writes = |slot: &Slot| slot.open().any(|plan| plan.is_write);
        let first = slots.iter().position(writes);
        let reads_before = slots.iter().take(first.unwrap_or(0)).any(|slot| slot.open().next().is_some());
        let range = match (first, slots.iter().rposition(writes)) {
            (Some(first), _) if reads_before => 0..first,
            (Some(first), Some(last)) => first..last + 1,
            _ => 0..end,
        };
        self.ask(range, first.is_some() && !reads_before)
    }

    /// Returns how many requests the next job may concern: a request that continues is asked alone.
    fn end(&self) -> usize {
        let continues = |slot: &Slot| slot.open().any(|plan| plan.continues);
        let is_open = |slot: &Slot| slot.open().next().is_some();
        match (self.slots.iter().position(is_open), self.slots.iter().position(continues)) {
            (Some(first), Some(place)) if first == place => place + 1,
            (_, Some(place)) => place,
            (_, None) => self.slots.len(),
        }
    }

    fn ask(&mut self, range: std::ops::Range<usize>, is_write: bool) -> Option<Job> {
        let (mut terms, mut commands) = (Terms::default(), Vec::new());
        self.asked.clear();
        for (place, slot) in self.slots.iter_mut().enumerate().skip(range.start).take(range.len()) {
            let State::Work { terms: of_slot, parts, .. } = &mut slot.state else { continue };
            if *of_slot != Terms::default() {
                // A request with terms has come alone.
                terms = std::mem::take(of_slot);
                self.guarded = Some(place);
            }
            for (number, part) in parts.iter_mut().enumerate() {
                match std::mem::replace(part, Part::Done(Frame::Null)) {
                    Part::Open(plan) => {
                        self.asked.push(Asked { slot: place, part: number, commands: plan.commands.len() });
                        commands.extend(plan.commands);
                        *part = Part::Asked(plan.finish);
                    }
                    other => *part = other,
                }
            }
        }
        let is_nothing = commands.is_empty() && terms.premises.is_empty() && self.asked.is_empty();
        let is_write = is_write || !terms.premises.is_empty();
        (!is_nothing).then(|| Job::Run { is_write, terms, commands, level: self.level.clone() })
    }

    /// Takes the result of the last job.
    pub fn answer(&mut self, answered: Answered) {
        let mut asked = std::mem::take(&mut self.asked);
        let guarded = self.guarded.take();
        asked.extend(guarded.map(|slot| Asked { slot, part: usize::MAX, commands: 0 }));
        match answered {
            Answered::Ran(results) => {
                let mut results = results.into_iter();
                for Asked { slot, part, commands } in asked {
                    self.finish_part(slot, part, results.by_ref().take(commands).collect());
                }
            }
            Answered::Conflict => self.fail(&asked, &Frame::NullArray),
            Answered::Failed(text) => self.fail(&asked, &Frame::Error(text)),
            Answered::Woken | Answered::TimedOut => {
                let is_late = matches!(answered, Answered::TimedOut);
                let slot = asked.first().and_then(|asked| self.slots.get_mut(asked.slot));
                slot.into_iter().for_each(|slot| slot.wake(is_late));
            }
            Answered::Login(role) => {
                let Some(slot) = asked.first().and_then(|asked| self.slots.get_mut(asked.slot)) else { return };
                if let State::Login { user, hello, .. } = &mut slot.state {
                    slot.state = State::LoggedIn { user: user.clone(), role, hello: hello.take() };
                }
            }
        }
    }

    /// Gives all requests of a job the same reply.
    fn fail(&mut self, asked: &[Asked], reply: &Frame) {
        for asked in asked {
            if let Some(slot) = self.slots.get_mut(asked.slot) {
                self.exec_failed |= matches!(slot.state, State::Work { is_exec: true, .. });
                slot.state = State::Replies(vec![reply.clone()]);
            }
        }
    }

    fn finish_part(&mut self, place: usize, number: usize, results: Results) {
        let Some(Slot { state: State::Work { parts, is_exec, .. }, .. }) = self.slots.get_mut(place) else { return };
        let Some(part) = parts.get_mut(number) else { return };
        let Part::Asked(finish) = std::mem::replace(part, Part::Done(Frame::Null)) else { return };
        *part = match finish(results) {
            Outcome::Reply(frame) => Part::Done(frame),
            Outcome::More(_) if *is_exec => {
                Part::Done(Frame::error("ERR the reply has several pages, which a transaction can't read"))
            }
            Outcome::More(plan) => Part::Open(plan),
            // A transaction does not wait.
            Outcome::Wait(wait, _) if *is_exec => Part::Done(wait.otherwise),
            Outcome::Wait(wait, plan) => Part::Waiting(wait, plan),
            Outcome::Watched(premises) => {
                self.watched.extend(premises);
                Part::Done(Frame::OK)
            }
        };
    }

    /// Returns the outcome of its requests, for a client with this name.
    pub(crate) fn done(&mut self, name: Bytes) -> Done {
        let failed = self.slots.iter().filter(|slot| slot.has_failed()).count();
        Done { requests: self.slots.len(), failed, first: std::mem::take(&mut self.first), asking: self.asking, name }
    }

    /// Writes all replies. `login` takes a login that is known to be right, or not, and returns its reply.
    pub(crate) fn write(
        self,
        out: &mut BytesMut,
        mut login: impl FnMut(Bytes, Option<Role>, Option<Hello>) -> (Frame, Protocol),
    ) {
        for slot in self.slots {
            let mut protocol = slot.protocol;
            let frames = match slot.state {
                State::Replies(frames) => frames,
                State::Work { is_exec, parts, .. } => {
                    let mut frames = parts.into_iter().map(Part::reply);
                    if is_exec { vec![Frame::Array(frames.collect())] } else { frames.next().into_iter().collect() }
                }
                State::LoggedIn { user, role, hello } => {
                    let (frame, changed) = login(user, role, hello);
                    protocol = changed;
                    vec![frame]
                }
                State::Login { .. } => vec![unanswered()],
            };
            frames.iter().filter(|_| !slot.is_muted).for_each(|frame| frame.write(protocol, out));
        }
    }
}

impl State {
    fn one(terms: Terms, plan: Plan) -> Self {
        Self::Work { is_exec: false, terms, parts: vec![Part::Open(plan)] }
    }
}

impl Slot {
    /// Returns what the client waits for.
    fn wait(&self) -> Option<&Wait> {
        let State::Work { parts, .. } = &self.state else { return None };
        parts.iter().find_map(|part| if let Part::Waiting(wait, _) = part { Some(wait) } else { None })
    }

    /// Ends the waiting: the store is asked again, or it is too late.
    fn wake(&mut self, is_late: bool) {
        let State::Work { parts, .. } = &mut self.state else { return };
        for part in parts {
            *part = match std::mem::replace(part, Part::Done(Frame::Null)) {
                Part::Waiting(..) if is_late => Part::Done(Frame::NullArray),
                Part::Waiting(_, plan) => Part::Open(plan),
                other => other,
            };
        }
    }

    /// Returns whether the reply is an error. The results of a transaction don't count.
    fn has_failed(&self) -> bool {
        match &self.state {
            State::Replies(frames) => matches!(frames.as_slice(), [Frame::Error(_)]),
            State::Work { is_exec, parts, .. } => !is_exec && matches!(parts.as_slice(), [Part::Done(Frame::Error(_))]),
            State::LoggedIn { role, .. } => role.is_none(),
            State::Login { .. } => true,
        }
    }

    fn open(&self) -> impl Iterator<Item = &Plan> {
        let parts = if let State::Work { parts, .. } = &self.state { parts.as_slice() } else { &[] };
        parts.iter().filter_map(|part| if let Part::Open(plan) = part { Some(plan) } else { None })
    }
}

impl Part {
    fn reply(self) -> Frame {
        if let Self::Done(frame) = self { frame } else { unanswered() }
    }
}

fn unanswered() -> Frame {
    Frame::error("ERR the connection ends before the command was answered")
}
