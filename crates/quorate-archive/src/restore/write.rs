//! Writes the database at a boundary.
//!
//! Invariant: a file that was written in several tries has the same bytes as one that was written in one.

use std::path::Path;
use std::sync::Arc;

use quorate_env::Env;
use quorate_env::disk::{File, OpenMode};

use super::Plan;
use super::state::{State, StateFile, is_database, save_bytes};
use crate::archiver::Note;
use crate::error::ArchiveError;
use crate::ltx::{Checksum, Feed, Header, PageSize, Reader};
use crate::manifest;
use crate::objects::Objects;
use crate::reading::Reading;
use crate::sums::Sums;

/// How far a restore is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// How many bytes of the archive were used so far.
    pub read: u64,
    /// How many there are to read.
    pub expected: u64,
}

/// Is told from time to time how far a restore is.
pub type TellProgress = Arc<dyn Fn(Progress) + Send + Sync>;

/// The database so far.
struct Target {
    file: Arc<dyn File>,
    /// The checksums of its pages, once the first file says how long they are.
    sums: Option<Sums>,
    /// The last transaction in it.
    last: u64,
}

/// How the pages of one plan are written.
struct Writing<'a> {
    plan: &'a Plan,
    env: &'a Env,
    objects: &'a Arc<dyn Objects>,
    progress: Option<TellProgress>,
    /// Where the state is saved, if it is.
    states: Option<StateFile>,
    /// How many bytes had been read when it was saved last.
    saved: u64,
}

impl Plan {
    /// Writes the database at the boundary into an empty file, and returns the size of its pages. The file is not
    /// synced.
    ///
    /// # Errors
    ///
    /// After an error the file is not a database. If an object is [missing](ArchiveError::Missing), the archive may
    /// have merged it into another one meanwhile: make another plan.
    pub async fn write_pages(
        &self,
        env: &Env,
        objects: &Arc<dyn Objects>,
        file: Arc<dyn File>,
        progress: Option<TellProgress>,
    ) -> Result<PageSize, ArchiveError> {
        let mut writing = Writing { plan: self, env, objects, progress, states: None, saved: 0 };
        Ok(writing.run(file, None).await?.page_size())
    }

    /// Does so with a file at a path, which is created, and goes on where an earlier call was killed, or had an error
    /// that another try may overcome: what is missing is read. That is so if the files that it has read are the first
    /// of this plan, too; otherwise it begins anew. What it keeps beside the file is removed at the end.
    ///
    /// # Errors
    ///
    /// See [`Plan::write_pages`].
    pub async fn write_file(
        &self,
        env: &Env,
        objects: &Arc<dyn Objects>,
        path: &Path,
        progress: Option<TellProgress>,
    ) -> Result<PageSize, ArchiveError> {
        let states = StateFile::beside(env.disk(), path);
        let file = env.disk().open(path, OpenMode::Create).map_err(ArchiveError::Disk)?;
        let mut writing = Writing { plan: self, env, objects, progress, states: Some(states.clone()), saved: 0 };
        if let Some(state) = writing.state(&*file).map_err(ArchiveError::Disk)? {
            let sums = writing.run(Arc::clone(&file), Some(state)).await;
            let sums = sums.inspect_err(|error| forget_if_useless(&states, error))?;
            if writing.is_database(&file, sums.clone()).await? {
                states.remove().map_err(ArchiveError::Disk)?;
                return Ok(sums.page_size());
            }
            begins_anew("the files of the first try have changed");
        }
        states.remove().and_then(|()| file.set_len(0)).map_err(ArchiveError::Disk)?;
        writing.saved = 0;
        let sums = writing.run(file, None).await.inspect_err(|error| forget_if_useless(&states, error))?;
        states.remove().map_err(ArchiveError::Disk)?;
        Ok(sums.page_size())
    }
}

/// Removes the state after an error that the next try would meet again.
fn forget_if_useless(states: &StateFile, error: &ArchiveError) {
    if matches!(error, ArchiveError::Damaged { .. } | ArchiveError::Ltx { .. }) {
        // If it can't be removed, the next try meets the same error, and removes it then.
        let _ = states.remove();
    }
}

fn begins_anew(why: &str) {
    tracing::warn!(event = "restore_begins_anew", why, "the restore can't go on where an earlier one was");
}

impl Writing<'_> {
    /// Returns the state from which the restore goes on, if there is one.
    fn state(&mut self, file: &dyn File) -> std::io::Result<Option<State>> {
        let Some(states) = self.states.as_ref() else { return Ok(None) };
        if !states.exists()? {
            return Ok(None);
        }
        let state = states.read(self.plan)?.filter(|_| !file.is_empty().unwrap_or(true));
        match &state {
            Some(state) => {
                let file = state.file as usize;
                let before =
                    self.plan.files.iter().take(file).map(|(_, file)| file.length).fold(0, u64::saturating_add);
                self.saved = before.saturating_add(state.stand.offset());
                let (read, expected) = (self.saved, self.plan.bytes());
                tracing::warn!(
                    event = "restore_goes_on",
                    read,
                    expected,
                    "the restore goes on where an earlier one was"
                );
            }
            None => begins_anew("this is another state, the archive was tidied up, or its files are damaged"),
        }
        Ok(state)
    }

    /// Reads the files, from the state on if there is one, and returns the checksums of all pages.
    async fn run(&mut self, file: Arc<dyn File>, state: Option<State>) -> Result<Sums, ArchiveError> {
        let (mut target, mut before) = (Target { file, sums: None, last: 0 }, 0_u64);
        let first = state.as_ref().map_or(0, |state| state.file);
        let mut state = state;
        for (number, (key, described)) in (0_u32..).zip(&self.plan.files) {
            if number >= first {
                let opened = match state.take() {
                    Some(State { stand, sums, .. }) => {
                        target.resume(&stand.header, sums)?;
                        let of = (key.as_str(), described.length);
                        Reading::resume(self.env, self.objects, self.plan.outage_max, of, &stand)?
                    }
                    None => {
                        let of = (key.as_str(), Some(described.length));
                        let opened = Reading::open(self.env, self.objects, self.plan.outage_max, of).await?;
                        target.begin(key, opened.1.header())?;
                        opened
                    }
                };
                target = self.apply((number, key), target, opened, before).await?;
                target.check(key, described)?;
            }
            before = before.saturating_add(described.length);
        }
        target.sums.ok_or_else(|| ArchiveError::Missing("the plan has no files".to_owned()))
    }

    /// Writes the pages of a file, before which so many bytes were read.
    async fn apply(
        &mut self,
        (number, key): (u32, &str),
        mut target: Target,
        (mut reading, mut reader): (Reading, Reader<Feed>),
        before: u64,
    ) -> Result<Target, ArchiveError> {
        loop {
            reading.has_page().await?;
            let read = before.saturating_add(reading.arrived());
            self.tell(read);
            let (feed, key) = (reading.feed().clone(), key.to_owned());
            let step = move || {
                while feed.has_page() {
                    match reader.next_page().map_err(ArchiveError::ltx(&key))? {
                        Some((number, page)) => target.write(number, page)?,
                        None => return Ok::<_, ArchiveError>((target, None)),
                    }
                }
                Ok((target, Some(reader)))
            };
            let rest;
            (target, rest) = self.env.blocking(step).await.ok_or(ArchiveError::Closed)??;
            match rest {
                Some(rest) => reader = rest,
                None => return Ok(target),
            }
            if let Some(states) = self.states.clone()
                && read.saturating_sub(self.saved) >= save_bytes(self.plan)
                && let Some(sums) = target.sums.clone()
            {
                self.saved = read;
                let (file, state) = (Arc::clone(&target.file), State::of(self.plan, number, reader.stand(), sums));
                let save = move || file.sync_data().and_then(|()| states.save(&state));
                self.env.blocking(save).await.ok_or(ArchiveError::Closed)?.map_err(ArchiveError::Disk)?;
            }
        }
    }

    fn tell(&self, read: u64) {
        if let Some(progress) = &self.progress {
            progress(Progress { read, expected: self.plan.bytes() });
        }
    }

    /// Whether all pages of the file have these checksums.
    async fn is_database(&self, file: &Arc<dyn File>, sums: Sums) -> Result<bool, ArchiveError> {
        let file = Arc::clone(file);
        let compared = self.env.blocking(move || is_database(&*file, &sums)).await.ok_or(ArchiveError::Closed)?;
        compared.map_err(ArchiveError::Disk)
    }
}

impl Target {
    /// Checks that a file may be applied, and gives the database its size.
    fn begin(&mut self, key: &str, header: &Header) -> Result<(), ArchiveError> {
        let sums = self.sums.get_or_insert_with(|| Sums::new(header.page_size));
        if sums.page_size() != header.page_size {
            return Err(ArchiveError::damaged(key, "its pages have another size than those before"));
        }
        // A merged file may begin before the snapshot ends to which it is applied. Then the checksum after it must do.
        let is_next = header.txids.min() == self.last.saturating_add(1);
        self.last = header.txids.max();
        if is_next && Note::decode(&header.note).is_some_and(|note| note.before != sums.database()) {
            return Err(ArchiveError::damaged(key, "it was made of another database than the files before give"));
        }
        sums.resize(header.commit.get());
        let bytes = u64::from(header.commit.get()).saturating_mul(u64::from(header.page_size.get()));
        self.file.set_len(bytes).map_err(ArchiveError::Disk)
    }

    /// Goes on in the middle of a file, with the pages that were written before.
    fn resume(&mut self, header: &Header, sums: Sums) -> Result<(), ArchiveError> {
        let bytes = u64::from(sums.pages()).saturating_mul(u64::from(sums.page_size().get()));
        (self.sums, self.last) = (Some(sums), header.txids.max());
        self.file.set_len(bytes).map_err(ArchiveError::Disk)
    }

    fn write(&mut self, number: u32, page: &[u8]) -> Result<(), ArchiveError> {
        if let Some(sums) = &mut self.sums {
            sums.set(number, Checksum::of_page(number, page));
        }
        let at = u64::from(number.saturating_sub(1)).saturating_mul(page.len() as u64);
        self.file.write_at(page, at).map_err(ArchiveError::Disk)
    }

    /// Checks that the database is the one that the archive says.
    fn check(&self, key: &str, described: &manifest::File) -> Result<(), ArchiveError> {
        let found = self.sums.as_ref().map(|sums| sums.database().to_string());
        match &described.checksum {
            Some(_) if described.checksum != found => {
                Err(ArchiveError::damaged(key, "the database after it has another checksum than the manifest says"))
            }
            _ => Ok(()),
        }
    }
}
