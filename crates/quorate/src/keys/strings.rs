//! Strings.

use bytes::Bytes;
use quorate_model::keys::StringCommand;

use super::{IntoBytes, Keys, KeysCall, Put, When};

/// Strings of bytes. To those that change a part of one, a missing key is an empty string or 0.
impl Keys {
    /// Returns the string of a key.
    pub fn get(&self, key: impl IntoBytes) -> KeysCall<Option<Bytes>> {
        self.run(StringCommand::Get { key: key.into_bytes() })
    }

    /// Sets a key to a string, whatever it holds, and returns whether it was set: always, unless there is a condition.
    /// [`Put`] has the options.
    pub fn set(&self, key: impl IntoBytes, value: impl IntoBytes) -> Put<bool> {
        Put::string(self.clone(), key, value)
    }

    /// Sets keys to strings, whatever they hold, all of them or, if there is a condition that does not hold for each,
    /// none (MSET, MSETNX). Returns whether they were set. [`Put`] has the options.
    ///
    /// ```
    /// # async fn f(keys: quorate::Keys) -> Result<(), quorate::Error> {
    /// let is_first = keys.set_all([("name", "ann"), ("city", "Bern")]).if_missing().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_all<K: IntoBytes, V: IntoBytes>(&self, strings: impl IntoIterator<Item = (K, V)>) -> Put<bool> {
        let strings = strings.into_iter().map(|(key, value)| (key.into_bytes(), value.into_bytes()));
        Put::strings(self.clone(), strings.collect())
    }

    /// Returns a string, and lets its key expire (GETEX). A time that has come removes the key.
    pub fn get_and_expire(&self, key: impl IntoBytes, when: impl Into<When>) -> KeysCall<Option<Bytes>> {
        let (at, relative) = when.into().nanos();
        self.run(StringCommand::GetExpire { key: key.into_bytes(), at: Some(at), relative })
    }

    /// Returns a string, and lets its key no longer expire.
    pub fn get_and_persist(&self, key: impl IntoBytes) -> KeysCall<Option<Bytes>> {
        self.run(StringCommand::GetExpire { key: key.into_bytes(), at: None, relative: false })
    }

    /// Removes a key and returns its string (GETDEL).
    pub fn take(&self, key: impl IntoBytes) -> KeysCall<Option<Bytes>> {
        self.run(StringCommand::Take { key: key.into_bytes() })
    }

    /// Returns the bytes from one index to another, both inside; a negative one counts from the end.
    pub fn get_range(&self, key: impl IntoBytes, start: i64, end: i64) -> KeysCall<Bytes> {
        self.run(StringCommand::GetRange { key: key.into_bytes(), start, end })
    }

    /// Returns the number of bytes of a string; 0 if the key is missing.
    pub fn length(&self, key: impl IntoBytes) -> KeysCall<u64> {
        self.run(StringCommand::Length { key: key.into_bytes() })
    }

    /// Adds bytes at the end of a string, and returns its length. Costs the whole string.
    pub fn append(&self, key: impl IntoBytes, value: impl IntoBytes) -> KeysCall<u64> {
        self.run(StringCommand::Append { key: key.into_bytes(), value: value.into_bytes() })
    }

    /// Replaces the bytes of a string from an offset on, fills up with zeros before it, and returns its length. Costs
    /// the whole string.
    pub fn set_range(&self, key: impl IntoBytes, offset: u64, value: impl IntoBytes) -> KeysCall<u64> {
        self.run(StringCommand::SetRange { key: key.into_bytes(), offset, value: value.into_bytes() })
    }

    /// Adds to an integer, and returns the sum.
    pub fn increment(&self, key: impl IntoBytes, by: i64) -> KeysCall<i64> {
        self.run(StringCommand::Add { key: key.into_bytes(), by })
    }

    /// Adds to a decimal number, and returns the sum.
    pub fn increment_float(&self, key: impl IntoBytes, by: f64) -> KeysCall<f64> {
        self.run(StringCommand::AddFloat { key: key.into_bytes(), by: by.to_string().into() })
    }
}
