//! `COMMAND`: what the table says of commands.

use bytes::Bytes;

use super::Call;
use crate::batch::Step;
use crate::error::Refusal;
use crate::frame::Frame;
use crate::glob::Glob;
use crate::table::{self, Access, Places, Run, Spec, local};

type Ran = Result<Step, Refusal>;

/// The row of the HELP that is below a command.
pub const HELP: Spec = local("help", 2, "5.0.0", "Prints this help.", help);

/// The rows of what there is to know of commands.
pub const COMMAND: &[Spec] = &[
    local("count", 2, "2.8.13", "Returns how many commands there are.", count),
    local("info", -2, "2.8.13", "Describes commands.", info),
    local("docs", -2, "7.0.0", "Says what commands do.", docs),
    local("list", -2, "7.0.0", "Returns the names of commands.", list),
    local("getkeys", -3, "2.8.13", "Returns the keys of a call.", keys),
    HELP,
];

/// Returns what there is below a command, of which the table knows.
fn help(call: &mut Call) -> Ran {
    let of = call.of.unwrap_or_default();
    let Some(Spec { run: Run::Sub(below, _), .. }) = table::find(of.as_bytes()) else { return Err(Refusal::Syntax) };
    let first = format!("{} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:", of.to_uppercase());
    let below = below.iter().flat_map(|spec| [spec.name.to_uppercase(), format!("    {}", spec.summary)]);
    Ok(Frame::Array(std::iter::once(first).chain(below).map(Frame::Line).collect()).into())
}

/// Describes all commands.
pub fn every(_: &mut Call) -> Ran {
    Ok(Frame::Array(table::all().map(|(_, spec)| row(spec)).collect()).into())
}

fn count(_: &mut Call) -> Ran {
    Ok(Frame::count(table::all().count() as u64).into())
}

fn info(call: &mut Call) -> Ran {
    let names = call.args.rest();
    if names.is_empty() {
        return every(call);
    }
    let rows = names.iter().map(|name| table::find(name).map_or(Frame::Null, row));
    Ok(Frame::Array(rows.collect()).into())
}

fn docs(call: &mut Call) -> Ran {
    let names = call.args.rest();
    let is_wanted = |spec: &Spec| names.is_empty() || names.iter().any(|name| is(name, spec.name));
    let wanted = table::all().filter(|(_, spec)| is_wanted(spec));
    Ok(Frame::Map(wanted.map(|(group, spec)| (Frame::bulk(spec.name), described(group, spec))).collect()).into())
}

fn is(word: &Bytes, name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

fn list(call: &mut Call) -> Ran {
    let glob = match call.args.option("FILTERBY") {
        true if call.args.option("PATTERN") => Some(Glob::new(call.args.next()?.to_ascii_lowercase().into())?),
        true => return Err(Refusal::Syntax),
        false => None,
    };
    call.args.end()?;
    let names = table::all().flat_map(|(_, spec)| names(spec));
    let names = names.filter(|name| glob.as_ref().is_none_or(|glob| glob.matches(name.as_bytes())));
    Ok(Frame::Array(names.map(Frame::bulk).collect()).into())
}

/// Returns the name of a command, and of those below it.
fn names(spec: &Spec) -> Vec<String> {
    let below = if let Run::Sub(below, _) = spec.run { below } else { &[] };
    let below = below.iter().map(|sub| format!("{}|{}", spec.name, sub.name));
    std::iter::once(spec.name.to_owned()).chain(below).collect()
}

fn keys(call: &mut Call) -> Ran {
    let words = call.args.rest();
    let spec = table::named(&words).map_err(|_| Refusal::Text("ERR Invalid command specified"))?.spec;
    if spec.keys == table::NONE {
        return Err(Refusal::Text("ERR The command has no key arguments"));
    }
    if !spec.allows(words.len()) {
        return Err(Refusal::Text("ERR Invalid number of arguments specified for command"));
    }
    let keys = spec.keys_of(&words).ok_or(Refusal::Text("ERR Invalid arguments specified for command"))?;
    Ok(Frame::bulks(keys.into_iter().cloned()).into())
}

/// Returns a row as `COMMAND INFO` shows it.
fn row(spec: &Spec) -> Frame {
    let (flag, category) = match spec.access {
        Access::None => (None, "@connection"),
        Access::Read => (Some("readonly"), "@read"),
        Access::Write => (Some("write"), "@write"),
    };
    let (first, last, step) = match spec.keys {
        Places::Words(first, last, step) => (first, last, step),
        Places::Counted(_) | Places::CountedPairs => (0, 0, 0),
        Places::Stored => (1, 1, 1),
    };
    let movable = (!matches!(spec.keys, Places::Words(..))).then_some("movablekeys");
    let flags = flag.into_iter().chain(movable).chain(spec.before_login.then_some("no_auth"));
    let subs = if let Run::Sub(subs, _) = spec.run { subs } else { &[] };
    Frame::Array(vec![
        Frame::bulk(spec.name),
        Frame::Integer(spec.arity.into()),
        Frame::Set(flags.map(Frame::Simple).collect()),
        Frame::Integer(first.into()),
        Frame::Integer(last.into()),
        Frame::Integer(step.into()),
        Frame::Set(vec![Frame::Simple(category)]),
        Frame::Array(Vec::new()),
        Frame::Array(Vec::new()),
        Frame::Array(subs.iter().map(row).collect()),
    ])
}

/// Returns a row as `COMMAND DOCS` shows it.
fn described(group: &'static str, spec: &Spec) -> Frame {
    let mut facts = vec![
        (Frame::bulk("summary"), Frame::bulk(spec.summary)),
        (Frame::bulk("since"), Frame::bulk(spec.since)),
        (Frame::bulk("group"), Frame::bulk(group)),
    ];
    if let Run::Sub(subs, _) = spec.run {
        let name = |sub: &Spec| Frame::bulk(format!("{}|{}", spec.name, sub.name));
        let subs = subs.iter().map(|sub| (name(sub), described(group, sub)));
        facts.push((Frame::bulk("subcommands"), Frame::Map(subs.collect())));
    }
    Frame::Map(facts)
}
