//! The CA of a new cluster, and the certificates of its nodes.

use std::path::Path;

use quorate::{Ca, TlsConfig};
use quorate_env::Env;
use quorate_tls::authority::Authority;

use super::{NewNode, write_new};
use crate::error::{Context as _, Error, Result};

/// The file with the certificate of the CA, which nodes and clients need.
pub const CA_CERTIFICATE: &str = "ca.crt";
/// The file with the key of the CA, which issues certificates.
pub const CA_KEY: &str = "ca.key";

/// Returns the TLS of a node, with files beside its configuration.
pub fn tls_of(node: &NewNode) -> TlsConfig {
    TlsConfig::new(certificate(node), key(node), Ca::File(CA_CERTIFICATE.into()))
}

fn certificate(node: &NewNode) -> String {
    format!("{}.crt", node.name)
}

fn key(node: &NewNode) -> String {
    format!("{}.key", node.name)
}

/// Makes a CA, and certificates for the hosts of the nodes' addresses. Existing files are not overwritten.
pub fn issue(dir: &Path, nodes: &[NewNode]) -> Result<()> {
    if nodes.iter().any(|node| certificate(node) == CA_CERTIFICATE) {
        return Err(Error::new(format!("a member can't be called 'ca': {CA_CERTIFICATE} is the file of the CA")));
    }
    let env = Env::real();
    // The names of CAs differ, so that errors tell a wrong CA from a damaged certificate.
    let mut number = [0; 4];
    env.rng().fill(&mut number);
    let authority = Authority::new(&env, &format!("Quorate CA {:08x}", u32::from_le_bytes(number)));
    let authority = authority.map_err(Error::of)?;
    write_new(&dir.join(CA_KEY), &authority.key())?;
    write_new(&dir.join(CA_CERTIFICATE), &authority.certificate())?;
    for node in nodes {
        let mut hosts: Vec<String> = [&node.addr, &node.http].map(|addr| host_of(addr)).into();
        hosts.push("localhost".to_owned());
        hosts.sort_unstable();
        hosts.dedup();
        let issued = authority.issue(&node.name, &hosts).context(|| format!("node {}", node.name))?;
        write_new(&dir.join(key(node)), &issued.key)?;
        write_new(&dir.join(certificate(node)), &issued.certificate)?;
    }
    Ok(())
}

/// Returns the host of an address, without the brackets of an IPv6 address.
fn host_of(addr: &str) -> String {
    let host = addr.rsplit_once(':').map_or(addr, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']').to_owned()
}
