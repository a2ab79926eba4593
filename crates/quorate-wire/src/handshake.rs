//! The handshake: both ends prove that they know the secret, and exchange their identities.
//!
//! ```text
//! dialing end   HELLO      versions, nonce                                     ->
//!            <- CHALLENGE  version, nonce                                         accepting end
//!               PROOF      cluster, ids, role, purpose, limits, HMAC           ->
//!              (LOGIN      credentials of a user                               ->)
//!            <- VERDICT    decision, cluster, id, limits, HMAC
//! ```
//!
//! Invariants:
//! - Until the dialing end has proved itself, the accepting end discloses only its versions and sends no HMAC.
//! - Each HMAC covers all messages so far, under a label for its direction, so none can be replayed or reflected.
//! - Only ends that know the same secret learn that their identities do not match.
//! - A user has no secret, and its HMACs prove nothing. It sends its credentials, and only where nobody can listen in.
//! - Over TLS both ends prove the secret for this very channel, so whoever ends TLS between them can't pass a proof on.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use quorate_env::Rng;
use quorate_env::net::Security;

use crate::error::{HandshakeError, LinkError};
use crate::frame::{FrameReader, whole_frame};
use crate::identity::{Identity, Keys, PeerInfo, Purpose, Role, Secret};
use crate::limits::{LOGIN_FRAME_MAX, Limits, VERSION};
use crate::server::Handler;

mod proof;
mod words;

use proof::Transcript;
use words::{
    CHALLENGE, Challenge, HELLO, Hello, LOGIN, Nonce, PROOF, Proof, REFUSED, Refusal, VERDICT, Verdict, VerdictCode,
};

/// The parameters of the dialing end.
#[derive(Clone, Debug)]
pub(crate) struct Introduction {
    pub identity: Identity,
    pub secret: Secret,
    pub role: Role,
    pub purpose: Purpose,
    /// The node that must answer; 0 for any.
    pub expected: u64,
    /// The binding of the handshake to the channel below it; empty if the channel has none.
    pub binding: Bytes,
}

/// The parameters of the accepting end.
#[derive(Clone)]
pub(crate) struct Gate {
    pub identity: Identity,
    pub keys: Keys,
    /// Lets users in.
    pub handler: Arc<dyn Handler>,
    /// What protects the channel; `None` if nothing does.
    pub security: Option<Security>,
}

/// Returns the binding of a handshake to its channel; empty if nothing protects the channel.
pub(crate) fn binding_of(security: Option<&Security>) -> Bytes {
    security.map_or_else(Bytes::new, |security| Bytes::copy_from_slice(&security.binding))
}

/// Runs the handshake as the dialing end. The caller sets a time limit.
pub(crate) async fn dial<R, W>(
    reader: &mut FrameReader<R>,
    sink: &mut W,
    me: &Introduction,
    rng: &Rng,
    addr: &str,
) -> Result<PeerInfo, HandshakeError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (cluster, node) = (me.identity.cluster(), me.identity.node());
    if me.role == Role::User && me.binding.is_empty() && !is_loopback(addr) {
        return Err(HandshakeError::Unprotected);
    }
    let mut transcript = Transcript::new();
    let hello = Hello { versions: VERSION..=VERSION, nonce: nonce(rng) };
    send(sink, HELLO, transcript.add(hello.encode())).await?;

    let challenge = transcript.add(receive(reader, CHALLENGE).await?);
    let version = Challenge::decode(challenge).ok_or(MALFORMED)?.version;
    if version != VERSION {
        return Err(HandshakeError::Malformed("it chose a version that was not offered"));
    }

    let proof = Proof {
        cluster,
        node,
        expected: me.expected,
        role: me.role,
        purpose: me.purpose,
        limits: Limits::of(me.purpose),
        binding: me.binding.clone(),
    };
    transcript.add(proof.encode());
    let users = Secret::of_users();
    let secret = if me.role == Role::User { &users } else { &me.secret };
    let signed = transcript.sign_as_dialer(secret);
    send(sink, PROOF, &signed).await?;
    if me.role == Role::User {
        send(sink, LOGIN, transcript.add(Bytes::copy_from_slice(me.secret.bytes()))).await?;
    }

    let verdict = receive(reader, VERDICT).await?;
    let (verdict, mac) = verdict.split_last_chunk().ok_or(MALFORMED)?;
    transcript.add(Bytes::copy_from_slice(verdict));
    if !transcript.is_signed_by_accepter(secret, mac) {
        return Err(HandshakeError::WrongSecret);
    }
    let verdict = Verdict::decode(verdict).ok_or(MALFORMED)?;
    check_verdict(&verdict, cluster, me.expected)?;
    Ok(PeerInfo {
        cluster: verdict.cluster,
        node: verdict.node,
        role: me.role,
        purpose: me.purpose,
        version,
        limits: verdict.limits.min(proof.limits),
        addr: addr.into(),
        user: None,
    })
}

/// Fails unless the accepting end has accepted this end.
fn check_verdict(verdict: &Verdict, cluster: u128, expected: u64) -> Result<(), HandshakeError> {
    match verdict.code {
        VerdictCode::Welcome => Ok(()),
        VerdictCode::OtherCluster => Err(HandshakeError::OtherCluster { theirs: verdict.cluster, ours: cluster }),
        VerdictCode::NotTheNode => Err(HandshakeError::NotTheNode { expected, found: verdict.node }),
        VerdictCode::Busy => Err(HandshakeError::Busy),
    }
}

/// Runs the handshake as the accepting end. The caller sets a time limit. If the dialing end is at fault, it receives a
/// refusal.
///
/// `admit` reserves a place for a dialing end that has proved itself; it returns `None` if its role has none left.
pub(crate) async fn accept<R, W, P>(
    reader: &mut FrameReader<R>,
    sink: &mut W,
    gate: &Gate,
    rng: &Rng,
    addr: &str,
    admit: impl FnOnce(Role) -> Option<P>,
) -> Result<(PeerInfo, P), HandshakeError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let result = accept_inner(reader, sink, gate, rng, addr, admit).await;
    if let Some(refusal) = result.as_ref().err().and_then(Refusal::of) {
        // The other end may be gone. The handshake's own error is returned, because it says more than a failed write.
        let _ = send(sink, REFUSED, &refusal.encode()).await;
    }
    result
}

async fn accept_inner<R, W, P>(
    reader: &mut FrameReader<R>,
    sink: &mut W,
    gate: &Gate,
    rng: &Rng,
    addr: &str,
    admit: impl FnOnce(Role) -> Option<P>,
) -> Result<(PeerInfo, P), HandshakeError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut transcript = Transcript::new();
    let hello = Hello::decode(transcript.add(receive(reader, HELLO).await?)).ok_or(MALFORMED)?;
    if !hello.versions.contains(&VERSION) {
        return Err(HandshakeError::OtherVersion { theirs: hello.versions, ours: VERSION..=VERSION });
    }
    let challenge = Challenge { version: VERSION, nonce: nonce(rng) };
    send(sink, CHALLENGE, transcript.add(challenge.encode())).await?;

    let signed = receive(reader, PROOF).await?;
    let (proof, mac) = signed.split_last_chunk().ok_or(MALFORMED)?;
    transcript.add(Bytes::copy_from_slice(proof));
    let proof = Proof::decode(proof).ok_or(MALFORMED)?;
    let secret = gate.keys.of(proof.role).ok_or(HandshakeError::WrongSecret)?;
    if !transcript.is_signed_by_dialer(secret, mac) {
        return Err(HandshakeError::WrongSecret);
    }
    check_channel(&proof, gate, addr)?;
    transcript.add(Bytes::copy_from_slice(mac));
    if proof.role != Role::Peer && proof.purpose != Purpose::Client {
        return Err(HandshakeError::Malformed("a client asked for a connection for nodes"));
    }
    let user = if proof.role == Role::User {
        reader.set_content_max(LOGIN_FRAME_MAX);
        let credentials = receive(reader, LOGIN).await?;
        transcript.add(credentials.clone());
        Some(gate.handler.login(credentials, addr).await.map_err(HandshakeError::NotLoggedIn)?)
    } else {
        None
    };

    let (cluster, node) = (gate.identity.cluster(), gate.identity.node());
    let result = check_identity(&proof, cluster, node).and_then(|()| admit(proof.role).ok_or(HandshakeError::Busy));
    let limits = Limits::of(proof.purpose).min(proof.limits);
    let verdict = Verdict { code: VerdictCode::of(&result), cluster, node, limits };
    transcript.add(verdict.encode());
    send(sink, VERDICT, &transcript.sign_as_accepter(secret)).await?;
    let peer = PeerInfo {
        cluster: proof.cluster,
        node: proof.node,
        role: proof.role,
        purpose: proof.purpose,
        version: VERSION,
        limits,
        addr: addr.into(),
        user,
    };
    result.map(|place| (peer, place))
}

/// Checks that the dialing end is the other end of this channel, that a node has a certificate, and that nobody can
/// listen in on a user.
fn check_channel(proof: &Proof, gate: &Gate, addr: &str) -> Result<(), HandshakeError> {
    if proof.binding != binding_of(gate.security.as_ref()) {
        return Err(HandshakeError::OtherChannel);
    }
    if proof.role == Role::User && gate.security.is_none() && !is_loopback(addr) {
        return Err(HandshakeError::Unprotected);
    }
    let is_uncertified = gate.security.as_ref().is_some_and(|security| !security.is_certified);
    if is_uncertified && proof.role == Role::Peer { Err(HandshakeError::Uncertified) } else { Ok(()) }
}

/// Returns whether an address, `host:port`, is of this machine alone.
fn is_loopback(addr: &str) -> bool {
    match addr.parse::<SocketAddr>() {
        Ok(addr) => addr.ip().to_canonical().is_loopback(),
        Err(_) => addr.rsplit_once(':').is_some_and(|(host, _)| host.eq_ignore_ascii_case("localhost")),
    }
}

/// Checks that the dialing end expects this node and this cluster. Clusters can differ only if both ends have one.
fn check_identity(proof: &Proof, cluster: u128, node: u64) -> Result<(), HandshakeError> {
    if proof.cluster != cluster && proof.cluster != 0 && cluster != 0 {
        return Err(HandshakeError::OtherCluster { theirs: proof.cluster, ours: cluster });
    }
    if proof.expected != node && proof.expected != 0 {
        return Err(HandshakeError::NotTheNode { expected: proof.expected, found: node });
    }
    Ok(())
}

/// Returns the frame that tells a dialing end without TLS, in the clear, that this end speaks TLS only.
pub fn tls_only_frame() -> Bytes {
    whole_frame(REFUSED, &Refusal::NeedsTls.encode()).freeze()
}

/// Decodes a message and encodes it again; `None` if it can't be decoded.
pub(crate) fn reencode(kind: u8, body: &[u8]) -> Option<Vec<u8>> {
    let again = match kind {
        HELLO => Hello::decode(body)?.encode(),
        CHALLENGE => Challenge::decode(body)?.encode(),
        PROOF => Proof::decode(body)?.encode(),
        VERDICT => Verdict::decode(body)?.encode(),
        REFUSED => Refusal::decode(body)?.encode(),
        _ => return None,
    };
    Some(again.into())
}

const MALFORMED: HandshakeError = HandshakeError::Malformed("it sent a handshake message that can't be decoded");

fn nonce(rng: &Rng) -> Nonce {
    let mut nonce = Nonce::default();
    rng.fill(&mut nonce);
    nonce
}

async fn send<W: AsyncWrite + Unpin>(sink: &mut W, kind: u8, body: &[u8]) -> Result<(), HandshakeError> {
    let frame = whole_frame(kind, body);
    let written = async {
        sink.write_all(&frame).await?;
        sink.flush().await
    };
    written.await.map_err(|error| LinkError::Io(error).into())
}

/// Returns the next message, which must have the given kind. A refusal by the other end becomes an error.
async fn receive<R: AsyncRead + Unpin>(reader: &mut FrameReader<R>, kind: u8) -> Result<Bytes, HandshakeError> {
    match reader.next().await? {
        Some((found, body)) if found == kind => Ok(body),
        Some((REFUSED, body)) => Err(Refusal::decode(&body).map_or(MALFORMED, Refusal::into_error)),
        Some(_) => Err(HandshakeError::Malformed("it sent a message out of order")),
        None => Err(HandshakeError::Broken("the other end closed it".into())),
    }
}

#[cfg(test)]
mod tests;
