//! Rules on `unsafe`: only in the few files named here, every use argued for, every other crate forbids it.

use super::lexer::words;
use super::{Source, Tree, Violation};

/// The only modules that may say `unsafe`, each its file and the folder beside it: one small module a crate, for what
/// no safe API offers.
const UNSAFE_FILES: &[&str] =
    &["crates/quorate-cli/src/heap", "crates/quorate-sim/src/vfs/ffi", "crates/quorate-sql/src/ffi"];

/// How far above an `unsafe` its `SAFETY:` comment may stand.
const SAFETY_WITHIN_LINES: usize = 6;

pub fn unsafe_where_allowed(tree: &Tree) -> Vec<Violation> {
    tree.rust().flat_map(|file| violations(file, UNSAFE_FILES)).collect()
}

fn violations(file: &Source, allowed: &[&str]) -> Vec<Violation> {
    let module = file.path.trim_end_matches(".rs");
    let is_in = |owner: &&str| module.strip_prefix(owner).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let is_allowed = allowed.iter().any(is_in);
    let mut violations = Vec::new();
    for at in words(&file.code, "unsafe") {
        let line = file.line_of(at);
        if !is_allowed {
            violations.push(Violation::new(
                file,
                line,
                "write it without `unsafe`, or argue for UNSAFE_FILES in xtask",
            ));
        } else if !is_type_or_callback(&file.code[at..]) && !is_argued_for(file, line) {
            violations.push(Violation::new(file, line, "say why it is sound in a `// SAFETY:` comment right above"));
        }
    }
    violations
}

/// Whether the `unsafe` at the start of `code` belongs to a function's type, or to the definition of a callback such
/// as `unsafe extern "C" fn read(..)`: what its callers owe is the C interface's to say, and each `unsafe` block inside
/// is argued for.
fn is_type_or_callback(code: &str) -> bool {
    let rest = code["unsafe".len()..].trim_start();
    match rest.strip_prefix("extern") {
        Some(rest) => rest.trim_start_matches([' ', '"', 'C']).starts_with("fn"),
        None => rest.strip_prefix("fn").is_some_and(|rest| rest.trim_start().starts_with('(')),
    }
}

fn is_argued_for(file: &Source, line: usize) -> bool {
    let above = file.text.lines().take(line).skip(line.saturating_sub(SAFETY_WITHIN_LINES + 1));
    above.into_iter().any(|line| line.contains("// SAFETY:") || line.contains("/// # Safety"))
}

/// A crate forbids `unsafe`; one with an excepted file denies it, so that only that file can allow it.
pub fn crate_header(tree: &Tree) -> Vec<Violation> {
    header_violations(tree, UNSAFE_FILES)
}

fn header_violations(tree: &Tree, allowed: &[&str]) -> Vec<Violation> {
    let is_root = |file: &&Source| file.path.ends_with("/src/lib.rs") || file.path.ends_with("/src/main.rs");
    let mut violations = Vec::new();
    for root in tree.rust().filter(is_root) {
        let folder = root.path.trim_end_matches("lib.rs").trim_end_matches("main.rs");
        let excepted = allowed.iter().any(|file| file.starts_with(folder));
        let header = if excepted { "#![deny(unsafe_code)]" } else { "#![forbid(unsafe_code)]" };
        if !root.code.contains(header) {
            violations.push(Violation::new(root, 1, format!("write `{header}` at the head of the crate")));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: &[&str] = &["crates/a/src/ffi"];
    const FFI: &str = "crates/a/src/ffi/clock.rs";

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let tree = Tree::of(&[(path, text)]);
        violations(&tree.files[0], ALLOWED).into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn unsafe_stays_in_its_file() {
        let text = "// SAFETY: none needed.\nfn f() { unsafe { g() } }\n";
        assert_eq!(lines("crates/a/src/lib.rs", text), [2]);
        assert_eq!(lines("crates/a/src/ffi_too.rs", text), [2]);
        assert_eq!(lines("crates/a/src/ffi.rs", text), [0; 0]);
        assert_eq!(lines(FFI, text), [0; 0]);
        assert_eq!(lines("crates/a/src/lib.rs", "#![forbid(unsafe_code)] // unsafe\n"), [0; 0]);
    }

    #[test]
    fn unsafe_is_argued_for() {
        let far = "\n".repeat(SAFETY_WITHIN_LINES);
        assert_eq!(lines(FFI, &format!("// SAFETY: too far.\n{far}unsafe fn f() {{}}\n")), [8]);
        assert_eq!(lines(FFI, "/// # Safety\n/// Of course.\nunsafe fn f() {}\n"), [0; 0]);
        assert_eq!(lines(FFI, "type F = unsafe extern \"C\" fn(u8);\n"), [0; 0]);
    }

    #[test]
    fn a_crate_forbids_unsafe_or_denies_it_beside_an_excepted_file() {
        let check = |header| {
            let tree = Tree::of(&[("crates/a/src/lib.rs", header), (FFI, "")]);
            [header_violations(&tree, &[]).len(), header_violations(&tree, ALLOWED).len()]
        };
        assert_eq!(check("#![forbid(unsafe_code)]"), [0, 1]);
        assert_eq!(check("#![deny(unsafe_code)]"), [1, 0]);
        assert_eq!(check("// #![deny(unsafe_code)]"), [1, 1]);
    }
}
