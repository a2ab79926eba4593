//! The dependencies between crates: a crate depends only on crates of lower floors, and only one crate uses openraft.
//!
//! Invariant: every crate under `crates/` is listed in [`FLOORS`], where a new crate must be added.

use toml::{Table, Value};

use super::{Source, Tree, Violation};

/// Every crate, with the crates of this workspace that it may depend on.
const FLOORS: &[(&str, &[&str])] = &[
    ("quorate-env", &[]),
    ("quorate-archive", &["quorate-env"]),
    ("quorate-replicate", &["quorate-env", "quorate-archive"]),
    ("quorate-history", &[]),
    ("quorate-model", &["quorate-env"]),
    ("quorate-keys", &["quorate-env", "quorate-model"]),
    ("quorate-locks", &["quorate-env", "quorate-model"]),
    ("quorate-wal", &["quorate-env", "quorate-model"]),
    ("quorate-tls", &["quorate-env"]),
    ("quorate-wire", &["quorate-env", "quorate-model"]),
    ("quorate-apply", &["quorate-env", "quorate-model"]),
    ("quorate-sql", &["quorate-env", "quorate-keys", "quorate-locks", "quorate-model", "quorate-apply"]),
    ("quorate-consensus", &["quorate-env", "quorate-model", "quorate-wal", "quorate-wire"]),
    ("quorate", LIBRARY_FLOORS),
    ("quorate-backup", &["quorate-env", "quorate-archive", "quorate"]),
    ("quorate-http", ABOVE_LIBRARY),
    ("quorate-resp", &["quorate-env", "quorate-model", "quorate-keys", "quorate-locks"]),
    ("quorate-server", SERVER),
    ("quorate-import", &["quorate-env", "quorate"]),
    ("quorate-shell", &["quorate-env", "quorate", "quorate-import"]),
    ("quorate-cli", BINARY),
    ("quorate-derive", &[]),
    (SIMULATED_WORLD, &["quorate-env", "quorate-model"]),
    ("quorate-sim", SIMULATOR),
    ("quorate-fuzz", FUZZER),
    ("quorate-trials", TRIALS),
];

const LIBRARY_FLOORS: &[&str] = &[
    "quorate-env",
    "quorate-archive",
    "quorate-model",
    "quorate-wal",
    "quorate-wire",
    "quorate-apply",
    "quorate-sql",
    "quorate-consensus",
    "quorate-tls",
    "quorate-derive",
];
const ABOVE_LIBRARY: &[&str] = &["quorate-env", "quorate-model", "quorate-tls", "quorate-wire", "quorate"];
const SERVER: &[&str] = &[
    "quorate-env",
    "quorate-model",
    "quorate-tls",
    "quorate-wire",
    "quorate",
    "quorate-backup",
    "quorate-http",
    "quorate-resp",
];
const BINARY: &[&str] = &[
    "quorate-env",
    "quorate-model",
    "quorate-tls",
    "quorate-wire",
    "quorate",
    "quorate-backup",
    "quorate-http",
    "quorate-replicate",
    "quorate-server",
    "quorate-import",
    "quorate-shell",
];
const SIMULATOR: &[&str] = &[
    "quorate-env",
    "quorate-model",
    "quorate-wal",
    "quorate-wire",
    "quorate-apply",
    "quorate-sql",
    "quorate-consensus",
    "quorate",
    SIMULATED_WORLD,
];

/// The fuzz targets use every crate that decodes bytes from outside.
const FUZZER: &[&str] = &[
    "quorate-archive",
    "quorate-env",
    "quorate-model",
    "quorate-wal",
    "quorate-wire",
    "quorate-apply",
    "quorate-sql",
    "quorate-consensus",
    "quorate",
    "quorate-http",
    "quorate-resp",
    "quorate-server",
    "quorate-import",
    "quorate-shell",
];

/// The trials run the binary as processes; they link only what its clients do, the checkers, which `quorate-resp` has
/// too, and plain SQLite with the functions of `quorate-sql`.
const TRIALS: &[&str] = &["quorate-backup", "quorate-env", "quorate-history", "quorate-resp", "quorate-sql", "quorate"];

/// The simulated disk and network. All crates may use it in tests, but only the simulator may depend on it.
const SIMULATED_WORLD: &str = "quorate-env-sim";
const RAFT: &str = "openraft";
const RAFT_OWNER: &str = "quorate-consensus";

pub fn layers(tree: &Tree) -> Vec<Violation> {
    manifests(tree).flat_map(|(file, name)| arrows(file, name)).collect()
}

/// Returns the manifests of the crates, each with the name of the crate, which is that of its folder. One further below
/// belongs to a program with a workspace of its own.
fn manifests(tree: &Tree) -> impl Iterator<Item = (&Source, &str)> {
    tree.files.iter().filter_map(|file| {
        let name = file.path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
        (!name.contains('/')).then_some((file, name))
    })
}

fn arrows(file: &Source, name: &str) -> Vec<Violation> {
    let Ok(manifest) = file.text.parse::<Table>() else {
        return vec![Violation::new(file, 1, "this is not valid TOML: correct it")];
    };
    let Some((_, below)) = FLOORS.iter().find(|(member, _)| *member == name) else {
        return vec![Violation::new(file, 1, "add the crate to FLOORS in xtask")];
    };
    let mut violations = Vec::new();
    for (is_dev, dependency) in dependencies(&manifest) {
        let advice = if dependency.starts_with(RAFT) && name != RAFT_OWNER {
            format!("only {RAFT_OWNER} may depend on `{dependency}`")
        } else if dependency == SIMULATED_WORLD && !is_dev && !below.contains(&SIMULATED_WORLD) {
            format!("`{dependency}` belongs under [dev-dependencies]")
        } else if is_member(&dependency) && !is_dev && !below.contains(&dependency.as_str()) {
            format!("`{dependency}` is not below `{name}`: reverse the dependency, or move the code to a lower crate")
        } else {
            continue;
        };
        violations.push(Violation::new(file, line_naming(file, &dependency), advice));
    }
    violations
}

fn is_member(dependency: &str) -> bool {
    FLOORS.iter().any(|(member, _)| *member == dependency)
}

/// Returns all dependencies, including those for single targets, each with whether it is a dev-dependency.
fn dependencies(manifest: &Table) -> Vec<(bool, String)> {
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let tables = std::iter::once(manifest).chain(targets.filter_map(Value::as_table));
    let mut found = Vec::new();
    for table in tables {
        for (kind, is_dev) in [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)] {
            let section = table.get(kind).and_then(Value::as_table).into_iter().flatten();
            found.extend(section.map(|(key, value)| (is_dev, package(key, value))));
        }
    }
    found
}

/// Returns the name of a dependency's package, which `package = "..."` may set.
fn package(key: &str, value: &Value) -> String {
    value.get("package").and_then(Value::as_str).unwrap_or(key).to_owned()
}

fn line_naming(file: &Source, dependency: &str) -> usize {
    let names =
        |line: &str| line.split(|c: char| !c.is_alphanumeric() && c != '-' && c != '_').any(|w| w == dependency);
    file.lines()
        .skip_while(|(_, line)| !line.contains("dependencies"))
        .find(|(_, line)| names(line))
        .map_or(1, |(n, _)| n)
}

/// Reports crates that do not inherit the workspace's lints, without which clippy's bans would not apply to them.
pub fn manifest(tree: &Tree) -> Vec<Violation> {
    let inherits = |file: &Source| {
        let manifest = file.text.parse::<Table>().ok()?;
        manifest.get("lints")?.get("workspace")?.as_bool()
    };
    manifests(tree)
        .filter(|(file, _)| inherits(file) != Some(true))
        .map(|(file, _)| Violation::new(file, 1, "write `[lints]` and `workspace = true`"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::lines;
    use super::*;

    fn check(name: &str, manifest: &str) -> Vec<usize> {
        lines(layers, &[(&format!("crates/{name}/Cargo.toml"), manifest)])
    }

    #[test]
    fn dependencies_on_higher_floors_are_found() {
        assert_eq!(check("quorate-wal", "[dependencies]\nquorate-env = 1\nquorate-model.workspace = true\n"), [0; 0]);
        assert_eq!(check("quorate-env", "[dependencies]\nbytes = 1\nquorate-model = 1\n"), [3]);
        assert_eq!(check("quorate-sql", "[target.'cfg(unix)'.dependencies]\nquorate-consensus = 1\n"), [2]);
        assert_eq!(check("quorate-model", "[build-dependencies]\nlog = { package = \"quorate-wal\" }\n"), [2]);
    }

    #[test]
    fn programs_with_a_workspace_of_their_own_are_no_crates() {
        assert_eq!(check("unknown", "[dependencies]\n"), [1]);
        assert_eq!(check("quorate-http/tests/clients/rust", "[workspace]\n[dependencies]\n"), [0; 0]);
    }

    #[test]
    fn only_one_crate_may_depend_on_openraft() {
        let manifest = "[dev-dependencies]\nopenraft-rt = 1\n";
        assert_eq!(check("quorate-consensus", manifest), [0; 0]);
        assert_eq!(check("quorate", manifest), [2]);
    }

    #[test]
    fn the_simulated_world_is_a_dev_dependency() {
        assert_eq!(check("quorate-wal", "[dev-dependencies]\nquorate-env-sim = 1\n"), [0; 0]);
        assert_eq!(check("quorate-wal", "[dependencies]\nquorate-env-sim = 1\n"), [2]);
        assert_eq!(check("quorate-sim", "[dependencies]\nquorate-env-sim = 1\n"), [0; 0]);
    }

    #[test]
    fn every_crate_has_a_floor() {
        assert_eq!(check("quorate-attic", ""), [1]);
        assert_eq!(check("quorate-env", "[dependencies"), [1]);
    }

    #[test]
    fn every_crate_inherits_the_workspace_lints() {
        let path = "crates/quorate-env/Cargo.toml";
        assert_eq!(lines(manifest, &[(path, "[lints]\nworkspace = true\n")]), [0; 0]);
        assert_eq!(lines(manifest, &[(path, "[lints.rust]\nunsafe_code = \"allow\"\n")]), [1]);
    }
}
