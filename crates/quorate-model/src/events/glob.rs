//! Patterns of names: `*`, `?`, `[a-c]`, `[^a]`, and `\` before a character that stands for itself.
//!
//! The time is the product of the lengths at most: only the last star is tried again, which is enough, as each other
//! part of a pattern stands for one byte.

/// Returns whether a name matches a pattern.
pub fn matches(mut pattern: &[u8], mut name: &[u8]) -> bool {
    // Where to go on, if what follows the last star does not match: one byte further.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        if let Some(rest) = pattern.strip_prefix(b"*") {
            (pattern, star) = (rest, Some((rest, name)));
            continue;
        }
        match (pattern.is_empty(), name.split_first()) {
            (true, None) => return true,
            (false, Some((byte, left))) => {
                if let Some(rest) = one(pattern, *byte) {
                    (pattern, name) = (rest, left);
                    continue;
                }
            }
            _ => {}
        }
        let Some((after, [_, further @ ..])) = star else { return false };
        (pattern, name, star) = (after, further, Some((after, further)));
    }
}

/// Returns the pattern after its first part, if that stands for this byte.
fn one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [b'?', rest @ ..] => Some(rest),
        [b'[', rest @ ..] => class(rest, byte),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => (*literal == byte).then_some(rest),
        [] => None,
    }
}

/// Returns the pattern after a class, if that has this byte. The end of the pattern ends a class.
fn class(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    let (is_other, mut rest) = match pattern {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut has = false;
    loop {
        rest = match rest {
            [] => break,
            [b'\\', literal, after @ ..] => {
                has |= *literal == byte;
                after
            }
            [b']', after @ ..] => {
                rest = after;
                break;
            }
            [low, b'-', high, after @ ..] => {
                has |= (*low.min(high)..=*low.max(high)).contains(&byte);
                after
            }
            [literal, after @ ..] => {
                has |= *literal == byte;
                after
            }
        };
    }
    (has != is_other).then_some(rest)
}
