//! The small outcomes that a session keeps in its own row. Nearly all outcomes are small.
//!
//! A row per outcome would cost as much as the write itself. Here all the outcomes of a batch cost one row per session.

use std::collections::VecDeque;

/// The most bytes of a small encoded outcome. That of an INSERT takes about 15.
const SMALL_BYTES_MAX: usize = 31;

/// The most small outcomes of one session.
const RECENT_MAX: usize = 512;

/// Bytes of a sequence in its encoding.
const SEQUENCE_BYTES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Small {
    len: u8,
    bytes: [u8; SMALL_BYTES_MAX],
}

impl Small {
    fn of(outcome: &[u8]) -> Option<Self> {
        let mut small = Self { len: u8::try_from(outcome.len()).ok()?, bytes: [0; SMALL_BYTES_MAX] };
        small.bytes.get_mut(..outcome.len())?.copy_from_slice(outcome);
        Some(small)
    }

    fn outcome(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// Encoded outcomes in the order of their sequences. A new one is nearly always the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Recent(VecDeque<(u64, Small)>);

impl Recent {
    /// Keeps an outcome if it is small and there is room.
    pub(super) fn keep(&mut self, sequence: u64, outcome: &[u8]) -> bool {
        let Some(small) = Small::of(outcome).filter(|_| self.0.len() < RECENT_MAX) else { return false };
        match self.0.back() {
            Some((last, _)) if *last >= sequence => match self.place(sequence) {
                Ok(_) => return false,
                Err(place) => self.0.insert(place, (sequence, small)),
            },
            _ => self.0.push_back((sequence, small)),
        }
        true
    }

    /// Drops the outcomes up to a sequence.
    pub(super) fn forget(&mut self, upto: u64) {
        while self.0.front().is_some_and(|(sequence, _)| *sequence <= upto) {
            self.0.pop_front();
        }
    }

    pub(super) fn get(&self, sequence: u64) -> Option<&[u8]> {
        let place = self.place(sequence).ok()?;
        self.0.get(place).map(|(_, small)| small.outcome())
    }

    /// The place of a sequence, or the place to insert it.
    fn place(&self, sequence: u64) -> Result<usize, usize> {
        self.0.binary_search_by_key(&sequence, |(sequence, _)| *sequence)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Encodes the outcomes in the order of their sequences: each sequence in 8 bytes, little-endian, the length in
    /// one, and the outcome.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.0.len() * (SEQUENCE_BYTES + 1 + SMALL_BYTES_MAX / 2));
        for (sequence, small) in &self.0 {
            bytes.extend_from_slice(&sequence.to_le_bytes());
            bytes.push(small.len);
            bytes.extend_from_slice(small.outcome());
        }
        bytes
    }

    /// Returns `None` for bytes that [`Self::encode`] never produces.
    pub(super) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut recent = Self::default();
        while let Some((sequence, rest)) = bytes.split_first_chunk::<SEQUENCE_BYTES>() {
            let (len, rest) = rest.split_first()?;
            let (outcome, rest) = rest.split_at_checked(usize::from(*len))?;
            recent.keep(u64::from_le_bytes(*sequence), outcome).then_some(())?;
            bytes = rest;
        }
        bytes.is_empty().then_some(recent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recent(lens: &[usize]) -> Recent {
        let mut recent = Recent::default();
        for (sequence, len) in (1..).zip(lens) {
            assert!(recent.keep(sequence * 1000, &vec![7; *len]));
        }
        recent
    }

    #[test]
    fn only_encoded_outcomes_can_be_decoded() {
        let kept = recent(&[0, 1, SMALL_BYTES_MAX]);
        let bytes = kept.encode();
        assert_eq!(Recent::decode(&bytes), Some(kept));
        assert_eq!(Recent::decode(&[]), Some(Recent::default()));
        for end in 1..bytes.len() {
            let whole = [9, 19].contains(&end);
            assert_eq!(Recent::decode(&bytes[..end]).is_some(), whole, "{end}");
        }
        assert_eq!(Recent::decode(&[&bytes[..], &bytes[..]].concat()), None, "twice the same");
        assert_eq!(Recent::decode(&[0, 0, 0, 0, 0, 0, 0, 0, 32]), None);
    }

    #[test]
    fn the_number_of_small_outcomes_is_limited() {
        let mut kept = recent(&[3; RECENT_MAX]);
        assert!(!kept.keep(1, b"one more"));
        kept.forget(2000);
        assert_eq!((kept.len(), kept.get(2000), kept.get(3000)), (RECENT_MAX - 2, None, Some(&[7; 3][..])));
        assert!(kept.keep(1, b"one more") && !kept.keep(2, &[0; SMALL_BYTES_MAX + 1]));
    }
}
