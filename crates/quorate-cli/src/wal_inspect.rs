//! `quorate wal inspect`: shows what is in a node's log, without opening it.
//!
//! Invariant: not a byte of the directory changes, and no lock is taken.

use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use quorate::inspect::{self, Asked, End, InspectedEntry, Inspection, OpenError, SegmentInfo};
use quorate_env::disk::RealDisk;
use quorate_model::{Command, ControlCommand, GroupId, LogId, NodeId, Proposal, SqlCommand};
use quorate_shell::format;
use serde::Serialize;

use crate::error::{Context as _, Error, Result};
use crate::{output, utc};

/// How many characters of a statement are shown.
const STATEMENT_CHARS_SHOWN: usize = 100;

/// How many commands of an entry are shown.
const COMMANDS_SHOWN: usize = 8;

/// How many bytes are on a line of hexadecimal.
const HEX_LINE: usize = 32;

/// Options of `quorate wal`.
#[derive(Args, Debug)]
pub struct WalArgs {
    /// The command to run.
    #[command(subcommand)]
    pub command: WalCommand,
}

/// The commands for logs.
#[derive(Debug, Subcommand)]
pub enum WalCommand {
    /// Show the log of a node, which may be running: segments, votes, ranges, entries
    ///
    /// Nothing is changed and no lock is taken. The log is checked as the node's next start would check it: a torn tail
    /// was never acknowledged and is cut; damage to acknowledged entries makes the node come back as a new member. The
    /// exit code is 1 if the log would be refused.
    #[command(after_help = "\
Examples:
  quorate wal inspect /var/lib/quorate                the data directory of a node, or its log directory
  quorate wal inspect data --entries --from 1000 --to 1010
  quorate wal inspect data --entries --from 1000 --to 1000 --hex
  quorate wal inspect data --json

Segments: the file, its epoch (number and nonce, which tell its frames from those of an earlier use of the file), its
size, the bytes in use, frames, the sequence of the first one, and the first and last entry of each group in it.
Groups: `main` holds everything. Purged entries are in the database. A log id is term.node.index.
Entries: log id, place (segment+offset of the frame), kind, the leader's timestamp, session and sequence, commands.")]
    Inspect(InspectArgs),
}

/// Options of `quorate wal inspect`.
#[derive(Args, Debug)]
pub struct InspectArgs {
    /// The data directory of a node, or the directory of its log
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Show the entries
    #[arg(long)]
    pub entries: bool,
    /// The first index to show
    #[arg(long, value_name = "N", default_value_t = 0, requires = "entries")]
    pub from: u64,
    /// The last index to show
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true, requires = "entries")]
    pub to: u64,
    /// Show the bytes of entries
    #[arg(long, requires = "entries")]
    pub hex: bool,
}

/// Runs the command.
pub fn run(args: &WalArgs) -> Result<()> {
    let WalCommand::Inspect(args) = &args.command;
    let dir = log_dir(&args.dir);
    let inspection = Inspection::read(&RealDisk, &dir).context(|| "the log")?;
    let report = Report::of(&dir, &inspection, holder(&dir));
    if args.json {
        let entries = if args.entries { Some(entries(&inspection, args).collect::<Result<Vec<_>>>()?) } else { None };
        let text = serde_json::to_string_pretty(&WithEntries { report: &report, entries });
        output::print(&(text.map_err(Error::of)? + "\n"))?;
    } else {
        output::print(&report.text())?;
        for entry in entries(&inspection, args).take_while(|_| args.entries) {
            output::print(&entry?.text())?;
        }
    }
    match report.refused {
        Some(_) => Err(Error::new(format!("the log is refused: {}", report.end))),
        None => Ok(()),
    }
}

/// Returns the log of a data directory, or the directory itself.
fn log_dir(dir: &Path) -> PathBuf {
    let log = dir.join("log");
    if log.is_dir() { log } else { dir.to_owned() }
}

/// Returns the process that has the log open, according to the kernel's list of locks. Trying to take the lock would
/// disturb that process.
fn holder(dir: &Path) -> Option<u32> {
    let inode = std::fs::metadata(dir.join("LOCK")).ok()?.ino();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| lock_holder(line, inode))
}

/// Returns the process in a line of `/proc/locks`, if the line is about this inode.
fn lock_holder(line: &str, inode: u64) -> Option<u32> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (kind, pid) = (words.next()?, words.nth(2)?);
    let of = words.next()?.rsplit(':').next()?.parse::<u64>().ok()?;
    (kind == "FLOCK" && of == inode).then(|| pid.parse().ok()).flatten()
}

fn entries<'a>(inspection: &'a Inspection, args: &InspectArgs) -> impl Iterator<Item = Result<Entry>> + use<'a> {
    let (range, hex) = (args.from..args.to.saturating_add(1), args.hex);
    inspection.groups.keys().flat_map(move |group| {
        let entries = inspection.entries(*group, range.clone());
        entries.map(move |entry| Ok(Entry::of(*group, &entry.context(|| "an entry")?, hex)))
    })
}

/// A log, as printed in JSON.
#[derive(Debug, Serialize)]
struct Report {
    dir: PathBuf,
    /// What `state` means for this log.
    end: String,
    /// `empty`, `closed`, `open`, `torn` or `refused`.
    state: &'static str,
    /// Where a torn tail begins.
    torn: Option<Spot>,
    /// Where and why the log is refused.
    refused: Option<Spot>,
    /// The process that has the log open.
    in_use_by: Option<u32>,
    /// Whether the log was written to while it was read.
    moving: bool,
    /// How many frames no later frame declares durable.
    unproven_frames: usize,
    identity: Option<Identity>,
    segments: Vec<Segment>,
    spare_files: usize,
    spare_bytes: u64,
    groups: Vec<Group>,
}

#[derive(Debug, Serialize)]
struct WithEntries<'a> {
    #[serde(flatten)]
    report: &'a Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<Vec<Entry>>,
}

#[derive(Debug, Serialize)]
struct Spot {
    path: PathBuf,
    offset: u64,
    what: String,
}

#[derive(Debug, Serialize)]
struct Identity {
    name: String,
    raft_id: String,
    cluster: String,
    epoch: u64,
    durability: String,
    voter_since: Option<u64>,
    removed: bool,
}

#[derive(Debug, Serialize)]
struct Segment {
    file: String,
    epoch: String,
    bytes: u64,
    used: u64,
    frames: u64,
    first_sequence: u64,
    sealed: bool,
    entries: Vec<Range>,
}

/// The entries of a group in a segment.
#[derive(Debug, Serialize)]
struct Range {
    group: String,
    first: u64,
    last: u64,
}

#[derive(Debug, Serialize)]
struct Group {
    group: String,
    purged: Option<String>,
    first: Option<String>,
    last: Option<String>,
    committed: Option<String>,
    vote: Option<String>,
}

/// One entry.
#[derive(Debug, Serialize)]
struct Entry {
    group: String,
    id: String,
    segment: u32,
    offset: u64,
    bytes: usize,
    kind: &'static str,
    /// When its leader stamped it.
    time: Option<String>,
    session: Option<u64>,
    sequence: Option<u64>,
    what: Vec<String>,
    hex: Option<String>,
}

impl Report {
    fn of(dir: &Path, inspection: &Inspection, in_use_by: Option<u32>) -> Self {
        let identity = inspection.identity.as_ref().and_then(|bytes| inspect::identity(bytes).ok());
        let (state, end, torn, refused) = end(&inspection.end);
        Self {
            dir: dir.to_owned(),
            end,
            state,
            torn,
            refused,
            in_use_by,
            moving: inspection.moved,
            unproven_frames: inspection.unproven_frames,
            identity: identity.map(|identity| Identity {
                name: identity.name,
                raft_id: identity.id.to_string(),
                cluster: identity.cluster.to_string(),
                epoch: identity.epoch.0,
                durability: identity.durability,
                voter_since: identity.voter_since,
                removed: identity.removed,
            }),
            segments: inspection.segments.iter().map(Segment::of).collect(),
            spare_files: inspection.spares.0,
            spare_bytes: inspection.spares.1,
            groups: inspection.groups.iter().map(|(id, group)| Group::of(*id, group)).collect(),
        }
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n", self.dir.display());
        if let Some(identity) = &self.identity {
            let Identity { name, raft_id, cluster, epoch, durability, removed, .. } = identity;
            let removed = if *removed { ", removed from it" } else { "" };
            text += &format!("node {name}, id {raft_id}, of cluster {cluster}, epoch {epoch}{removed}\n");
            text += &format!("durability: {durability}\n");
        }
        if let Some(pid) = self.in_use_by {
            text += &format!("in use by process {pid}\n");
        }
        if self.moving {
            text += "it was written to while it was read: this is its state of a moment ago\n";
        }
        text += &format!("{}\n", self.end);
        if self.unproven_frames > 0 {
            text += &format!("frames that no later frame declares durable: {}\n", self.unproven_frames);
        }
        let header = ["segment", "epoch", "size", "used", "frames", "from frame", "state", "entries"];
        let rows: Vec<Vec<String>> = self.segments.iter().map(Segment::row).collect();
        text += &format!("\n{}", format::aligned(&header, &rows));
        if self.spare_files > 0 {
            text += &format!("spare files: {}, {}\n", self.spare_files, format::size(self.spare_bytes));
        }
        let rows: Vec<Vec<String>> = self.groups.iter().map(Group::row).collect();
        let header = ["group", "purged up to", "first", "last", "committed", "vote"];
        text + &format!("\n{}\n", format::aligned(&header, &rows))
    }
}

/// Returns the state, what it means, and where the log is torn or refused.
fn end(end: &End) -> (&'static str, String, Option<Spot>, Option<Spot>) {
    let spot =
        |path: &Path, offset: u64, what: &str| Some(Spot { path: path.to_owned(), offset, what: what.to_owned() });
    match end {
        End::Empty => ("empty", "there is no log: no segment was ever created".to_owned(), None, None),
        End::Closed => ("closed", "it was closed cleanly".to_owned(), None, None),
        End::Open => {
            ("open", "it is whole but was not closed: the node is running, or was killed".to_owned(), None, None)
        }
        End::Torn { path, offset } => {
            let text = format!(
                "its tail is torn at byte {offset} of {}: nothing after that was ever acknowledged, and the next start \
                 cuts it",
                path.display()
            );
            ("torn", text, spot(path, *offset, "torn tail"), None)
        }
        End::Refused(error) => {
            let spot = match error {
                OpenError::Corrupt { path, offset, what } => spot(path, *offset, what),
                OpenError::Io { path, .. } | OpenError::Version { path, .. } => spot(path, 0, &error.to_string()),
                _ => spot(Path::new(""), 0, &error.to_string()),
            };
            ("refused", error.to_string(), None, spot)
        }
        other => ("unknown", format!("{other:?}"), None, None),
    }
}

impl Segment {
    fn of(info: &SegmentInfo) -> Self {
        let file = info.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let range = |(group, (first, last)): (&GroupId, &(u64, u64))| Range {
            group: group.to_string(),
            first: *first,
            last: *last,
        };
        Self {
            file,
            epoch: format!("{}-{:08x}", info.ordinal, info.nonce),
            bytes: info.len,
            used: info.used,
            frames: info.frames,
            first_sequence: info.first_sequence,
            sealed: info.is_sealed,
            entries: info.entries.iter().map(range).collect(),
        }
    }

    fn row(&self) -> Vec<String> {
        let range = |Range { group, first, last }: &Range| format!("{group} {first} to {last}");
        let entries: Vec<String> = self.entries.iter().map(range).collect();
        vec![
            self.file.clone(),
            self.epoch.clone(),
            format::size(self.bytes),
            format::size(self.used),
            self.frames.to_string(),
            self.first_sequence.to_string(),
            if self.sealed { "sealed" } else { "active" }.to_owned(),
            entries.join(", "),
        ]
    }
}

impl Group {
    fn of(id: GroupId, info: &inspect::GroupInfo) -> Self {
        let text = |id: Option<LogId>| id.map(|id| id.to_string());
        let vote = info.vote.as_ref().map(|bytes| match inspect::vote(bytes) {
            Ok(vote) => {
                let what = if vote.committed { "leader" } else { "candidate" };
                format!("term {} for {}, {what}", vote.term, vote.node)
            }
            Err(error) => error.to_string(),
        });
        Self {
            group: id.to_string(),
            purged: text(info.purged),
            first: text(info.first),
            last: text(info.last),
            committed: text(info.committed),
            vote,
        }
    }

    fn row(&self) -> Vec<String> {
        let Self { group, purged, first, last, committed, vote } = self;
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let texts = [purged, first, last, committed, vote].map(or_none);
        [group.clone()].into_iter().chain(texts).collect()
    }
}

impl Entry {
    fn of(group: GroupId, entry: &InspectedEntry, hex: bool) -> Self {
        let mut shown = Self {
            group: group.to_string(),
            id: entry.id.to_string(),
            segment: entry.ordinal,
            offset: entry.offset,
            bytes: entry.bytes.len(),
            kind: "blank",
            time: None,
            session: None,
            sequence: None,
            what: Vec::new(),
            hex: hex.then(|| to_hex(&entry.bytes)),
        };
        match inspect::entry(entry) {
            Ok(Asked::Blank) => {}
            Ok(Asked::Proposal(stamp, proposal)) => {
                (shown.kind, shown.time) = ("proposal", Some(utc::text(stamp.now)));
                shown.session = proposal.origin.map(|origin| origin.session.0);
                shown.sequence = proposal.origin.map(|origin| origin.sequence);
                shown.what = commands(&proposal);
            }
            Ok(Asked::Reject(index)) => {
                (shown.kind, shown.what) = ("reject", vec![format!("entry {index} is not run")]);
            }
            Ok(Asked::Membership(membership)) => {
                (shown.kind, shown.what) = ("members", members(&membership));
            }
            Err(error) => (shown.kind, shown.what) = ("unreadable", vec![error.to_string()]),
        }
        shown
    }

    fn text(&self) -> String {
        let Self { id, segment, offset, bytes, kind, .. } = self;
        let mut text = format!("{id}  {segment}+{offset}  {bytes} B  {kind}");
        if let Some(time) = &self.time {
            text += &format!("  {time}");
        }
        if let Some((session, sequence)) = self.session.zip(self.sequence) {
            text += &format!("  session {session} #{sequence}");
        }
        text += "\n";
        for what in &self.what {
            text += &format!("    {}\n", format::visible::one_line(what));
        }
        let hex = self.hex.as_deref().unwrap_or_default();
        for (line, digits) in (0..).zip(hex.as_bytes().chunks(HEX_LINE * 2)) {
            text += &format!("    {:08x}  {}\n", line * HEX_LINE, String::from_utf8_lossy(digits));
        }
        text
    }
}

fn commands(proposal: &Proposal) -> Vec<String> {
    let shown = proposal.commands.iter().take(COMMANDS_SHOWN).map(|command| match command {
        Command::Sql(SqlCommand::Statement(statement)) => {
            let mut text: String = statement.sql.chars().take(STATEMENT_CHARS_SHOWN).collect();
            if text.len() < statement.sql.len() {
                text.push('…');
            }
            match statement.params.len() {
                0 => text,
                1 => format!("{text}  [1 parameter]"),
                count => format!("{text}  [{count} parameters]"),
            }
        }
        Command::Control(ControlCommand::OpenSession) => "opens a session".to_owned(),
        other => format!("{other:?}"),
    });
    let mut shown: Vec<String> = shown.collect();
    let left = proposal.commands.len().saturating_sub(COMMANDS_SHOWN);
    if left > 0 {
        shown.push(format!("and {left} more"));
    }
    shown
}

fn members(membership: &inspect::Membership) -> Vec<String> {
    let name = |id: &NodeId| membership.members.get(id).map_or_else(|| id.to_string(), |member| member.name.clone());
    let set = |ids: &Vec<NodeId>| ids.iter().map(name).collect::<Vec<_>>().join(", ");
    let voters: Vec<String> = membership.voters.iter().map(set).collect();
    let mut what = vec![format!("voters {}", voters.join(" and, in a change, "))];
    what.extend(membership.members.iter().map(|(id, member)| format!("{} is {id} at {}", member.name, member.addr)));
    what
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string never fails.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_matched_by_its_inode() {
        let line = "12: FLOCK  ADVISORY  WRITE 4711 fd:01:1835011 0 EOF";
        assert_eq!(lock_holder(line, 1_835_011), Some(4711));
        assert_eq!(lock_holder(line, 1_835_012), None);
        assert_eq!(lock_holder("12: POSIX  ADVISORY  WRITE 4711 fd:01:1835011 0 EOF", 1_835_011), None);
        assert_eq!(lock_holder("", 1), None);
    }
}
