//! Conversion of field names to the naming cases that columns may use.

/// A naming case of `rename_all`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    Lower,
    Upper,
    Pascal,
    Camel,
    ScreamingSnake,
    Kebab,
}

impl Case {
    /// All cases, with the names that `rename_all` accepts.
    pub const ALL: [(&str, Self); 6] = [
        ("lowercase", Self::Lower),
        ("UPPERCASE", Self::Upper),
        ("PascalCase", Self::Pascal),
        ("camelCase", Self::Camel),
        ("SCREAMING_SNAKE_CASE", Self::ScreamingSnake),
        ("kebab-case", Self::Kebab),
    ];

    /// Converts a name from snake case to this case.
    pub fn of(self, name: &str) -> String {
        match self {
            Self::Lower => name.replace('_', ""),
            Self::Upper => name.replace('_', "").to_uppercase(),
            Self::Pascal => name.split('_').map(capitalized).collect(),
            Self::Camel => {
                let mut words = name.split('_').filter(|word| !word.is_empty());
                let first = words.next().unwrap_or_default().to_owned();
                words.fold(first, |name, word| name + &capitalized(word))
            }
            Self::ScreamingSnake => name.to_uppercase(),
            Self::Kebab => name.replace('_', "-"),
        }
    }
}

fn capitalized(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_names_convert_to_each_case() {
        let names = Case::ALL.map(|(_, case)| case.of("first_rowid_2"));
        assert_eq!(
            names,
            ["firstrowid2", "FIRSTROWID2", "FirstRowid2", "firstRowid2", "FIRST_ROWID_2", "first-rowid-2"]
        );
    }
}
