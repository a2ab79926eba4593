//! A place whose objects are encrypted with age, each by itself.
//!
//! Invariants:
//! - What is written is encrypted to all recipients, or not written.
//! - An object that is not encrypted is read as it is, so encryption can be turned on for an archive that exists. age
//!   protects what is in an object, and tells whether it was changed. It does not tell who wrote it.
//! - A range of an object is decrypted from the chunks of age that hold it. Nothing more is read, except what begins
//!   the object.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufRead, Cursor, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use age::Decryptor;
use age::stream::StreamWriter;
use bytes::Bytes;
use quorate_archive::Objects;
use quorate_archive::objects::{Answer, Folders, Listed, Object, ObjectsError, Upload, Version};
use quorate_env::{Cause, lock};

use crate::crypt::{Encryption, Keys};
use crate::error::Error;

/// What every file of age begins with.
const MAGIC: &[u8] = b"age-encryption.org/v1\n";
/// The plain bytes of a chunk of age.
const CHUNK: u64 = 64 << 10;
/// What a chunk has more when it is encrypted.
const TAG: u64 = 16;
/// The most bytes before the first chunk. A recipient takes about a hundred.
const HEAD_MAX: u64 = 16 << 10;
/// How many heads of objects are kept, so that a range costs one request.
const HEADS_MAX: usize = 64;

/// A place whose objects are encrypted.
pub struct Sealed {
    objects: Arc<dyn Objects>,
    encryption: Encryption,
    keys: Keys,
    heads: Mutex<VecDeque<(String, Head)>>,
}

/// How an object begins.
#[derive(Clone)]
struct Head {
    version: Version,
    /// What age wrote before the first chunk; `None` if the object is not encrypted.
    sealed: Option<Bytes>,
}

impl Sealed {
    /// Encrypts what is written, and decrypts what is read, at this place.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Key`] for a passphrase, whose key would take a second to derive for each object, and if
    /// `encryption` is on and `keys` are none: who writes an archive reads it, too.
    pub fn new(objects: Arc<dyn Objects>, encryption: Encryption, keys: Keys) -> Result<Self, Error> {
        encryption.check()?;
        let refused = |what: &str| Err(Error::Key(what.to_owned()));
        match encryption {
            Encryption::Passphrase(_) => refused("an archive is encrypted to recipients, not with a passphrase"),
            Encryption::Recipients(_) if keys.is_empty() => {
                refused("an archive is read by who writes it: give the identity of one of its recipients, too")
            }
            _ => Ok(Self { objects, encryption, keys, heads: Mutex::default() }),
        }
    }

    fn seal(&self, key: &str, bytes: Bytes) -> Result<Bytes, ObjectsError> {
        let seal = || {
            let mut writer = match self.encryption.begin(Vec::new())? {
                Ok(writer) => writer,
                Err(_) => return Ok(bytes.clone()),
            };
            writer.write_all(&bytes)?;
            writer.finish().map(Bytes::from)
        };
        seal().map_err(|error| failed(key, "encrypt", Cause::from(error)))
    }

    async fn whole(&self, key: &str) -> Result<Option<Object>, ObjectsError> {
        let Some(object) = self.objects.read(key, None).await? else { return Ok(None) };
        if !object.bytes.starts_with(MAGIC) {
            return Ok(Some(object));
        }
        let mut plain = Vec::with_capacity(object.bytes.len());
        let read = |plain: &mut Vec<u8>| {
            let mut reader = self.keys.begin(key, &*object.bytes, |error| damaged(key, error))?;
            reader.read_to_end(plain).map_err(|error| damaged(key, error))
        };
        read(&mut plain).map_err(|error| failed(key, "decrypt", Cause::from(error)))?;
        Ok(Some(Object { length: plain.len() as u64, bytes: plain.into(), version: object.version }))
    }

    async fn range(&self, key: &str, range: Range<u64>) -> Result<Option<Object>, ObjectsError> {
        let Some(head) = self.head(key).await? else { return Ok(None) };
        let Some(sealed) = &head.sealed else { return self.objects.read(key, Some(range)).await };
        let begin = sealed.len() as u64;
        let first = before(range.start) / CHUNK;
        let chunks = first..range.end.max(1).div_ceil(CHUNK);
        let at = |chunk: u64| begin.saturating_add(chunk.saturating_mul(CHUNK + TAG));
        let Some(body) = self.objects.read(key, Some(at(chunks.start)..at(chunks.end))).await? else {
            return Ok(None);
        };
        if body.version != head.version {
            lock(&self.heads).retain(|(kept, _)| kept != key);
            let why = io::Error::other("it was replaced while it was read");
            return Err(ObjectsError { is_retryable: true, ..failed(key, "read", Cause::from(why)) });
        }
        let chunks = body.length.saturating_sub(begin).div_ceil(CHUNK + TAG);
        let length = body.length.saturating_sub(begin).saturating_sub(chunks.saturating_mul(TAG));
        let range = range.start.min(length)..range.end.min(length);
        let parts = Parts { head: sealed.clone(), begin: at(first), body: body.bytes, position: 0 };
        let bytes = self.open(key, parts, &range).map_err(|error| failed(key, "decrypt", Cause::from(error)))?;
        Ok(Some(Object { bytes: bytes.into(), length, version: body.version }))
    }

    /// Decrypts a range.
    fn open(&self, key: &str, parts: Parts, range: &Range<u64>) -> Result<Vec<u8>, Error> {
        let mut reader = self.keys.begin(key, parts, |error| damaged(key, error))?;
        let mut bytes = Vec::new();
        if range.is_empty() {
            return Ok(bytes);
        }
        let mut read = || {
            let skipped = range.start.saturating_sub(reader.seek(SeekFrom::Start(before(range.start)))?);
            io::copy(&mut reader.by_ref().take(skipped), &mut io::sink())?;
            reader.by_ref().take(range.end.saturating_sub(range.start)).read_to_end(&mut bytes)
        };
        read().map_err(|error| damaged(key, error))?;
        Ok(bytes)
    }

    /// Returns how an object begins; `None` if there is no such object.
    async fn head(&self, key: &str) -> Result<Option<Head>, ObjectsError> {
        let kept = lock(&self.heads).iter().find(|(kept, _)| kept == key).map(|(_, head)| head.clone());
        if kept.is_some() {
            return Ok(kept);
        }
        let Some(object) = self.objects.read(key, Some(0..HEAD_MAX)).await? else { return Ok(None) };
        let mut begins = Cursor::new(&object.bytes);
        let sealed = if object.bytes.starts_with(MAGIC) {
            let error = |error| failed(key, "decrypt", Cause::from(damaged(key, io::Error::other(error))));
            Decryptor::new_buffered(&mut begins).map(drop).map_err(error)?;
            Some(object.bytes.slice(..usize::try_from(begins.position()).unwrap_or(usize::MAX)))
        } else {
            None
        };
        let head = Head { version: object.version, sealed };
        let mut heads = lock(&self.heads);
        heads.push_back((key.to_owned(), head.clone()));
        if heads.len() > HEADS_MAX {
            heads.pop_front();
        }
        Ok(Some(head))
    }
}

/// Returns where to go so as to read from `offset`. At the begin of a chunk, age would look at the end of the object.
fn before(offset: u64) -> u64 {
    if offset.is_multiple_of(CHUNK) { offset.saturating_sub(1) } else { offset }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { objects, encryption, .. } = self;
        f.debug_struct("Sealed").field("objects", objects).field("encryption", encryption).finish_non_exhaustive()
    }
}

impl Objects for Sealed {
    fn create<'a>(&'a self, key: &'a str, bytes: Bytes, time: Option<i64>) -> Answer<'a, Option<Version>> {
        Box::pin(async move { self.objects.create(key, self.seal(key, bytes)?, time).await })
    }

    fn replace<'a>(&'a self, key: &'a str, bytes: Bytes, version: &'a Version) -> Answer<'a, Option<Version>> {
        Box::pin(async move { self.objects.replace(key, self.seal(key, bytes)?, version).await })
    }

    fn upload<'a>(&'a self, key: &'a str, time: Option<i64>) -> Answer<'a, Box<dyn Upload>> {
        Box::pin(async move {
            let (upload, sealed) = (self.objects.upload(key, time).await?, Buffer::default());
            let begun = self.encryption.begin(sealed.clone());
            Ok(match begun.map_err(|error| failed(key, "encrypt", Cause::from(error)))? {
                Ok(writer) => Box::new(Sealing { key: key.to_owned(), upload, writer, sealed }),
                Err(_) => upload,
            })
        })
    }

    fn read<'a>(&'a self, key: &'a str, range: Option<Range<u64>>) -> Answer<'a, Option<Object>> {
        Box::pin(async move {
            match range {
                None => self.whole(key).await,
                Some(range) => self.range(key, range).await,
            }
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<Listed>> {
        self.objects.list(prefix)
    }

    fn list_folders<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<String>> {
        self.objects.list_folders(prefix)
    }

    fn delete<'a>(&'a self, key: &'a str) -> Answer<'a, ()> {
        self.objects.delete(key)
    }

    fn litestream_folders(&self) -> Folders {
        self.objects.litestream_folders()
    }
}

/// An object that is encrypted while it is written.
struct Sealing {
    key: String,
    upload: Box<dyn Upload>,
    writer: StreamWriter<Buffer>,
    /// The encrypted bytes that the upload does not have yet.
    sealed: Buffer,
}

impl Upload for Sealing {
    fn write(&mut self, bytes: Bytes) -> Answer<'_, ()> {
        Box::pin(async move {
            self.writer.write_all(&bytes).map_err(|error| failed(&self.key, "encrypt", Cause::from(error)))?;
            self.upload.write(self.sealed.take()).await
        })
    }

    fn finish<'a>(self: Box<Self>) -> Answer<'a, ()> {
        Box::pin(async move {
            let Self { key, mut upload, writer, sealed } = *self;
            writer.finish().map_err(|error| failed(&key, "encrypt", Cause::from(error)))?;
            upload.write(sealed.take()).await?;
            upload.finish().await
        })
    }
}

/// Bytes on their way from age to a store. Clones are the same buffer.
#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    fn take(&self) -> Bytes {
        std::mem::take(&mut *lock(&self.0)).into()
    }
}

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An object of which the head and some chunks are here. What is between and after them reads as its end, which age
/// takes for damage.
struct Parts {
    head: Bytes,
    /// Where the chunks begin in the object.
    begin: u64,
    body: Bytes,
    position: u64,
}

impl BufRead for Parts {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let after = |bytes: &Bytes, begin: u64| {
            let at = self.position.checked_sub(begin)?;
            usize::try_from(at).ok().filter(|at| *at < bytes.len())
        };
        Ok(match (after(&self.head, 0), after(&self.body, self.begin)) {
            (Some(at), _) => self.head.get(at..).unwrap_or_default(),
            (None, Some(at)) => self.body.get(at..).unwrap_or_default(),
            (None, None) => &[],
        })
    }

    fn consume(&mut self, amount: usize) {
        self.position = self.position.saturating_add(amount as u64);
    }
}

impl Read for Parts {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(to)?;
        self.consume(read);
        Ok(read)
    }
}

impl Seek for Parts {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(_) => None,
        };
        self.position = at.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.position)
    }
}

fn damaged(key: &str, error: io::Error) -> Error {
    Error::Damaged { name: key.to_owned(), source: Cause::from(error) }
}

fn failed(key: &str, what: &str, source: Cause) -> ObjectsError {
    ObjectsError { what: format!("{what} '{key}'"), is_retryable: false, source }
}
