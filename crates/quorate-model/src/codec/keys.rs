//! The family of keys: see `docs/model-format.md`. Each list here says both how a message is encoded and how it is
//! decoded.
//!
//! # Invariants
//!
//! - A tag, once given, means the same for ever. The fields of a variant have the tags 1, 2, ... in the order in which
//!   they are listed; a new field is added at the end.
//! - Decoding drops nothing that encoding would write, and reads no other field, so that a message that has one encodes
//!   to fewer bytes than it was decoded from ([`super::decode_strictly`]).

use std::ops::Bound;

use bytes::Bytes;

use super::fields::{numbers, one_of, record};
use crate::keys::{
    AddOptions, Aggregate, BitAction, BitCommand, BitInteger, BitOperation, BitRange, BitStep, BitUnit, Change,
    Collection, Compare, Condition, ElementCommand, End, Expiry, ExpiryCondition, HashCommand, KeyCommand, KeyEntry,
    KeyInfo, KeySize, KeysCommand, KeysReply, Kind, ListCommand, Order, Overflow, Range, SetCommand, SetOperation,
    SortedSetCommand, SpaceCommand, Span, StringCommand, Which,
};

record!(SpaceCommand { space, command });

one_of!(KeysCommand {
    1: Key(command),
    2: String(command),
    3: Element(command),
    4: Hash(command),
    5: Set(command),
    6: SortedSet(command),
    7: List(command),
    8: Bits(command),
});

one_of!(KeyCommand {
    1: Delete { keys, condition },
    2: Exists { keys },
    3: Describe { key },
    4: Expect { key, version },
    5: Count { key, kind },
    6: Expire { key, at, condition, relative },
    7: Rename { key, to_space, to, replace },
    8: Copy { key, to_space, to, replace },
    9: Scan { span, order, limit, kind, values },
    10: CountAll {},
    11: Flush {},
    12: Draw { seed },
    13: Measure { key },
});

one_of!(StringCommand {
    1: Set { key, value, condition, expiry, get },
    2: Get { key },
    3: Take { key },
    4: GetRange { key, start, end },
    5: Length { key },
    6: Append { key, value },
    7: SetRange { key, offset, value },
    8: Add { key, by },
    9: AddFloat { key, by },
    10: SetAll { strings, condition, expiry },
    11: GetExpire { key, at, relative },
});

one_of!(BitCommand {
    1: Fields { key, steps },
    2: Count { key, range },
    3: Find { key, one, range },
    4: Combine { operation, keys, store },
});

one_of!(ElementCommand {
    1: Remove { of, key, fields },
    2: Contains { of, key, fields },
    3: Scan { of, key, from, limit },
    4: Expire { of, key, fields, at, condition, relative },
    5: Describe { of, key, fields },
    6: Draw { of, key, count, repeats, seed },
});

one_of!(HashCommand {
    1: Set { key, fields, condition, expiry },
    2: Get { key, fields },
    3: Add { key, field, by },
    4: AddFloat { key, field, by },
    5: GetExpire { key, fields, at, relative },
    6: Take { key, fields },
});

one_of!(SetCommand {
    1: Add { key, members, expiry },
    2: Pop { key, count, seed },
    3: Move { from, to, member },
    4: Combine { operation, keys, store },
});

one_of!(SortedSetCommand {
    1: Add { key, members, options, count_changed },
    2: Increment { key, member, by, options },
    3: Remove { key, members },
    4: Scores { key, members },
    5: Rank { key, member, reverse },
    6: Range { key, range, reverse, offset, limit },
    7: CountRange { key, range },
    8: RemoveRange { key, range },
    9: Pop { key, count, reverse },
    10: PopFirst { keys, count, reverse },
    11: Scan { key, from, limit },
    12: Draw { key, count, repeats, seed },
    13: StoreRange { key, to, range, reverse, offset, limit },
    14: Combine { operation, sources, aggregate, store },
    15: Expire { key, members, at, condition, relative },
    16: Describe { key, members },
});

one_of!(ListCommand {
    1: Push { key, values, end, existing },
    2: Pop { key, count, end },
    3: Move { from, to, from_end, to_end },
    4: Index { key, index },
    5: Range { key, start, stop },
    6: Set { key, index, value },
    7: Trim { key, start, stop },
    8: Insert { key, before, pivot, value },
    9: Remove { key, count, value },
    10: PopFirst { keys, count, end },
    11: Find { key, value, from, skip, limit, within },
});

one_of!(Condition = Always { 1: Missing {}, 2: Exists {}, 3: Version(version), 4: Value(value) });

one_of!(Expiry = Never { 1: Keep {}, 2: At(time), 3: In(time) });

one_of!(BitAction = Get { 1: Set(to, overflow), 2: Add(by, overflow) });

one_of!(Range { 1: Rank(start, stop), 2: Score(from, to), 3: Member(from, to) });

one_of!(Bound<f64> = Unbounded {
    1: Included(score),
    2: Excluded(score),
});

one_of!(Bound<Bytes> = Unbounded {
    1: Included(member),
    2: Excluded(member),
});

record!(Span { from, to });
record!(AddOptions { which, compare });
record!(BitStep { integer, offset, action });
record!(BitInteger { signed, bits });
record!(BitRange { start, end, unit });

numbers!(Kind = String { 1: Hash, 2: Set, 3: SortedSet, 4: List });
numbers!(Order = Up { 1: Down });
numbers!(Collection = Hash { 1: Set });
numbers!(SetOperation = Union { 1: Intersection, 2: Difference });
numbers!(ExpiryCondition = Always { 1: Missing, 2: Exists, 3: Later, 4: Earlier });
numbers!(Which = Any { 1: Missing, 2: Exists });
numbers!(Compare = Any { 1: Greater, 2: Less });
numbers!(End = Left { 1: Right });
numbers!(Aggregate = Sum { 1: Lowest, 2: Highest });
numbers!(Overflow = Wrap { 1: Saturate, 2: Fail });
numbers!(BitUnit = Byte { 1: Bit });
numbers!(BitOperation = And { 1: Or, 2: Xor, 3: Not });

one_of!(KeysReply {
    1: Done {},
    2: Missing {},
    3: NotApplied {},
    4: Count(number),
    5: Integer(number),
    6: Value(value),
    7: Values(values) list,
    8: Set { applied, previous },
    9: Key(info),
    10: Keys(page),
    11: Flags(flags) list,
    12: Elements(page),
    13: Expired(changes) list,
    14: Described(elements) list,
    15: Members(members) list,
    16: Scores(scores) list,
    17: Score(score),
    18: Rank(rank, score),
    19: Scored(members) list,
    20: Integers(integers) list,
    21: MembersOf(key, members),
    22: Indexes(indexes) list,
    23: ScoredOf(key, members),
    24: ScoredPage(page),
    25: Size(size),
});

record!(KeyInfo { kind, version, expires_at });
record!(KeySize { kind, count, bytes });
record!(KeyEntry { key, info, value });

numbers!(Change = Missing { 1: NotApplied, 2: Done, 3: Removed });
