//! Tests retries against a cluster that loses, delays, duplicates and forgets messages: each acknowledged write took
//! effect once, and each write that failed with an error other than "unknown" never did.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests stop at the first surprise")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use quorate_env::{Env, Rng};
use quorate_model::limits::SESSION_WINDOW;
use quorate_model::{ControlReply, Failure, Param, Reply, SqlCommand, Statement, Value};

use super::*;
use crate::snapshot;
use crate::transaction::TransactionHost;

/// A simulated cluster. The only parameter of a statement identifies the write.
struct Cluster {
    rng: Rng,
    /// The share of possible faults that happen, from 0 to 1.
    trouble: f64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    index: u64,
    sessions: BTreeMap<u64, BTreeMap<u64, Outcome>>,
    applied: Vec<i64>,
    /// Copies of proposals that arrive late.
    late: Vec<Bytes>,
}

impl Cluster {
    fn new(seed: u64, trouble: f64) -> Arc<Self> {
        Arc::new(Self { rng: Rng::from_seed(seed), trouble, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn happens(&self, share: f64) -> bool {
        self.rng.chance(self.trouble * share)
    }
}

impl State {
    fn apply(&mut self, bytes: &Bytes) -> (Position, Outcome) {
        self.index += 1;
        let outcome = self.outcome(&codec::decode_proposal(bytes).unwrap());
        (Position { index: self.index, ..Position::default() }, outcome)
    }

    fn outcome(&mut self, proposal: &Proposal) -> Outcome {
        let Some(origin) = proposal.origin else {
            self.sessions.insert(self.index, BTreeMap::new());
            return Ok(Reply::of([CommandResult::Control(ControlReply::Session(SessionId(self.index)))]));
        };
        let expired = || Failure::new(FailureKind::SessionExpired, "no such session");
        let kept = self.sessions.get_mut(&origin.session.0).ok_or_else(expired)?;
        if let Some(outcome) = kept.get(&origin.sequence) {
            return outcome.clone();
        }
        let Command::Sql(SqlCommand::Statement(Statement { params, .. })) = &proposal.commands[0] else {
            panic!("not a statement")
        };
        let Param::Value(Value::Integer(write)) = params[0] else { panic!("not a number") };
        // Every seventh write fails, on every node.
        let outcome = if write % 7 == 0 {
            Err(Failure::new(FailureKind::Constraint, "not this one"))
        } else {
            self.applied.push(write);
            Ok(Reply::of([CommandResult::Control(ControlReply::Done)]))
        };
        kept.insert(origin.sequence, outcome.clone());
        outcome
    }
}

impl Transport for Arc<Cluster> {
    fn check(&self, _: &Command) -> Result<(), Failure> {
        Ok(())
    }

    fn propose(&self, proposal: Bytes, _: Instant) -> BoxFuture<'_, Result<(Position, Outcome), Attempt>> {
        async move {
            sleep(Duration::from_millis(self.rng.below(50))).await;
            if self.happens(0.4) {
                return Err(Attempt::NotDone(NotDone::NoLeader("an election".into())));
            }
            if self.happens(0.1) {
                self.state().late.push(proposal.clone());
                return Err(Attempt::InDoubt("lost on the way, but not for ever".into()));
            }
            let late = if self.happens(0.1) { self.state().late.pop() } else { None };
            if let Some(late) = late {
                drop(self.state().apply(&late));
            }
            if self.happens(0.02) {
                self.state().sessions.clear();
            }
            let applied = self.state().apply(&proposal);
            sleep(Duration::from_millis(self.rng.below(50))).await;
            if self.happens(0.2) { Err(Attempt::InDoubt("the answer was lost".into())) } else { Ok(applied) }
        }
        .boxed()
    }

    fn read(&self, _: &ReadRequest, _: Instant) -> BoxFuture<'_, Result<ReadAnswer, Error>> {
        async { Err(Error::Closed) }.boxed()
    }

    fn snapshot(&self, _: Level, _: Instant) -> BoxFuture<'_, Result<Box<dyn snapshot::State>, Error>> {
        async { Err(Error::Closed) }.boxed()
    }

    fn archived(&self, _: Option<Position>, _: Instant) -> BoxFuture<'_, Result<u64, Error>> {
        async { Err(Error::Closed) }.boxed()
    }

    fn begin(&self, _: Duration, _: Instant) -> BoxFuture<'_, Result<Box<dyn TransactionHost>, Error>> {
        async { Err(Error::Closed) }.boxed()
    }
}

fn insert(write: i64) -> Vec<Command> {
    vec![SqlCommand::Statement(Statement { params: vec![write.into()], ..Statement::default() }).into()]
}

/// Runs a test in virtual time.
fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(test)
}

fn client(cluster: &Arc<Cluster>) -> (Submitter, crate::runtime::RuntimeOwner) {
    let (runtime, owner) = Runtime::here(&Env::real());
    (Submitter::new(runtime, Box::new(Arc::clone(cluster))), owner)
}

#[test]
fn acknowledged_writes_take_effect_exactly_once() {
    for seed in 0..40 {
        let cluster = Cluster::new(seed, 1.0);
        let results = run(async {
            let (client, _owner) = client(&cluster);
            let writes = (1..200).map(|write| client.write(insert(write), Duration::from_secs(20)));
            join_all(writes).await
        });
        let mut state = cluster.state();
        for late in std::mem::take(&mut state.late) {
            drop(state.apply(&late));
        }
        let once: BTreeSet<i64> = state.applied.iter().copied().collect();
        assert_eq!(once.len(), state.applied.len(), "seed {seed}: a write took effect twice");
        for (write, result) in (1..).zip(results) {
            match result {
                Ok(_) => assert!(once.contains(&write), "seed {seed}: write {write} is lost"),
                Err(Error::Unknown(_)) => {}
                Err(error) => assert!(!once.contains(&write), "seed {seed}: write {write} was done, but: {error}"),
            }
        }
    }
}

#[test]
fn without_faults_every_outcome_is_known() {
    let cluster = Cluster::new(1, 0.0);
    let results = run(async {
        let (client, _owner) = client(&cluster);
        join_all((1..100).map(|write| client.write(insert(write), Duration::from_secs(5)))).await
    });
    for (write, result) in (1..).zip(results) {
        assert_eq!(
            result.err().map(|error| error.failure().map(|f| f.kind)),
            (write % 7 == 0).then_some(Some(FailureKind::Constraint))
        );
    }
    assert_eq!(cluster.state().sessions.len(), 1, "all share one session");
}

#[test]
fn more_writes_than_the_window_wait_for_their_turn() {
    let cluster = Cluster::new(1, 0.0);
    let count = i64::try_from(SESSION_WINDOW).unwrap() * 2;
    let results = run(async {
        let (client, _owner) = client(&cluster);
        join_all((1..count).map(|write| client.write(insert(write), Duration::from_secs(5)))).await
    });
    assert!(results.iter().all(|result| !matches!(result, Err(Error::Overloaded(_)))));
    assert_eq!(cluster.state().sessions.len(), 1);
}

/// A cluster that answers every proposal with the same error.
struct Hopeless(Attempt);

impl Transport for Hopeless {
    fn check(&self, _: &Command) -> Result<(), Failure> {
        Ok(())
    }

    fn propose(&self, _: Bytes, _: Instant) -> BoxFuture<'_, Result<(Position, Outcome), Attempt>> {
        async { Err(self.0.clone()) }.boxed()
    }

    fn read(&self, _: &ReadRequest, _: Instant) -> BoxFuture<'_, Result<ReadAnswer, Error>> {
        async { Err(Error::Unavailable("nobody".into())) }.boxed()
    }

    fn snapshot(&self, _: Level, _: Instant) -> BoxFuture<'_, Result<Box<dyn snapshot::State>, Error>> {
        async { Err(Error::Closed) }.boxed()
    }

    fn archived(&self, _: Option<Position>, _: Instant) -> BoxFuture<'_, Result<u64, Error>> {
        async { Err(Error::Closed) }.boxed()
    }

    fn begin(&self, _: Duration, _: Instant) -> BoxFuture<'_, Result<Box<dyn TransactionHost>, Error>> {
        async { Err(Error::Closed) }.boxed()
    }
}

#[test]
fn deadlines_hold_and_say_why() {
    let limit = Duration::from_secs(3);
    let cases = [
        (Attempt::NotDone(NotDone::NoLeader("x".into())), Error::Unavailable("x".into())),
        (Attempt::NotDone(NotDone::Overloaded("x".into())), Error::Overloaded("x".into())),
        (Attempt::Refused(Error::Forbidden("x".into())), Error::Forbidden("x".into())),
    ];
    for (attempt, expected) in cases {
        run(async {
            let (runtime, _owner) = Runtime::here(&Env::real());
            let client = Submitter::new(runtime, Box::new(Hopeless(attempt)));
            let begun = Instant::now();
            let result = client.write(insert(1), limit).await.map(|written| written.position);
            assert_eq!(result, Err(expected));
            assert!(begun.elapsed() <= limit);
        });
    }
}

#[test]
fn a_read_that_waited_its_turn_is_overloaded_not_late() {
    let (overloaded, late) = (Error::Overloaded("x".into()), Error::TimedOut("y".into()));
    let unavailable = Error::Unavailable("z".into());
    let cases = [
        (vec![&overloaded, &unavailable, &late], &overloaded),
        (vec![&unavailable, &late], &late),
        (vec![&late], &late),
    ];
    for (answers, expected) in cases {
        let answers = Mutex::new(answers.into_iter().cloned());
        let result = run(async {
            let (client, _owner) = client(&Cluster::new(1, 0.0));
            let attempt = |_| {
                let answer = answers.lock().unwrap().next();
                std::future::ready(answer.map_or(Ok(()), Err)).boxed()
            };
            client.until_served(Duration::from_secs(3), attempt).await
        });
        assert_eq!(result.as_ref(), Err(expected));
    }
}

/// A cluster that may open sessions, and that answers writes from a script; after the last answer it does not answer.
struct Scripted {
    opens: bool,
    answers: Mutex<std::vec::IntoIter<Result<Outcome, Attempt>>>,
}

impl Scripted {
    fn client(opens: bool, answers: Vec<Result<Outcome, Attempt>>) -> (Submitter, crate::runtime::RuntimeOwner) {
        let (runtime, owner) = Runtime::here(&Env::real());
        let scripted = Self { opens, answers: Mutex::new(answers.into_iter()) };
        (Submitter::new(runtime, Box::new(scripted)), owner)
    }

    fn answer(&self, bytes: &Bytes) -> Option<Result<Outcome, Attempt>> {
        if codec::decode_proposal(bytes).unwrap().origin.is_some() {
            return self.answers.lock().unwrap().next();
        }
        self.opens.then(|| Ok(Ok(Reply::of([CommandResult::Control(ControlReply::Session(SessionId(1)))]))))
    }
}

impl Transport for Scripted {
    fn check(&self, _: &Command) -> Result<(), Failure> {
        Ok(())
    }

    fn propose(&self, bytes: Bytes, _: Instant) -> BoxFuture<'_, Result<(Position, Outcome), Attempt>> {
        match self.answer(&bytes) {
            Some(answer) => std::future::ready(answer.map(|outcome| (Position::default(), outcome))).boxed(),
            None => std::future::pending().boxed(),
        }
    }

    fn read(&self, _: &ReadRequest, _: Instant) -> BoxFuture<'_, Result<ReadAnswer, Error>> {
        async { Err(Error::Closed) }.boxed()
    }

    fn snapshot(&self, _: Level, _: Instant) -> BoxFuture<'_, Result<Box<dyn snapshot::State>, Error>> {
        async { Err(Error::Closed) }.boxed()
    }

    fn archived(&self, _: Option<Position>, _: Instant) -> BoxFuture<'_, Result<u64, Error>> {
        async { Err(Error::Closed) }.boxed()
    }

    fn begin(&self, _: Duration, _: Instant) -> BoxFuture<'_, Result<Box<dyn TransactionHost>, Error>> {
        async { Err(Error::Closed) }.boxed()
    }
}

async fn error_text(client: &Submitter, limit: Duration) -> String {
    client.write(insert(1), limit).await.map(drop).unwrap_err().to_string()
}

#[test]
fn a_possible_effect_is_never_a_failure() {
    let failed = |kind| Ok(Err(Failure::new(kind, "this is why")));
    let lost = || Err(Attempt::InDoubt("the answer was lost".into()));
    let refused = || Err(Attempt::Refused(Error::Forbidden("wrong".into())));
    let unknown =
        |why: &str| format!("the outcome of the write is not known: {why}; check the data before writing it again");
    let cases = [
        (vec![failed(FailureKind::Constraint)], "this is why".to_owned()),
        (vec![lost(), failed(FailureKind::Constraint)], "this is why".to_owned()),
        // The write took effect, but its result is lost.
        (vec![failed(FailureKind::OutcomeTooBig)], unknown("this is why")),
        (vec![lost(), failed(FailureKind::OutcomeTooBig)], unknown("this is why")),
        (vec![failed(FailureKind::OutcomeForgotten)], unknown("this is why")),
        (vec![lost(), failed(FailureKind::OutcomeForgotten)], unknown("the answer was lost")),
        (vec![lost(), failed(FailureKind::SessionExpired)], unknown("the answer was lost")),
        (vec![lost(), failed(FailureKind::WindowExceeded)], unknown("the answer was lost")),
        (vec![lost(), refused()], unknown("the answer was lost")),
        (vec![], unknown("there was no answer in time")),
    ];
    for (answers, expected) in cases {
        run(async {
            let (client, _owner) = Scripted::client(true, answers);
            assert_eq!(error_text(&client, Duration::from_secs(3)).await, expected);
        });
    }
}

#[test]
fn a_write_that_can_not_begin_names_the_cause() {
    let (short, long) = (Duration::from_secs(3), Duration::from_secs(60));
    run(async {
        // The first write opens the session, and the second waits for it.
        let (client, _owner) = Scripted::client(false, Vec::new());
        let (_first, second) = futures_util::join!(client.write(insert(1), long), error_text(&client, short));
        let why =
            "no session could be opened in time; check that a majority of its nodes is up and reachable, and try again";
        assert_eq!(second, format!("the cluster is not available: {why}"));
    });
    run(async {
        let (client, _owner) = Scripted::client(true, Vec::new());
        let all = (0..SESSION_WINDOW).map(|_| client.write(insert(1), long));
        let (_, last) = futures_util::join!(join_all(all), error_text(&client, short));
        let why = format!("{SESSION_WINDOW} writes of this handle are under way");
        assert_eq!(last, format!("overloaded: {why}; send less at a time, or try again later"));
    });
}

#[test]
fn a_stopped_node_leaves_sent_writes_in_doubt() {
    run(async {
        let (client, owner) = Scripted::client(true, Vec::new());
        let mut write = Box::pin(client.write(insert(1), Duration::from_secs(60)));
        assert!((&mut write).now_or_never().is_none());
        owner.close().await;
        let why = "the outcome of the write is not known: the node was stopped; check the data before writing it again";
        assert_eq!(write.await.map(|written| written.position).unwrap_err().to_string(), why);
        let result = client.write(insert(2), Duration::from_secs(60)).await.map(|written| written.position);
        assert_eq!(result, Err(Error::Closed));
    });
}
