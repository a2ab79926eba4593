//! Opens the store of a location with the crate `object_store`.

use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use quorate_env::{Cause, Env};

use super::location::Kind;
use super::{CONNECT_MAX, Location, RETRY_MAX};
use crate::error::Error;

type Built = (Arc<dyn ObjectStore>, Path);

/// Opens a store whose requests may take this long, and are repeated so often; returns it with the prefix of the
/// location in it.
pub(super) fn build(
    location: &Location,
    settings: &Settings,
    (request_max, retries_max): (Duration, usize),
) -> Result<Built, Error> {
    let failed = |error: object_store::Error| Error::Open { location: location.to_string(), source: error.into() };
    let unknown = |name: &str| {
        let source = Cause::from(format!("the credentials have the setting '{name}', which is not known"));
        Error::Open { location: location.to_string(), source }
    };
    let http = (client(location, request_max), retry(retries_max));
    let inner: Arc<dyn ObjectStore> = match location.kind {
        Kind::S3 => Arc::new(s3(location, settings, http, unknown)?.build().map_err(failed)?),
        Kind::Google => Arc::new(google(location, settings, http, unknown)?.build().map_err(failed)?),
        Kind::Azure => Arc::new(azure(location, settings, http, unknown)?.build().map_err(failed)?),
        Kind::Dir => {
            // Not created: where a disk or a share is not mounted, backups would land on another one.
            let env = Env::current().unwrap_or_else(Env::real);
            if !env.disk().exists(&location.dir).map_err(Error::disk(&location.dir))? {
                let source = "the directory does not exist; create it".into();
                return Err(Error::Open { location: location.to_string(), source });
            }
            let opened = LocalFileSystem::new_with_prefix(&location.dir).map_err(failed)?;
            Arc::new(opened.with_fsync(true))
        }
    };
    Ok((inner, location.prefix.clone()))
}

/// Returns the number of a directory in its file system; `None` for other stores, and where disks do not tell.
pub(super) fn inode(location: &Location) -> io::Result<Option<u64>> {
    if location.kind != Kind::Dir {
        return Ok(None);
    }
    let env = Env::current().unwrap_or_else(Env::real);
    Ok(env.disk().identity(&location.dir)?.map(|(_, inode)| inode))
}

type Settings = [(String, String)];
type Http = (ClientOptions, RetryConfig);

fn s3(
    location: &Location,
    settings: &Settings,
    (client, retry): Http,
    unknown: impl Fn(&str) -> Error,
) -> Result<AmazonS3Builder, Error> {
    let mut builder = AmazonS3Builder::from_env().with_client_options(client).with_retry(retry);
    for (name, value) in settings {
        builder = builder.with_config(FromStr::from_str(name).map_err(|_| unknown(name))?, value);
    }
    if let Some(endpoint) = location.setting("endpoint") {
        builder = builder.with_endpoint(endpoint);
    }
    if let Some(region) = location.setting("region") {
        builder = builder.with_region(region);
    }
    Ok(builder.with_bucket_name(&location.bucket))
}

fn google(
    location: &Location,
    settings: &Settings,
    (client, retry): Http,
    unknown: impl Fn(&str) -> Error,
) -> Result<GoogleCloudStorageBuilder, Error> {
    let mut builder = GoogleCloudStorageBuilder::from_env().with_client_options(client).with_retry(retry);
    for (name, value) in settings {
        builder = builder.with_config(FromStr::from_str(name).map_err(|_| unknown(name))?, value);
    }
    Ok(builder.with_bucket_name(&location.bucket))
}

fn azure(
    location: &Location,
    settings: &Settings,
    (client, retry): Http,
    unknown: impl Fn(&str) -> Error,
) -> Result<MicrosoftAzureBuilder, Error> {
    let mut builder = MicrosoftAzureBuilder::from_env().with_client_options(client).with_retry(retry);
    for (name, value) in settings {
        builder = builder.with_config(FromStr::from_str(name).map_err(|_| unknown(name))?, value);
    }
    if let Some(endpoint) = location.setting("endpoint") {
        builder = builder.with_endpoint(endpoint.to_owned());
    }
    if let Some(account) = location.setting("account") {
        builder = builder.with_account(account);
    }
    Ok(builder.with_container_name(&location.bucket))
}

/// Returns the settings of HTTP. Only a location that names a server without TLS is talked to without it.
fn client(location: &Location, request_max: Duration) -> ClientOptions {
    // `reqwest` uses the provider of the process, and panics if there is none. One that the program chose is kept.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let in_clear = location.setting("endpoint").is_some_and(|endpoint| endpoint.starts_with("http://"));
    ClientOptions::new().with_timeout(request_max).with_connect_timeout(CONNECT_MAX).with_allow_http(in_clear)
}

fn retry(retries_max: usize) -> RetryConfig {
    RetryConfig { max_retries: retries_max, retry_timeout: RETRY_MAX, ..RetryConfig::default() }
}
