//! Encryption with age (age-encryption.org, version 1), which the programs `age` and `rage` read too.
//!
//! Invariants:
//! - What can't encrypt is an error, and never means that something is stored as it is.
//! - `Debug` and errors contain no passphrase and no identity.

use std::fmt;
use std::io::{self, BufRead, Write};
use std::path::Path;

use age::secrecy::{ExposeSecret as _, SecretString};
use age::stream::{StreamReader, StreamWriter};
use age::{DecryptError, Decryptor, Encryptor, IdentityFile, scrypt, x25519};
use quorate_env::{Env, disk};

use crate::error::Error;

/// The work of deriving a key from a passphrase, as a power of two: about a second, and 256 MiB of memory.
const WORK: u8 = 18;
/// The most such work that is done to decrypt: four seconds, and 1 GiB.
const WORK_MAX: u8 = 20;
/// The most bytes of a file with identities or a passphrase.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Who can read what is stored.
#[derive(Clone, Default)]
pub enum Encryption {
    /// Everyone who can read the store: it is not encrypted.
    #[default]
    None,
    /// Those who have the identity of one of these recipients; not empty.
    Recipients(Vec<x25519::Recipient>),
    /// Those who know a passphrase.
    Passphrase(SecretString),
}

impl Encryption {
    /// Encrypts to recipients, given as texts `age1...`. `age-keygen` makes an identity and its recipient.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Key`] if there are none, or if one is not a recipient.
    pub fn to<T: AsRef<str>>(recipients: impl IntoIterator<Item = T>) -> Result<Self, Error> {
        let read = |text: T| {
            let text = text.as_ref().trim();
            text.parse::<x25519::Recipient>().map_err(|why| {
                // Someone may have given the identity by mistake: it must not get into logs.
                let shown = if text.starts_with("age1") { text } else { "this text" };
                Error::Key(format!(
                    "{shown} is not a recipient: {why}; write age1..., the public key that `age-keygen` shows"
                ))
            })
        };
        let recipients = recipients.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let encryption = Self::Recipients(recipients);
        encryption.check().map(|()| encryption)
    }

    /// Encrypts with the passphrase in a file: its content, without the line break at its end.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Disk`] if the file can't be read, and [`Error::Key`] if it is empty.
    pub fn with_passphrase_file(path: &Path) -> Result<Self, Error> {
        passphrase(path).map(Self::Passphrase)
    }

    /// Returns whether something is encrypted.
    pub fn is_on(&self) -> bool {
        !matches!(self, Self::None)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        match self {
            Self::Recipients(recipients) if recipients.is_empty() => {
                Err(Error::Key("no recipient is given: what nobody can read is not stored".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Begins to encrypt into `to`; `None` if it is off.
    pub(crate) fn begin<W: Write>(&self, to: W) -> io::Result<Result<StreamWriter<W>, W>> {
        let encryptor = match self {
            Self::None => return Ok(Err(to)),
            Self::Recipients(recipients) => {
                Encryptor::with_recipients(recipients.iter().map(|one| one as &dyn age::Recipient))
            }
            Self::Passphrase(passphrase) => {
                let mut recipient = scrypt::Recipient::new(passphrase.clone());
                recipient.set_work_factor(WORK);
                Encryptor::with_recipients(std::iter::once(&recipient as &dyn age::Recipient))
            }
        };
        encryptor.map_err(io::Error::other)?.wrap_output(to).map(Ok)
    }
}

impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Recipients(recipients) => {
                let texts: Vec<String> = recipients.iter().map(ToString::to_string).collect();
                f.debug_tuple("Recipients").field(&texts).finish()
            }
            Self::Passphrase(_) => f.write_str("Passphrase"),
        }
    }
}

/// What decrypts.
#[derive(Default)]
pub struct Keys {
    identities: Vec<Box<dyn age::Identity + Send + Sync>>,
    has_passphrase: bool,
}

impl Keys {
    /// Returns no keys: only what is not encrypted can be read.
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.identities.is_empty()
    }

    /// Adds the identities in a file, as `age-keygen` writes it.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Disk`] if the file can't be read, and [`Error::Key`] if it holds no identities.
    pub fn with_identity_file(mut self, path: &Path) -> Result<Self, Error> {
        let bytes = read(path)?;
        let wrong = |what: String| Error::Key(format!("{} holds no identity of age: {what}", path.display()));
        let file = IdentityFile::from_buffer(bytes.as_slice()).map_err(|error| wrong(error.to_string()))?;
        let found = file.into_identities().map_err(|error| wrong(error.to_string()))?;
        if found.is_empty() {
            return Err(wrong("it has no line AGE-SECRET-KEY-...".to_owned()));
        }
        self.identities.extend(found);
        Ok(self)
    }

    /// Adds the passphrase in a file.
    ///
    /// # Errors
    ///
    /// See [`Encryption::with_passphrase_file`].
    pub fn with_passphrase_file(mut self, path: &Path) -> Result<Self, Error> {
        let mut identity = scrypt::Identity::new(passphrase(path)?);
        identity.set_max_work_factor(WORK_MAX);
        self.identities.push(Box::new(identity));
        self.has_passphrase = true;
        Ok(self)
    }

    /// Begins to decrypt; `name` is for errors, and `damaged` makes the error of what is not as age writes it.
    pub(crate) fn begin<R: BufRead>(
        &self,
        name: &str,
        from: R,
        damaged: impl Fn(io::Error) -> Error,
    ) -> Result<StreamReader<R>, Error> {
        let locked = |what: &str| Error::Locked { name: name.to_owned(), what: what.to_owned() };
        let failed = |error: DecryptError, what: &str| match error {
            DecryptError::NoMatchingKeys | DecryptError::DecryptionFailed | DecryptError::KeyDecryptionFailed => {
                locked(what)
            }
            DecryptError::ExcessiveWork { .. } => locked("its passphrase asks for too much work"),
            DecryptError::Io(error) => damaged(error),
            error => damaged(io::Error::other(error)),
        };
        let decryptor = Decryptor::new_buffered(from).map_err(|error| failed(error, ""))?;
        let what = match (decryptor.is_scrypt(), self.has_passphrase) {
            (true, false) => "it needs a passphrase; give --passphrase-file",
            (true, true) => "the passphrase is wrong",
            (false, _) if self.identities.is_empty() => "it needs an identity; give --identity",
            (false, _) => "it was encrypted to other recipients than these identities",
        };
        if self.identities.is_empty() {
            return Err(locked(what));
        }
        let identities = self.identities.iter().map(|one| &**one as &dyn age::Identity);
        decryptor.decrypt(identities).map_err(|error| failed(error, what))
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("identities", &self.identities.len()).finish_non_exhaustive()
    }
}

fn passphrase(path: &Path) -> Result<SecretString, Error> {
    let text = String::from_utf8(read(path)?);
    let text = text.map_err(|_| Error::Key(format!("{} is not a text in UTF-8", path.display())))?;
    let passphrase = SecretString::from(text.trim_end_matches(['\r', '\n']).to_owned());
    if passphrase.expose_secret().is_empty() {
        return Err(Error::Key(format!("{} holds no passphrase", path.display())));
    }
    Ok(passphrase)
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let env = Env::current().unwrap_or_else(Env::real);
    disk::read_file(env.disk().as_ref(), path, FILE_BYTES_MAX).map_err(Error::disk(path))
}
