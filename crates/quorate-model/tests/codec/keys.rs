//! Keys: any command, read and reply comes back, and the bytes of level 5 never change.

use std::fmt::Debug;
use std::ops::Bound;

use proptest::option::of;
use proptest::sample::select;
use quorate_model::keys::{
    AddOptions, Aggregate, BitAction, BitCommand, BitInteger, BitOperation, BitRange, BitStep, BitUnit, Change,
    Collection, Compare, Condition, ElementCommand, End, Expiry, ExpiryCondition, HashCommand, KEYS_LEVEL, KeyCommand,
    KeyEntry, KeyInfo, KeySize, KeysCommand, KeysReply, Kind, ListCommand, Order, Overflow, Page, Range, SetCommand,
    SetOperation, SortedSetCommand, SpaceCommand, Span, StringCommand, Version, Which, limits,
};

use super::*;

fn any_list<T: Debug>(item: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<T>> {
    vec(item, 0..3)
}

fn any_version() -> impl Strategy<Value = Version> {
    any::<u64>().prop_map(Version)
}

fn any_condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        select(vec![Condition::Always, Condition::Missing, Condition::Exists]),
        any_version().prop_map(Condition::Version),
        any_bytes().prop_map(Condition::Value),
    ]
}

fn any_expiry() -> impl Strategy<Value = Expiry> {
    let time = prop_oneof![any::<u64>().prop_map(Expiry::At), any::<u64>().prop_map(Expiry::In)];
    prop_oneof![select(vec![Expiry::Never, Expiry::Keep]), time]
}

fn any_expiry_condition() -> impl Strategy<Value = ExpiryCondition> {
    use ExpiryCondition::{Always, Earlier, Exists, Later, Missing};
    select(vec![Always, Missing, Exists, Later, Earlier])
}

fn any_kind() -> impl Strategy<Value = Kind> {
    select(vec![Kind::String, Kind::Hash, Kind::Set, Kind::SortedSet, Kind::List])
}

fn any_end() -> impl Strategy<Value = End> {
    select(vec![End::Left, End::Right])
}

fn any_bound<T: Clone + Debug + 'static>(of: impl Strategy<Value = T> + 'static) -> impl Strategy<Value = Bound<T>> {
    (select(vec![0, 1, 2]), of).prop_map(|(which, value)| match which {
        0 => Bound::Unbounded,
        1 => Bound::Included(value),
        _ => Bound::Excluded(value),
    })
}

fn any_range() -> impl Strategy<Value = Range> {
    let score = || any_bound(any::<f64>());
    let member = || any_bound(any_bytes());
    prop_oneof![
        any::<(i64, i64)>().prop_map(|(start, stop)| Range::Rank(start, stop)),
        (score(), score()).prop_map(|(from, to)| Range::Score(from, to)),
        (member(), member()).prop_map(|(from, to)| Range::Member(from, to)),
    ]
}

/// Makes a strategy for a variant from those for its fields.
macro_rules! variant {
    ($type:ident::$variant:ident { $($field:ident: $strategy:expr),* $(,)? }) => {
        ($($strategy,)*).prop_map(|($($field,)*)| $type::$variant { $($field),* }).boxed()
    };
}

fn any_key_command() -> impl Strategy<Value = KeyCommand> {
    let (key, keys, at) = (any_bytes, || any_list(any_bytes()), || of(any::<u64>()));
    let span = (any_bytes(), of(any_bytes())).prop_map(|(from, to)| Span { from, to });
    let order = select(vec![Order::Up, Order::Down]);
    prop_oneof![
        variant!(KeyCommand::Delete { keys: keys(), condition: any_condition() }),
        variant!(KeyCommand::Exists { keys: keys() }),
        variant!(KeyCommand::Describe { key: key() }),
        variant!(KeyCommand::Expect { key: key(), version: of(any_version()) }),
        variant!(KeyCommand::Count { key: key(), kind: any_kind() }),
        variant!(KeyCommand::Expire {
            key: key(),
            at: at(),
            condition: any_expiry_condition(),
            relative: any::<bool>(),
        }),
        variant!(KeyCommand::Rename { key: key(), to_space: any::<u32>(), to: key(), replace: any::<bool>() }),
        variant!(KeyCommand::Copy { key: key(), to_space: any::<u32>(), to: key(), replace: any::<bool>() }),
        select(vec![KeyCommand::CountAll, KeyCommand::Flush]),
        variant!(KeyCommand::Draw { seed: any::<u64>() }),
        variant!(KeyCommand::Measure { key: key() }),
        variant!(KeyCommand::Scan {
            span: span,
            order: order,
            limit: any::<u64>(),
            kind: of(any_kind()),
            values: any::<bool>(),
        }),
    ]
}

fn any_string_command() -> impl Strategy<Value = StringCommand> {
    let (key, value) = (any_bytes, any_bytes);
    prop_oneof![
        variant!(StringCommand::Set {
            key: key(),
            value: value(),
            condition: any_condition(),
            expiry: any_expiry(),
            get: any::<bool>(),
        }),
        variant!(StringCommand::Get { key: key() }),
        variant!(StringCommand::Take { key: key() }),
        variant!(StringCommand::GetRange { key: key(), start: any::<i64>(), end: any::<i64>() }),
        variant!(StringCommand::Length { key: key() }),
        variant!(StringCommand::Append { key: key(), value: value() }),
        variant!(StringCommand::SetRange { key: key(), offset: any::<u64>(), value: value() }),
        variant!(StringCommand::Add { key: key(), by: any::<i64>() }),
        variant!(StringCommand::AddFloat { key: key(), by: value() }),
        variant!(StringCommand::SetAll {
            strings: any_list((key(), value())),
            condition: any_condition(),
            expiry: any_expiry(),
        }),
        variant!(StringCommand::GetExpire { key: key(), at: of(any::<u64>()), relative: any::<bool>() }),
    ]
}

fn any_bit_command() -> impl Strategy<Value = BitCommand> {
    use BitOperation::{And, Not, Or, Xor};
    let (key, overflow) = (any_bytes, || select(vec![Overflow::Wrap, Overflow::Saturate, Overflow::Fail]));
    let integer = any::<(bool, u8)>().prop_map(|(signed, bits)| BitInteger { signed, bits });
    let action = prop_oneof![
        Just(BitAction::Get),
        (any::<i64>(), overflow()).prop_map(|(to, overflow)| BitAction::Set(to, overflow)),
        (any::<i64>(), overflow()).prop_map(|(by, overflow)| BitAction::Add(by, overflow)),
    ];
    let step =
        (integer, any::<u64>(), action).prop_map(|(integer, offset, action)| BitStep { integer, offset, action });
    let range = || {
        (any::<i64>(), of(any::<i64>()), select(vec![BitUnit::Byte, BitUnit::Bit]))
            .prop_map(|(start, end, unit)| BitRange { start, end, unit })
    };
    let operation = select(vec![And, Or, Xor, Not]);
    prop_oneof![
        variant!(BitCommand::Fields { key: key(), steps: any_list(step) }),
        variant!(BitCommand::Count { key: key(), range: range() }),
        variant!(BitCommand::Find { key: key(), one: any::<bool>(), range: range() }),
        variant!(BitCommand::Combine { operation: operation, keys: any_list(key()), store: key() }),
    ]
}

fn any_element_command() -> impl Strategy<Value = ElementCommand> {
    let (key, fields, kind) = (any_bytes, || any_list(any_bytes()), || select(vec![Collection::Hash, Collection::Set]));
    prop_oneof![
        variant!(ElementCommand::Remove { of: kind(), key: key(), fields: fields() }),
        variant!(ElementCommand::Contains { of: kind(), key: key(), fields: fields() }),
        variant!(ElementCommand::Scan { of: kind(), key: key(), from: key(), limit: any::<u64>() }),
        variant!(ElementCommand::Expire {
            of: kind(),
            key: key(),
            fields: fields(),
            at: of(any::<u64>()),
            condition: any_expiry_condition(),
            relative: any::<bool>(),
        }),
        variant!(ElementCommand::Describe { of: kind(), key: key(), fields: fields() }),
        variant!(ElementCommand::Draw {
            of: kind(),
            key: key(),
            count: any::<u64>(),
            repeats: any::<bool>(),
            seed: any::<u64>(),
        }),
    ]
}

fn any_hash_command() -> impl Strategy<Value = HashCommand> {
    let (key, field, at) = (any_bytes, any_bytes, of(any::<u64>()));
    let pairs = any_list((any_bytes(), any_bytes()));
    prop_oneof![
        variant!(HashCommand::Set { key: key(), fields: pairs, condition: any_condition(), expiry: any_expiry() }),
        variant!(HashCommand::Get { key: key(), fields: any_list(field()) }),
        variant!(HashCommand::Add { key: key(), field: field(), by: any::<i64>() }),
        variant!(HashCommand::AddFloat { key: key(), field: field(), by: any_bytes() }),
        variant!(HashCommand::GetExpire { key: key(), fields: any_list(field()), at: at, relative: any::<bool>() }),
        variant!(HashCommand::Take { key: key(), fields: any_list(field()) }),
    ]
}

fn any_operation() -> impl Strategy<Value = SetOperation> {
    select(vec![SetOperation::Union, SetOperation::Intersection, SetOperation::Difference])
}

fn any_set_command() -> impl Strategy<Value = SetCommand> {
    let (key, member) = (any_bytes, any_bytes);
    prop_oneof![
        variant!(SetCommand::Add { key: key(), members: any_list(member()), expiry: any_expiry() }),
        variant!(SetCommand::Pop { key: key(), count: any::<u64>(), seed: any::<u64>() }),
        variant!(SetCommand::Move { from: key(), to: key(), member: member() }),
        variant!(SetCommand::Combine { operation: any_operation(), keys: any_list(key()), store: of(key()) }),
    ]
}

fn any_sorted_set_command() -> impl Strategy<Value = SortedSetCommand> {
    let (key, member) = (any_bytes, any_bytes);
    let (which, compare) =
        ([Which::Any, Which::Missing, Which::Exists], [Compare::Any, Compare::Greater, Compare::Less]);
    let options = (select(which.to_vec()), select(compare.to_vec()))
        .prop_map(|(which, compare)| AddOptions { which, compare })
        .boxed();
    let members = any_list((any::<f64>(), any_bytes()));
    prop_oneof![
        variant!(SortedSetCommand::Add {
            key: key(),
            members: members,
            options: options.clone(),
            count_changed: any::<bool>(),
        }),
        variant!(SortedSetCommand::Increment { key: key(), member: member(), by: any::<f64>(), options: options }),
        variant!(SortedSetCommand::Remove { key: key(), members: any_list(member()) }),
        variant!(SortedSetCommand::Scores { key: key(), members: any_list(member()) }),
        variant!(SortedSetCommand::Rank { key: key(), member: member(), reverse: any::<bool>() }),
        variant!(SortedSetCommand::Range {
            key: key(),
            range: any_range(),
            reverse: any::<bool>(),
            offset: any::<u64>(),
            limit: any::<u64>(),
        }),
        variant!(SortedSetCommand::CountRange { key: key(), range: any_range() }),
        variant!(SortedSetCommand::RemoveRange { key: key(), range: any_range() }),
        variant!(SortedSetCommand::Pop { key: key(), count: any::<u64>(), reverse: any::<bool>() }),
        variant!(SortedSetCommand::PopFirst { keys: any_list(key()), count: any::<u64>(), reverse: any::<bool>() }),
        variant!(SortedSetCommand::Scan { key: key(), from: member(), limit: any::<u64>() }),
        variant!(SortedSetCommand::Draw {
            key: key(),
            count: any::<u64>(),
            repeats: any::<bool>(),
            seed: any::<u64>(),
        }),
        variant!(SortedSetCommand::StoreRange {
            key: key(),
            to: key(),
            range: any_range(),
            reverse: any::<bool>(),
            offset: any::<u64>(),
            limit: any::<u64>(),
        }),
        variant!(SortedSetCommand::Combine {
            operation: any_operation(),
            sources: any_list((key(), any::<f64>())),
            aggregate: select(vec![Aggregate::Sum, Aggregate::Lowest, Aggregate::Highest]),
            store: of(key()),
        }),
        super::keys_7::any_command(),
    ]
}

fn any_list_command() -> impl Strategy<Value = ListCommand> {
    let (key, value, number) = (any_bytes, any_bytes, any::<i64>);
    prop_oneof![
        variant!(ListCommand::Push { key: key(), values: any_list(value()), end: any_end(), existing: any::<bool>() }),
        variant!(ListCommand::Pop { key: key(), count: any::<u64>(), end: any_end() }),
        variant!(ListCommand::Move { from: key(), to: key(), from_end: any_end(), to_end: any_end() }),
        variant!(ListCommand::Index { key: key(), index: number() }),
        variant!(ListCommand::Range { key: key(), start: number(), stop: number() }),
        variant!(ListCommand::Set { key: key(), index: number(), value: value() }),
        variant!(ListCommand::Trim { key: key(), start: number(), stop: number() }),
        variant!(ListCommand::Insert { key: key(), before: any::<bool>(), pivot: value(), value: value() }),
        variant!(ListCommand::Remove { key: key(), count: number(), value: value() }),
        variant!(ListCommand::PopFirst { keys: any_list(key()), count: any::<u64>(), end: any_end() }),
        variant!(ListCommand::Find {
            key: key(),
            value: value(),
            from: any_end(),
            skip: any::<u64>(),
            limit: any::<u64>(),
            within: any::<u64>(),
        }),
    ]
}

pub(super) fn any_keys_command() -> impl Strategy<Value = SpaceCommand> {
    let command = prop_oneof![
        any_key_command().prop_map(KeysCommand::Key),
        any_string_command().prop_map(KeysCommand::String),
        any_bit_command().prop_map(KeysCommand::Bits),
        any_element_command().prop_map(KeysCommand::Element),
        any_hash_command().prop_map(KeysCommand::Hash),
        any_set_command().prop_map(KeysCommand::Set),
        any_sorted_set_command().prop_map(KeysCommand::SortedSet),
        any_list_command().prop_map(KeysCommand::List),
    ];
    (any::<u32>(), command).prop_map(|(space, command)| SpaceCommand { space, command })
}

fn any_page<T: Debug>(row: impl Strategy<Value = T>) -> impl Strategy<Value = Page<T>> {
    (any_list(row), of(any_bytes())).prop_map(|(rows, next)| Page { rows, next })
}

pub(super) fn any_reply() -> impl Strategy<Value = KeysReply> {
    let info = || {
        (any_kind(), any_version(), of(any::<u64>())).prop_map(|(kind, version, expires_at)| KeyInfo {
            kind,
            version,
            expires_at,
        })
    };
    let entry = (any_bytes(), info(), of(any_bytes())).prop_map(|(key, info, value)| KeyEntry { key, info, value });
    let size = (any_kind(), any::<u64>(), any::<u64>());
    let size = size.prop_map(|(kind, count, bytes)| KeySize { kind, count, bytes });
    let change = select(vec![Change::Missing, Change::NotApplied, Change::Done, Change::Removed]);
    prop_oneof![
        select(vec![KeysReply::Done, KeysReply::Missing, KeysReply::NotApplied]),
        any::<u64>().prop_map(KeysReply::Count),
        any::<i64>().prop_map(KeysReply::Integer),
        any_bytes().prop_map(KeysReply::Value),
        any_list(of(any_bytes())).prop_map(KeysReply::Values),
        variant!(KeysReply::Set { applied: any::<bool>(), previous: of(any_bytes()) }),
        info().prop_map(KeysReply::Key),
        any_page(entry).prop_map(KeysReply::Keys),
        any_list(any::<bool>()).prop_map(KeysReply::Flags),
        any_page((any_bytes(), any_bytes())).prop_map(KeysReply::Elements),
        any_list(change).prop_map(KeysReply::Expired),
        any_list(of((any_version(), of(any::<u64>())))).prop_map(KeysReply::Described),
        any_list(any_bytes()).prop_map(KeysReply::Members),
        any_list(of(any::<f64>())).prop_map(KeysReply::Scores),
        any::<f64>().prop_map(KeysReply::Score),
        any::<(u64, f64)>().prop_map(|(rank, score)| KeysReply::Rank(rank, score)),
        any_list((any_bytes(), any::<f64>())).prop_map(KeysReply::Scored),
        any_list(of(any::<i64>())).prop_map(KeysReply::Integers),
        (any_bytes(), any_list(any_bytes())).prop_map(|(key, members)| KeysReply::MembersOf(key, members)),
        any_list(any::<u64>()).prop_map(KeysReply::Indexes),
        (any_bytes(), any_list((any_bytes(), any::<f64>())))
            .prop_map(|(key, members)| KeysReply::ScoredOf(key, members)),
        any_page((any_bytes(), any::<f64>())).prop_map(KeysReply::ScoredPage),
        size.prop_map(KeysReply::Size),
    ]
}

proptest! {
    #[test]
    fn a_read_comes_back(command in any_keys_command()) {
        let read = Read::Keys(command);
        prop_assert_eq!(codec::decode_read(&codec::encode_read(&read)).unwrap(), read);
    }

    #[test]
    fn an_answer_comes_back(reply in any_reply()) {
        let bytes = codec::encode_keys_reply(&reply);
        prop_assert_eq!(bytes.len(), codec::keys_reply_len(&reply));
        prop_assert_eq!(codec::decode_keys_reply(&bytes).unwrap(), reply);
    }
}

#[test]
fn decoded_values_share_the_buffer() {
    let set = string(StringCommand::Set {
        key: Bytes::from_static(b"key"),
        value: vec![7; 100].into(),
        condition: Condition::Always,
        expiry: Expiry::Never,
        get: false,
    });
    let bytes = codec::encode_proposal(&Proposal::new(None, vec![set])).unwrap();
    let mut read = codec::decode_proposal(&bytes).unwrap();
    let Some(Command::Keys(SpaceCommand { command: KeysCommand::String(command), .. })) = read.commands.pop() else {
        panic!("{read:?}")
    };
    let StringCommand::Set { value, .. } = command else { panic!("{command:?}") };
    assert!(bytes.as_ptr_range().contains(&value.as_ptr()));
}

#[test]
fn limits_of_commands_are_checked() {
    let check = |command: Command| Proposal::new(None, vec![command]).check_limits().map_err(|failure| failure.message);
    let get = |space, bytes| {
        Command::Keys(SpaceCommand {
            space,
            command: KeysCommand::String(StringCommand::Get { key: vec![b'k'; bytes].into() }),
        })
    };
    let exists = |count| {
        let command = KeysCommand::Key(KeyCommand::Exists { keys: vec![Bytes::from_static(b"k"); count] });
        Command::Keys(SpaceCommand { space: 0, command })
    };
    assert_eq!(check(get(7, limits::KEY_BYTES_MAX)), Ok(()));
    assert_eq!(check(get(0, 65_537)), Err("ERR the key has 65537 bytes, and may have 65536".to_owned()));
    assert_eq!(check(get(8, 1)), Err("ERR DB index is out of range: it is 8, and below 8".to_owned()));
    assert_eq!(check(exists(limits::ARGUMENTS_MAX)), Ok(()));
    assert!(check(exists(limits::ARGUMENTS_MAX + 1)).unwrap_err().starts_with("ERR the command has 100001 arguments"));
}

#[test]
fn reads_hold_commands_that_only_read() {
    let read = |command| Read::Keys(SpaceCommand { space: 0, command: KeysCommand::String(command) }).check_limits();
    let key = Bytes::from_static(b"key");
    assert_eq!(read(StringCommand::Get { key: key.clone() }), Ok(()));
    assert_eq!(read(StringCommand::Take { key }).unwrap_err().kind, FailureKind::Refused);
}

fn string(command: StringCommand) -> Command {
    SpaceCommand { space: 3, command: KeysCommand::String(command) }.into()
}

fn key() -> Bytes {
    Bytes::from_static(b"key")
}

/// One command of each family below it, with every kind of field.
fn golden_keys() -> Proposal {
    let (value, member) = (Bytes::from_static(b"value"), Bytes::from_static(b"member"));
    let delete = KeyCommand::Delete { keys: vec![key(), Bytes::new()], condition: Condition::Version(Version(300)) };
    let span = Span { from: key(), to: Some(Bytes::new()) };
    let scan = KeyCommand::Scan { span, order: Order::Down, limit: 10, kind: Some(Kind::String), values: true };
    let condition = Condition::Value(value.clone());
    let set =
        StringCommand::Set { key: key(), value: value.clone(), condition, expiry: Expiry::At(1 << 60), get: true };
    let expire = ElementCommand::Expire {
        of: Collection::Set,
        key: key(),
        fields: vec![member.clone()],
        at: Some(0),
        condition: ExpiryCondition::Later,
        relative: false,
    };
    let put = HashCommand::Set {
        key: key(),
        fields: vec![(member.clone(), value.clone()), (Bytes::new(), Bytes::new())],
        condition: Condition::Missing,
        expiry: Expiry::Keep,
    };
    let union = SetCommand::Combine { operation: SetOperation::Difference, keys: vec![key()], store: Some(key()) };
    let options = AddOptions { which: Which::Exists, compare: Compare::Greater };
    let add = SortedSetCommand::Add { key: key(), members: vec![(-0.5, member)], options, count_changed: true };
    let range = Range::Score(Bound::Excluded(1.5), Bound::Unbounded);
    let range = SortedSetCommand::Range { key: key(), range, reverse: true, offset: 1, limit: 2 };
    let trim = ListCommand::Trim { key: key(), start: 0, stop: -2 };
    let push = ListCommand::Push { key: key(), values: vec![value], end: End::Right, existing: false };
    let commands = [
        KeysCommand::Key(delete),
        KeysCommand::Key(scan),
        KeysCommand::String(set),
        KeysCommand::Element(expire),
        KeysCommand::Hash(put),
        KeysCommand::Set(union),
        KeysCommand::SortedSet(add),
        KeysCommand::SortedSet(range),
        KeysCommand::List(trim),
        KeysCommand::List(push),
    ];
    let commands = commands.map(|command| Command::Keys(SpaceCommand { space: 3, command }));
    golden_proposal_of(commands.into())
}

/// One reply of each kind.
fn golden_replies() -> Outcome {
    let value = Bytes::from_static(b"value");
    let info = KeyInfo { kind: Kind::List, version: Version(300), expires_at: Some(0) };
    let entry = KeyEntry { key: key(), info: info.clone(), value: Some(Bytes::new()) };
    let replies = vec![
        KeysReply::Done,
        KeysReply::Missing,
        KeysReply::NotApplied,
        KeysReply::Count(300),
        KeysReply::Integer(-3),
        KeysReply::Value(value.clone()),
        KeysReply::Values(vec![Some(value.clone()), None, Some(Bytes::new())]),
        KeysReply::Set { applied: true, previous: Some(value.clone()) },
        KeysReply::Key(info),
        KeysReply::Keys(Page { rows: vec![entry], next: Some(key()) }),
        KeysReply::Flags(vec![true, false]),
        KeysReply::Elements(Page { rows: vec![(key(), value.clone())], next: None }),
        KeysReply::Expired(vec![Change::Missing, Change::Removed]),
        KeysReply::Described(vec![None, Some((Version(300), None)), Some((Version(0), Some(7)))]),
        KeysReply::Members(vec![value.clone(), Bytes::new()]),
        KeysReply::Scores(vec![None, Some(0.0)]),
        KeysReply::Score(f64::NEG_INFINITY),
        KeysReply::Rank(2, 0.5),
        KeysReply::Scored(vec![(value, 1.5)]),
    ];
    Ok(Reply::of(replies.into_iter().map(CommandResult::Keys).collect::<Vec<_>>()))
}

#[test]
fn the_bytes_of_level_5_never_change() {
    let proposal = golden_keys();
    assert_eq!(proposal.level_needed(), KEYS_LEVEL);
    golden("proposal-keys-5.hex", &codec::encode_proposal(&proposal).unwrap());
    golden("reply-keys-5.hex", &codec::encode_outcome(&golden_replies()));
    for (kind, number) in [(FailureKind::WrongType, 22), (FailureKind::InvalidValue, 23)] {
        assert_eq!(kind.number(), number);
    }
}
