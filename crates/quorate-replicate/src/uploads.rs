//! What goes to the store: the boundaries of a database, and the work that keeps its archive tidy.
//!
//! Invariant: a boundary that was taken is stored, or the next one contains it.

use std::sync::Arc;

use quorate_archive::{Archiver, Identity, Objects, Put};
use quorate_env::{Env, Instant};
use tokio::sync::watch;

use crate::error::ReplicateError;
use crate::following::Following;
use crate::looks::Behind;
use crate::place;
use crate::replicate::{Options, Status};

/// What archives a database.
pub struct Uploads {
    env: Env,
    following: Following,
    objects: Arc<dyn Objects>,
    options: Options,
    behind: Behind,
    status: Arc<watch::Sender<Status>>,
    /// `None` before the archive was taken over.
    archiver: Option<Archiver>,
    tidied_at: Instant,
}

impl Uploads {
    pub fn new(
        env: &Env,
        following: Following,
        objects: Arc<dyn Objects>,
        options: Options,
        behind: Behind,
        status: Arc<watch::Sender<Status>>,
    ) -> Self {
        let (env, tidied_at) = (env.clone(), Instant::now());
        Self { env, following, objects, options, behind, status, archiver: None, tidied_at }
    }

    /// Archives what has changed, and tidies up if it is time. Returns whether there was something to do.
    pub async fn step(&mut self) -> Result<bool, ReplicateError> {
        let is_to_tidy = self.archiver.is_some() && self.tidied_at.elapsed() >= self.options.tidy_interval;
        if !self.behind.is_behind() && !is_to_tidy {
            return Ok(false);
        }
        let uploads = Arc::clone(&self.options.turns.uploads);
        let _turn = uploads.acquire().await.map_err(|_| ReplicateError::Closed)?;
        let mut archiver = match self.archiver.take() {
            Some(archiver) => archiver,
            None => self.take().await?,
        };
        let archived = match self.behind.is_behind() {
            true => self.archive(&mut archiver).await,
            false => Ok(()),
        };
        let tidied = match archived.is_ok() && is_to_tidy {
            true => self.tidy(&mut archiver).await,
            false => Ok(()),
        };
        self.archiver = Some(archiver);
        archived.and(tidied).map(|()| true)
    }

    /// Stores a boundary.
    async fn archive(&mut self, archiver: &mut Archiver) -> Result<(), ReplicateError> {
        let index = archiver.next_index().await?;
        let at = Instant::now();
        let Some(boundary) = self.following.with(move |follower| follower.boundary(index)).await? else {
            self.behind.stored(at);
            return Ok(());
        };
        self.behind.taken();
        self.status.send_modify(|status| status.taken = index);
        let time = boundary.time();
        let bytes = match archiver.put_pages(boundary).await? {
            Put::File(bytes) | Put::Generation(bytes) => bytes,
            Put::Unchanged => 0,
        };
        self.behind.stored(at);
        self.status.send_modify(|status| {
            (status.boundary, status.time) = (index, time);
            status.generation = archiver.manifest().current().map_or(0, |generation| generation.number);
            status.boundaries = status.boundaries.saturating_add(1);
            status.bytes = status.bytes.saturating_add(bytes);
        });
        Ok(())
    }

    /// Takes the archive over.
    async fn take(&mut self) -> Result<Archiver, ReplicateError> {
        let cluster = match self.options.cluster {
            Some(cluster) => cluster,
            None => place::find_or_name(&self.env, &*self.objects).await?,
        };
        // What was named once stays, even if the store fails now.
        self.options.cluster = Some(cluster);
        let identity = Identity { cluster, epoch: place::EPOCH, node: self.env.rng().next_u64(), token: 0 };
        let archiver = Archiver::take_next(&self.env, Arc::clone(&self.objects), identity).await?;
        tracing::info!(cluster = format!("{cluster:032x}"), token = archiver.manifest().token, "took the archive over");
        self.status.send_modify(|status| status.cluster = Some(cluster));
        Ok(archiver)
    }

    async fn tidy(&mut self, archiver: &mut Archiver) -> Result<(), ReplicateError> {
        archiver.tidy(place::millis(&self.env), self.options.keep).await?;
        self.tidied_at = Instant::now();
        self.status.send_modify(|status| status.tidied = status.tidied.saturating_add(1));
        Ok(())
    }
}
