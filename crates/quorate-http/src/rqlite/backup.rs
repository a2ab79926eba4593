//! `GET /db/backup`: a copy of the database, as a plain SQLite file.
//!
//! A copy must be whole before it can be sent, because pages that change while it is made are sent again. So it is made
//! in a directory of its own among the temporary files of the machine (`TMPDIR`), which only the server's user can
//! read.
//!
//! Invariant: nothing is left there, unless the process is killed while the copy is made: the directory is removed
//! before the first byte is sent.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, Either, StreamBody};
use hyper::StatusCode;
use hyper::body::Frame;
use hyper::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, HeaderValue};
use quorate::Level;
use quorate::admin::Admin;
use quorate::backup::{BackupError, BackupInfo, BackupOptions};
use quorate_env::disk::{File, OpenMode};
use quorate_env::{Cause, Env};

use super::asked::Asked;
use crate::door::Doors;
use crate::error::Problem;
use crate::message::{Answer, AnswerBody, Content, answer_with, with_position};

/// The most bytes of a file that are in memory at once.
const PIECE_BYTES: u64 = 256 << 10;

/// Answers with a copy of the database.
pub(super) async fn backup(doors: &Doors, asked: &Asked) -> Result<Answer, Problem> {
    if asked.compress {
        return Err(Problem::NotOffered("backups are not compressed here; leave out `compress`"));
    }
    if !matches!(asked.format.as_deref(), None | Some("" | "binary" | "delete")) {
        return Err(Problem::NotOffered(
            "backups are files of SQLite here; leave out `fmt`, or use `.dump` of the shell",
        ));
    }
    let admin = doors.options().backups.as_ref();
    let admin = admin.ok_or(Problem::NotOffered("this program sends no backups; use `quorate backup`"))?;
    let level = if asked.noleader { Level::Local } else { Level::Linearizable };
    let (made, file) = make(doors.env(), admin, level).await?;
    let body = pieces(doors.env().clone(), file, made.bytes);
    let mut answer = answer_with(StatusCode::OK, Content::Database, body);
    answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(made.bytes));
    answer.headers_mut().insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment; filename=\"quorate.db\""));
    Ok(with_position(answer, Some(made.position)))
}

/// Makes a copy, and returns it, opened and without a name.
async fn make(env: &Env, admin: &Admin, level: Level) -> Result<(BackupInfo, Arc<dyn File>), Problem> {
    let dir = Temporary::create(env).await.map_err(|error| Problem::Backup(Cause::from(error)))?;
    let options = BackupOptions { level, ..BackupOptions::default() };
    let made = admin.backup(dir.path.join("backup.db"), &options).await.map_err(problem)?;
    let (disk, path) = (Arc::clone(env.disk()), made.file.clone());
    let opened = env.blocking(move || disk.open(&path, OpenMode::Read).inspect(|_| drop(dir))).await;
    let file = opened.unwrap_or_else(|| Err(closed())).map_err(|error| Problem::Backup(Cause::from(error)))?;
    Ok((made, file))
}

fn problem(error: BackupError) -> Problem {
    match error {
        BackupError::Cluster(error) => Problem::Sql(error),
        error => Problem::Backup(Cause::from(error)),
    }
}

/// The bytes of a file, which are read as they are sent.
fn pieces(env: Env, file: Arc<dyn File>, bytes: u64) -> AnswerBody {
    let pieces = stream::try_unfold(0, move |at: u64| {
        let (env, file) = (env.clone(), Arc::clone(&file));
        async move {
            let len = bytes.saturating_sub(at).min(PIECE_BYTES);
            if len == 0 {
                return Ok(None);
            }
            let read = move || {
                let mut piece = vec![0; usize::try_from(len).map_err(io::Error::other)?];
                file.read_exact_at(&mut piece, at)?;
                Ok(Bytes::from(piece))
            };
            let piece = env.blocking(read).await.unwrap_or_else(|| Err(closed()))?;
            Ok(Some((Frame::data(piece), at.saturating_add(len))))
        }
    });
    Either::Right(StreamBody::new(pieces).boxed_unsync())
}

fn closed() -> io::Error {
    io::Error::other("the server is stopping")
}

/// A directory that is removed, with all in it, when it is dropped.
struct Temporary {
    env: Env,
    path: PathBuf,
}

impl Temporary {
    async fn create(env: &Env) -> io::Result<Self> {
        let name = format!("quorate-backup-{}-{:016x}", std::process::id(), env.rng().next_u64());
        let path = std::env::temp_dir().join(name);
        let dir = Self { env: env.clone(), path: path.clone() };
        let disk = Arc::clone(env.disk());
        let created = env.blocking(move || disk.create_dir_all(&path)).await;
        created.unwrap_or_else(|| Err(closed())).map(|()| dir)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Err(error) = self.env.disk().remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "could not remove the directory of a backup");
        }
    }
}
