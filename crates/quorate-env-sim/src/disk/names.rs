//! The names of the simulated disk: directories and files by path, and changes that were not synced.
//!
//! Invariant: applying all pending changes, in order, to the durable names gives the live names.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use quorate_env::Rng;

use super::inode::{Fate, Inode};

#[derive(Clone, Debug)]
pub(super) enum Node {
    Dir,
    File(Arc<Mutex<Inode>>),
}

type Tree = BTreeMap<PathBuf, Node>;

#[derive(Clone, Debug)]
enum Change {
    Link(PathBuf, Node),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf, Node),
}

impl Change {
    fn apply(self, tree: &mut Tree) {
        match self {
            Self::Link(path, node) => drop(tree.insert(path, node)),
            Self::Unlink(path) => drop(tree.remove(&path)),
            Self::Rename(from, to, node) => {
                let moved: Vec<PathBuf> = tree.keys().filter(|path| path.starts_with(&from)).cloned().collect();
                for path in moved {
                    if let (Some(node), Ok(rest)) = (tree.remove(&path), path.strip_prefix(&from)) {
                        tree.insert(to.join(rest), node);
                    }
                }
                // `join("")` would add a slash to the name of `to` itself, so that is inserted last, without a join.
                tree.insert(to, node);
            }
        }
    }

    /// Adapts this pending change after a later one (`applied`) became durable before it: its paths follow a renamed
    /// directory, and a change within a removed directory becomes void.
    fn after(self, applied: &Self) -> Option<Self> {
        let moved = |path: PathBuf| match applied {
            Self::Link(..) => Some(path),
            Self::Unlink(removed) => (!path.starts_with(removed)).then_some(path),
            Self::Rename(from, to, _) => match path.strip_prefix(from) {
                Ok(rest) => Some(to.join(rest)),
                Err(_) => (!path.starts_with(to)).then_some(path),
            },
        };
        Some(match self {
            Self::Link(path, node) => Self::Link(moved(path)?, node),
            Self::Unlink(path) => Self::Unlink(moved(path)?),
            Self::Rename(from, to, node) => Self::Rename(moved(from)?, moved(to)?, node),
        })
    }

    fn touches(&self, dir: &Path) -> bool {
        let within = |path: &Path| path.parent() == Some(dir);
        match self {
            Self::Link(path, _) | Self::Unlink(path) => within(path),
            Self::Rename(from, to, _) => within(from) || within(to),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Names {
    live: Tree,
    durable: Tree,
    pending: Vec<Change>,
}

impl Names {
    pub(super) fn exists(&self, path: &Path) -> bool {
        self.is_dir(path) || self.live.contains_key(path)
    }

    pub(super) fn is_dir(&self, path: &Path) -> bool {
        is_root(path) || matches!(self.live.get(path), Some(Node::Dir))
    }

    pub(super) fn file(&self, path: &Path) -> io::Result<Arc<Mutex<Inode>>> {
        match self.live.get(path) {
            Some(Node::File(inode)) => Ok(Arc::clone(inode)),
            Some(Node::Dir) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &Arc<Mutex<Inode>>> {
        self.paths().map(|(_, inode)| inode)
    }

    /// Returns all files with their paths.
    pub(super) fn paths(&self) -> impl Iterator<Item = (&PathBuf, &Arc<Mutex<Inode>>)> {
        self.live.iter().filter_map(|(path, node)| match node {
            Node::File(inode) => Some((path, inode)),
            Node::Dir => None,
        })
    }

    /// Creates a file. If `may_exist`, returns the existing one instead.
    pub(super) fn create(&mut self, path: &Path, may_exist: bool) -> io::Result<Arc<Mutex<Inode>>> {
        match self.file(path) {
            Ok(inode) if may_exist => return Ok(inode),
            Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(_) => self.check_parent(path)?,
        }
        let inode = Arc::default();
        self.change(Change::Link(path.to_path_buf(), Node::File(Arc::clone(&inode))));
        Ok(inode)
    }

    pub(super) fn make_dirs(&mut self, path: &Path) -> io::Result<()> {
        let mut missing: Vec<&Path> = path.ancestors().take_while(|path| !self.is_dir(path)).collect();
        while let Some(dir) = missing.pop() {
            if self.live.contains_key(dir) {
                return Err(io::ErrorKind::NotADirectory.into());
            }
            self.change(Change::Link(dir.to_path_buf(), Node::Dir));
        }
        Ok(())
    }

    pub(super) fn list(&self, dir: &Path) -> io::Result<Vec<(String, Node)>> {
        if !self.is_dir(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(self
            .live
            .iter()
            .filter(|(path, _)| path.parent() == Some(dir))
            .filter_map(|(path, node)| Some((path.file_name()?.to_string_lossy().into_owned(), node.clone())))
            .collect())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let node = self.live.get(from).cloned().ok_or(io::ErrorKind::NotFound)?;
        self.check_parent(to)?;
        match (&node, self.is_dir(to)) {
            (Node::File(_), true) => return Err(io::ErrorKind::IsADirectory.into()),
            (Node::Dir, true) if self.live.keys().any(|path| path.parent() == Some(to)) => {
                return Err(io::ErrorKind::DirectoryNotEmpty.into());
            }
            _ => {}
        }
        self.change(Change::Rename(from.to_path_buf(), to.to_path_buf(), node));
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) {
        self.change(Change::Unlink(path.to_path_buf()));
    }

    pub(super) fn remove_dirs(&mut self, path: &Path) -> io::Result<()> {
        if !self.live.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let below: Vec<PathBuf> = self.live.keys().filter(|item| item.starts_with(path)).cloned().collect();
        for item in below.into_iter().rev() {
            self.change(Change::Unlink(item));
        }
        Ok(())
    }

    /// Makes the names in `dir` durable. The name of `dir` itself needs a sync of its parent.
    pub(super) fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        if !self.is_dir(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        for change in std::mem::take(&mut self.pending) {
            if change.touches(dir) {
                let earlier = std::mem::take(&mut self.pending).into_iter();
                self.pending = earlier.filter_map(|earlier| earlier.after(&change)).collect();
                change.apply(&mut self.durable);
            } else {
                self.pending.push(change);
            }
        }
        Ok(())
    }

    pub(super) fn sync_all(&mut self) {
        self.pending.clear();
        self.durable.clone_from(&self.live);
    }

    /// Fails the power: some of the pending changes survive. In half of the cases only a prefix does, as with a
    /// journal.
    pub(super) fn lose_power(&mut self, rng: &Rng, fate: Fate) {
        let pending = std::mem::take(&mut self.pending);
        let journal = rng.below(2) == 0;
        let mut broken = false;
        for change in pending {
            let survives = fate.survives(rng);
            broken |= !survives;
            if survives && !(journal && broken) {
                change.apply(&mut self.durable);
            }
        }
        let dirs: Vec<PathBuf> =
            self.durable.iter().filter(|(_, node)| matches!(node, Node::Dir)).map(|(path, _)| path.clone()).collect();
        let is_known = |dir: &Path| is_root(dir) || dirs.iter().any(|known| known == dir);
        let reachable = |path: &Path| path.ancestors().skip(1).all(is_known);
        self.durable.retain(|path, _| reachable(path));
        self.live.clone_from(&self.durable);
    }

    fn change(&mut self, change: Change) {
        change.clone().apply(&mut self.live);
        self.pending.push(change);
    }

    fn check_parent(&self, path: &Path) -> io::Result<()> {
        let found = path.parent().is_some_and(|parent| self.is_dir(parent));
        if found { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

/// Returns whether a path always exists: `/`, or the start of relative paths.
fn is_root(path: &Path) -> bool {
    path.parent().is_none()
}
