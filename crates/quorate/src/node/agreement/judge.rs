//! Decides which nodes are right when nodes differ, from the point of view of one of them.

use quorate_env::mutant::Mutant;
use quorate_model::NodeId;

/// The result of a comparison, for the node that compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All nodes that answered hold the same as this node.
    Agrees,
    /// Nodes differ, and too few have answered.
    Open,
    /// A majority of the voters hold the same as this node; the named nodes do not.
    OthersDiffer(Vec<NodeId>),
    /// A majority, the named nodes, hold something else than this node.
    Differs(Vec<NodeId>),
    /// All have answered, and no majority holds the same.
    Split,
}

impl Verdict {
    /// Returns whether nodes differ and it is not known which are right.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Open | Self::Split)
    }
}

/// Judges the hash of this node by the answers of the others. `votes` says whether this node is one of the `voters`.
pub(super) fn judge<H: PartialEq>(own: &H, votes: bool, answers: &[(NodeId, H)], voters: usize) -> Verdict {
    let majority = voters / 2 + 1;
    let who = |holds: &dyn Fn(&H) -> bool| -> Vec<NodeId> {
        answers.iter().filter(|(_, hash)| holds(hash)).map(|(id, _)| *id).collect()
    };
    let others = who(&|hash| hash != own);
    if others.is_empty() {
        return Verdict::Agrees;
    }
    let own_count = answers.len() - others.len() + usize::from(votes);
    if own_count >= majority {
        return Verdict::OthersDiffer(others);
    }
    let others = answers.iter().filter(|(_, hash)| hash != own).map(|(_, hash)| who(&|other| other == hash));
    let enough = if Mutant::OneIsBelieved.is_on() { 1 } else { majority };
    match others.max_by_key(Vec::len).filter(|most| most.len() >= enough) {
        Some(most) => Verdict::Differs(most),
        None if answers.len() + usize::from(votes) == voters => Verdict::Split,
        None => Verdict::Open,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the verdict for a node with the hash `own`; `None` in `others` stands for a voter that does not answer.
    fn of(own: u8, votes: bool, others: &[Option<u8>]) -> Verdict {
        let answers: Vec<(NodeId, u8)> =
            (1..).map(NodeId).zip(others).filter_map(|(id, hash)| Some((id, (*hash)?))).collect();
        judge(&own, votes, &answers, others.len() + usize::from(votes))
    }

    fn ids(ids: &[u64]) -> Vec<NodeId> {
        ids.iter().copied().map(NodeId).collect()
    }

    #[test]
    fn only_a_majority_of_all_voters_decides() {
        assert_eq!(of(7, true, &[Some(7), Some(7)]), Verdict::Agrees);
        assert_eq!(of(7, true, &[None, None]), Verdict::Agrees);
        assert_eq!(of(7, true, &[Some(7), Some(8)]), Verdict::OthersDiffer(ids(&[2])));
        assert_eq!(of(7, true, &[Some(8), Some(8)]), Verdict::Differs(ids(&[1, 2])));
        // A single node, which may be the leader, is not enough.
        assert_eq!(of(7, true, &[Some(8), None]), Verdict::Open);
        assert_eq!(of(7, true, &[Some(8), Some(9)]), Verdict::Split);
        assert_eq!(of(7, true, &[Some(8)]), Verdict::Split);
        // A node that does not vote is judged, but does not count for others.
        assert_eq!(of(7, false, &[Some(8), Some(8), None]), Verdict::Differs(ids(&[1, 2])));
        assert_eq!(of(7, false, &[Some(7), Some(8), None]), Verdict::Open);
        assert_eq!(of(7, true, &[Some(8), Some(8), Some(7), None]), Verdict::Open);
    }

    proptest! {
        #[test]
        fn only_those_unlike_a_majority_are_condemned(
            hashes in prop::collection::vec(0_u8..3, 1..8),
        ) {
            let majority = hashes.len() / 2 + 1;
            let right = (0..3).find(|hash| hashes.iter().filter(|held| *held == hash).count() >= majority);
            for (place, own) in hashes.iter().enumerate() {
                let mut others: Vec<Option<u8>> = hashes.iter().copied().map(Some).collect();
                others.remove(place);
                let is_condemned = matches!(of(*own, true, &others), Verdict::Differs(_));
                prop_assert_eq!(is_condemned, right.is_some_and(|right| right != *own));
            }
        }
    }
}
