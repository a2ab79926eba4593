//! The house rules: a function for each rule, and a table of all rules.
//!
//! Invariant: a rule reads only the [`Tree`], never the disk, so every rule can be tested on snippets.

mod banned;
mod circles;
mod layers;
mod lexer;
mod prose;
mod safety;
mod shape;
mod tree;

use std::fmt;

pub use tree::{Source, Tree};

/// A rule's name, as it is printed, and the function that finds its violations.
type Rule = (&'static str, fn(&Tree) -> Vec<Violation>);

const RULES: &[Rule] = &[
    ("module-doc", shape::module_doc),
    ("file-length", shape::file_length),
    ("function-length", shape::function_length),
    ("line-length", shape::line_length),
    ("tab-indent", shape::tab_indent),
    ("banned", banned::banned),
    ("expect-reason", banned::expect_with_reason),
    ("unsafe", safety::unsafe_where_allowed),
    ("unsafe-header", safety::crate_header),
    ("circles", circles::circles),
    ("layers", layers::layers),
    ("manifest", layers::manifest),
    ("one-title", prose::one_title),
    ("machine-path", prose::machine_path),
    ("registry-host", prose::registry_host),
];

/// A place that breaks a rule, and what to do about it.
#[derive(Debug)]
pub struct Violation {
    path: String,
    /// The line, counted from 1.
    line: usize,
    advice: String,
}

impl Violation {
    fn new(file: &Source, line: usize, advice: impl Into<String>) -> Self {
        Self { path: file.path.clone(), line, advice: advice.into() }
    }
}

/// A violation with the name of its rule; prints as `file:line: rule: what to do`.
#[derive(Debug)]
pub struct Finding {
    rule: &'static str,
    violation: Violation,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { path, line, advice } = &self.violation;
        write!(f, "{path}:{line}: {}: {advice}", self.rule)
    }
}

/// Runs every rule on the tree. Returns the findings, ordered by path and line.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<Finding> = RULES
        .iter()
        .flat_map(|(rule, find)| find(tree).into_iter().map(|violation| Finding { rule, violation }))
        .collect();
    findings.sort_by(|a, b| (&a.violation.path, a.violation.line).cmp(&(&b.violation.path, b.violation.line)));
    findings
}

/// Returns the lines that `rule` finds in a tree of these `(path, text)` files, for the tests of the rules.
#[cfg(test)]
fn lines(rule: fn(&Tree) -> Vec<Violation>, files: &[(&str, &str)]) -> Vec<usize> {
    rule(&Tree::of(files)).into_iter().map(|violation| violation.line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_its_place_rule_and_advice() {
        let tree = Tree::of(&[("crates/a/src/b.rs", "fn b() {}\n")]);
        let printed: Vec<String> = check(&tree).iter().map(Finding::to_string).collect();
        assert_eq!(printed, ["crates/a/src/b.rs:1: module-doc: start the file with a `//!` that says what it is"]);
    }
}
