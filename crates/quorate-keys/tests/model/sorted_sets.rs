//! Sorted sets: sorted anew for each command.

use std::collections::BTreeMap;
use std::ops::RangeBounds;

use bytes::Bytes;
use quorate_keys::{AddOptions, Compare, KeysError, KeysReply, Kind, Range, SortedSetCommand, Space, Which};

use super::{Held, Model, Name, Reply, slice};

type Scores = BTreeMap<Bytes, f64>;

impl Model {
    fn scores(&self, name: &Name) -> Result<Scores, KeysError> {
        Ok(match self.typed(name, Kind::SortedSet)? {
            Some(Held::SortedSet(scores)) => scores.clone(),
            _ => Scores::new(),
        })
    }

    fn put_scores(&mut self, name: &Name, scores: Scores) {
        *self.change(name, Kind::SortedSet) = Held::SortedSet(scores);
    }

    pub fn run_sorted_set(&mut self, space: Space, command: &SortedSetCommand) -> Reply {
        match command {
            SortedSetCommand::Add { key, members, options, count_changed } => {
                self.add_scores(&(space, key.clone()), members, *options, *count_changed)
            }
            SortedSetCommand::Increment { key, member, by, options } => {
                let name = (space, key.clone());
                let mut scores = self.scores(&name)?;
                let old = scores.get(member).copied();
                let sum = old.unwrap_or(0.0) + by + 0.0;
                if sum.is_nan() {
                    return Err(KeysError::NotScore);
                }
                if !applies(*options, old, sum) {
                    return Ok(KeysReply::NotApplied);
                }
                if old != Some(sum) {
                    scores.insert(member.clone(), sum);
                    self.put_scores(&name, scores);
                }
                Ok(KeysReply::Score(sum))
            }
            SortedSetCommand::Remove { key, members } => {
                let name = (space, key.clone());
                let mut scores = self.scores(&name)?;
                let removed = members.iter().filter(|member| scores.remove(*member).is_some()).count();
                if removed > 0 {
                    self.put_scores(&name, scores);
                }
                Ok(KeysReply::Count(removed as u64))
            }
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
                let name = (space, key.clone());
                let mut popped = in_range(&self.scores(&name)?, &Range::Rank(0, -1), *reverse);
                popped.truncate(*count as usize);
                self.drop_scores(&name, &popped)?;
                Ok(KeysReply::Scored(popped))
            }
        }
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
