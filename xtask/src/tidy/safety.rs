//! Rules for `unsafe`: it is allowed only in the files named here, every use has a reason, and every other crate
//! forbids it.

use super::lexer::words;
use super::{Source, Tree, Violation};

/// The only modules that may contain `unsafe`, each with its file and the folder of the same name: one small module in
/// a crate, for what no safe API offers.
const UNSAFE_FILES: &[&str] =
    &["crates/quorate-cli/src/heap", "crates/quorate-sim/src/vfs/ffi", "crates/quorate-sql/src/ffi"];

/// The maximum distance in lines between an `unsafe` and its `SAFETY:` comment.
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
                "write it without `unsafe`, or add the module to UNSAFE_FILES in xtask and say why",
            ));
        } else if !is_type_or_callback(&file.code[at..]) && !has_reason(file, line) {
            violations.push(Violation::new(
                file,
                line,
                "write a `// SAFETY:` comment right above that says why this is sound",
            ));
        }
    }
    violations
}

/// Whether the `unsafe` at the start of `code` belongs to a function type, or to the definition of a callback such as
/// `unsafe extern "C" fn read(..)`. The C interface defines the duties of a callback's callers, and each `unsafe` block
/// inside has its own comment.
fn is_type_or_callback(code: &str) -> bool {
    let rest = code["unsafe".len()..].trim_start();
    match rest.strip_prefix("extern") {
        Some(rest) => rest.trim_start_matches([' ', '"', 'C']).starts_with("fn"),
        None => rest.strip_prefix("fn").is_some_and(|rest| rest.trim_start().starts_with('(')),
    }
}

fn has_reason(file: &Source, line: usize) -> bool {
    let above = file.text.lines().take(line).skip(line.saturating_sub(SAFETY_WITHIN_LINES + 1));
    above.into_iter().any(|line| line.contains("// SAFETY:") || line.contains("/// # Safety"))
}

/// Checks that each crate forbids `unsafe`. A crate with a listed module denies it instead, so that only this module
/// can allow it.
pub fn crate_header(tree: &Tree) -> Vec<Violation> {
    header_violations(tree, UNSAFE_FILES)
}

fn header_violations(tree: &Tree, allowed: &[&str]) -> Vec<Violation> {
    let is_root = |file: &&Source| file.path.ends_with("/src/lib.rs") || file.path.ends_with("/src/main.rs");
    let mut violations = Vec::new();
    for root in tree.rust().filter(is_root) {
        let folder = root.path.trim_end_matches("lib.rs").trim_end_matches("main.rs");
        let has_listed_module = allowed.iter().any(|file| file.starts_with(folder));
        let header = if has_listed_module { "#![deny(unsafe_code)]" } else { "#![forbid(unsafe_code)]" };
        if !root.code.contains(header) {
            violations.push(Violation::new(root, 1, format!("write `{header}` at the top of the crate")));
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
    fn unsafe_outside_of_listed_files_is_found() {
        let text = "// SAFETY: none needed.\nfn f() { unsafe { g() } }\n";
        assert_eq!(lines("crates/a/src/lib.rs", text), [2]);
        assert_eq!(lines("crates/a/src/ffi_too.rs", text), [2]);
        assert_eq!(lines("crates/a/src/ffi.rs", text), [0; 0]);
        assert_eq!(lines(FFI, text), [0; 0]);
        assert_eq!(lines("crates/a/src/lib.rs", "#![forbid(unsafe_code)] // unsafe\n"), [0; 0]);
    }

    #[test]
    fn unsafe_without_a_safety_comment_is_found() {
        let far = "\n".repeat(SAFETY_WITHIN_LINES);
        assert_eq!(lines(FFI, &format!("// SAFETY: too far.\n{far}unsafe fn f() {{}}\n")), [8]);
        assert_eq!(lines(FFI, "/// # Safety\n/// Of course.\nunsafe fn f() {}\n"), [0; 0]);
        assert_eq!(lines(FFI, "type F = unsafe extern \"C\" fn(u8);\n"), [0; 0]);
    }

    #[test]
    fn a_crate_forbids_unsafe_unless_it_has_a_listed_file() {
        let check = |header| {
            let tree = Tree::of(&[("crates/a/src/lib.rs", header), (FFI, "")]);
            [header_violations(&tree, &[]).len(), header_violations(&tree, ALLOWED).len()]
        };
        assert_eq!(check("#![forbid(unsafe_code)]"), [0, 1]);
        assert_eq!(check("#![deny(unsafe_code)]"), [1, 0]);
        assert_eq!(check("// #![deny(unsafe_code)]"), [1, 1]);
    }
}
