//! Receives an image: writes it into a new generation, verifies it there, and makes that generation current.

use std::sync::Arc;

use bytes::Bytes;
use quorate_env::disk::OpenMode;
use quorate_env::mutant::Mutant;
use quorate_model::{Applied, ImageSink, LogId, StoreFault, WholeImage};

use super::intake::{Intake, fault_of, io_fault, verify};
use super::sender::lost;
use crate::error::OpenError;
use crate::generation::Staged;
use crate::store::core::Core;
use crate::store::shared::{Shared, Slot};

/// Receives the pieces of an image.
pub(crate) struct Receiver {
    shared: Arc<Shared>,
    // Declared before the generation under construction, whose drop removes the file.
    intake: Intake,
    staged: Staged,
    _slot: Slot,
}

impl Receiver {
    pub(crate) fn begin(shared: &Arc<Shared>) -> Result<Self, StoreFault> {
        let slot = shared.receivers.try_take(1).ok_or_else(|| lost("another image is being received"))?;
        let staged = shared.generations.stage().map_err(fault_of)?;
        let file = shared.env.disk().open(&staged.path(), OpenMode::ReadWrite).map_err(io_fault)?;
        Ok(Self { shared: Arc::clone(shared), intake: Intake::new(file), staged, _slot: slot })
    }
}

impl ImageSink for Receiver {
    fn write(&mut self, piece: Bytes) -> Result<(), StoreFault> {
        self.intake.write(&piece)?;
        let expected = self.shared.options.identity;
        match self.intake.identity() {
            Some(found) if found != expected => Err(lost(OpenError::Identity { expected, found }.to_string())),
            _ => Ok(()),
        }
    }

    fn finish(self: Box<Self>) -> Result<Box<dyn WholeImage>, StoreFault> {
        let Self { shared, intake, staged, _slot } = *self;
        let (identity, end) = intake.finish()?;
        let vfs = shared.generations.current().vfs().to_owned();
        verify(&vfs, &staged.path(), identity, end, Some(&shared.options))?;
        Ok(Box::new(Whole { shared, staged, end, _slot }))
    }
}

/// A verified image.
struct Whole {
    shared: Arc<Shared>,
    staged: Staged,
    end: Option<LogId>,
    _slot: Slot,
}

impl WholeImage for Whole {
    fn end(&self) -> Option<LogId> {
        self.end
    }

    fn install(self: Box<Self>) -> Result<Applied, StoreFault> {
        let Self { shared, staged, .. } = *self;
        install(&shared, staged)
    }
}

/// Switches to the new generation between two batches of the writer.
fn install(shared: &Shared, staged: Staged) -> Result<Applied, StoreFault> {
    shared.writer_lock.visit(|core| {
        if core.is_none() {
            return Err(StoreFault::Closed);
        }
        let next = shared
            .generations
            .publish(staged)
            .and_then(|generation| Core::open(generation, &shared.options, &shared.supervision));
        let next = next.map_err(|error| {
            // It is unknown which generation is current. Entries applied to the old one now could be lost.
            let fault = StoreFault::Io(format!("while an image was installed: {error}"));
            shared.report(&fault);
            fault
        })?;
        let mut applied = next.applied().clone();
        if let Some(id) = applied.log_id.as_mut().filter(|_| Mutant::ImagePositionOff.is_on()) {
            id.index += 1;
        }
        shared.installed(&next, &applied);
        *core = Some(next);
        Ok(applied)
    })
}
