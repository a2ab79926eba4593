//! The bytes that the two ends of a handshake sign.
//!
//! Invariant: the signed bytes determine every field of every message so far, because each message has a fixed length
//! or contains its length.

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::identity::Secret;

use super::words::MAC_LEN;

const DIALER_LABEL: &[u8] = b"quorate wire v1: dialing";
const ACCEPTER_LABEL: &[u8] = b"quorate wire v1: accepts";

/// All messages so far, in order.
pub(super) struct Transcript(Vec<Bytes>);

impl Transcript {
    pub(super) fn new() -> Self {
        Self(Vec::with_capacity(5))
    }

    /// Adds a message that was sent or received, and returns it.
    pub(super) fn add(&mut self, message: Bytes) -> &[u8] {
        self.0.push(message);
        self.0.last().map(Bytes::as_ref).unwrap_or_default()
    }

    /// Returns the last message, signed by the dialing end.
    pub(super) fn sign_as_dialer(&mut self, secret: &Secret) -> Vec<u8> {
        self.sign(secret, DIALER_LABEL)
    }

    /// Returns the last message, signed by the accepting end.
    pub(super) fn sign_as_accepter(&mut self, secret: &Secret) -> Vec<u8> {
        self.sign(secret, ACCEPTER_LABEL)
    }

    pub(super) fn is_signed_by_dialer(&self, secret: &Secret, mac: &[u8; MAC_LEN]) -> bool {
        self.mac(secret, DIALER_LABEL).verify(mac.into()).is_ok()
    }

    pub(super) fn is_signed_by_accepter(&self, secret: &Secret, mac: &[u8; MAC_LEN]) -> bool {
        self.mac(secret, ACCEPTER_LABEL).verify(mac.into()).is_ok()
    }

    /// Returns the last message followed by its signature, and adds the signature to the transcript.
    fn sign(&mut self, secret: &Secret, label: &[u8]) -> Vec<u8> {
        let mac = Bytes::copy_from_slice(&self.mac(secret, label).finalize().into_bytes());
        let mut signed = self.0.last().map(|message| message.to_vec()).unwrap_or_default();
        signed.extend_from_slice(&mac);
        self.0.push(mac);
        signed
    }

    #[expect(clippy::expect_used, reason = "an HMAC takes a key of any length")]
    fn mac(&self, secret: &Secret, label: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.bytes()).expect("a key of any length");
        mac.update(label);
        for message in &self.0 {
            mac.update(message);
        }
        mac
    }
}
