//! What a connection knows of the server that it belongs to.

use crate::notifications::Notifications;
use crate::summary::Summary;

/// The reply to a client that must log in.
pub const NOAUTH: &str = "NOAUTH Authentication required.";

/// What a user may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Read.
    Read,
    /// Read and write.
    Write,
}

/// What a connection asks of the server that it belongs to. By default it is a server with nothing to tell.
pub trait Host {
    /// Returns the role of a client that has not logged in.
    ///
    /// # Errors
    ///
    /// The reply to it, its code in front: [`NOAUTH`] if it must log in.
    fn anonymous(&self) -> Result<Role, String>;

    /// Returns the role that a client has now that had this one when it logged in.
    ///
    /// # Errors
    ///
    /// The reply to it, its code in front, if it has none any more.
    fn renewed(&self, role: Role) -> Result<Role, String> {
        Ok(role)
    }

    /// Returns the text of `INFO`, for these sections, or for all if there are none.
    fn info(&self, _sections: &[String]) -> String {
        String::new()
    }

    /// Sets which notifications of the key space the server publishes, before it returns.
    fn notify(&self, _notifications: Notifications) {}

    /// Returns the parameters that `CONFIG GET` shows.
    fn parameters(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Returns what is shown of all other connections than the one with this number.
    fn clients(&self, _but: u64) -> Vec<Summary> {
        Vec::new()
    }

    /// Takes what others are to be shown of the connection from now on.
    fn note(&self, _connection: Summary) {}

    /// Returns whether a statement of SQL may write, as far as its words say it.
    fn may_write(&self, _sql: &str) -> bool {
        true
    }

    /// Returns whether this names a level of reads.
    fn is_level(&self, _level: &str) -> bool {
        false
    }

    /// Returns how many members beside this one have each write that was acknowledged.
    fn replicas(&self) -> u64 {
        0
    }
}
