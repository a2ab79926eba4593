//! A store that only remembers: the payloads that it applied, in order. Its contents outlive its process as a file
//! that is written at once would; what it loses in a crash is nothing.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use quorate_model::{
    Applied, ApplyDone, Entry, ImageSink, ImageSource, LogId, Payload, Reply, Store, StoreFault, WholeImage,
};

#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    pub(crate) applied: Applied,
    /// The index and the bytes of each applied proposal, without the stamp.
    pub(crate) proposals: Vec<(u64, Bytes)>,
}

/// What survives the process.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemStore(Arc<Mutex<Kept>>);

impl MemStore {
    pub(crate) fn kept(&self) -> Kept {
        self.0.lock().unwrap().clone()
    }
}

impl Store for MemStore {
    fn applied(&self) -> Applied {
        self.0.lock().unwrap().applied.clone()
    }

    fn apply(&self, entries: Vec<Entry>, done: ApplyDone) {
        let outcomes = {
            let mut kept = self.0.lock().unwrap();
            entries.into_iter().map(|entry| kept.apply(entry)).collect()
        };
        done(Ok(outcomes));
    }

    fn foresee(&self, _entries: Vec<Entry>) {}

    fn durable(&self) -> Applied {
        self.applied()
    }

    fn fault(&self) -> Option<StoreFault> {
        None
    }

    fn send_image(&self) -> Result<Box<dyn ImageSource>, StoreFault> {
        Ok(Box::new(Source(Some(self.kept()))))
    }

    fn receive_image(&self) -> Result<Box<dyn ImageSink>, StoreFault> {
        Ok(Box::new(Sink { store: self.clone(), received: None }))
    }
}

impl Kept {
    fn apply(&mut self, entry: Entry) -> Option<quorate_model::Outcome> {
        if self.applied.log_id.is_some_and(|id| id.index >= entry.log_id.index) {
            return None;
        }
        self.applied.log_id = Some(entry.log_id);
        match entry.payload {
            Payload::Blank => {}
            Payload::Membership(bytes) => self.applied.membership = Some((entry.log_id, bytes)),
            Payload::Proposal(_, bytes) => self.proposals.push((entry.log_id.index, bytes)),
        }
        Some(Ok(Reply::default()))
    }
}

/// Images between stores of one process: the pieces are handles into a table, because nobody else reads them.
static IMAGES: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

struct Source(Option<Kept>);

impl ImageSource for Source {
    fn begun_at(&self) -> Applied {
        self.0.as_ref().map(|kept| kept.applied.clone()).unwrap_or_default()
    }

    fn next(&mut self) -> Result<Option<Bytes>, StoreFault> {
        Ok(self.0.take().map(|kept| {
            let mut images = IMAGES.lock().unwrap();
            images.push(kept);
            Bytes::copy_from_slice(&(images.len() - 1).to_le_bytes())
        }))
    }
}

struct Sink {
    store: MemStore,
    received: Option<Kept>,
}

impl ImageSink for Sink {
    fn write(&mut self, piece: Bytes) -> Result<(), StoreFault> {
        let number = usize::from_le_bytes(piece[..].try_into().unwrap());
        self.received = Some(IMAGES.lock().unwrap()[number].clone());
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Box<dyn WholeImage>, StoreFault> {
        let kept = self.received.ok_or_else(|| StoreFault::ImageLost("no piece came".to_owned()))?;
        Ok(Box::new(Whole { store: self.store, kept }))
    }
}

struct Whole {
    store: MemStore,
    kept: Kept,
}

impl WholeImage for Whole {
    fn end(&self) -> Option<LogId> {
        self.kept.applied.log_id
    }

    fn install(self: Box<Self>) -> Result<Applied, StoreFault> {
        *self.store.0.lock().unwrap() = self.kept;
        Ok(self.store.applied())
    }
}
