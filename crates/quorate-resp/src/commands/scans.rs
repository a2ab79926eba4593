//! Commands that go through all keys, or all elements: by cursors, or page by page to the end.

use std::sync::Arc;

use bytes::Bytes;
use quorate_keys::{
    Collection, ElementCommand, KeyCommand, KeyEntry, KeysCommand, KeysError, KeysReply, Kind, Order, Page,
    SortedSetCommand, Space, SpaceCommand, Span, limits,
};

use super::keys::name_of;
use crate::args::{Args, Planned};
use crate::cursors::Cursors;
use crate::error::{Refusal, text};
use crate::frame::Frame;
use crate::glob::Glob;
use crate::limits::DATABASES;
use crate::number::double_text;
use crate::plan::{Outcome, Plan, all};
use crate::replies;
use crate::table::{NONE, ONE, Spec, read, write};

/// The rows of commands that go through all there is.
pub const COMMANDS: &[Spec] = &[
    read("scan", -2, NONE, "2.8.0", "Returns keys from a cursor on.", scan),
    read("hscan", -3, ONE, "2.8.0", "Returns fields of a hash from a cursor on.", |args| {
        scan_elements(args, Collection::Hash)
    }),
    read("sscan", -3, ONE, "2.8.0", "Returns members of a set from a cursor on.", |args| {
        scan_elements(args, Collection::Set)
    }),
    read("zscan", -3, ONE, "2.8.0", "Returns members of a sorted set from a cursor on.", scan_members),
    write("flushdb", -1, NONE, "1.0.0", "Removes all keys of the database.", |args| {
        let space = args.moment.space;
        flush(args, space..space + 1)
    }),
    write("flushall", -1, NONE, "1.0.0", "Removes all keys of all databases.", |args| flush(args, 0..DATABASES)),
    read("keys", 2, NONE, "1.0.0", "Returns all keys that match a pattern.", keys),
    read("dbsize", 1, NONE, "1.0.0", "Returns how many keys there are.", size),
    read("randomkey", 1, NONE, "1.0.0", "Returns a key at random; some are more likely than others.", random),
];

/// The elements of a page if the client asks for fewer: as in Redis, a scan of a small collection is one page.
const ELEMENTS_PER_PAGE_MIN: u64 = 128;

/// The elements of a page if the client does not say it.
const COUNT: u64 = 10;

/// Returns all elements of a collection.
pub fn whole(args: &mut Args, of: Collection, finish: fn(Vec<(Bytes, Bytes)>) -> Frame) -> Planned {
    let (key, space) = (args.next()?, args.moment.space);
    args.end()?;
    Ok(elements(space, of, key, Bytes::new(), Vec::new(), finish))
}

fn elements(
    space: Space,
    of: Collection,
    key: Bytes,
    from: Bytes,
    mut rows: Vec<(Bytes, Bytes)>,
    finish: fn(Vec<(Bytes, Bytes)>) -> Frame,
) -> Plan {
    let scan = ElementCommand::Scan { of, key: key.clone(), from, limit: u64::MAX };
    Plan::one(space, KeysCommand::Element(scan), move |reply| {
        let KeysReply::Elements(page) = reply else { return Outcome::from(replies::unexpected(&reply)) };
        rows.extend(page.rows);
        match page.next {
            None => finish(rows).into(),
            Some(_) if is_too_long(rows.iter().map(|(field, value)| field.len() + value.len())) => too_long(),
            Some(next) => Outcome::More(elements(space, of, key, next, rows, finish)),
        }
    })
}

fn is_too_long(bytes: impl Iterator<Item = usize>) -> bool {
    bytes.sum::<usize>() >= limits::REPLY_BYTES_MAX
}

fn too_long() -> Outcome {
    Frame::error(KeysError::ReplyTooLong { max: limits::REPLY_BYTES_MAX }).into()
}

/// The options of a scan.
#[derive(Debug)]
struct Options {
    glob: Option<Glob>,
    count: u64,
    kind: Option<Kind>,
    without_values: bool,
}

impl Options {
    fn read(args: &mut Args, of_keys: bool) -> Result<Self, Refusal> {
        let mut options = Self { glob: None, count: COUNT, kind: None, without_values: false };
        while !args.is_empty() {
            if args.left() > 1 && args.option("COUNT") {
                let count = args.integer()?;
                options.count = u64::try_from(count).ok().filter(|count| *count > 0).ok_or(Refusal::Syntax)?;
            } else if args.left() > 1 && args.option("MATCH") {
                options.glob = Some(Glob::new(args.next()?)?);
            } else if of_keys && args.left() > 1 && args.option("TYPE") {
                let kinds = [Kind::String, Kind::Hash, Kind::Set, Kind::SortedSet, Kind::List];
                let kind = kinds.into_iter().find(|kind| args.option(name_of(*kind)));
                let Some(kind) = kind else { return Err(Refusal::TypeName(text(&args.next()?))) };
                options.kind = Some(kind);
            } else if !of_keys && args.option("NOVALUES") {
                options.without_values = true;
            } else {
                return Err(Refusal::Syntax);
            }
        }
        Ok(options)
    }

    fn wants(&self, name: &[u8]) -> bool {
        self.glob.as_ref().is_none_or(|glob| glob.matches(name))
    }
}

fn cursor(word: &Bytes) -> Result<u64, Refusal> {
    std::str::from_utf8(word).ok().and_then(|text| text.parse().ok()).ok_or(Refusal::Cursor)
}

/// Returns where a cursor stands; at the beginning, if it is 0.
fn position(args: &Args, cursor: u64) -> Result<Bytes, Refusal> {
    if cursor == 0 {
        return Ok(Bytes::new());
    }
    args.moment.cursors.find(cursor).ok_or(Refusal::Text("ERR unknown cursor; begin again with 0"))
}

/// Returns the reply of a scan: the cursor of the next page, and what is on this one.
fn page_of(cursor: u64, rows: Vec<Frame>) -> Frame {
    Frame::Array(vec![Frame::bulk(cursor.to_string()), Frame::Array(rows)])
}

fn next_cursor(cursors: &Arc<Cursors>, next: Option<Bytes>) -> u64 {
    next.map_or(0, |next| cursors.add(&next))
}

fn scan_keys(span: Span, limit: u64, kind: Option<Kind>) -> KeysCommand {
    KeysCommand::Key(KeyCommand::Scan { span, order: Order::Up, limit, kind, values: false })
}

fn scan(args: &mut Args) -> Planned {
    let from = cursor(&args.next()?)?;
    let options = Options::read(args, true)?;
    let from = position(args, from)?;
    let mut span = options.glob.as_ref().map_or(Span::ALL, |glob| Span::prefix(&glob.prefix()));
    span.from = span.from.max(from);
    let cursors = Arc::clone(&args.moment.cursors);
    args.plan(scan_keys(span, options.count, options.kind), move |reply| {
        let KeysReply::Keys(page) = reply else { return replies::unexpected(&reply) };
        let keys = page.rows.into_iter().map(|entry| entry.key).filter(|key| options.wants(key));
        let keys = keys.map(Frame::Bulk).collect();
        page_of(next_cursor(&cursors, page.next), keys)
    })
}

fn scan_elements(args: &mut Args, of: Collection) -> Planned {
    let (key, from) = (args.next()?, cursor(&args.next()?)?);
    let options = match Options::read(args, false) {
        Ok(options) => options,
        Err(refusal) => return args.refuse_after(key, of.into(), page_of(0, Vec::new()), refusal),
    };
    let with_values = of == Collection::Hash && !options.without_values;
    let (from, limit) = (position(args, from)?, options.count.max(ELEMENTS_PER_PAGE_MIN));
    let cursors = Arc::clone(&args.moment.cursors);
    args.plan(KeysCommand::Element(ElementCommand::Scan { of, key, from, limit }), move |reply| {
        let KeysReply::Elements(page) = reply else { return replies::unexpected(&reply) };
        let wanted = page.rows.into_iter().filter(|(field, _)| options.wants(field));
        let rows = wanted.flat_map(|(field, value)| [Some(field), with_values.then_some(value)]).flatten();
        let rows = rows.map(Frame::Bulk).collect();
        page_of(next_cursor(&cursors, page.next), rows)
    })
}

fn scan_members(args: &mut Args) -> Planned {
    let (key, from) = (args.next()?, cursor(&args.next()?)?);
    let options = match Options::read(args, false) {
        Ok(options) => options,
        Err(refusal) => return args.refuse_after(key, Kind::SortedSet, page_of(0, Vec::new()), refusal),
    };
    let (from, limit) = (position(args, from)?, options.count.max(ELEMENTS_PER_PAGE_MIN));
    let cursors = Arc::clone(&args.moment.cursors);
    args.plan(KeysCommand::SortedSet(SortedSetCommand::Scan { key, from, limit }), move |reply| {
        let KeysReply::ScoredPage(page) = reply else { return replies::unexpected(&reply) };
        let wanted = page.rows.into_iter().filter(|(member, _)| options.wants(member));
        let without_values = options.without_values;
        let rows = wanted.flat_map(|(member, score)| {
            [Some(Frame::Bulk(member)), (!without_values).then(|| Frame::bulk(double_text(score)))]
        });
        page_of(next_cursor(&cursors, page.next), rows.flatten().collect())
    })
}

/// Goes through all keys of a span, page by page. `add` takes a page, and returns the reply if it is early.
fn all_keys<S: Send + 'static>(
    space: Space,
    span: Span,
    mut state: S,
    add: fn(&mut S, Vec<KeyEntry>) -> Option<Outcome>,
    finish: fn(S) -> Frame,
) -> Plan {
    Plan::one(space, scan_keys(span.clone(), limits::READ_ROWS_MAX, None), move |reply| {
        let KeysReply::Keys(Page { rows, next }) = reply else { return Outcome::from(replies::unexpected(&reply)) };
        match (add(&mut state, rows), next) {
            (Some(early), _) => early,
            (None, None) => finish(state).into(),
            (None, Some(from)) => Outcome::More(all_keys(space, Span { from, ..span }, state, add, finish)),
        }
    })
    .continues()
}

fn keys(args: &mut Args) -> Planned {
    let glob = Glob::new(args.next()?)?;
    let span = Span::prefix(&glob.prefix());
    let add = |(glob, found): &mut (Glob, Vec<Bytes>), rows: Vec<KeyEntry>| {
        found.extend(rows.into_iter().map(|entry| entry.key).filter(|key| glob.matches(key)));
        is_too_long(found.iter().map(Bytes::len)).then(too_long)
    };
    Ok(all_keys(args.moment.space, span, (glob, Vec::new()), add, |(_, found)| Frame::bulks(found)))
}

fn size(args: &mut Args) -> Planned {
    args.plan(KeysCommand::Key(KeyCommand::CountAll), replies::count)
}

fn random(args: &mut Args) -> Planned {
    args.plan(KeysCommand::Key(KeyCommand::Draw { seed: args.moment.seed }), replies::value)
}

/// Removes all keys of these spaces. ASYNC and SYNC are the same: the rows are left to the sweep.
fn flush(args: &mut Args, spaces: std::ops::Range<Space>) -> Planned {
    if !args.is_empty() {
        args.choice(&[("ASYNC", ()), ("SYNC", ())]).ok_or(Refusal::Syntax)?;
    }
    args.end()?;
    let flush = |space| SpaceCommand { space, command: KeysCommand::Key(KeyCommand::Flush) };
    Ok(Plan::new(spaces.map(flush).collect(), |answers| all(answers).map_or_else(Frame::from, |_| Frame::OK)))
}
