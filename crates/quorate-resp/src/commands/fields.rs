//! Commands on the expiry of fields of hashes, and of members of sets and sorted sets.

use bytes::Bytes;
use quorate_keys::{
    Collection, Condition, ElementCommand, Expiry, ExpiryCondition, HashCommand, KeysCommand, KeysReply, Kind,
    SortedSetCommand,
};

use super::times::{self, Clock, MILLISECONDS, MILLISECONDS_AT, SECONDS, SECONDS_AT, When, time_of};
use crate::args::{Args, Planned};
use crate::error::Refusal;
use crate::frame::Frame;
use crate::replies;
use crate::table::{ONE, Spec, read, write};

/// The rows of commands on the expiry of fields.
pub const COMMANDS: &[Spec] = &[
    read("httl", -5, ONE, "7.4.0", "Returns in how many seconds fields expire.", |args| {
        expires(args, Of::Hash, SECONDS)
    }),
    read("hpttl", -5, ONE, "7.4.0", "Returns in how many milliseconds fields expire.", |args| {
        expires(args, Of::Hash, MILLISECONDS)
    }),
    read("hexpiretime", -5, ONE, "7.4.0", "Returns when fields expire, in seconds since 1970.", |args| {
        expires(args, Of::Hash, SECONDS_AT)
    }),
    read("hpexpiretime", -5, ONE, "7.4.0", "Returns when fields expire, in milliseconds since 1970.", |args| {
        expires(args, Of::Hash, MILLISECONDS_AT)
    }),
    write("hexpire", -6, ONE, "7.4.0", "Has fields expire in seconds.", |args| expire(args, Of::Hash, SECONDS)),
    write("hpexpire", -6, ONE, "7.4.0", "Has fields expire in milliseconds.", |args| {
        expire(args, Of::Hash, MILLISECONDS)
    }),
    write("hexpireat", -6, ONE, "7.4.0", "Has fields expire at a second.", |args| expire(args, Of::Hash, SECONDS_AT)),
    write("hpexpireat", -6, ONE, "7.4.0", "Has fields expire at a millisecond.", |args| {
        expire(args, Of::Hash, MILLISECONDS_AT)
    }),
    write("hpersist", -5, ONE, "7.4.0", "Has fields never expire.", |args| persist(args, Of::Hash)),
    write("hgetdel", -5, ONE, "8.0.0", "Returns the values of fields, and removes them.", get_delete),
    write("hgetex", -5, ONE, "8.0.0", "Returns the values of fields, and sets their expiry.", get_expire),
    write("hsetex", -6, ONE, "8.0.0", "Sets fields that expire.", set_expire),
];

/// What holds the elements that a command names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Fields of a hash.
    Hash,
    /// Members of a set.
    Set,
    /// Members of a sorted set.
    SortedSet,
}

impl Of {
    /// Returns the word in front of the elements.
    fn word(self) -> &'static str {
        match self {
            Self::Hash => "FIELDS",
            Self::Set | Self::SortedSet => "MEMBERS",
        }
    }

    /// Returns the error that the number of elements is wrong.
    fn mismatch(self) -> Refusal {
        match self {
            Self::Hash => Refusal::FieldCount,
            Self::Set | Self::SortedSet => Refusal::Text("ERR the number after MEMBERS must be that of the members"),
        }
    }

    /// Returns the command that tells when elements expire.
    fn describe(self, key: Bytes, fields: Vec<Bytes>) -> KeysCommand {
        let of = match self {
            Self::Hash => Collection::Hash,
            Self::Set => Collection::Set,
            Self::SortedSet => return SortedSetCommand::Describe { key, members: fields }.into(),
        };
        ElementCommand::Describe { of, key, fields }.into()
    }

    /// Returns the command that sets the expiry of elements.
    fn expire(self, key: Bytes, fields: Vec<Bytes>, expiry: Expiry, condition: ExpiryCondition) -> KeysCommand {
        let (at, relative) = time_of(expiry);
        let of = match self {
            Self::Hash => Collection::Hash,
            Self::Set => Collection::Set,
            Self::SortedSet => {
                return SortedSetCommand::Expire { key, members: fields, at, condition, relative }.into();
            }
        };
        ElementCommand::Expire { of, key, fields, at, condition, relative }.into()
    }
}

/// Reads the number of elements after the word for them, where each takes so many arguments, and checks it.
fn count(args: &mut Args, each: usize, mismatch: Refusal) -> Result<(), Refusal> {
    let count = usize::try_from(args.integer()?).unwrap_or(0);
    let is_right = count > 0 && count.checked_mul(each) == Some(args.left());
    if is_right { Ok(()) } else { Err(mismatch) }
}

/// Reads elements, in front of which their number is.
pub fn elements(args: &mut Args, of: Of) -> Result<Vec<Bytes>, Refusal> {
    elements_or(args, of, of.mismatch())
}

fn elements_or(args: &mut Args, of: Of, mismatch: Refusal) -> Result<Vec<Bytes>, Refusal> {
    let word = of.word();
    if !args.option(word) {
        return Err(if args.has(word) { Refusal::Syntax } else { mismatch });
    }
    count(args, 1, mismatch)?;
    Ok(args.rest())
}

/// Returns when elements expire.
pub fn expires(args: &mut Args, of: Of, clock: Clock) -> Planned {
    let (key, fields, now) = (args.next()?, elements_or(args, of, Refusal::Syntax)?, args.moment.now);
    args.plan(of.describe(key, fields), move |reply| {
        let KeysReply::Described(elements) = reply else { return replies::unexpected(&reply) };
        let number = |element: Option<(_, Option<u64>)>| match element {
            None => -2,
            Some((_, None)) => -1,
            Some((_, Some(at))) => clock.to_reach(at, now),
        };
        Frame::Array(elements.into_iter().map(|element| Frame::Integer(number(element))).collect())
    })
}

/// Has elements expire.
pub fn expire(args: &mut Args, of: Of, clock: Clock) -> Planned {
    let (key, word) = (args.next()?, args.next()?);
    let condition = times::condition_before(args, of.word(), of.mismatch())?;
    let fields = elements(args, of)?;
    let expiry = clock.not_before(&word, args)?;
    args.plan(of.expire(key, fields, expiry, condition), replies::changes(0))
}

/// Has elements never expire.
pub fn persist(args: &mut Args, of: Of) -> Planned {
    let key = args.next()?;
    let mismatch = if args.has(of.word()) { of.mismatch() } else { Refusal::Syntax };
    let fields = elements_or(args, of, mismatch)?;
    args.plan(of.expire(key, fields, Expiry::Never, ExpiryCondition::Always), replies::changes(-1))
}

fn get_delete(args: &mut Args) -> Planned {
    let key = args.next()?;
    if !args.option("FIELDS") {
        return Err(Refusal::Syntax);
    }
    count(args, 1, Refusal::FieldCount)?;
    let fields = args.rest();
    args.plan(KeysCommand::Hash(HashCommand::Take { key, fields }), replies::values)
}

fn get_expire(args: &mut Args) -> Planned {
    let key = args.next()?;
    let when = if args.option("PERSIST") { Some(When::Never) } else { When::read(args)? };
    let fields = elements(args, Of::Hash)?;
    let expiry = match when.map(|when| when.expiry(args, Clock::not_before)).transpose() {
        Ok(expiry) => expiry,
        Err(refusal) => return args.refuse_after(key, Kind::Hash, Frame::error(&refusal), refusal),
    };
    let command = match expiry {
        Some(expiry) => {
            let (at, relative) = time_of(expiry);
            HashCommand::GetExpire { key, fields, at, relative }
        }
        None => HashCommand::Get { key, fields },
    };
    args.plan(KeysCommand::Hash(command), replies::values)
}

fn set_expire(args: &mut Args) -> Planned {
    let key = args.next()?;
    let (mut condition, mut when) = (None, None);
    while !args.option("FIELDS") {
        if let Some(exists) = args.choice(&[("FNX", false), ("FXX", true)]).filter(|_| condition.is_none()) {
            condition = Some(if exists { Condition::Exists } else { Condition::Missing });
        } else if when.is_none() && args.option("KEEPTTL") {
            when = Some(When::Keep);
        } else if !args.has("FIELDS") {
            return Err(Refusal::FieldCount);
        } else {
            when = Some(When::read(args)?.filter(|_| when.is_none()).ok_or(Refusal::Syntax)?);
        }
    }
    count(args, 2, Refusal::FieldCount)?;
    let fields = args.pairs()?;
    let expiry = match when.map(|when| when.expiry(args, Clock::not_before)).transpose() {
        Ok(expiry) => expiry.unwrap_or_default(),
        Err(refusal) => return args.refuse_after(key, Kind::Hash, Frame::error(&refusal), refusal),
    };
    let command = HashCommand::Set { key, fields, condition: condition.unwrap_or_default(), expiry };
    args.plan(KeysCommand::Hash(command), |reply| match reply {
        KeysReply::Count(_) => Frame::Integer(1),
        reply => replies::count(reply),
    })
}
