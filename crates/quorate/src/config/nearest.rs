//! The known word that a misspelt one probably means.

/// The known word that is spelled most like this one.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known.into_iter().min_by_key(|known| distance(word, known))
}

/// How many letters have to be inserted, removed or replaced to make one word from the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.chars().enumerate() {
        let mut next = vec![i.saturating_add(1)];
        for ((right, diagonal), above) in b.iter().zip(&row).zip(row.iter().skip(1)) {
            let replaced = diagonal.saturating_add(usize::from(left != *right));
            let inserted = next.last().copied().unwrap_or_default().min(*above).saturating_add(1);
            next.push(replaced.min(inserted));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_between_words() {
        for (a, b, expected) in [("", "", 0), ("", "ab", 2), ("lisen", "listen", 1), ("nmae", "name", 2), ("a", "b", 1)]
        {
            assert_eq!(distance(a, b), expected, "{a} {b}");
            assert_eq!(distance(b, a), expected, "{b} {a}");
        }
    }
}
