//! What a connection knows of the server that it belongs to.

/// What a user may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Read.
    Read,
    /// Read and write.
    Write,
}

/// What a connection asks of the server that it belongs to.
pub trait Host {
    /// Returns the role of a client that has not logged in; none if it must.
    fn anonymous(&self) -> Option<Role>;

    /// Returns the text of `INFO`, for these sections, or for all if there are none.
    fn info(&self, sections: &[String]) -> String;

    /// Returns the parameters that `CONFIG GET` shows.
    fn parameters(&self) -> Vec<(&'static str, String)>;

    /// Returns the lines of `CLIENT LIST` of all other connections.
    fn clients(&self) -> Vec<String>;

    /// Returns how many members beside this one have each write that was acknowledged.
    fn replicas(&self) -> u64;
}
