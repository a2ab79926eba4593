//! The SQL texts that a client has stored, to refer to them by an id: over HTTP those of a stream, over WebSocket those
//! of a connection.
//!
//! Invariant: at most [`STORED_TEXTS_MAX`] texts with [`STORED_BYTES_MAX`] bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Problem;
use crate::options::{STORED_BYTES_MAX, STORED_TEXTS_MAX};

/// Stored texts. A clone is cheap, and keeps what is stored now.
#[derive(Clone, Debug, Default)]
pub(super) struct Texts(Arc<BTreeMap<i32, Arc<str>>>);

impl Texts {
    /// Returns a text.
    pub(super) fn get(&self, id: i32) -> Option<&str> {
        self.0.get(&id).map(|text| &**text)
    }

    /// Returns the bytes of all texts.
    pub(super) fn bytes(&self) -> usize {
        self.0.values().fold(0, |sum, text| sum.saturating_add(text.len()))
    }

    /// Stores a text.
    pub(super) fn store(&mut self, id: i32, sql: String) -> Result<(), Problem> {
        if self.0.contains_key(&id) {
            return Err(Problem::StoredText(format!("SQL is stored under the id {id} already; close it first")));
        }
        if self.0.len() >= STORED_TEXTS_MAX || self.bytes().saturating_add(sql.len()) > STORED_BYTES_MAX {
            let text = format!("at most {STORED_TEXTS_MAX} texts and {STORED_BYTES_MAX} bytes are stored; close some");
            return Err(Problem::StoredText(text));
        }
        Arc::make_mut(&mut self.0).insert(id, sql.into());
        Ok(())
    }

    /// Forgets a text.
    pub(super) fn forget(&mut self, id: i32) {
        if self.0.contains_key(&id) {
            Arc::make_mut(&mut self.0).remove(&id);
        }
    }
}
