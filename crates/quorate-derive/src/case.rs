//! Names of fields in the cases in which columns may be named.

/// A case of `rename_all`.
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
    /// All, by the names that they are asked for by.
    pub const ALL: [(&str, Self); 6] = [
        ("lowercase", Self::Lower),
        ("UPPERCASE", Self::Upper),
        ("PascalCase", Self::Pascal),
        ("camelCase", Self::Camel),
        ("SCREAMING_SNAKE_CASE", Self::ScreamingSnake),
        ("kebab-case", Self::Kebab),
    ];

    /// A name in snake case, in this one.
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
    fn names_change_their_case() {
        let names = Case::ALL.map(|(_, case)| case.of("first_rowid_2"));
        assert_eq!(
            names,
            ["firstrowid2", "FIRSTROWID2", "FirstRowid2", "firstRowid2", "FIRST_ROWID_2", "first-rowid-2"]
        );
    }
}
