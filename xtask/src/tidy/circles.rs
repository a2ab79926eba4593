//! Circles of files: files of a crate that use each other, directly or over others, are understood only together.
//!
//! Invariant: what counts are `use` lines of code that ships. That a module and one that it contains use each other is
//! no circle.

use std::collections::{BTreeMap, BTreeSet};

use super::{Source, Tree, Violation};

/// Files that may be in a circle.
const FILES_MAX: usize = 4;

/// A module by the names on the way to it; a crate's root has none.
type Module = Vec<String>;

pub fn circles(tree: &Tree) -> Vec<Violation> {
    let mut crates: BTreeMap<&str, BTreeMap<Module, &Source>> = BTreeMap::new();
    for file in tree.rust() {
        if let Some((name, module)) = place(&file.path) {
            crates.entry(name).or_default().insert(module, file);
        }
    }
    crates.values().flat_map(of_crate).collect()
}

/// The crate of a file, and which module it is.
fn place(path: &str) -> Option<(&str, Module)> {
    let (name, file) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let stem = file.strip_suffix(".rs")?;
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    let is_root = stem == "lib" || stem == "main";
    Some((name, if is_root { Module::new() } else { stem.split('/').map(str::to_owned).collect() }))
}

fn of_crate(files: &BTreeMap<Module, &Source>) -> Vec<Violation> {
    let used: BTreeMap<&Module, BTreeSet<&Module>> =
        files.iter().map(|(module, file)| (module, used_by(module, file, files))).collect();
    let reached: BTreeMap<&Module, BTreeSet<&Module>> = used.keys().map(|from| (*from, reach(from, &used))).collect();
    let mut told = BTreeSet::new();
    let mut violations = Vec::new();
    for (module, file) in files {
        let is_in_circle = |other: &&&Module| reached.get(**other).is_some_and(|back| back.contains(module));
        let circle: BTreeSet<&Module> =
            reached.get(module).into_iter().flatten().filter(is_in_circle).copied().collect();
        if circle.len() > FILES_MAX && told.insert(circle.clone()) {
            let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
            let advice = format!(
                "open the circle of {} files, at most {FILES_MAX} may use each other: {}",
                names.len(),
                names.join(", ")
            );
            violations.push(Violation::new(file, 1, advice));
        }
    }
    violations
}

/// All that a module uses, directly or over others.
fn reach<'a>(from: &'a Module, used: &BTreeMap<&'a Module, BTreeSet<&'a Module>>) -> BTreeSet<&'a Module> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&Module> = used.get(from).into_iter().flatten().copied().collect();
    while let Some(module) = next.pop() {
        if found.insert(module) {
            next.extend(used.get(module).into_iter().flatten().copied());
        }
    }
    found
}

/// The files that a file's `use` lines name, but for those that contain it or that it contains.
fn used_by<'a>(module: &Module, file: &Source, files: &'a BTreeMap<Module, &Source>) -> BTreeSet<&'a Module> {
    let mut statement = String::new();
    let mut paths = Vec::new();
    for (line, _) in file.code.lines().zip(1..).filter(|(_, number)| file.is_product(*number)) {
        let begins = line.trim_start().trim_start_matches("pub(crate) ").trim_start_matches("pub ").starts_with("use ");
        if begins || !statement.is_empty() {
            statement.push_str(line);
        }
        if let Some((text, _)) = statement.split_once(';') {
            let tree = text.split_once("use ").map_or("", |(_, tree)| tree);
            unfold(&[], tree, &mut paths);
            statement.clear();
        }
    }
    let is_apart = |other: &&Module| !other.starts_with(module) && !module.starts_with(other);
    paths.iter().filter_map(|path| file_of(module, path, files)).filter(is_apart).collect()
}

/// The paths of a tree of names, `a::{b, c::d}`, behind `before`.
fn unfold(before: &[String], tree: &str, paths: &mut Vec<Module>) {
    let tree = tree.trim();
    if let Some((head, group)) = tree.split_once('{') {
        let mut before = before.to_vec();
        before.extend(names(head));
        for branch in branches(group.strip_suffix('}').unwrap_or(group)) {
            unfold(&before, branch, paths);
        }
    } else if !tree.is_empty() {
        paths.push(before.iter().cloned().chain(names(tree)).collect());
    }
}

fn names(path: &str) -> impl Iterator<Item = String> {
    path.split("::").map(|name| name.split_whitespace().next().unwrap_or("").to_owned()).filter(|name| !name.is_empty())
}

/// What stands between the commas outside of braces.
fn branches(group: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut found) = (0_usize, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                found.push(&group[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    found.push(&group[begin..]);
    found
}

/// The innermost file that a path of names leads to.
fn file_of<'a>(module: &Module, path: &[String], files: &'a BTreeMap<Module, &Source>) -> Option<&'a Module> {
    let first = path.first()?.as_str();
    let mut at = match first {
        "crate" => Module::new(),
        "self" | "super" => module.clone(),
        _ if files.contains_key(&[module.as_slice(), &[first.to_owned()]].concat()) => module.clone(),
        _ => return None,
    };
    for name in path {
        match name.as_str() {
            "crate" | "self" => {}
            "super" => drop(at.pop()),
            _ => at.push(name.clone()),
        }
    }
    while !at.is_empty() && !files.contains_key(&at) {
        at.pop();
    }
    files.get_key_value(&at).map(|(module, _)| module)
}

#[cfg(test)]
mod tests {
    use super::super::lines;
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<usize> {
        lines(circles, files)
    }

    /// Files of which each uses the next, and the last the first.
    fn ring(count: usize) -> Vec<(String, String)> {
        let file = |at: usize| {
            (format!("crates/a/src/f{at}.rs"), format!("use crate::{{f{}::X, other}};\n", (at + 1) % count))
        };
        (0..count).map(file).collect()
    }

    fn checked(files: &[(String, String)]) -> usize {
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        found(&files).len()
    }

    #[test]
    fn a_circle_of_more_than_four_files_is_found_once() {
        assert_eq!((checked(&ring(4)), checked(&ring(5)), checked(&ring(9))), (0, 1, 1));
        let mut open = ring(6);
        open[2].1.clear();
        assert_eq!(checked(&open), 0);
        let mut in_test = ring(6);
        in_test[2].1 = format!("#[cfg(test)]\nmod tests {{\n    {}}}\n", in_test[2].1);
        assert_eq!(checked(&in_test), 0, "tests may use what they like");
    }

    #[test]
    fn paths_lead_to_files_from_everywhere() {
        let to = |from: &str, tree: &str| {
            let texts = ["a.rs", "a/b.rs", "a/b/c.rs", "d/mod.rs", "lib.rs"].map(|file| format!("crates/x/src/{file}"));
            let tree_of = Tree::of(&texts.each_ref().map(|path| (path.as_str(), "")));
            let files: BTreeMap<Module, &Source> =
                tree_of.rust().filter_map(|file| Some((place(&file.path)?.1, file))).collect();
            let mut paths = Vec::new();
            unfold(&[], tree, &mut paths);
            let from: Module = from.split('/').map(str::to_owned).collect();
            paths
                .iter()
                .map(|path| file_of(&from, path, &files).map_or("-".to_owned(), |to| to.join("/")))
                .collect::<Vec<_>>()
        };
        assert_eq!(to("d", "crate::a::{b::{c::X, Y}, Z}"), ["a/b/c", "a/b", "a"]);
        assert_eq!(to("a/b", "super::Z as Q"), ["a"]);
        assert_eq!(to("a/b/c", "super::super::b::Y"), ["a/b"]);
        assert_eq!(to("a/b", "c::X"), ["a/b/c"], "a module of its own");
        assert_eq!(to("a/b", "std::fmt"), ["-"]);
        assert_eq!(to("d", "crate::W"), [""], "the root's");
    }
}
