//! Values of any type, as JSON.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::KeysCall;
use crate::error::Error;

/// Why a value can't be written or read as JSON.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// The value has no JSON, or the bytes are no JSON of the type.
    #[error("the value and its JSON do not fit: {0}")]
    Json(#[from] serde_json::Error),
    /// The key could not be read.
    #[error(transparent)]
    Cluster(#[from] Error),
}

impl JsonError {
    /// Returns whether the same call may succeed later without intervention.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Cluster(error) if error.is_retryable())
    }
}

/// Returns the JSON of a value, which can be set, pushed or added like any other bytes.
///
/// ```
/// # async fn f(keys: quorate::Keys) -> Result<(), quorate::keys::JsonError> {
/// use quorate::keys::to_json;
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct User {
///     name: String,
/// }
///
/// keys.set("user:7", to_json(&User { name: "Ann".into() })?).await?;
/// let user: Option<User> = keys.get("user:7").json().await?;
/// # Ok(())
/// # }
/// ```
pub fn to_json<T: Serialize + ?Sized>(value: &T) -> Result<Bytes, JsonError> {
    Ok(serde_json::to_vec(value)?.into())
}

/// Returns the value that JSON stands for.
pub fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, JsonError> {
    Ok(serde_json::from_slice(bytes)?)
}

impl KeysCall<Option<Bytes>> {
    /// Runs the call, and returns the value that its JSON stands for.
    pub async fn json<T: DeserializeOwned>(self) -> Result<Option<T>, JsonError> {
        self.await?.map(|bytes| from_json(&bytes)).transpose()
    }
}
