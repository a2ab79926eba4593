//! SORT: the elements of a list, a set or a sorted set in another order, or what other keys say of them.
//!
//! The elements are read first, then the keys that BY and GET name, and at last the result is stored; these are steps
//! of their own. What is sorted, and how much is looked up, has a limit.

use std::cmp::Ordering;

use bytes::Bytes;
use quorate_keys::{
    Collection, Condition, ElementCommand, End, HashCommand, KeyCommand, KeysCommand, KeysReply, ListCommand, Range,
    SortedSetCommand, Space, SpaceCommand, StringCommand,
};
use quorate_model::{Failure, FailureKind};

use crate::args::{Args, Planned};
use crate::batch::Step;
use crate::connection::Call;
use crate::error::Refusal;
use crate::frame::Frame;
use crate::number::double;
use crate::plan::{Answers, Outcome, Plan, last};
use crate::replies;
use crate::table::{Access, ONE, Spec, local, read};

/// The rows of SORT.
pub const COMMANDS: &[Spec] = &[
    // By itself, since what it has read must not change before it is stored by a later request of the client.
    local("sort", -2, "1.0.0", "Sorts elements, and returns or stores them.", sort)
        .access(Access::Write)
        .keys(ONE)
        .costly(),
    read("sort_ro", -2, ONE, "7.0.0", "Sorts elements, and returns them.", |args| Sort::read(args, false)?.plan())
        .costly(),
];

/// The most keys that one SORT looks up for BY, and for GET.
const SORT_LOOKUPS_MAX: usize = 10_000;

/// The most bytes of elements and nulls that GET without a key returns. Each counts [`VALUE_COST`] bytes more.
const SORT_REPEATED_BYTES_MAX: usize = 64 << 20;

/// About what a value takes beside its bytes.
const VALUE_COST: usize = 32;

/// The key, and perhaps its field, that says something of an element: `*` stands for that.
#[derive(Clone, Debug)]
struct Pattern {
    before: Bytes,
    after: Bytes,
    field: Option<Bytes>,
}

impl Pattern {
    /// Reads a pattern; none if it has no place for an element.
    fn new(text: &Bytes) -> Option<Self> {
        const FIELD: &[u8] = b"->";
        let star = text.iter().position(|byte| *byte == b'*')?;
        let rest = text.slice(star + 1..);
        let arrow = rest.windows(FIELD.len()).position(|bytes| bytes == FIELD);
        let arrow = arrow.filter(|at| at + FIELD.len() < rest.len());
        let field = arrow.map(|at| rest.slice(at + FIELD.len()..));
        Some(Self { before: text.slice(..star), after: rest.slice(..arrow.unwrap_or(rest.len())), field })
    }

    /// Returns the command that reads what the key of an element holds.
    fn of(&self, element: &[u8]) -> KeysCommand {
        let key = Bytes::from([&self.before, element, &self.after].concat());
        match &self.field {
            Some(field) => KeysCommand::Hash(HashCommand::Get { key, fields: vec![field.clone()] }),
            None => KeysCommand::String(StringCommand::Get { key }),
        }
    }
}

/// What elements are sorted by.
#[derive(Debug)]
enum By {
    /// Themselves.
    Itself,
    /// Nothing: they are as they are.
    Nothing,
    /// What keys hold.
    Keys(Pattern),
}

/// What is returned of each element.
#[derive(Debug)]
enum Get {
    /// Itself.
    Itself,
    /// Null.
    Nothing,
    /// What a key holds.
    Key(Pattern),
}

/// A SORT.
#[derive(Debug)]
struct Sort {
    space: Space,
    key: Bytes,
    by: By,
    gets: Vec<Get>,
    is_down: bool,
    /// Whether texts are compared, and not numbers.
    is_text: bool,
    limit: (i64, i64),
    store: Option<Bytes>,
}

fn sort(call: &mut Call) -> Result<Step, Refusal> {
    Ok(Step::Plan(Sort::read(&mut call.args, true)?.plan()?))
}

/// Returns the values of looked up keys: null for one that is missing, or of the wrong type.
fn values(answers: Answers) -> Result<Vec<Option<Bytes>>, Frame> {
    let value = |answer: Result<KeysReply, Failure>| match answer {
        Ok(KeysReply::Value(value)) => Ok(Some(value)),
        Ok(KeysReply::Values(values)) => Ok(values.into_iter().next().flatten()),
        Ok(KeysReply::Missing) => Ok(None),
        Ok(other) => Err(replies::unexpected(&other)),
        Err(failure) if failure.kind == FailureKind::WrongType => Ok(None),
        Err(failure) => Err(Frame::from(failure)),
    };
    answers.into_iter().map(value).collect()
}

/// Returns the elements that one of several reads has found: those of other types have failed. A list or a set is
/// reversed if that is asked for.
fn elements(answers: Answers, reverse: bool) -> Result<Vec<Bytes>, Frame> {
    let is_found = |answer: &Result<_, Failure>| match answer {
        Ok(_) => true,
        Err(failure) => failure.kind != FailureKind::WrongType,
    };
    let place = answers.iter().position(is_found).unwrap_or_default();
    match answers.into_iter().nth(place) {
        Some(Ok(KeysReply::Members(items))) if reverse => Ok(items.into_iter().rev().collect()),
        Some(Ok(KeysReply::Members(items))) => Ok(items),
        Some(Ok(KeysReply::Scored(members))) => Ok(members.into_iter().map(|(member, _)| member).collect()),
        Some(Ok(KeysReply::Elements(page))) if page.next.is_none() => {
            let members = page.rows.into_iter().map(|(member, _)| member);
            Ok(if reverse { members.rev().collect() } else { members.collect() })
        }
        Some(Ok(KeysReply::Elements(_))) => Err(Frame::error("ERR SORT takes up to 100000 elements, of 16 MiB")),
        Some(Ok(KeysReply::Missing)) | None => Ok(Vec::new()),
        Some(Ok(other)) => Err(replies::unexpected(&other)),
        Some(Err(failure)) => Err(failure.into()),
    }
}

impl Sort {
    fn read(args: &mut Args, may_store: bool) -> Result<Self, Refusal> {
        let (space, key) = (args.moment.space, args.next()?);
        let (by, gets) = (By::Itself, Vec::new());
        let mut sort = Self { space, key, by, gets, is_down: false, is_text: false, limit: (0, -1), store: None };
        while !args.is_empty() {
            if args.option("ASC") {
                sort.is_down = false;
            } else if args.option("DESC") {
                sort.is_down = true;
            } else if args.option("ALPHA") {
                sort.is_text = true;
            } else if args.left() > 2 && args.option("LIMIT") {
                sort.limit = (args.integer()?, args.integer()?);
            } else if may_store && args.left() > 1 && args.option("STORE") {
                sort.store = Some(args.next()?);
            } else if args.left() > 1 && args.option("BY") {
                let by = Pattern::new(&args.next()?);
                // Once nothing, always nothing.
                sort.by = if matches!(sort.by, By::Nothing) { By::Nothing } else { by.map_or(By::Nothing, By::Keys) };
            } else if args.left() > 1 && args.option("GET") {
                let text = args.next()?;
                let key = || Pattern::new(&text).map_or(Get::Nothing, Get::Key);
                sort.gets.push(if text == "#" { Get::Itself } else { key() });
            } else {
                return Err(Refusal::Syntax);
            }
        }
        Ok(sort)
    }

    fn commands(&self, commands: impl IntoIterator<Item = KeysCommand>) -> Vec<SpaceCommand> {
        let space = self.space;
        commands.into_iter().map(|command| SpaceCommand { space, command }).collect()
    }

    /// Returns the plan that reads the elements, whatever the key holds, and goes on with them.
    fn plan(self) -> Planned {
        let (key, limit, from) = (self.key.clone(), u64::MAX, Bytes::new());
        let reverse = matches!(self.by, By::Nothing) && self.is_down;
        let range = Range::Rank(0, -1);
        let commands = self.commands([
            KeysCommand::List(ListCommand::Range { key: key.clone(), start: 0, stop: -1 }),
            KeysCommand::Element(ElementCommand::Scan { of: Collection::Set, key: key.clone(), from, limit }),
            KeysCommand::SortedSet(SortedSetCommand::Range { key, range, reverse, offset: 0, limit }),
        ]);
        let continues = self.store.is_some() || matches!(self.by, By::Keys(_)) || !self.gets.is_empty();
        let plan = Plan::new(commands, move |answers| match elements(answers, reverse) {
            Ok(elements) => self.weigh(elements),
            Err(frame) => frame.into(),
        });
        Ok(Plan { continues, ..plan })
    }

    /// Returns the plan that looks up keys, and goes on with what they hold.
    fn look_up(
        self,
        commands: Vec<KeysCommand>,
        next: impl FnOnce(Self, Vec<Option<Bytes>>) -> Outcome + Send + 'static,
    ) -> Outcome {
        if commands.len() > SORT_LOOKUPS_MAX {
            return Frame::error("ERR SORT looks up at most 10000 keys; sort fewer elements, or give a LIMIT").into();
        }
        let commands = self.commands(commands);
        let finish = |answers| values(answers).map_or_else(Outcome::from, |found| next(self, found));
        Outcome::More(Plan::new(commands, finish).continues())
    }

    /// Finds what the elements are sorted by.
    fn weigh(self, elements: Vec<Bytes>) -> Outcome {
        match &self.by {
            By::Keys(pattern) if !elements.is_empty() => {
                let commands = elements.iter().map(|element| pattern.of(element)).collect();
                self.look_up(commands, |sort, weights| sort.order(elements.into_iter().zip(weights).collect()))
            }
            By::Nothing => self.get(elements),
            By::Itself | By::Keys(_) => {
                let weighed = elements.into_iter().map(|element| (element.clone(), Some(element)));
                self.order(weighed.collect())
            }
        }
    }

    /// Puts the elements in their order, by their weights.
    fn order(self, mut weighed: Vec<(Bytes, Option<Bytes>)>) -> Outcome {
        if self.is_text {
            self.sort(&mut weighed, |(_, first), (_, second)| first.cmp(second));
            return self.get(weighed.into_iter().map(|(element, _)| element).collect());
        }
        // A zero byte ends a number, as in Redis.
        let end = |weight: &Bytes| weight.iter().position(|byte| *byte == 0).unwrap_or(weight.len());
        let number = |weight: Option<Bytes>| weight.map_or(Some(0.0), |weight| double(&weight.slice(..end(&weight))));
        let numbers = weighed.into_iter().map(|(element, weight)| Some((element, number(weight)?)));
        let Some(mut numbers) = numbers.collect::<Option<Vec<_>>>() else {
            return Frame::error("ERR One or more scores can't be converted into double").into();
        };
        self.sort(&mut numbers, |(first, weight), (second, other)| {
            weight.partial_cmp(other).unwrap_or(Ordering::Equal).then_with(|| first.cmp(second))
        });
        self.get(numbers.into_iter().map(|(element, _)| element).collect())
    }

    fn sort<T>(&self, elements: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
        let in_order = |first: &T, second: &T| {
            let order = compare(first, second);
            if self.is_down { order.reverse() } else { order }
        };
        elements.sort_by(in_order);
    }

    /// Takes the elements that are wanted, and finds what is returned of them.
    fn get(self, elements: Vec<Bytes>) -> Outcome {
        let (offset, count) = self.limit;
        let offset = usize::try_from(offset).unwrap_or(0);
        // A negative number is all.
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let elements: Vec<Bytes> = elements.into_iter().skip(offset).take(count).collect();
        if self.gets.is_empty() {
            return self.finish(elements.into_iter().map(Some).collect());
        }
        if self.repeats_too_much(&elements) {
            return Frame::error("ERR GET # returns at most 64 MiB; sort fewer elements, or give a LIMIT").into();
        }
        let patterns = || self.gets.iter().filter_map(|get| if let Get::Key(of) = get { Some(of) } else { None });
        let commands = elements.iter().flat_map(|element| patterns().map(|of| of.of(element)));
        // One too many shows that there are too many.
        let commands: Vec<_> = commands.take(SORT_LOOKUPS_MAX + 1).collect();
        if commands.is_empty() {
            return self.arrange(&elements, Vec::new());
        }
        self.look_up(commands, move |sort, found| sort.arrange(&elements, found))
    }

    /// Returns whether GET asks too often for the elements themselves, or for null.
    fn repeats_too_much(&self, elements: &[Bytes]) -> bool {
        let times = self.gets.iter().filter(|get| !matches!(get, Get::Key(_))).count();
        let bytes: usize = elements.iter().map(|element| element.len() + VALUE_COST).sum();
        bytes.saturating_mul(times) > SORT_REPEATED_BYTES_MAX
    }

    /// Returns what is asked for of each element, given what the keys hold.
    fn arrange(self, elements: &[Bytes], found: Vec<Option<Bytes>>) -> Outcome {
        let mut found = found.into_iter();
        let mut values = Vec::with_capacity(elements.len());
        for element in elements {
            for get in &self.gets {
                values.push(match get {
                    Get::Itself => Some(element.clone()),
                    Get::Nothing => None,
                    Get::Key(_) => found.next().flatten(),
                });
            }
        }
        self.finish(values)
    }

    /// Returns the result, or stores it.
    fn finish(self, values: Vec<Option<Bytes>>) -> Outcome {
        let Some(to) = &self.store else {
            return Frame::Array(values.into_iter().map(Frame::bulk_or_null).collect()).into();
        };
        let delete = KeyCommand::Delete { keys: vec![to.clone()], condition: Condition::Always };
        let values: Vec<Bytes> = values.into_iter().map(Option::unwrap_or_default).collect();
        let push = ListCommand::Push { key: to.clone(), values, end: End::Right, existing: false };
        let is_empty = matches!(&push, ListCommand::Push { values, .. } if values.is_empty());
        let push = (!is_empty).then_some(KeysCommand::List(push));
        let commands = self.commands(std::iter::once(KeysCommand::Key(delete)).chain(push));
        let plan = Plan::new(commands, move |answers| match last(answers) {
            Ok(_) if is_empty => Frame::Integer(0),
            Ok(reply) => replies::count(reply),
            Err(failure) => failure.into(),
        });
        Outcome::More(Plan { is_write: true, continues: true, ..plan })
    }
}
