//! Rules for documents, and for what no tracked file may contain: absolute paths of a machine, and host names of
//! package registries.

use super::{Source, Tree, Violation};

const MACHINE_PATHS: &[&str] =
    &[concat!("/", "root/"), concat!("/", "home/"), concat!("/", "work/"), concat!("/", "Users/")];

const REGISTRY_HOSTS: &[&str] =
    &[concat!("crates", ".io"), concat!("pypi", ".org"), concat!("pythonhosted", ".org"), concat!("npmjs", ".")];

pub fn one_title(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in tree.files.iter().filter(|file| file.is_markdown()) {
        match titles(file).as_slice() {
            [_] => {}
            [] => violations.push(Violation::new(file, 1, "add a `# ` title to the document")),
            [_, second, ..] => {
                violations.push(Violation::new(file, *second, "a document has one `# ` title: make this a `## `"))
            }
        }
    }
    violations
}

/// Returns the lines of first-level titles outside of code fences.
fn titles(file: &Source) -> Vec<usize> {
    let mut in_fence = false;
    let mut titles = Vec::new();
    for (number, line) in file.lines() {
        if line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~") {
            in_fence = !in_fence;
        } else if !in_fence && line.starts_with("# ") {
            titles.push(number);
        }
    }
    titles
}

pub fn machine_path(tree: &Tree) -> Vec<Violation> {
    let is_path = |line: &str, at: usize| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-})*$".contains(c))
    };
    naming(tree, MACHINE_PATHS, "do not name a path of a machine: use a relative path or a placeholder", is_path)
}

pub fn registry_host(tree: &Tree) -> Vec<Violation> {
    naming(tree, REGISTRY_HOSTS, "do not name a host of a package registry: name the package and its tool", |_, _| true)
}

/// Reports the lines that contain one of `words` at an offset for which `counts` holds. Lock files are exempt, because
/// cargo writes them.
fn naming(tree: &Tree, words: &[&str], advice: &str, counts: impl Fn(&str, usize) -> bool) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in tree.files.iter().filter(|file| !file.path.ends_with("Cargo.lock")) {
        for (number, line) in file.lines() {
            let named = |word: &&str| line.match_indices(*word).any(|(at, _)| counts(line, at));
            if words.iter().any(named) {
                violations.push(Violation::new(file, number, advice));
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
    fn a_document_has_one_title() {
        assert_eq!(lines(one_title, &[("a.md", "# A\n\n## B\n\n```\n# no title\n```\n")]), [0; 0]);
        assert_eq!(lines(one_title, &[("a.md", "# A\n\n# B\n")]), [3]);
        assert_eq!(lines(one_title, &[("a.md", "A\n")]), [1]);
    }

    #[test]
    fn no_file_names_a_path_of_a_machine() {
        for path in MACHINE_PATHS {
            assert_eq!(lines(machine_path, &[("a.sh", &format!("true\ncd {path}x\n"))]), [2]);
            assert_eq!(lines(machine_path, &[("a.sh", &format!("cd flights{path}x $here{path}\n"))]), [0; 0]);
        }
    }

    #[test]
    fn only_lock_files_may_name_registries() {
        for host in REGISTRY_HOSTS {
            assert_eq!(lines(registry_host, &[("a.md", &format!("See https://{host}.\n"))]), [1]);
            assert_eq!(lines(registry_host, &[("Cargo.lock", &format!("{host}\n"))]), [0; 0]);
        }
    }
}
