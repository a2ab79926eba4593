//! Buffers and lists that the store fills for a statement. Their memory counts as the statement's, like SQLite's own.

use std::ops::Deref;

use super::{LARGE, Refusal, grow, refused, shrink};

/// The initial capacity of a buffer or list in bytes: enough for the values of a small row, and cheap to allocate.
const FIRST: usize = 128;

/// The statement has reached its memory limit, or the process has no memory left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoMemory;

/// A byte buffer whose allocations can fail without ending the process.
#[derive(Debug, Default)]
pub(crate) struct Buffer(Vec<u8>);

impl Buffer {
    /// Returns a buffer with a copy of `bytes`.
    pub(crate) fn of(bytes: &[u8]) -> Result<Self, NoMemory> {
        let mut buffer = Self::default();
        buffer.append(bytes)?;
        Ok(buffer)
    }

    /// Appends bytes.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), NoMemory> {
        self.reserve(bytes.len())?;
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    /// Appends a byte.
    pub(crate) fn push(&mut self, byte: u8) -> Result<(), NoMemory> {
        self.append(&[byte])
    }

    /// Removes the first `count` bytes.
    pub(crate) fn cut(&mut self, count: usize) {
        self.0.drain(..count.min(self.0.len()));
    }

    /// Reserves capacity for `more` bytes.
    pub(crate) fn reserve(&mut self, more: usize) -> Result<(), NoMemory> {
        reserve(&mut self.0, more)
    }
}

/// Appends to a list of results. Its memory counts as the statement's until the statement ends.
pub(crate) fn push<T>(list: &mut Vec<T>, item: T) -> Result<(), NoMemory> {
    reserve(list, 1)?;
    list.push(item);
    Ok(())
}

/// Reserves capacity for `more` items of a list.
fn reserve<T>(list: &mut Vec<T>, more: usize) -> Result<(), NoMemory> {
    let (wanted, had) = (list.len().saturating_add(more), list.capacity());
    if wanted <= had {
        return Ok(());
    }
    let first = FIRST / size_of::<T>().max(1);
    let room = wanted.max(had.saturating_mul(2)).max(first);
    let counted = |items: usize| counted(items.saturating_mul(size_of::<T>()));
    let counts = counted(room).saturating_sub(counted(had));
    if counts > 0 && !grow(counts) {
        return Err(NoMemory);
    }
    list.try_reserve_exact(room.saturating_sub(list.len())).map_err(|_| {
        shrink(counts);
        refused(Refusal::System);
        NoMemory
    })
}

/// Returns a copy that may outlive the statement; its memory counts as the statement's until that ends.
pub(crate) fn copy(bytes: &[u8]) -> Result<Vec<u8>, NoMemory> {
    let counts = counted(bytes.len());
    if counts > 0 && !grow(counts) {
        return Err(NoMemory);
    }
    copy_uncounted(bytes).inspect_err(|_| shrink(counts))
}

/// Returns a copy whose memory counts as nobody's, because other limits bound it.
pub(crate) fn copy_uncounted(bytes: &[u8]) -> Result<Vec<u8>, NoMemory> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).map_err(|_| {
        refused(Refusal::System);
        NoMemory
    })?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        shrink(counted(self.0.capacity()));
    }
}

/// Returns how many bytes of a block of this size are counted.
fn counted(bytes: usize) -> usize {
    if bytes < LARGE { 0 } else { bytes }
}
