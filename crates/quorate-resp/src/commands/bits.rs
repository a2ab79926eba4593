//! Commands on the bits of strings.

use bytes::Bytes;
use quorate_keys::{
    BitAction, BitCommand, BitInteger, BitOperation, BitRange, BitStep, BitUnit, KeysCommand, KeysReply, Overflow,
};

use crate::args::{Args, Planned};
use crate::error::Refusal;
use crate::frame::Frame;
use crate::number::integer;
use crate::replies;
use crate::table::{ONE, Places, Spec, read, write};

/// The rows of commands on bits.
pub const COMMANDS: &[Spec] = &[
    read("getbit", 3, ONE, "2.2.0", "Returns a bit.", get),
    read("bitcount", -2, ONE, "2.6.0", "Returns how many bits are 1.", count),
    read("bitpos", -3, ONE, "2.8.7", "Returns where the first bit of a kind is.", find),
    read("bitfield_ro", -2, ONE, "6.0.0", "Reads integers in a string.", |args| fields(args, true)),
    write("setbit", 4, ONE, "2.2.0", "Sets a bit, and returns the one before.", set),
    write("bitop", -4, Places::Words(2, -1, 1), "2.6.0", "Combines the bits of strings.", combine),
    write("bitfield", -2, ONE, "3.2.0", "Reads and changes integers in a string.", |args| fields(args, false)),
];

const OFFSET: Refusal = Refusal::Text("ERR bit offset is not an integer or out of range");
const TYPE: Refusal =
    Refusal::Text("ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.");
const BIT: BitInteger = BitInteger { signed: false, bits: 1 };

/// The bits that Redis can address.
const OFFSETS: u64 = 1 << 32;

fn offset(word: &[u8]) -> Result<u64, Refusal> {
    integer(word).and_then(|offset| u64::try_from(offset).ok()).filter(|offset| *offset < OFFSETS).ok_or(OFFSET)
}

fn one(args: &Args, key: Bytes, offset: u64, action: BitAction) -> Planned {
    let steps = vec![BitStep { integer: BIT, offset, action }];
    args.plan(KeysCommand::Bits(BitCommand::Fields { key, steps }), |reply| match reply {
        KeysReply::Integers(bits) => Frame::Integer(bits.first().copied().flatten().unwrap_or(0)),
        other => replies::unexpected(&other),
    })
}

fn get(args: &mut Args) -> Planned {
    let (key, offset) = (args.next()?, offset(&args.next()?)?);
    one(args, key, offset, BitAction::Get)
}

fn set(args: &mut Args) -> Planned {
    let (key, offset) = (args.next()?, offset(&args.next()?)?);
    let bit = integer(&args.next()?).filter(|bit| matches!(bit, 0 | 1));
    let bit = bit.ok_or(Refusal::Text("ERR bit is not an integer or out of range"))?;
    one(args, key, offset, BitAction::Set(bit, Overflow::Wrap))
}

/// Reads a range, if there is one. The last index is looked at last, as in Redis.
fn range(args: &mut Args) -> Result<BitRange, Refusal> {
    let mut range = BitRange { start: 0, end: None, unit: BitUnit::Byte };
    match args.left() {
        0 => return Ok(range),
        1..=3 => {}
        _ => return Err(Refusal::Syntax),
    }
    range.start = args.integer()?;
    let end = args.next().ok();
    if !args.is_empty() {
        let unit = args.choice(&[("BYTE", BitUnit::Byte), ("BIT", BitUnit::Bit)]);
        range.unit = unit.ok_or(Refusal::Syntax)?;
    }
    args.end()?;
    range.end = end.map(|word| integer(&word).ok_or(Refusal::NotInteger)).transpose()?;
    Ok(range)
}

fn count(args: &mut Args) -> Planned {
    let (key, range) = (args.next()?, range(args)?);
    args.plan(KeysCommand::Bits(BitCommand::Count { key, range }), replies::count)
}

fn find(args: &mut Args) -> Planned {
    let (key, bit) = (args.next()?, args.integer()?);
    if !matches!(bit, 0 | 1) {
        return Err(Refusal::Text("ERR The bit argument must be 1 or 0."));
    }
    let range = range(args)?;
    args.plan(KeysCommand::Bits(BitCommand::Find { key, one: bit == 1, range }), |reply| match reply {
        KeysReply::Missing => Frame::Integer(-1),
        reply => replies::count(reply),
    })
}

fn combine(args: &mut Args) -> Planned {
    let operations =
        [("AND", BitOperation::And), ("OR", BitOperation::Or), ("XOR", BitOperation::Xor), ("NOT", BitOperation::Not)];
    let operation = args.choice(&operations).ok_or(Refusal::Syntax)?;
    let (store, keys) = (args.next()?, args.rest());
    if operation == BitOperation::Not && keys.len() != 1 {
        return Err(Refusal::Text("ERR BITOP NOT must be called with a single source key."));
    }
    args.plan(KeysCommand::Bits(BitCommand::Combine { operation, keys, store }), replies::count)
}

/// Reads the type of an integer, such as `u8`.
fn kind(word: &[u8]) -> Result<BitInteger, Refusal> {
    let (signed, bits, most) = match word {
        [b'i', bits @ ..] => (true, bits, 64),
        [b'u', bits @ ..] => (false, bits, 63),
        _ => return Err(TYPE),
    };
    let bits = integer(bits).and_then(|bits| u8::try_from(bits).ok()).filter(|bits| (1..=most).contains(bits));
    Ok(BitInteger { signed, bits: bits.ok_or(TYPE)? })
}

/// Reads the place of an integer: a bit, or, after `#`, which one of its type.
fn place(word: &[u8], kind: BitInteger) -> Result<u64, Refusal> {
    match word.strip_prefix(b"#") {
        Some(number) => offset(number)?.checked_mul(kind.bits.into()).filter(|offset| *offset < OFFSETS).ok_or(OFFSET),
        None => offset(word),
    }
}

fn fields(args: &mut Args, only_reads: bool) -> Planned {
    let overflows = [("WRAP", Overflow::Wrap), ("SAT", Overflow::Saturate), ("FAIL", Overflow::Fail)];
    let (key, mut steps, mut overflow, mut writes) = (args.next()?, Vec::new(), Overflow::Wrap, false);
    while !args.is_empty() {
        if args.left() > 1 && args.option("OVERFLOW") {
            overflow = args.choice(&overflows).ok_or(Refusal::Text("ERR Invalid OVERFLOW type specified"))?;
            continue;
        }
        let what = match args.choice(&[("GET", 0), ("SET", 1), ("INCRBY", 2)]) {
            Some(0) if args.left() > 1 => 0,
            Some(what) if what > 0 && args.left() > 2 => what,
            _ => return Err(Refusal::Syntax),
        };
        let integer = kind(&args.next()?)?;
        let offset = place(&args.next()?, integer)?;
        writes |= what > 0;
        let action = match what {
            0 => BitAction::Get,
            1 => BitAction::Set(args.integer()?, overflow),
            _ => BitAction::Add(args.integer()?, overflow),
        };
        steps.push(BitStep { integer, offset, action });
    }
    if only_reads && writes {
        return Err(Refusal::Text("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    args.plan(KeysCommand::Bits(BitCommand::Fields { key, steps }), |reply| match reply {
        KeysReply::Integers(list) => {
            Frame::Array(list.into_iter().map(|number| number.map_or(Frame::Null, Frame::Integer)).collect())
        }
        other => replies::unexpected(&other),
    })
}
