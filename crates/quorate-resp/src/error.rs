//! Why a command is refused before the store is asked. The texts are those of Redis, with their codes in front.

use thiserror::Error;

use crate::notifications::NOTIFY;

/// The most bytes of a word that an error repeats.
pub const REPEATED_BYTES_MAX: usize = 128;

/// Why a command is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such command.
    #[error("ERR unknown command '{name}', with args beginning with: {arguments}")]
    Unknown {
        /// Its name, as it was sent.
        name: String,
        /// The beginning of its arguments.
        arguments: String,
    },
    /// There is no such command below another one.
    #[error("ERR unknown subcommand '{name}'. Try {} HELP.", .of.to_uppercase())]
    UnknownSub {
        /// Its name, as it was sent.
        name: String,
        /// The other command.
        of: &'static str,
    },
    /// It has too few arguments, or too many.
    #[error("ERR wrong number of arguments for '{0}' command")]
    Arity(String),
    /// The arguments do not fit together.
    #[error("ERR syntax error")]
    Syntax,
    /// An argument is not an integer.
    #[error("ERR value is not an integer or out of range")]
    NotInteger,
    /// An argument is not an integer that is allowed.
    #[error("ERR value is out of range")]
    OutOfRange,
    /// An argument is not a number.
    #[error("ERR value is not a valid float")]
    NotFloat,
    /// No keys are named.
    #[error("ERR at least 1 input key is needed for '{0}' command")]
    NoKeys(&'static str),
    /// An argument is negative.
    #[error("ERR value is out of range, must be positive")]
    Negative,
    /// An argument is not a time, or the time is out of range.
    #[error("ERR invalid expire time in '{0}' command")]
    Expiry(&'static str),
    /// The user may not do it.
    #[error("NOPERM User {user} has no permissions to run the '{command}' command")]
    NoPermission {
        /// The user.
        user: String,
        /// The command.
        command: String,
    },
    /// The client has no role: the reply of the server.
    #[error("{0}")]
    NoRole(String),
    /// The client listens, and may not do anything else.
    #[error(
        "ERR Can't execute '{0}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
         context"
    )]
    Subscribed(String),
    /// HELLO does not know an option.
    #[error("ERR Syntax error in HELLO option '{0}'")]
    HelloOption(String),
    /// What a client says of itself can't have such characters.
    #[error("ERR {0} cannot contain spaces, newlines or special characters.")]
    Label(String),
    /// CLIENT SETINFO does not know an option.
    #[error("ERR Unrecognized option '{0}'")]
    Option(String),
    /// There are no clients of such a type.
    #[error("ERR Unknown client type '{0}'")]
    ClientType(String),
    /// An expiry has no such condition.
    #[error("ERR Unsupported option {0}")]
    Condition(String),
    /// No key holds something of this name.
    #[error("ERR unknown type name '{0}'")]
    TypeName(String),
    /// The number of fields is wrong.
    #[error("ERR numfields should be greater than 0 and match the provided number of fields")]
    FieldCount,
    /// A command can't be a part of a transaction.
    #[error("ERR Command '{0}' not allowed inside a transaction")]
    InTransaction(String),
    /// EXEC itself was refused.
    #[error("EXECABORT Transaction discarded because of: {}", .0.trim_start_matches("ERR "))]
    ExecAborted(String),
    /// There is no such parameter.
    #[error("ERR Unknown option or number of arguments for CONFIG SET - '{0}'")]
    Parameter(String),
    /// A parameter has two values.
    #[error("ERR CONFIG SET failed (possibly related to argument '{0}') - duplicate parameter")]
    ParameterTwice(String),
    /// A parameter can't be changed to this, and why.
    #[error("ERR CONFIG SET failed (possibly related to argument '{0}') - {1}")]
    ParameterValue(&'static str, &'static str),
    /// There are no notifications of such a class.
    #[error(
        "ERR CONFIG SET failed (possibly related to argument '{NOTIFY}') - Invalid event class character. Use \
         'Ag$lshzxeKEtmdn'."
    )]
    EventClass,
    /// A command below another one has too many arguments.
    #[error(
        "ERR unknown subcommand or wrong number of arguments for '{name}'. Try {} HELP.",
        .of.to_uppercase()
    )]
    Subcommand {
        /// Its name, as it was sent.
        name: String,
        /// The other command.
        of: &'static str,
    },
    /// An argument is not a cursor.
    #[error("ERR invalid cursor")]
    Cursor,
    /// Anything else.
    #[error("{0}")]
    Text(&'static str),
}

/// Returns the beginning of a text, up to a zero, as Redis does.
pub fn text(bytes: &[u8]) -> String {
    whole_text(bytes.get(..REPEATED_BYTES_MAX).unwrap_or(bytes))
}

/// Returns a text up to a zero, however long it is, as Redis does.
pub fn whole_text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}
