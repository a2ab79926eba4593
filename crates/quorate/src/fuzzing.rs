//! Entry points for fuzzing. They decode and re-encode the messages of clients and nodes.
//!
//! Invariant: this module contains no logic of its own; it calls the functions that nodes and clients call.

use bytes::Bytes;
use prost::Message;
use quorate_consensus::Admission;
use quorate_model::{GroupId, Topic};
use quorate_sql::query::Rows;

use crate::protocol::admin::{Admit, Changed, Probe, Remove, Transfer};
use crate::protocol::transaction::{Ask, AskKind, Told};
use crate::protocol::users::UserList;
use crate::protocol::waits::{WaitAsk, WaitAskKind, WaitTold};
use crate::protocol::{
    Announced, Answer, Backup, Execute, Executed, OpenSnapshot, Outcomes, OutcomesTold, Query, SnapshotItem,
    StatusReply, Verified, VerifiedKind, Verify, decode, encode,
};
use crate::status::Status;
use crate::submitter::ReadAnswer;

/// Decodes bytes and encodes the result again; returns `None` if the decoder refuses the bytes.
pub type Reencode = fn(Bytes) -> Option<Bytes>;

/// The messages, by name. Their order must not change, because fuzzing corpora refer to it.
pub const ALL: &[(&str, Reencode)] = &[
    ("execute", again::<Execute>),
    ("executed", |bytes| {
        let executed: Executed = read(bytes)?;
        let leader = Some(executed.leader.clone());
        Some(encode(&Executed::new(executed.result(), leader)))
    }),
    ("query", |bytes| {
        let query: Query = read(bytes)?;
        let millis = query.millis;
        Some(encode(&Query::new(query.read().ok()?, millis)))
    }),
    ("answer", |bytes| {
        let answer = read::<Answer>(bytes)?.into();
        if let Ok(ReadAnswer::Sql(rows)) = &answer {
            walk(rows);
        }
        Some(encode(&Answer::from(answer)))
    }),
    ("open snapshot", |bytes| {
        let open: OpenSnapshot = read(bytes)?;
        Some(encode(&OpenSnapshot::new(open.level().ok()?, open.millis)))
    }),
    ("snapshot opened", |bytes| Some(encode(&SnapshotItem::from(read::<SnapshotItem>(bytes)?.opened())))),
    ("snapshot piece", |bytes| {
        let piece = read::<SnapshotItem>(bytes)?.piece();
        piece.iter().flatten().for_each(walk);
        Some(encode(&SnapshotItem::from(piece)))
    }),
    ("backup", |bytes| {
        let backup: Backup = read(bytes)?;
        Some(encode(&Backup::new(backup.level().ok()?, backup.millis)))
    }),
    ("verify", again::<Verify>),
    ("verified", |bytes| {
        let verified: Verified = read(bytes)?;
        if let Some(VerifiedKind::Hashes(hashes)) = verified.kind.clone() {
            hashes.by_table()?;
        }
        Some(encode(&verified))
    }),
    ("status", |bytes| Some(encode(&StatusReply::from(Status::from(read::<StatusReply>(bytes)?))))),
    ("admit", |bytes| Some(encode(&Admit::from(Admission::from(read::<Admit>(bytes)?))))),
    ("remove", again::<Remove>),
    ("transfer", again::<Transfer>),
    ("changed", |bytes| {
        let changed: Changed = read(bytes)?;
        let leader = Some(changed.leader.clone());
        Some(encode(&Changed::new(changed.result(), leader)))
    }),
    ("probe", again::<Probe>),
    ("query of a snapshot", |bytes| {
        let query: Query = read(bytes)?;
        let millis = query.millis;
        Some(encode(&Query::of_state(query.state_query().ok()?, millis)))
    }),
    ("ask of a transaction", |bytes| match read::<Ask>(bytes)?.request().ok()? {
        AskKind::Begin(begin) => Some(encode(&Ask::begin(begin.wait_millis, begin.last_millis))),
        AskKind::Run(query) => Some(encode(&Ask::run(query.state_query().ok()?.statement))),
        AskKind::Commit(proposal) => Some(encode(&Ask::commit(proposal))),
        AskKind::Rewind(count) => Some(encode(&Ask::rewind(usize::try_from(count).ok()?))),
    }),
    ("transaction begun", |bytes| Some(encode(&Told::from(read::<Told>(bytes)?.begun())))),
    ("transaction ran", |bytes| Some(encode(&Told::from(read::<Told>(bytes)?.ran())))),
    ("transaction committed", |bytes| {
        Some(encode(&Told::committed(Executed::new(read::<Told>(bytes)?.result(), None))))
    }),
    ("outcomes", again::<Outcomes>),
    ("outcomes told", again::<OutcomesTold>),
    ("announced", again::<Announced>),
    ("wait ask", |bytes| {
        let ask: WaitAsk = read(bytes)?;
        Some(encode(&match ask.request().ok()? {
            WaitAskKind::Register(topic) => WaitAsk::register(ask.number, GroupId(topic.group), Topic(topic.topic)),
            WaitAskKind::Leave(leave) => WaitAsk::leave(ask.number, leave.used),
        }))
    }),
    ("wait told", |bytes| {
        let told: WaitTold = read(bytes)?;
        Some(encode(&WaitTold::new(told.number, told.news())))
    }),
    ("users", |bytes| Some(encode(&read::<UserList>(bytes)?.read()?.into_iter().collect::<UserList>()))),
];

fn read<M: Message + Default>(bytes: Bytes) -> Option<M> {
    decode(bytes).ok()
}

fn again<M: Message + Default>(bytes: Bytes) -> Option<Bytes> {
    read::<M>(bytes).map(|message| encode(&message))
}

/// Reads every value, as an application does.
fn walk(rows: &Rows) {
    let _ = rows.iter().map(|row| row.values().len()).max();
}
