//! Writes the database at a boundary.

use std::sync::Arc;

use quorate_env::Env;
use quorate_env::disk::File;

use super::Plan;
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
        let mut target = Target { file, sums: None, last: 0 };
        let mut before = 0_u64;
        for (key, described) in &self.files {
            let tell = |read: u64| {
                if let Some(progress) = &progress {
                    progress(Progress { read: before.saturating_add(read), expected: self.bytes() });
                }
            };
            let (reading, reader) = Reading::open(env, objects, self.outage_max, (key, Some(described.length))).await?;
            target.begin(key, reader.header())?;
            target = apply(env, key, target, (reading, reader), tell).await?;
            target.check(key, described)?;
            before = before.saturating_add(described.length);
        }
        let empty = || ArchiveError::Missing("the plan has no files".to_owned());
        Ok(target.sums.ok_or_else(empty)?.page_size())
    }
}

/// Writes the pages of a file, and tells how many bytes of it have arrived.
async fn apply(
    env: &Env,
    key: &str,
    mut target: Target,
    (mut reading, mut reader): (Reading, Reader<Feed>),
    tell: impl Fn(u64),
) -> Result<Target, ArchiveError> {
    loop {
        reading.has_page().await?;
        tell(reading.arrived());
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
        (target, rest) = env.blocking(step).await.ok_or(ArchiveError::Closed)??;
        match rest {
            Some(rest) => reader = rest,
            None => return Ok(target),
        }
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
