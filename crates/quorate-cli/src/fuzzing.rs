//! A door for fuzzing: what an import makes of a file, and the shell of a script.

pub use crate::import::fuzzing::{File, Imported, import, records};
pub use crate::shell::fuzzing::script;
