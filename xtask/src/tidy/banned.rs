//! A table of patterns that product code must not contain, each with what to write instead.
//!
//! A ban may exempt files by the start of their paths: the places that are responsible for what all other code must not
//! do.

use super::{Source, Tree, Violation};

/// The maximum distance in lines between an `.expect(` and the `#[expect(clippy::expect_used, reason = ...)]` above it.
const REASON_WITHIN_LINES: usize = 20;

struct Ban {
    pattern: &'static str,
    instead: &'static str,
    /// The starts of the exempt paths.
    allowed: &'static [&'static str],
}

const fn ban(pattern: &'static str, instead: &'static str) -> Ban {
    Ban { pattern, instead, allowed: &[] }
}

const fn only_in(allowed: &'static [&'static str], pattern: &'static str, instead: &'static str) -> Ban {
    Ban { pattern, instead, allowed }
}

/// The places that may open SQLite's files: the VFS, and the module that opens connections over it. Opening and closing
/// the main file or the `-shm` anywhere else in the process drops SQLite's POSIX locks (docs/sqlite-store.md). An
/// import and a trial may open a file, because their processes run no node.
const SQLITE_OPENERS: &[&str] = &[
    "crates/quorate-import/src/sqlite",
    "crates/quorate-replicate/src/connections",
    "crates/quorate-replicate/src/copy",
    "crates/quorate-replicate/src/restore",
    "crates/quorate-sim/src/archive/restores.rs",
    "crates/quorate-sql/src/connection",
    "crates/quorate-sql/src/ffi",
    "crates/quorate-sql/src/generation",
    "crates/quorate-sql/src/vfs",
    "crates/quorate-trials/src/archive.rs",
];

const BANS: &[Ban] = &[
    ban("todo!", "write it, or return a typed error"),
    ban("unimplemented!", "write it, or return a typed error"),
    ban("dbg!", "use `tracing`, or remove it"),
    ban(".unwrap()", "return a typed error"),
    ban("panic!(", "return a typed error"),
    ban("#[ignore", "make the test fast and reliable, or remove it"),
    ban("allow(dead_code)", "remove what nothing uses"),
    ban("allow(unused", "remove what nothing uses"),
    ban("allow(clippy::expect_used", "use `#[expect(clippy::expect_used, reason = ...)]` at the one place"),
    only_in(SQLITE_OPENERS, "Connection::open(", "open through the connections of quorate-sql: POSIX locks"),
    only_in(SQLITE_OPENERS, "Connection::open_with", "open through the connections of quorate-sql: POSIX locks"),
    only_in(SQLITE_OPENERS, "sqlite3_open", "open through the connections of quorate-sql: POSIX locks"),
    only_in(SQLITE_OPENERS, "-shm\"", "leave the -shm to the VFS of quorate-sql: POSIX locks"),
];

pub fn banned(tree: &Tree) -> Vec<Violation> {
    tree.rust().flat_map(|file| BANS.iter().flat_map(|ban| violations(file, ban))).collect()
}

fn violations(file: &Source, ban: &Ban) -> Vec<Violation> {
    if ban.allowed.iter().any(|start| file.path.starts_with(start)) {
        return Vec::new();
    }
    // Only a pattern that contains a quote is searched for inside of literals.
    let text = if ban.pattern.contains('"') { &file.uncommented } else { &file.code };
    text.match_indices(ban.pattern)
        .map(|(at, _)| file.line_of(at))
        .filter(|&line| file.is_product(line))
        .map(|line| Violation::new(file, line, format!("`{}`: {}", ban.pattern, ban.instead)))
        .collect()
}

pub fn expect_with_reason(tree: &Tree) -> Vec<Violation> {
    tree.rust().flat_map(bare_expects).collect()
}

fn bare_expects(file: &Source) -> Vec<Violation> {
    let has_reason = |line: usize| {
        let above = file.code.lines().take(line).skip(line.saturating_sub(REASON_WITHIN_LINES + 1));
        above.collect::<Vec<_>>().join(" ").contains("expect(clippy::expect_used, reason")
    };
    file.code
        .match_indices(".expect(")
        .map(|(at, _)| file.line_of(at))
        .filter(|&line| file.is_product(line) && !has_reason(line))
        .map(|line| Violation::new(file, line, "state the invariant: `#[expect(clippy::expect_used, reason = ...)]`"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::lines;
    use super::*;

    const PRODUCT: &str = "crates/quorate-wal/src/lib.rs";

    #[test]
    fn every_ban_applies_to_product_code_only() {
        for Ban { pattern, .. } in BANS {
            let opening_quote = if pattern.ends_with('"') { "\"" } else { "" };
            let text = format!("//! Never says {pattern}.\n{opening_quote}{pattern}; // {pattern}\n");
            assert_eq!(lines(banned, &[(PRODUCT, &text)]), [2], "{text}");
            assert_eq!(lines(banned, &[("crates/quorate-wal/tests/a.rs", &text)]), [0; 0]);
        }
    }

    #[test]
    fn comments_literals_and_tests_are_exempt() {
        let text =
            "//! No panic!(\nfn f() { g(\"todo!\") } // dbg!\n#[cfg(test)]\nmod tests { fn h() { x.unwrap() } }\n";
        assert_eq!(lines(banned, &[(PRODUCT, text)]), [0; 0]);
    }

    #[test]
    fn the_listed_files_are_exempt_from_a_ban() {
        let text = "fn f() { Connection::open(path) }\n";
        assert_eq!(lines(banned, &[("crates/quorate-sql/src/reader.rs", text)]), [1]);
        assert_eq!(lines(banned, &[("crates/quorate-sql/src/connection.rs", text)]), [0; 0]);
    }

    #[test]
    fn an_expect_without_a_reason_is_found() {
        let bare = "fn f() {\n    x.expect(\"y\")\n}\n";
        assert_eq!(lines(expect_with_reason, &[(PRODUCT, bare)]), [2]);
        let reasoned = format!("#[expect(clippy::expect_used, reason = \"z\")]\n{bare}");
        assert_eq!(lines(expect_with_reason, &[(PRODUCT, &reasoned)]), [0; 0]);
        let far = format!("#[expect(clippy::expect_used, reason = \"z\")]\n{}{bare}", "\n".repeat(REASON_WITHIN_LINES));
        assert_eq!(lines(expect_with_reason, &[(PRODUCT, &far)]), [23]);
    }
}
