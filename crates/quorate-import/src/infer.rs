//! Infers the columns of a table from the beginning of a file.
//!
//! A type is chosen only if it changes none of the sampled values: a column with one `007` or one integer of 20 digits
//! is TEXT, and so is a column without any value. Dates are TEXT.

use quorate::limits::PARAMETERS_MAX;

use crate::columns::{Column, check_names, real};
use crate::csv::Csv;
use crate::error::{Context as _, Error, Result};
use crate::ndjson::{Members, Ndjson};
use crate::number::{self, Shape};
use crate::options::Options;
use crate::window::Window;

/// Rows at the beginning of a file that types are inferred from.
const SAMPLE_ROWS: usize = 20_000;

/// The kinds of values that a column's sample has.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    integers: bool,
    reals: bool,
    /// Integers that a float can't hold exactly.
    long: bool,
    texts: bool,
}

impl Seen {
    fn text(&mut self, text: &str) {
        match Shape::of(text) {
            Shape::Text | Shape::Odd => self.texts = true,
            shape => self.number(shape),
        }
    }

    fn number(&mut self, shape: Shape) {
        self.integers |= matches!(shape, Shape::Integer(_));
        self.reals |= matches!(shape, Shape::Real);
        self.long |= shape.is_lost_as_real();
    }

    /// The type of a column whose values are all texts, as in CSV.
    fn of_texts(self) -> &'static str {
        match self {
            Self { texts: false, reals: true, long: false, .. } => "REAL",
            Self { texts: false, reals: false, integers: true, .. } => "INTEGER",
            _ => "TEXT",
        }
    }

    /// The type of a column whose values have types, as in NDJSON: none if they differ.
    fn of_values(self) -> &'static str {
        if self.texts && (self.integers || self.reals) { "" } else { self.of_texts() }
    }
}

/// The columns for the fields of CSV, and whether their names are invented. `whole` says that the sample is the whole
/// file.
pub fn of_csv(mut csv: Csv, whole: bool, options: &Options) -> Result<(Vec<Column>, bool)> {
    let reading = || format!("cannot read {}", options.file.display());
    let header = if options.no_header { None } else { csv.texts("").context(reading)? };
    let header = header.transpose().map_err(|reason| Error::File(format!("the header line: {reason}")))?;
    let mut seen = vec![Seen::default(); header.as_ref().map_or(0, Vec::len)];
    for _ in 0..SAMPLE_ROWS {
        match csv.texts(&options.null).context(reading)? {
            None => break,
            // The sample may end in the middle of this record.
            Some(Err(_)) if !whole && csv.is_ended() => break,
            Some(Err(_)) => {}
            Some(Ok(fields)) => {
                if seen.is_empty() {
                    seen.resize(fields.len(), Seen::default());
                }
                if fields.len() == seen.len() {
                    fields
                        .iter()
                        .zip(&mut seen)
                        .for_each(|(field, seen)| field.iter().for_each(|text| seen.text(text)));
                }
            }
        }
    }
    let count = seen.len();
    if count == 0 {
        return Err(Error::File(format!("{} holds neither a header nor a row", options.file.display())));
    }
    if count > PARAMETERS_MAX {
        return Err(Error::File(format!("{count} fields in a line: the limit is {PARAMETERS_MAX}")));
    }
    let nameless = options.columns.is_empty() && header.is_none();
    let names: Vec<String> = match header {
        _ if !options.columns.is_empty() => options.columns.clone(),
        Some(header) => header.into_iter().map(|name| name.unwrap_or_default().trim().to_owned()).collect(),
        None => (1..=count).map(|number| format!("c{number}")).collect(),
    };
    if names.len() != count {
        return Err(Error::Options(format!("--columns names {} columns, the lines have {count} fields", names.len())));
    }
    let wanted: Vec<String> = names.iter().filter(|name| !name.is_empty()).cloned().collect();
    check_names(if options.columns.is_empty() { &names } else { &wanted })?;
    let columns = names.into_iter().zip(seen).map(|(name, seen)| Column::new(name, seen.of_texts()));
    Ok((columns.collect(), nameless))
}

/// The columns for the keys of NDJSON, in the order of their first occurrence; only for `wanted`, if that is not empty.
pub fn of_ndjson(window: Window, wanted: &[String]) -> Vec<Column> {
    let mut keys: Vec<(String, Seen)> = wanted.iter().map(|name| (name.clone(), Seen::default())).collect();
    let mut lines = 0_usize;
    let sampled = Ndjson::new(window).sample(|Members(members)| {
        for (key, value) in members {
            let known = keys.iter().position(|(name, _)| name.eq_ignore_ascii_case(&key));
            if known.is_none() && wanted.is_empty() && keys.len() < PARAMETERS_MAX {
                keys.push((key.into_owned(), Seen::default()));
            }
            let place = known.unwrap_or(keys.len().saturating_sub(1));
            if let Some((_, seen)) = keys.get_mut(place).filter(|_| known.is_some() || wanted.is_empty()) {
                see_json(seen, value.get());
            }
        }
        lines = lines.saturating_add(1);
        lines < SAMPLE_ROWS
    });
    // The sample is in memory, so reading it can't fail.
    drop(sampled);
    keys.into_iter().map(|(name, seen)| Column::new(name, seen.of_values())).collect()
}

fn see_json(seen: &mut Seen, text: &str) {
    match text.as_bytes().first() {
        Some(b'n') => {}
        Some(b't' | b'f') => seen.integers = true,
        Some(b'"' | b'{' | b'[') => seen.texts = true,
        _ => match number::integer(text) {
            Some(integer) => seen.number(Shape::Integer(integer)),
            None if text.contains(['.', 'e', 'E']) && real(text).is_some() => seen.reals = true,
            // A number that is too long, or too large.
            None => (seen.texts, seen.reals) = (true, true),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn a_number_too_long_for_a_float_makes_no_real_column() {
        for (number, declared) in [("2.5", "REAL"), ("2.345678901234567890", ""), ("1e400", "")] {
            let file = format!("{{\"a\":{number}}}\n{{\"a\":0.5}}\n");
            let columns = of_ndjson(Window::new(Cursor::new(file)), &[]);
            assert_eq!(columns, [Column::new("a", declared)], "{number}");
        }
    }
}
