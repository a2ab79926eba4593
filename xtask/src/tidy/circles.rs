//! Circles of files: files of a crate that use each other, directly or through others. A reader has to understand them
//! together.
//!
//! Invariant: only `use` lines of product code count. A name that a module re-exports counts for the file that it comes
//! from, so a facade hides no circle. A module and its parent may use each other.

use std::collections::{BTreeMap, BTreeSet};

use super::{Source, Tree, Violation};

/// The most files in a circle.
const FILES_MAX: usize = 4;

/// How many re-exports a name may pass through.
const REEXPORTS_MAX: usize = 8;

/// The path of a module in its crate; that of the root is empty.
type Module = Vec<String>;

/// The files of a crate by their modules.
type Files<'a> = BTreeMap<Module, &'a Source>;

/// The modules that each module uses, directly or through others.
type Reach<'a> = BTreeMap<&'a Module, BTreeSet<&'a Module>>;

pub fn circles(tree: &Tree) -> Vec<Violation> {
    let mut crates: BTreeMap<&str, Files<'_>> = BTreeMap::new();
    for file in tree.rust() {
        if let Some((name, module)) = place(&file.path) {
            crates.entry(name).or_default().insert(module, file);
        }
    }
    crates.values().flat_map(of_crate).collect()
}

/// The crate and the module of a file.
fn place(path: &str) -> Option<(&str, Module)> {
    let (name, file) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let stem = file.strip_suffix(".rs")?;
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    let is_root = stem == "lib" || stem == "main";
    Some((name, if is_root { Module::new() } else { stem.split('/').map(str::to_owned).collect() }))
}

fn of_crate(files: &Files<'_>) -> Vec<Violation> {
    let reached = reach(files);
    let mut reported = BTreeSet::new();
    let mut violations = Vec::new();
    for (module, file) in files {
        let is_in_circle = |other: &&&Module| reached.get(**other).is_some_and(|back| back.contains(module));
        let circle: BTreeSet<&Module> =
            reached.get(module).into_iter().flatten().filter(is_in_circle).copied().collect();
        if circle.len() > FILES_MAX && reported.insert(circle.clone()) {
            let paths: Vec<&str> =
                circle.iter().filter_map(|module| files.get(*module)).map(|file| file.path.as_str()).collect();
            let advice = format!(
                "open the circle of {} files, at most {FILES_MAX} may use each other: {}",
                paths.len(),
                paths.join(", ")
            );
            violations.push(Violation::new(file, 1, advice));
        }
    }
    violations
}

fn reach<'a>(files: &'a Files<'_>) -> Reach<'a> {
    let uses: BTreeMap<&Module, Uses> =
        files.iter().map(|(module, file)| (module, Uses::of(module, file, files))).collect();
    let used: Reach<'a> = files.keys().map(|module| (module, used_by(module, &uses, files))).collect();
    files.keys().map(|from| (from, reachable(from, &used))).collect()
}

fn reachable<'a>(from: &'a Module, used: &Reach<'a>) -> BTreeSet<&'a Module> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&Module> = used.get(from).into_iter().flatten().copied().collect();
    while let Some(module) = next.pop() {
        if found.insert(module) {
            next.extend(used.get(module).into_iter().flatten().copied());
        }
    }
    found
}

/// The files that a file uses, without its parent and its children.
fn used_by<'a>(module: &Module, uses: &BTreeMap<&Module, Uses>, files: &'a Files<'_>) -> BTreeSet<&'a Module> {
    let is_parent = |parent: &Module, child: &Module| child.split_last().is_some_and(|(_, above)| above == *parent);
    let is_apart = |other: &&Module| *other != module && !is_parent(other, module) && !is_parent(module, other);
    let paths = uses.get(module).into_iter().flat_map(|uses| &uses.paths);
    paths.filter_map(|path| source_of(path, uses, files)).filter(is_apart).collect()
}

/// The `use` lines of a file, as paths from the root of the crate.
#[derive(Default)]
struct Uses {
    paths: Vec<Module>,
    /// The names that the file re-exports, each with its path.
    reexported: BTreeMap<String, Module>,
}

impl Uses {
    fn of(module: &Module, file: &Source, files: &Files<'_>) -> Self {
        let (mut uses, mut statement, mut is_public) = (Self::default(), String::new(), false);
        for (line, _) in file.code.lines().zip(1..).filter(|(_, number)| file.is_product(*number)) {
            if !statement.is_empty() {
                statement.push_str(line);
            } else if let Some((public, rest)) = use_line(line) {
                is_public = public;
                statement.push_str(rest);
            }
            let Some((tree, _)) = statement.split_once(';') else { continue };
            let mut paths = Vec::new();
            unfold(&[], tree, &mut paths);
            for (path, name) in paths {
                let Some(path) = absolute(module, &path, files) else { continue };
                if is_public {
                    uses.reexported.insert(name, path.clone());
                }
                uses.paths.push(path);
            }
            statement.clear();
        }
        uses
    }
}

/// Whether a line that begins a `use` statement re-exports, and what follows the word.
fn use_line(line: &str) -> Option<(bool, &str)> {
    let line = line.trim_start();
    let Some(rest) = line.strip_prefix("pub") else { return Some((false, line.strip_prefix("use ")?)) };
    let rest = match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(')')?.1,
        None => rest,
    };
    Some((true, rest.trim_start().strip_prefix("use ")?))
}

/// The paths of a tree of names, `a::{b, c::d as e}`, behind `before`, each with the name that it gets.
fn unfold(before: &[String], tree: &str, paths: &mut Vec<(Module, String)>) {
    let tree = tree.trim();
    if let Some((head, group)) = tree.split_once('{') {
        let mut before = before.to_vec();
        before.extend(names(head));
        for branch in branches(group.strip_suffix('}').unwrap_or(group)) {
            unfold(&before, branch, paths);
        }
    } else if !tree.is_empty() {
        let path: Module = before.iter().cloned().chain(names(tree)).collect();
        let name = tree.split_once(" as ").map(|(_, name)| name.trim().to_owned());
        let name = name.or_else(|| path.last().cloned()).unwrap_or_default();
        paths.push((path, name));
    }
}

fn names(path: &str) -> impl Iterator<Item = String> {
    path.split("::").map(|name| name.split_whitespace().next().unwrap_or("").to_owned()).filter(|name| !name.is_empty())
}

/// The parts between the commas outside of braces.
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

/// The path from the root of the crate; `None` for a path into another crate.
fn absolute(module: &Module, path: &[String], files: &Files<'_>) -> Option<Module> {
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
    Some(at)
}

/// The file that defines what a path names, as far as `use` lines tell.
fn source_of<'a>(path: &[String], uses: &BTreeMap<&Module, Uses>, files: &'a Files<'_>) -> Option<&'a Module> {
    let mut path = path.to_vec();
    for _ in 0..REEXPORTS_MAX {
        let file = file_of(&path, files)?;
        let Some((name, rest)) = path.get(file.len()..).and_then(<[String]>::split_first) else { return Some(file) };
        let Some(target) = uses.get(file).and_then(|uses| uses.reexported.get(name)) else { return Some(file) };
        path = [target.as_slice(), rest].concat();
    }
    file_of(&path, files)
}

/// The innermost file that a path leads to.
fn file_of<'a>(path: &[String], files: &'a Files<'_>) -> Option<&'a Module> {
    (0..=path.len()).rev().find_map(|len| files.get_key_value(path.get(..len)?)).map(|(module, _)| module)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of which each uses the next, and the last uses the first.
    fn ring(count: usize) -> Vec<(String, String)> {
        let file = |at: usize| {
            (format!("crates/a/src/f{at}.rs"), format!("use crate::{{f{}::X, other}};\n", (at + 1) % count))
        };
        (0..count).map(file).collect()
    }

    fn found(files: &[(String, String)]) -> Vec<Violation> {
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        circles(&Tree::of(&files))
    }

    #[test]
    fn a_circle_of_more_than_four_files_is_found_once() {
        assert_eq!([4, 5, 9].map(|count| found(&ring(count)).len()), [0, 1, 1]);
        let advice = "open the circle of 5 files, at most 4 may use each other: crates/a/src/f0.rs, ";
        assert!(found(&ring(5))[0].advice.starts_with(advice), "{:?}", found(&ring(5)));
        let mut open = ring(6);
        open[2].1.clear();
        assert_eq!(found(&open).len(), 0);
        let mut in_test = ring(6);
        in_test[2].1 = format!("#[cfg(test)]\nmod tests {{\n    {}}}\n", in_test[2].1);
        assert_eq!(found(&in_test).len(), 0, "uses of tests do not count");
    }

    #[test]
    fn a_module_and_its_parent_may_use_each_other() {
        let child = |at: usize| (format!("crates/a/src/p/c{at}.rs"), "use super::Parent;\n".to_owned());
        let uses: String = (0..6).map(|at| format!("pub use c{at}::C{at};\n")).collect();
        let mut files: Vec<_> = (0..6).map(child).chain([("crates/a/src/p.rs".to_owned(), uses)]).collect();
        assert_eq!(found(&files).len(), 0);
        for (at, (_, text)) in files.iter_mut().enumerate().take(6) {
            *text = format!("use super::C{};\n", (at + 1) % 6);
        }
        assert_eq!(found(&files).len(), 1, "the children use each other through their parent");
    }

    #[test]
    fn a_reexport_hides_no_circle() {
        let mut files = ring(5);
        files[4].1 = "pub(crate) use crate::facade::Y as X;\n".to_owned();
        files.push(("crates/a/src/facade.rs".to_owned(), "mod inner;\npub(super) use inner::Z as Y;\n".to_owned()));
        files.push(("crates/a/src/facade/inner.rs".to_owned(), "use crate::f0::X;\n".to_owned()));
        assert_eq!(found(&files).len(), 1);
        files[6].1.clear();
        assert_eq!(found(&files).len(), 0);
    }

    #[test]
    fn paths_lead_to_files_from_everywhere() {
        let to = |from: &str, tree: &str| {
            let texts = ["a.rs", "a/b.rs", "a/b/c.rs", "d/mod.rs", "lib.rs"].map(|file| format!("crates/x/src/{file}"));
            let tree_of = Tree::of(&texts.each_ref().map(|path| (path.as_str(), "")));
            let files: Files<'_> = tree_of.rust().filter_map(|file| Some((place(&file.path)?.1, file))).collect();
            let mut paths = Vec::new();
            unfold(&[], tree, &mut paths);
            let from: Module = from.split('/').map(str::to_owned).collect();
            let file = |path: &[String]| file_of(&absolute(&from, path, &files)?, &files).map(|to| to.join("/"));
            paths.iter().map(|(path, _)| file(path).unwrap_or("-".to_owned())).collect::<Vec<_>>()
        };
        assert_eq!(to("d", "crate::a::{b::{c::X, Y}, Z}"), ["a/b/c", "a/b", "a"]);
        assert_eq!(to("a/b", "super::Z as Q"), ["a"]);
        assert_eq!(to("a/b/c", "super::super::b::Y"), ["a/b"]);
        assert_eq!(to("a/b", "c::X"), ["a/b/c"], "a child");
        assert_eq!(to("a/b", "std::fmt"), ["-"]);
        assert_eq!(to("d", "crate::W"), [""], "an item of the root");
    }
}
