//! Compares the data of all nodes of a cluster at one position.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use quorate_consensus::MemberStatus;
use quorate_env::{Env, Instant};
use quorate_model::{ControlCommand, Position};
use quorate_wire::{CONNECT_MAX, Dialer, DialerConfig, Identity, Purpose, Role, Secret};

use super::network::Network;
use super::nodes::Nodes;
use super::waits::Waits;
use super::{ClientConfig, start_runtime};
use crate::error::{ConnectError, Error};
use crate::protocol::{self, VerifiedKind, method};
use crate::status::Status;
use crate::submitter::Submitter;
use crate::verify::{HASHES_MAX, Verification, VerifiedNode, VerifyError};

/// The number of attempts if a node does not know the verification, because it restarted, received the state as an
/// image, or began another verification.
const ATTEMPTS_MAX: usize = 3;

/// How long one call waits for the hashes.
const CALL_MAX: Duration = Duration::from_secs(5);

/// Compares the data of all nodes of a cluster at one position, while the cluster continues to work. It compares a
/// logical hash of each table, of the schema, and of Quorate's own tables. An entry of the log defines the position.
/// Each node reads its whole database once, in the background.
///
/// ```no_run
/// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
/// use quorate::{ClientConfig, SecretSource};
///
/// let secret = SecretSource::File("secret".into());
/// let verification = quorate::verify(ClientConfig::new(["10.0.0.1:7001"], secret)).await?;
/// for difference in verification.differences() {
///     println!("{} differs: {:?}", difference.table, difference.versions);
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Returns a [`VerifyError`] if the cluster accepts no entries. A node that can't be reached is not an error; the
/// result contains the reason.
pub async fn verify(config: ClientConfig) -> Result<Verification, VerifyError> {
    verify_in(Env::real(), config).await
}

/// Runs [`verify`] in another environment, for simulations.
///
/// # Errors
///
/// Returns the errors of [`verify`].
pub async fn verify_in(env: Env, config: ClientConfig) -> Result<Verification, VerifyError> {
    let (secret, env) = config.resolve(&env).map_err(ConnectError::from)?;
    let (runtime, alive) = start_runtime(&env).await?;
    let role = config.role(Role::Admin);
    let nodes = Arc::new(Nodes::new(&env, &config, role, secret.clone()));
    let waits = Arc::new(Waits::new(runtime.clone(), Arc::clone(&nodes)));
    let network = Network::new(Arc::clone(&nodes), Arc::new(alive), waits);
    let client = Submitter::new(runtime.clone(), Box::new(network));
    let asker = Asker { env, secret, role, nodes, limit: config.deadline };
    let verified = asker.verify(&client, &runtime).await;
    client.end_session().await;
    // If the runtime has ended, the connections have ended too.
    let _ = runtime.run(asker.nodes.close()).await;
    verified
}

struct Asker {
    env: Env,
    secret: Secret,
    role: Role,
    nodes: Arc<Nodes>,
    limit: Duration,
}

impl Asker {
    async fn verify(&self, client: &Submitter, runtime: &crate::runtime::Runtime) -> Result<Verification, VerifyError> {
        for attempt in 1.. {
            let position = client.write(vec![ControlCommand::Verify.into()], self.limit).await?.position;
            let asked = runtime.run(async {
                let status = self.nodes.status(self.limit).await?;
                let asked = status.members.iter().map(|member| self.ask(&status, member, position));
                Ok::<_, Error>((status.cluster, join_all(asked).await))
            });
            let (cluster, answers) = asked.await.unwrap_or(Err(Error::Closed))?;
            let is_known = answers.iter().all(|(_, is_known)| *is_known);
            if is_known || attempt >= ATTEMPTS_MAX {
                let mut nodes: Vec<VerifiedNode> = answers.into_iter().map(|(node, _)| node).collect();
                nodes.sort_by(|a, b| a.name.cmp(&b.name));
                return Ok(Verification { cluster, position, nodes });
            }
        }
        Err(Error::Closed.into())
    }

    /// Returns the hashes of a node, and whether it knew the verification.
    async fn ask(&self, status: &Status, member: &MemberStatus, position: Position) -> (VerifiedNode, bool) {
        let (tables, is_known) = match self.hashes(status, member, position).await {
            Ok(Some(tables)) => (Ok(tables), true),
            Ok(None) => (
                Err("it dropped the verification: by a restart, an image, or a later verification; verify again"
                    .to_owned()),
                false,
            ),
            Err(why) => (Err(why), true),
        };
        let (name, addr) = (member.name.clone(), member.addr.clone());
        (VerifiedNode { id: member.id, name, addr, tables }, is_known)
    }

    async fn hashes(
        &self,
        status: &Status,
        member: &MemberStatus,
        position: Position,
    ) -> Result<Option<BTreeMap<String, u128>>, String> {
        let dialer = Dialer::new(
            &self.env,
            DialerConfig {
                addr: member.addr.clone(),
                identity: Identity::new(status.cluster.0, 0),
                secret: self.secret.clone(),
                role: self.role,
                purpose: Purpose::Client,
                expected: Some(member.id.0),
                connect_limit: CONNECT_MAX,
            },
        );
        let client = dialer.connect().await.map_err(|error| error.to_string())?;
        let millis = u64::try_from(CALL_MAX.as_millis()).unwrap_or(u64::MAX);
        let ask = protocol::encode(&protocol::Verify { position: position.into(), millis });
        let end = Instant::now() + HASHES_MAX;
        while Instant::now() < end {
            let deadline = Instant::now() + CALL_MAX.saturating_mul(2);
            let reply = client.call(method::VERIFY, ask.clone(), deadline).await.map_err(|error| error.to_string())?;
            let reply: protocol::Verified = protocol::decode(reply).map_err(|error| error.to_string())?;
            match reply.kind {
                Some(VerifiedKind::Hashes(hashes)) => {
                    return hashes.by_table().map(Some).ok_or_else(|| "its hashes can't be read".to_owned());
                }
                Some(VerifiedKind::NotYet(_)) => {}
                Some(VerifiedKind::Unknown(_)) => return Ok(None),
                Some(VerifiedKind::Failed(why)) => return Err(why),
                None => return Err("a newer version sent an answer that this version can't read".to_owned()),
            }
        }
        Err(format!("it took longer than {HASHES_MAX:?}"))
    }
}
