//! Settles locks in which something has expired.

use crate::context::Context;
use crate::locks::Locks;
use crate::tables::Tables;

/// Settles at most `limit` locks in which leases or waits have ended, and grants what that frees. Returns how many.
///
/// # Errors
///
/// Those of the tables.
pub fn sweep<T: Tables>(tables: &mut T, context: &mut Context, limit: usize) -> Result<usize, T::Error> {
    let mut settled = 0;
    while settled < limit {
        let Some((_, name)) = tables.first_due()?.filter(|(due, _)| *due <= context.now) else { break };
        Locks::new(tables, context).settle(&name)?;
        settled += 1;
    }
    Ok(settled)
}

/// Returns the earliest time at which something ends.
///
/// # Errors
///
/// Those of the tables.
pub fn next_due<T: Tables>(tables: &mut T) -> Result<Option<u64>, T::Error> {
    Ok(tables.first_due()?.map(|(due, _)| due))
}
