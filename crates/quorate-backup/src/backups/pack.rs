//! The bytes of a backup: a file through zstd and age, and back.
//!
//! Before the encryption a backup is one frame of zstd and then a skippable frame, which programs for zstd pass over.
//! It holds a digest of all bytes before it: zstd's own checksum does not cover the header of its frame.
//!
//! Invariants:
//! - Whatever bytes come back, `unpack` writes what `pack` read, or fails.
//! - Memory does not depend on the size of the file.

use std::io::{self, BufReader, Read, Write};

use bytes::Bytes;
use quorate_env::Cause;
use quorate_env::disk::File;
use tokio::sync::mpsc;
use xxhash_rust::xxh3::Xxh3;
use zstd::stream::{read::Decoder, write::Encoder};

use super::name::Name;
use crate::crypt::{Encryption, Keys};
use crate::error::Error;

/// The level of compression: the default of zstd, which keeps up with a disk.
const ZSTD_LEVEL: i32 = 3;
/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// The magic number of a skippable frame of zstd, and the length of its content.
const SKIPPABLE: [u8; 8] = [0x50, 0x2a, 0x4d, 0x18, 24, 0, 0, 0];
/// The tag at the beginning of its content, before the digest.
const TAG: &[u8; 8] = b"qrtbkup1";
/// Bytes of the whole frame.
const SEAL_BYTES: usize = 8 + 8 + 16;

fn seal(hash: &Xxh3) -> Vec<u8> {
    [&SKIPPABLE, TAG.as_slice(), &hash.digest128().to_le_bytes()].concat()
}

/// Sends what is written to it in parts of one size; the last may be shorter.
pub(super) struct Parts {
    sender: mpsc::Sender<Bytes>,
    part: Vec<u8>,
    part_bytes: usize,
}

impl Parts {
    pub(super) fn new(sender: mpsc::Sender<Bytes>, part_bytes: usize) -> Self {
        Self { sender, part: Vec::new(), part_bytes: part_bytes.max(1) }
    }

    fn send(&mut self) -> io::Result<()> {
        let part = std::mem::take(&mut self.part);
        // The other end is gone if the upload has failed, which its caller learns.
        self.sender.blocking_send(part.into()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn finish(mut self) -> io::Result<()> {
        if self.part.is_empty() { Ok(()) } else { self.send() }
    }
}

impl Write for Parts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Growing by doubling would take up to twice the memory.
        self.part.reserve_exact(self.part_bytes.saturating_sub(self.part.len()));
        let room = self.part_bytes.saturating_sub(self.part.len());
        let (fits, _) = bytes.split_at(room.min(bytes.len()));
        self.part.extend_from_slice(fits);
        if self.part.len() >= self.part_bytes {
            self.send()?;
        }
        Ok(fits.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Compresses and encrypts a file into `parts`. Blocks.
pub(super) fn pack(file: &dyn File, encryption: &Encryption, parts: Parts) -> io::Result<()> {
    let parts = match encryption.begin(parts)? {
        Ok(encrypted) => compress(file, encrypted)?.finish()?,
        Err(parts) => compress(file, parts)?,
    };
    parts.finish()
}

fn compress<W: Write>(file: &dyn File, to: W) -> io::Result<W> {
    let mut encoder = Encoder::new(Digesting { to, hash: Xxh3::new() }, ZSTD_LEVEL)?;
    encoder.include_checksum(true)?;
    let (mut chunk, mut at) = (vec![0; CHUNK_BYTES], 0);
    loop {
        let read = file.read_at(&mut chunk, at)?;
        if read == 0 {
            break;
        }
        encoder.write_all(chunk.get(..read).unwrap_or_default())?;
        at += read as u64;
    }
    let Digesting { mut to, hash } = encoder.finish()?;
    to.write_all(&seal(&hash))?;
    Ok(to)
}

/// Hashes what is written through it.
struct Digesting<W> {
    to: W,
    hash: Xxh3,
}

impl<W: Write> Write for Digesting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.hash.update(bytes.get(..written).unwrap_or_default());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Reads the pieces of a download. An error among them is an error of reading.
pub(super) struct Pieces {
    receiver: mpsc::Receiver<Result<Bytes, Error>>,
    piece: Bytes,
}

impl Pieces {
    pub(super) fn new(receiver: mpsc::Receiver<Result<Bytes, Error>>) -> Self {
        Self { receiver, piece: Bytes::new() }
    }
}

impl Read for Pieces {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.receiver.blocking_recv() {
                Some(piece) => self.piece = piece.map_err(io::Error::other)?,
                None => return Ok(0),
            }
        }
        let taken = self.piece.split_to(self.piece.len().min(buf.len()));
        buf.iter_mut().zip(&taken).for_each(|(to, from)| *to = *from);
        Ok(taken.len())
    }
}

/// Decrypts and decompresses a backup into an empty file. Blocks.
pub(super) fn unpack(name: &Name, keys: &Keys, from: impl Read, file: &dyn File) -> Result<(), Error> {
    let from = BufReader::with_capacity(CHUNK_BYTES, from);
    let written = if name.is_encrypted {
        decompress(keys.begin(&name.to_string(), from, |error| failed(name, error))?, file)
    } else {
        decompress(from, file)
    };
    written.map_err(|error| failed(name, error))
}

/// Returns why a backup can't be read: the store's own error, if it is one, or that of the disk, or else damage.
pub(super) fn failed(name: &Name, error: io::Error) -> Error {
    if let Some(of_store) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        return of_store.clone();
    }
    Error::Damaged { name: name.to_string(), source: Cause::from(error) }
}

fn decompress(from: impl Read, file: &dyn File) -> io::Result<()> {
    let mut decoder = Decoder::with_buffer(Sealed::new(from))?.single_frame();
    let (mut chunk, mut at) = (vec![0; CHUNK_BYTES], 0);
    loop {
        let read = decoder.read(&mut chunk)?;
        if read == 0 {
            break;
        }
        file.write_at(chunk.get(..read).unwrap_or_default(), at).map_err(|error| {
            let path = "the restored file".into();
            io::Error::other(Error::Disk { path, source: Cause::from(error) })
        })?;
        at += read as u64;
    }
    // Nothing may follow the frame; reading to the end checks the digest.
    let mut rest = decoder.finish();
    if rest.read(&mut [0])? > 0 { Err(damaged("there are bytes after its end")) } else { Ok(()) }
}

/// Reads up to the seal at the end of a stream, and checks the seal.
struct Sealed<R> {
    from: R,
    /// What was read and not handed on; the last bytes of it may be the seal.
    held: Vec<u8>,
    hash: Xxh3,
    has_ended: bool,
}

impl<R: Read> Sealed<R> {
    fn new(from: R) -> BufReader<Self> {
        BufReader::with_capacity(CHUNK_BYTES, Self { from, held: Vec::new(), hash: Xxh3::new(), has_ended: false })
    }

    fn fill(&mut self) -> io::Result<()> {
        let held = self.held.len();
        self.held.resize(held + CHUNK_BYTES, 0);
        let read = self.from.read(self.held.get_mut(held..).unwrap_or_default());
        self.held.truncate(held + read.as_ref().copied().unwrap_or(0));
        match read? {
            0 if self.held == seal(&self.hash) => self.has_ended = true,
            0 => return Err(damaged("it is cut, or its digest does not match")),
            _ => {}
        }
        Ok(())
    }
}

impl<R: Read> Read for Sealed<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.held.len() <= SEAL_BYTES && !self.has_ended {
            self.fill()?;
        }
        if self.has_ended {
            return Ok(0);
        }
        let ready = self.held.len().saturating_sub(SEAL_BYTES).min(buf.len());
        let taken: Vec<u8> = self.held.drain(..ready).collect();
        self.hash.update(&taken);
        buf.iter_mut().zip(&taken).for_each(|(to, from)| *to = *from);
        Ok(taken.len())
    }
}

fn damaged(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
