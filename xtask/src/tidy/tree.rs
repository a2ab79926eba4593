//! The input of the rules: the files that git tracks or would track, with prepared views of Rust sources.
//!
//! Invariant: `code`, `uncommented` and `text` of a file have the same lines.

use std::path::Path;
use std::process::Command;

use super::lexer::{Blank, blank, block};

/// All text files of the repository.
pub struct Tree {
    pub files: Vec<Source>,
}

/// A text file.
pub struct Source {
    /// The path relative to the repository's root, with `/` as the separator.
    pub path: String,
    pub text: String,
    /// For a Rust file, the text with comments and literals blanked; for other files, the text.
    pub code: String,
    /// For a Rust file, the text with comments blanked; for other files, the text.
    pub uncommented: String,
    /// For every line, whether it belongs to a test, because of the file's path or because it is inside of a
    /// `#[cfg(test)]` item.
    in_test: Vec<bool>,
}

impl Tree {
    /// Reads the text files that git lists, including untracked files that are not ignored.
    pub fn from_git() -> Result<Self, String> {
        let root = git(Path::new("."), &["rev-parse", "--show-toplevel"])?;
        let root = Path::new(root.trim_end());
        let listing = git(root, &["ls-files", "-co", "--exclude-standard", "--deduplicate", "-z"])?;
        let mut files = Vec::new();
        for path in listing.split('\0').filter(|path| !path.is_empty()) {
            match std::fs::read(root.join(path)) {
                Ok(bytes) => files.extend(String::from_utf8(bytes).ok().map(|text| Source::new(path, text))),
                // The path is a link to a directory, or a deleted file that is still in the index.
                Err(_) => continue,
            }
        }
        Ok(Self::new(files))
    }

    fn new(mut files: Vec<Source>) -> Self {
        let test_modules: Vec<String> = files.iter().flat_map(Source::test_modules_elsewhere).collect();
        for file in &mut files {
            let stem = file.path.trim_end_matches(".rs").trim_end_matches("/mod");
            let is_test = |module: &String| {
                stem.strip_prefix(module.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            if test_modules.iter().any(is_test) {
                file.in_test.fill(true);
            }
        }
        Self { files }
    }

    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        Self::new(files.iter().map(|(path, text)| Source::new(path, (*text).to_owned())).collect())
    }

    pub fn rust(&self) -> impl Iterator<Item = &Source> {
        self.files.iter().filter(|file| file.is_rust())
    }
}

impl Source {
    fn new(path: &str, text: String) -> Self {
        let (code, uncommented) = match path.ends_with(".rs") {
            true => (blank(&text, Blank::CommentsAndLiterals), blank(&text, Blank::Comments)),
            false => (text.clone(), text.clone()),
        };
        let outside_src = path.split('/').any(|part| ["tests", "examples", "benches"].contains(&part));
        let in_test = vec![outside_src; text.lines().count()];
        let mut source = Self { path: path.to_owned(), text, code, uncommented, in_test };
        source.mark_test_items();
        source
    }

    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    pub fn is_markdown(&self) -> bool {
        self.path.ends_with(".md")
    }

    /// Whether the line, counted from 1, is product code: in a crate's `src/`, and not a test.
    pub fn is_product(&self, line: usize) -> bool {
        self.is_rust()
            && self.path.starts_with("crates/")
            && self.path.contains("/src/")
            && !self.in_test.get(line - 1).copied().unwrap_or(false)
    }

    /// Returns the line, counted from 1, of a byte offset into the text.
    pub fn line_of(&self, offset: usize) -> usize {
        1 + self.text.bytes().take(offset).filter(|&byte| byte == b'\n').count()
    }

    /// Returns the lines with their numbers, counted from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    fn test_attributes(&self) -> impl Iterator<Item = usize> {
        self.code.match_indices("#[cfg(").map(|(at, _)| at).filter(|&at| {
            let condition = &self.code[at + 6..];
            ["test)", "all(test,", "any(test,"].iter().any(|begin| condition.starts_with(begin))
        })
    }

    fn mark_test_items(&mut self) {
        let items: Vec<_> = self.test_attributes().filter_map(|at| block(&self.code, at).map(|b| at..b.end)).collect();
        for item in items {
            let (first, last) = (self.line_of(item.start), self.line_of(item.end - 1));
            self.in_test.iter_mut().take(last).skip(first - 1).for_each(|line| *line = true);
        }
    }

    /// Returns the paths, without `.rs`, of the modules that this file declares with `#[cfg(test)] mod name;`.
    fn test_modules_elsewhere(&self) -> Vec<String> {
        let folder = match self.path.rsplit_once('/') {
            Some((folder, "lib.rs" | "main.rs" | "mod.rs")) => folder,
            _ => self.path.trim_end_matches(".rs"),
        };
        let declared = self.test_attributes().filter(|&at| block(&self.code, at).is_none());
        let name = |at| self.code[at..].split(';').next()?.split_once("mod ").map(|(_, name)| name.trim());
        declared.filter_map(name).map(|name| format!("{folder}/{name}")).collect()
    }
}

fn git(folder: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git").current_dir(folder).args(arguments).output();
    let output = output.map_err(|error| format!("can't run git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("git lists a path that is not UTF-8: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product_lines(path: &str, text: &str) -> Vec<usize> {
        let file = Source::new(path, text.to_owned());
        (1..=text.lines().count()).filter(|&line| file.is_product(line)).collect()
    }

    #[test]
    fn test_items_are_not_product_code() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
        assert_eq!(product_lines("crates/a/src/lib.rs", text), [1, 6]);
    }

    #[test]
    fn only_src_of_crates_is_product_code() {
        assert_eq!(product_lines("crates/a/src/b/c.rs", "fn a() {}\n"), [1]);
        for path in ["crates/a/tests/b.rs", "crates/a/examples/b.rs", "xtask/src/b.rs", "crates/a/src/b.md"] {
            assert_eq!(product_lines(path, "fn a() {}\n"), [0; 0], "{path}");
        }
    }

    #[test]
    fn a_test_module_in_its_own_file_is_not_product_code() {
        let tree = Tree::of(&[
            ("crates/a/src/log.rs", "mod disk;\n#[cfg(test)]\nmod model;\n"),
            ("crates/a/src/log/disk.rs", "fn a() {}\n"),
            ("crates/a/src/log/model.rs", "fn a() {}\n"),
            ("crates/a/src/log/model/part.rs", "fn a() {}\n"),
        ]);
        let product: Vec<bool> = tree.files.iter().map(|file| file.is_product(1)).collect();
        assert_eq!(product, [true, true, false, false]);
    }
}
