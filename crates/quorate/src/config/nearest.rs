//! Finds the known word that a misspelt one probably means, for keys here and for names in other programs.

/// Returns the candidate with the fewest letters to change, to add or to remove; two swapped letters count as one
/// change.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates.into_iter().min_by_key(|candidate| distance(name, candidate))
}

/// Returns the nearest candidate, if it is similar enough to be a typing error.
pub fn mistyped<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters = name.chars().count();
    nearest(name, candidates).filter(|near| distance(name, near) <= letters.div_ceil(3).min(2))
}

/// Returns the number of changes, ignoring case.
fn distance(a: &str, b: &str) -> usize {
    let letters = |text: &str| text.to_ascii_lowercase().chars().collect::<Vec<char>>();
    let (a, b) = (letters(a), letters(b));
    // Rows of the standard table: for each prefix of `a`, the distances to all prefixes of `b`.
    let (mut before, mut last): (Vec<usize>, Vec<usize>) = (Vec::new(), (0..=b.len()).collect());
    for (i, from) in a.iter().enumerate() {
        let mut row = vec![i.saturating_add(1)];
        for (j, to) in b.iter().enumerate() {
            let at = |row: &[usize], j: usize| row.get(j).copied().unwrap_or(usize::MAX / 2);
            let changed = at(&last, j).saturating_add(usize::from(from != to));
            let left_out = at(&last, j.saturating_add(1)).saturating_add(1);
            let added = at(&row, j).saturating_add(1);
            let previous = |k: usize, of: &[char]| k.checked_sub(1).and_then(|k| of.get(k)).copied();
            let is_swap = previous(i, &a) == Some(*to) && previous(j, &b) == Some(*from);
            let swapped = if is_swap { at(&before, j.saturating_sub(1)).saturating_add(1) } else { usize::MAX };
            row.push(changed.min(left_out).min(added).min(swapped));
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_counts_typing_errors() {
        for (a, b, expected) in [
            ("", "", 0),
            ("abc", "", 3),
            ("Tabels", "TABLES", 1),
            ("abcd", "xbd", 2),
            ("ab", "ba", 1),
            ("lisen", "listen", 1),
        ] {
            assert_eq!((distance(a, b), distance(b, a)), (expected, expected), "{a} {b}");
        }
        let names = || ["orders", "users", "uses"].into_iter();
        assert_eq!(nearest("usres", names()), Some("users"));
        assert_eq!((mistyped("usres", names()), mistyped("elsewhere", names())), (Some("users"), None));
    }
}
