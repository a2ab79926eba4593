//! Random commands: on few keys, fields and values, so that they meet; with all extremes.

use std::ops::Bound;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::limits::TIME_MAX;
use crate::*;

/// Stands for the version that the key has at the time of the command.
pub const CURRENT: Version = Version(u64::MAX);

/// How far a time is from that of the command, at most.
const AHEAD: u64 = 40;

/// The time of the command stands for this one.
pub const NOW: u64 = 1_000_000;

/// Draws a key.
pub fn key() -> impl Strategy<Value = Bytes> {
    select(vec!["a", "b", "c", "d"]).prop_map(Bytes::from)
}

fn field() -> impl Strategy<Value = Bytes> {
    select(vec!["", "f", "g", "fa", "\u{7f}", "h"]).prop_map(Bytes::from)
}

fn fields() -> impl Strategy<Value = Vec<Bytes>> {
    vec(field(), 0..4)
}

fn value() -> impl Strategy<Value = Bytes> {
    let values = vec![
        "",
        "0",
        "1",
        "-7",
        "9223372036854775807",
        "9223372036854775808",
        "01",
        "1.5",
        "0.125",
        "1e300",
        "inf",
        "abc",
    ];
    select(values).prop_map(Bytes::from)
}

fn decimal() -> impl Strategy<Value = Bytes> {
    select(vec!["0", "1", "-1.5", "0.125", "2.5e1", "1e300", "1e308", "inf", "nan", "x", ""]).prop_map(Bytes::from)
}

fn integer() -> impl Strategy<Value = i64> {
    prop_oneof![-3..4_i64, select(vec![i64::MIN, i64::MAX, i64::MIN + 1])]
}

fn index() -> impl Strategy<Value = i64> {
    prop_oneof![6 => -6..7_i64, 1 => select(vec![i64::MIN, i64::MAX])]
}

/// A limit that may be none.
fn few() -> impl Strategy<Value = u64> {
    prop_oneof![0..4_u64, Just(u64::MAX)]
}

fn score() -> impl Strategy<Value = f64> {
    let extremes = vec![f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0, f64::MIN_POSITIVE, 5e-324, f64::MAX];
    prop_oneof![4 => (-2..3_i8).prop_map(f64::from), 1 => select(extremes)]
}

/// A time near [`NOW`].
fn at() -> impl Strategy<Value = u64> {
    (NOW - 5)..(NOW + AHEAD)
}

/// A time, if it is not never, and whether it counts from the time of the step.
fn when() -> impl Strategy<Value = (Option<u64>, bool)> {
    prop_oneof![2 => option::of(at()).prop_map(|at| (at, false)), 1 => span_of_time().prop_map(|at| (Some(at), true))]
}

/// Nanoseconds, some of which are more than there will ever be.
fn span_of_time() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..AHEAD, 1 => select(vec![TIME_MAX, u64::MAX])]
}

fn expiry() -> impl Strategy<Value = Expiry> {
    prop_oneof![
        2 => Just(Expiry::Never),
        1 => Just(Expiry::Keep),
        2 => at().prop_map(Expiry::At),
        1 => span_of_time().prop_map(Expiry::In),
    ]
}

fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        4 => Just(Condition::Always),
        1 => Just(Condition::Missing),
        1 => Just(Condition::Exists),
        1 => select(vec![CURRENT, Version(3)]).prop_map(Condition::Version),
        1 => value().prop_map(Condition::Value),
    ]
}

fn expiry_condition() -> impl Strategy<Value = ExpiryCondition> {
    use ExpiryCondition::*;
    select(vec![Always, Always, Missing, Exists, Later, Earlier])
}

fn kind() -> impl Strategy<Value = Kind> {
    select(vec![Kind::String, Kind::Hash, Kind::Set, Kind::SortedSet, Kind::List])
}

fn end() -> impl Strategy<Value = End> {
    select(vec![End::Left, End::Right])
}

fn of() -> impl Strategy<Value = Collection> {
    select(vec![Collection::Hash, Collection::Set])
}

fn span() -> impl Strategy<Value = Span> {
    let bound = || select(vec!["", "a", "a\0", "b", "c", "d", "e"]).prop_map(Bytes::from);
    (bound(), option::of(bound())).prop_map(|(from, to)| Span { from, to })
}

/// Draws a command of any kind.
pub fn command() -> impl Strategy<Value = KeysCommand> {
    prop_oneof![
        4 => keys().prop_map(KeysCommand::Key),
        4 => strings().prop_map(KeysCommand::String),
        3 => bits().prop_map(KeysCommand::Bits),
        3 => elements().prop_map(KeysCommand::Element),
        3 => hashes().prop_map(KeysCommand::Hash),
        3 => sets().prop_map(KeysCommand::Set),
        4 => sorted_sets().prop_map(KeysCommand::SortedSet),
        4 => lists().prop_map(KeysCommand::List),
    ]
}

/// Commands on one hash and one set, most of whose elements expire soon.
pub fn expiring() -> impl Strategy<Value = KeysCommand> {
    let expiry = || {
        prop_oneof![
            1 => Just(Expiry::Never),
            4 => (NOW - 12..NOW + 10).prop_map(Expiry::At),
            1 => (0..10_u64).prop_map(Expiry::In),
        ]
    };
    let set_fields = (vec((field(), value()), 1..4), expiry()).prop_map(|(fields, expiry)| {
        KeysCommand::Hash(HashCommand::Set { key: "a".into(), fields, condition: Condition::Always, expiry })
    });
    let add_members = (fields(), expiry())
        .prop_map(|(members, expiry)| KeysCommand::Set(SetCommand::Add { key: "b".into(), members, expiry }));
    let add =
        (field(), integer()).prop_map(|(field, by)| KeysCommand::Hash(HashCommand::Add { key: "a".into(), field, by }));
    let count = select(vec![("a", Kind::Hash), ("b", Kind::Set)])
        .prop_map(|(key, kind)| KeysCommand::Key(KeyCommand::Count { key: key.into(), kind }));
    let element = elements().prop_map(|mut command| {
        use ElementCommand::*;
        let (Remove { of, key, .. }
        | Contains { of, key, .. }
        | Scan { of, key, .. }
        | Expire { of, key, .. }
        | Describe { of, key, .. }
        | Draw { of, key, .. }) = &mut command;
        *key = if *of == Collection::Hash { "a".into() } else { "b".into() };
        KeysCommand::Element(command)
    });
    prop_oneof![
        3 => set_fields,
        3 => add_members,
        1 => add,
        2 => count,
        2 => element,
        2 => keys().prop_map(KeysCommand::Key),
        1 => sets().prop_map(KeysCommand::Set),
    ]
}

/// Commands on sorted sets, most of whose members expire soon.
pub fn expiring_scores() -> impl Strategy<Value = KeysCommand> {
    let add = (key(), vec((score(), field()), 1..6)).prop_map(|(key, mut members)| {
        members.retain(|(score, _)| !score.is_nan());
        SortedSetCommand::Add { key, members, options: AddOptions::default(), count_changed: true }
    });
    let expire = (key(), vec(field(), 1..4), 0..10_u64).prop_map(|(key, members, nanos)| SortedSetCommand::Expire {
        key,
        members,
        at: Some(nanos),
        condition: ExpiryCondition::Always,
        relative: true,
    });
    let count = key().prop_map(|key| KeysCommand::Key(KeyCommand::Count { key, kind: Kind::SortedSet }));
    prop_oneof![
        4 => add.prop_map(KeysCommand::SortedSet),
        3 => expire.prop_map(KeysCommand::SortedSet),
        8 => sorted_sets().prop_map(KeysCommand::SortedSet),
        1 => count,
        1 => keys().prop_map(KeysCommand::Key),
    ]
}

fn keys() -> impl Strategy<Value = KeyCommand> {
    use KeyCommand::*;
    let order = select(vec![Order::Up, Order::Down]);
    let scan = (span(), order, 0..4_u64, option::of(kind()), any::<bool>());
    prop_oneof![
        (vec(key(), 0..3), condition()).prop_map(|(keys, condition)| Delete { keys, condition }),
        vec(key(), 0..4).prop_map(|keys| Exists { keys }),
        key().prop_map(|key| Describe { key }),
        (key(), option::of(Just(CURRENT))).prop_map(|(key, version)| Expect { key, version }),
        (key(), select(vec![Kind::Hash, Kind::Set, Kind::SortedSet, Kind::List]))
            .prop_map(|(key, kind)| Count { key, kind }),
        (key(), when(), expiry_condition()).prop_map(|(key, (at, relative), condition)| Expire {
            key,
            at,
            condition,
            relative
        }),
        (key(), 0..2_u32, key(), any::<bool>()).prop_map(|(key, to_space, to, replace)| Rename {
            key,
            to_space,
            to,
            replace
        }),
        (key(), 0..2_u32, key(), any::<bool>()).prop_map(|(key, to_space, to, replace)| Copy {
            key,
            to_space,
            to,
            replace
        }),
        Just(CountAll),
        Just(Flush),
        any::<u64>().prop_map(|seed| Draw { seed }),
        key().prop_map(|key| Measure { key }),
        scan.prop_map(|(span, order, limit, kind, values)| Scan { span, order, limit, kind, values }),
    ]
}

fn strings() -> impl Strategy<Value = StringCommand> {
    use StringCommand::*;
    let offset = prop_oneof![8 => 0..6_u64, 1 => Just(u64::MAX)];
    prop_oneof![
        4 => (key(), value(), condition(), expiry(), any::<bool>()).prop_map(
            |(key, value, condition, expiry, get)| Set { key, value, condition, expiry, get }
        ),
        1 => key().prop_map(|key| Get { key }),
        1 => (vec((key(), value()), 0..4), condition(), expiry())
            .prop_map(|(strings, condition, expiry)| SetAll { strings, condition, expiry }),
        1 => (key(), when()).prop_map(|(key, (at, relative))| GetExpire { key, at, relative }),
        1 => key().prop_map(|key| Take { key }),
        1 => (key(), index(), index()).prop_map(|(key, start, end)| GetRange { key, start, end }),
        1 => key().prop_map(|key| Length { key }),
        1 => (key(), value()).prop_map(|(key, value)| Append { key, value }),
        1 => (key(), offset, value()).prop_map(|(key, offset, value)| SetRange { key, offset, value }),
        2 => (key(), integer()).prop_map(|(key, by)| Add { key, by }),
        2 => (key(), decimal()).prop_map(|(key, by)| AddFloat { key, by }),
    ]
}

fn bit_step() -> impl Strategy<Value = BitStep> {
    let size = (any::<bool>(), select(vec![1, 1, 2, 5, 8, 63, 64]));
    let overflow = || select(vec![Overflow::Wrap, Overflow::Saturate, Overflow::Fail]);
    let number = || prop_oneof![integer_near_bounds(), integer()];
    let action = prop_oneof![
        Just(BitAction::Get),
        (number(), overflow()).prop_map(|(to, overflow)| BitAction::Set(to, overflow)),
        (number(), overflow()).prop_map(|(by, overflow)| BitAction::Add(by, overflow)),
    ];
    let offset = prop_oneof![20 => 0..40_u64, 1 => select(vec![1 << 28, u64::MAX])];
    (size, offset, action).prop_map(|((signed, bits), offset, action)| BitStep {
        integer: BitInteger { signed, bits },
        offset,
        action,
    })
}

/// An integer that just fits into a few bits, or just does not.
fn integer_near_bounds() -> impl Strategy<Value = i64> {
    select(vec![-129_i64, -128, -17, -16, 15, 16, 31, 32, 127, 128, 255, 256])
}

fn bits() -> impl Strategy<Value = BitCommand> {
    use BitCommand::*;
    let range = || {
        (index(), option::of(index()), select(vec![BitUnit::Byte, BitUnit::Bit]))
            .prop_map(|(start, end, unit)| BitRange { start, end, unit })
    };
    let operation = select(vec![BitOperation::And, BitOperation::Or, BitOperation::Xor, BitOperation::Not]);
    prop_oneof![
        3 => (key(), vec(bit_step(), 0..4)).prop_map(|(key, steps)| Fields { key, steps }),
        1 => (key(), range()).prop_map(|(key, range)| Count { key, range }),
        1 => (key(), any::<bool>(), range()).prop_map(|(key, one, range)| Find { key, one, range }),
        1 => (operation, vec(key(), 0..4), key())
            .prop_map(|(operation, keys, store)| Combine { operation, keys, store }),
    ]
}

fn elements() -> impl Strategy<Value = ElementCommand> {
    use ElementCommand::*;
    prop_oneof![
        (of(), key(), fields()).prop_map(|(of, key, fields)| Remove { of, key, fields }),
        (of(), key(), fields()).prop_map(|(of, key, fields)| Contains { of, key, fields }),
        (of(), key(), field(), 0..4_u64).prop_map(|(of, key, from, limit)| Scan { of, key, from, limit }),
        (of(), key(), fields(), when(), expiry_condition()).prop_map(|(of, key, fields, (at, relative), condition)| {
            Expire { of, key, fields, at, condition, relative }
        }),
        (of(), key(), fields()).prop_map(|(of, key, fields)| Describe { of, key, fields }),
        (of(), key(), 0..6_u64, any::<bool>(), any::<u64>()).prop_map(|(of, key, count, repeats, seed)| Draw {
            of,
            key,
            count,
            repeats,
            seed
        }),
    ]
}

fn hashes() -> impl Strategy<Value = HashCommand> {
    use HashCommand::*;
    prop_oneof![
        3 => (key(), vec((field(), value()), 1..4), condition(), expiry())
            .prop_map(|(key, fields, condition, expiry)| Set { key, fields, condition, expiry }),
        1 => (key(), fields()).prop_map(|(key, fields)| Get { key, fields }),
        1 => (key(), fields(), when())
            .prop_map(|(key, fields, (at, relative))| GetExpire { key, fields, at, relative }),
        1 => (key(), fields()).prop_map(|(key, fields)| Take { key, fields }),
        1 => (key(), field(), integer()).prop_map(|(key, field, by)| Add { key, field, by }),
        1 => (key(), field(), decimal()).prop_map(|(key, field, by)| AddFloat { key, field, by }),
    ]
}

fn operation() -> impl Strategy<Value = SetOperation> {
    select(vec![SetOperation::Union, SetOperation::Intersection, SetOperation::Difference])
}

fn sets() -> impl Strategy<Value = SetCommand> {
    use SetCommand::*;
    prop_oneof![
        3 => (key(), fields(), expiry()).prop_map(|(key, members, expiry)| Add { key, members, expiry }),
        1 => (key(), 0..4_u64, any::<u64>()).prop_map(|(key, count, seed)| Pop { key, count, seed }),
        1 => (key(), key(), field()).prop_map(|(from, to, member)| Move { from, to, member }),
        1 => (operation(), vec(key(), 0..4), option::of(key()))
            .prop_map(|(operation, keys, store)| Combine { operation, keys, store }),
    ]
}

fn bound<B: Clone + std::fmt::Debug>(inner: impl Strategy<Value = B>) -> impl Strategy<Value = Bound<B>> {
    (inner, 0..5_u8).prop_map(|(bound, kind)| match kind {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Included(bound),
        _ => Bound::Excluded(bound),
    })
}

/// Draws a range of a sorted set.
pub fn range() -> impl Strategy<Value = Range> {
    prop_oneof![
        (index(), index()).prop_map(|(first, last)| Range::Rank(first, last)),
        (bound(score()), bound(score())).prop_map(|(min, max)| Range::Score(min, max)),
        (bound(field()), bound(field())).prop_map(|(min, max)| Range::Member(min, max)),
    ]
}

fn sorted_sets() -> impl Strategy<Value = SortedSetCommand> {
    use SortedSetCommand::*;
    let options = || {
        let which = select(vec![Which::Any, Which::Any, Which::Missing, Which::Exists]);
        let compare = select(vec![Compare::Any, Compare::Any, Compare::Greater, Compare::Less]);
        (which, compare).prop_map(|(which, compare)| AddOptions { which, compare })
    };
    let aggregate = select(vec![Aggregate::Sum, Aggregate::Lowest, Aggregate::Highest]);
    prop_oneof![
        4 => (key(), vec((score(), field()), 0..4), options(), any::<bool>())
            .prop_map(|(key, members, options, count_changed)| Add { key, members, options, count_changed }),
        1 => (key(), field(), score(), options())
            .prop_map(|(key, member, by, options)| Increment { key, member, by, options }),
        1 => (key(), fields()).prop_map(|(key, members)| Remove { key, members }),
        1 => (key(), fields()).prop_map(|(key, members)| Scores { key, members }),
        1 => (key(), field(), any::<bool>()).prop_map(|(key, member, reverse)| Rank { key, member, reverse }),
        2 => (key(), range(), any::<bool>(), 0..3_u64, few())
            .prop_map(|(key, range, reverse, offset, limit)| Range { key, range, reverse, offset, limit }),
        1 => (key(), range()).prop_map(|(key, range)| CountRange { key, range }),
        1 => (key(), range()).prop_map(|(key, range)| RemoveRange { key, range }),
        1 => (key(), 0..3_u64, any::<bool>()).prop_map(|(key, count, reverse)| Pop { key, count, reverse }),
        1 => (vec(key(), 0..3), 0..3_u64, any::<bool>())
            .prop_map(|(keys, count, reverse)| PopFirst { keys, count, reverse }),
        1 => (key(), field(), 0..4_u64).prop_map(|(key, from, limit)| Scan { key, from, limit }),
        1 => (key(), 0..6_u64, any::<bool>(), any::<u64>())
            .prop_map(|(key, count, repeats, seed)| Draw { key, count, repeats, seed }),
        1 => (key(), key(), range(), any::<bool>(), 0..3_u64, few()).prop_map(
            |(key, to, range, reverse, offset, limit)| StoreRange { key, to, range, reverse, offset, limit }
        ),
        2 => (operation(), vec((key(), score()), 0..4), aggregate, option::of(key())).prop_map(
            |(operation, sources, aggregate, store)| Combine { operation, sources, aggregate, store }
        ),
        2 => (key(), fields(), when(), expiry_condition()).prop_map(
            |(key, members, (at, relative), condition)| Expire { key, members, at, condition, relative }
        ),
        1 => (key(), fields()).prop_map(|(key, members)| Describe { key, members }),
    ]
}

fn lists() -> impl Strategy<Value = ListCommand> {
    use ListCommand::*;
    let item = || select(vec!["x", "y", "z", ""]).prop_map(Bytes::from);
    prop_oneof![
        4 => (key(), vec(item(), 0..4), end(), any::<bool>())
            .prop_map(|(key, values, end, existing)| Push { key, values, end, existing }),
        1 => (key(), 0..3_u64, end()).prop_map(|(key, count, end)| Pop { key, count, end }),
        1 => (vec(key(), 0..3), 0..3_u64, end()).prop_map(|(keys, count, end)| PopFirst { keys, count, end }),
        1 => (key(), item(), end(), 0..3_u64, few(), few()).prop_map(
            |(key, value, from, skip, limit, within)| Find { key, value, from, skip, limit, within }
        ),
        1 => (key(), key(), end(), end())
            .prop_map(|(from, to, from_end, to_end)| Move { from, to, from_end, to_end }),
        1 => (key(), index()).prop_map(|(key, index)| Index { key, index }),
        1 => (key(), index(), index()).prop_map(|(key, start, stop)| Range { key, start, stop }),
        1 => (key(), index(), item()).prop_map(|(key, index, value)| Set { key, index, value }),
        1 => (key(), index(), index()).prop_map(|(key, start, stop)| Trim { key, start, stop }),
        1 => (key(), any::<bool>(), item(), item())
            .prop_map(|(key, before, pivot, value)| Insert { key, before, pivot, value }),
        1 => (key(), integer(), item()).prop_map(|(key, count, value)| Remove { key, count, value }),
    ]
}
