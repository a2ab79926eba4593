//! Sorted sets: sorted anew for each command.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;

use bytes::Bytes;
use quorate_keys::{
    AddOptions, Aggregate, Change, Compare, ExpiryCondition, KeysError, KeysReply, Kind, Page, Range, SetOperation,
    SortedSetCommand, Space, Which, after,
};

use super::{Entry, Held, Model, Name, Reply, changed, slice};

type Scores = BTreeMap<Bytes, f64>;
type Expiries = BTreeMap<Bytes, u64>;

impl Model {
    fn scores(&self, name: &Name) -> Result<Scores, KeysError> {
        Ok(match self.typed(name, Kind::SortedSet)? {
            Some(Held::SortedSet(scores, _)) => scores.clone(),
            _ => Scores::new(),
        })
    }

    fn expiries(&self, name: &Name) -> Expiries {
        match self.keys.get(name).map(|entry| &entry.held) {
            Some(Held::SortedSet(_, expiries)) => expiries.clone(),
            _ => Expiries::new(),
        }
    }

    /// Puts scores, and leaves the expiries of those that are there.
    fn put_scores(&mut self, name: &Name, scores: Scores) {
        let expiries = self.expiries(name);
        self.put_expiring(name, scores, expiries);
    }

    fn put_expiring(&mut self, name: &Name, scores: Scores, mut expiries: Expiries) {
        expiries.retain(|member, _| scores.contains_key(member));
        *self.change(name, Kind::SortedSet) = Held::SortedSet(scores, expiries);
    }

    fn expire_members(&mut self, name: &Name, members: &[Bytes], at: Option<u64>, condition: ExpiryCondition) -> Reply {
        self.typed(name, Kind::SortedSet)?;
        let mut changes = Vec::new();
        for member in members {
            let (mut scores, mut expiries) = (self.scores(name)?, self.expiries(name));
            let mut expires_at = expiries.get(member).copied();
            let change = match scores.get(member) {
                Some(_) => changed(&mut expires_at, at, condition, self.now),
                None => Change::Missing,
            };
            match change {
                Change::Done if at.is_none() => _ = expiries.remove(member),
                Change::Done => _ = expiries.insert(member.clone(), at.unwrap()),
                Change::Removed => _ = scores.remove(member),
                Change::NotApplied | Change::Missing => {}
            }
            if matches!(change, Change::Done | Change::Removed) {
                self.put_expiring(name, scores, expiries);
            }
            changes.push(change);
        }
        Ok(KeysReply::Expired(changes))
    }

    fn describe_members(&self, name: &Name, members: &[Bytes]) -> Reply {
        let (scores, expiries) = (self.scores(name)?, self.expiries(name));
        let version = self.keys.get(name).map(|entry| entry.version).unwrap_or_default();
        let describe = |member| scores.get(member).map(|_| (version, expiries.get(member).copied()));
        Ok(KeysReply::Described(members.iter().map(describe).collect()))
    }

    pub fn run_sorted_set(&mut self, space: Space, command: &SortedSetCommand, actual: &Reply) -> Reply {
        match command {
            SortedSetCommand::Add { key, members, options, count_changed } => {
                self.add_scores(&(space, key.clone()), members, *options, *count_changed)
            }
            SortedSetCommand::Increment { key, member, by, options } => {
                self.increment(&(space, key.clone()), member, *by, *options)
            }
            SortedSetCommand::Remove { key, members } => self.remove_scores(&(space, key.clone()), members),
            SortedSetCommand::Scores { key, members } => {
                let scores = self.scores(&(space, key.clone()))?;
                Ok(KeysReply::Scores(members.iter().map(|member| scores.get(member).copied()).collect()))
            }
            SortedSetCommand::Rank { key, member, reverse } => {
                let mut sorted = sorted(&self.scores(&(space, key.clone()))?);
                if *reverse {
                    sorted.reverse();
                }
                let rank = sorted.iter().position(|(found, _)| found == member);
                Ok(rank.map_or(KeysReply::Missing, |rank| KeysReply::Rank(rank as u64, sorted[rank].1)))
            }
            SortedSetCommand::Range { key, range, reverse, offset, limit } => {
                let members = in_range(&self.scores(&(space, key.clone()))?, range, *reverse);
                Ok(KeysReply::Scored(members.into_iter().skip(*offset as usize).take(*limit as usize).collect()))
            }
            SortedSetCommand::CountRange { key, range } => {
                Ok(KeysReply::Count(in_range(&self.scores(&(space, key.clone()))?, range, false).len() as u64))
            }
            SortedSetCommand::RemoveRange { key, range } => {
                let name = (space, key.clone());
                let removed = in_range(&self.scores(&name)?, range, false);
                Ok(KeysReply::Count(self.drop_scores(&name, &removed)? as u64))
            }
            SortedSetCommand::Pop { key, count, reverse } => {
                let popped = self.pop_scores(&(space, key.clone()), *count, *reverse)?;
                Ok(KeysReply::Scored(popped))
            }
            SortedSetCommand::PopFirst { keys, count, reverse } => self.pop_first_scores(space, keys, *count, *reverse),
            SortedSetCommand::Scan { key, from, limit } => {
                Ok(KeysReply::ScoredPage(page(&self.scores(&(space, key.clone()))?, from, (*limit).max(1) as usize)))
            }
            SortedSetCommand::Draw { key, count, repeats, .. } => {
                check_drawn(&self.scores(&(space, key.clone()))?, *count, *repeats, actual);
                actual.clone()
            }
            SortedSetCommand::StoreRange { key, to, range, reverse, offset, limit } => {
                let members = in_range(&self.scores(&(space, key.clone()))?, range, *reverse);
                let stored = members.into_iter().skip(*offset as usize).take(*limit as usize).collect();
                Ok(self.store_scores((space, to.clone()), stored))
            }
            SortedSetCommand::Expire { key, members, at, condition, relative } => {
                let at = self.time(*at, *relative);
                self.expire_members(&(space, key.clone()), members, at, *condition)
            }
            SortedSetCommand::Describe { key, members } => self.describe_members(&(space, key.clone()), members),
            SortedSetCommand::Combine { operation, sources, aggregate, store } => {
                let scores = self.combine_scores(space, *operation, sources, *aggregate)?;
                Ok(match store {
                    Some(to) => self.store_scores((space, to.clone()), scores),
                    None => KeysReply::Scored(sorted(&scores)),
                })
            }
        }
    }

    fn remove_scores(&mut self, name: &Name, members: &[Bytes]) -> Reply {
        let mut scores = self.scores(name)?;
        let removed = members.iter().filter(|member| scores.remove(*member).is_some()).count();
        if removed > 0 {
            self.put_scores(name, scores);
        }
        Ok(KeysReply::Count(removed as u64))
    }

    fn increment(&mut self, name: &Name, member: &Bytes, by: f64, options: AddOptions) -> Reply {
        let mut scores = self.scores(name)?;
        let old = scores.get(member).copied();
        let sum = old.unwrap_or(0.0) + by + 0.0;
        if sum.is_nan() {
            return Err(KeysError::NotScore);
        }
        if !applies(options, old, sum) {
            return Ok(KeysReply::NotApplied);
        }
        if old != Some(sum) {
            scores.insert(member.clone(), sum);
            self.put_scores(name, scores);
        }
        Ok(KeysReply::Score(sum))
    }

    fn pop_scores(&mut self, name: &Name, count: u64, reverse: bool) -> Result<Vec<(Bytes, f64)>, KeysError> {
        let mut popped = in_range(&self.scores(name)?, &Range::Rank(0, -1), reverse);
        popped.truncate(count as usize);
        self.drop_scores(name, &popped)?;
        Ok(popped)
    }

    fn pop_first_scores(&mut self, space: Space, keys: &[Bytes], count: u64, reverse: bool) -> Reply {
        for key in keys {
            let name = (space, key.clone());
            if !self.scores(&name)?.is_empty() {
                return Ok(KeysReply::ScoredOf(key.clone(), self.pop_scores(&name, count, reverse)?));
            }
        }
        Ok(KeysReply::Missing)
    }

    fn store_scores(&mut self, to: Name, scores: Scores) -> KeysReply {
        let count = scores.len() as u64;
        self.keys.insert(
            to,
            Entry { held: Held::SortedSet(scores, Expiries::new()), version: self.version, expires_at: None },
        );
        KeysReply::Count(count)
    }

    fn combine_scores(
        &self,
        space: Space,
        operation: SetOperation,
        sources: &[(Bytes, f64)],
        aggregate: Aggregate,
    ) -> Result<Scores, KeysError> {
        let no_nan = |number: f64| if number.is_nan() { 0.0 } else { number + 0.0 };
        let mut sets: Vec<Scores> = Vec::new();
        for (key, weight) in sources {
            let mut scores = match self.keys.get(&(space, key.clone())).map(|entry| &entry.held) {
                None => Scores::new(),
                Some(Held::SortedSet(scores, _)) => scores.clone(),
                Some(Held::Set(members)) => members.keys().map(|member| (member.clone(), 1.0)).collect(),
                Some(_) => return Err(KeysError::WrongType),
            };
            scores.values_mut().for_each(|score| *score = no_nan(*score * weight));
            sets.push(scores);
        }
        let mut combined = Scores::new();
        for member in sets.iter().flat_map(Scores::keys) {
            let in_sets: Vec<f64> = sets.iter().filter_map(|set| set.get(member).copied()).collect();
            let is_wanted = match operation {
                SetOperation::Union => true,
                SetOperation::Intersection => in_sets.len() == sets.len(),
                SetOperation::Difference => in_sets.len() == 1 && sets[0].contains_key(member),
            };
            let together = |left: f64, right: f64| match aggregate {
                Aggregate::Sum => no_nan(left + right),
                Aggregate::Lowest => left.min(right),
                Aggregate::Highest => left.max(right),
            };
            if is_wanted {
                combined.insert(member.clone(), in_sets.into_iter().reduce(together).unwrap());
            }
        }
        Ok(combined)
    }

    fn drop_scores(&mut self, name: &Name, members: &[(Bytes, f64)]) -> Result<usize, KeysError> {
        let mut scores = self.scores(name)?;
        members.iter().for_each(|(member, _)| _ = scores.remove(member));
        if !members.is_empty() {
            self.put_scores(name, scores);
        }
        Ok(members.len())
    }

    fn add_scores(&mut self, name: &Name, members: &[(f64, Bytes)], options: AddOptions, count_changed: bool) -> Reply {
        if members.iter().any(|(score, _)| score.is_nan()) {
            return Err(KeysError::NotScore);
        }
        let mut scores = self.scores(name)?;
        let (mut added, mut changed) = (0, 0);
        for (score, member) in members {
            let old = scores.get(member).copied();
            if applies(options, old, *score) && old != Some(*score) {
                added += u64::from(old.is_none());
                changed += 1;
                scores.insert(member.clone(), score + 0.0);
            }
        }
        if changed > 0 {
            self.put_scores(name, scores);
        }
        Ok(KeysReply::Count(if count_changed { changed } else { added }))
    }
}

fn page(scores: &Scores, from: &Bytes, limit: usize) -> Page<(Bytes, f64)> {
    let members = scores.range(from.clone()..).take(limit);
    let rows: Vec<_> = members.map(|(member, score)| (member.clone(), *score)).collect();
    let next = rows.last().filter(|_| rows.len() == limit).map(|(member, _)| after(member));
    Page { rows, next }
}

fn check_drawn(old: &Scores, count: u64, repeats: bool, actual: &Reply) {
    let Ok(KeysReply::Scored(drawn)) = actual else { panic!("{actual:?}") };
    assert!(drawn.iter().all(|(member, score)| old.get(member) == Some(score)));
    let distinct: BTreeSet<_> = drawn.iter().map(|(member, _)| member).collect();
    let expected = if repeats && !old.is_empty() { count } else { count.min(old.len() as u64) };
    assert_eq!(drawn.len() as u64, expected);
    assert!(repeats || distinct.len() == drawn.len());
}

fn applies(options: AddOptions, old: Option<f64>, new: f64) -> bool {
    match (options.which, old) {
        (Which::Missing, Some(_)) | (Which::Exists, None) => false,
        (_, None) => true,
        (_, Some(old)) => match options.compare {
            Compare::Any => true,
            Compare::Greater => new > old,
            Compare::Less => new < old,
        },
    }
}

pub fn sorted(scores: &Scores) -> Vec<(Bytes, f64)> {
    let mut sorted: Vec<_> = scores.iter().map(|(member, score)| (member.clone(), *score)).collect();
    sorted.sort_by(|left, right| left.1.total_cmp(&right.1).then_with(|| left.0.cmp(&right.0)));
    sorted
}

fn in_range(scores: &Scores, range: &Range, reverse: bool) -> Vec<(Bytes, f64)> {
    let mut sorted = sorted(scores);
    if reverse {
        sorted.reverse();
    }
    let lowest = scores.values().copied().fold(f64::INFINITY, f64::min);
    match range {
        Range::Rank(first, last) => sorted[slice(sorted.len(), *first, *last)].to_vec(),
        Range::Score(min, max) => {
            sorted.retain(|(_, score)| (*min, *max).contains(score));
            sorted
        }
        Range::Member(min, max) => {
            let bounds = (min.clone(), max.clone());
            sorted.retain(|(member, score)| *score == lowest && bounds.contains(member));
            sorted
        }
    }
}
