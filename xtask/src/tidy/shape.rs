//! Rules for the shape of files: a module documentation, and sizes that a reader can keep in mind.

use super::lexer::{block, words};
use super::{Source, Tree, Violation};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;
const LINE_CHARS_MAX: usize = 120;

pub fn module_doc(tree: &Tree) -> Vec<Violation> {
    let bare = |file: &&Source| !file.text.trim_start().starts_with("//!");
    tree.rust()
        .filter(bare)
        .map(|file| Violation::new(file, 1, "start the file with a `//!` that says what it is"))
        .collect()
}

pub fn file_length(tree: &Tree) -> Vec<Violation> {
    let advice = |lines| format!("split the file: {lines} lines, at most {FILE_LINES_MAX}");
    tree.rust()
        .map(|file| (file, file.text.lines().count()))
        .filter(|(_, lines)| *lines > FILE_LINES_MAX)
        .map(|(file, lines)| Violation::new(file, FILE_LINES_MAX + 1, advice(lines)))
        .collect()
}

pub fn function_length(tree: &Tree) -> Vec<Violation> {
    tree.rust().flat_map(long_functions).collect()
}

fn long_functions(file: &Source) -> Vec<Violation> {
    let starts = words(&file.code, "fn").filter(|at| !file.code[at + 2..].trim_start().starts_with('('));
    let too_long = |start| {
        let body = block(&file.code, start)?;
        let first = file.line_of(start);
        let lines = file.line_of(body.end - 1) - first + 1;
        (lines > FUNCTION_LINES_MAX)
            .then(|| format!("split the function: {lines} lines, at most {FUNCTION_LINES_MAX}"))
            .map(|advice| Violation::new(file, first, advice))
    };
    starts.filter_map(too_long).collect()
}

/// Reports long lines, except tables and lines with a link, which can't be broken.
pub fn line_length(tree: &Tree) -> Vec<Violation> {
    let advice = format!("break the line: at most {LINE_CHARS_MAX} characters");
    let unbreakable =
        |file: &Source, line: &str| line.contains("://") || (file.is_markdown() && line.trim_start().starts_with('|'));
    let mut violations = Vec::new();
    for file in tree.files.iter().filter(|file| file.is_rust() || file.is_markdown()) {
        for (number, line) in file.lines() {
            if line.chars().count() > LINE_CHARS_MAX && !unbreakable(file, line) {
                violations.push(Violation::new(file, number, advice.as_str()));
            }
        }
    }
    violations
}

pub fn tab_indent(tree: &Tree) -> Vec<Violation> {
    let indented_by_spaces = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        !name.contains('.') || [".rs", ".md", ".toml", ".sh", ".yml"].iter().any(|end| name.ends_with(end))
    };
    let mut violations = Vec::new();
    for file in tree.files.iter().filter(|file| indented_by_spaces(&file.path)) {
        for (number, line) in file.lines() {
            let indent = &line[..line.len() - line.trim_start().len()];
            if indent.contains('\t') {
                violations.push(Violation::new(file, number, "indent with spaces"));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::lines;
    use super::*;

    #[test]
    fn a_rust_file_starts_with_module_docs() {
        assert_eq!(lines(module_doc, &[("crates/a/src/lib.rs", "use b;\n//! Too late.\n")]), [1]);
        assert_eq!(lines(module_doc, &[("crates/a/src/lib.rs", "//! In time.\n"), ("a.sh", "true\n")]), [0; 0]);
    }

    #[test]
    fn long_files_are_found() {
        let file = |lines| "x\n".repeat(lines);
        assert_eq!(lines(file_length, &[("a.rs", &file(501))]), [501]);
        assert_eq!(lines(file_length, &[("a.rs", &file(500)), ("a.md", &file(501))]), [0; 0]);
    }

    #[test]
    fn long_functions_are_found() {
        let function =
            |lines: usize| format!("//!\nfn f<T>(x: [u8; 2]) {{\n{}}}\n", "x(\"}\"); // }\n".repeat(lines - 2));
        assert_eq!(lines(function_length, &[("a.rs", &function(71))]), [2]);
        assert_eq!(lines(function_length, &[("a.rs", &function(70))]), [0; 0]);
        let declarations = format!("type F = fn(u8);\nfn f();\nstruct S {{\n{}}}\n", "x: u8,\n".repeat(80));
        assert_eq!(lines(function_length, &[("a.rs", &declarations)]), [0; 0]);
    }

    #[test]
    fn long_lines_are_found_except_tables_and_links() {
        let long = "é ".repeat(61);
        assert_eq!(lines(line_length, &[("a.md", &long), ("a.rs", &long), ("a.csv", &long)]), [1, 1]);
        assert_eq!(lines(line_length, &[("a.md", &"é ".repeat(60))]), [0; 0]);
        assert_eq!(lines(line_length, &[("a.md", &format!("| {long}")), ("a.rs", &format!("// a://{long}"))]), [0; 0]);
    }

    #[test]
    fn tab_indentation_is_found() {
        let text = "a\tb\n  \tc\n    d\n";
        assert_eq!(lines(tab_indent, &[("a.rs", text), (".ci/run", text), ("a.csv", text)]), [2, 2]);
    }
}
