//! Passwords and tokens: how they are made, and what is kept of them.
//!
//! Invariant: the text of a secret leaves this module only in [`NewToken::text`].

use std::fmt;

use argon2::password_hash::SaltString;
use argon2::{Algorithm, Argon2, Params, PasswordHash, PasswordHasher as _, PasswordVerifier as _, Version};
use quorate_env::{Cause, Env};
use quorate_model::{Failure, FailureKind, TokenHash, Verifier};
use sha2::{Digest as _, Sha256};

/// Memory, iterations and lanes of Argon2id, as the OWASP Password Storage Cheat Sheet recommends as the minimum: "use
/// Argon2id with a minimum configuration of 19 MiB of memory, an iteration count of 2, and 1 degree of parallelism".
pub const ARGON2_MEMORY_KIB: u32 = 19 << 10;
/// See [`ARGON2_MEMORY_KIB`].
pub const ARGON2_ITERATIONS: u32 = 2;
/// See [`ARGON2_MEMORY_KIB`].
pub const ARGON2_LANES: u32 = 1;

/// The most that a hash of another program may cost to check.
const MEMORY_KIB_MAX: u32 = 64 << 10;
const ITERATIONS_MAX: u32 = 10;
const LANES_MAX: u32 = 4;

/// Random bytes of a salt.
const SALT_BYTES: usize = 16;

/// The fewest bytes of a password.
pub const PASSWORD_BYTES_MIN: usize = 8;

/// The most bytes of a password.
pub const PASSWORD_BYTES_MAX: usize = 1_024;

/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;

/// What a token begins with, so that people and scanners for leaked secrets recognize one.
const TOKEN_PREFIX: &str = "quorate_";

/// Returns whether a text begins like a token.
pub(crate) fn is_like_token(text: &str) -> bool {
    text.starts_with(TOKEN_PREFIX)
}

/// A token that was just made. It can't be shown again later.
#[derive(Clone, PartialEq, Eq)]
pub struct NewToken(String);

impl NewToken {
    /// Draws a token. It belongs to nobody until its hash is given to a user.
    pub fn draw(env: &Env) -> Self {
        let mut bytes = [0; TOKEN_BYTES];
        env.rng().fill(&mut bytes);
        let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
        Self(TOKEN_PREFIX.to_owned() + &digits.collect::<String>())
    }

    /// Returns the token itself.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Returns what is kept of the token.
    pub fn hash(&self) -> TokenHash {
        token_hash(&self.0)
    }
}

impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NewToken").field(&self.hash()).finish()
    }
}

/// Returns the hash of a token.
pub(super) fn token_hash(token: &str) -> TokenHash {
    TokenHash::new(Sha256::digest(token.as_bytes()).into())
}

/// Why a password can't be set.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PasswordError {
    /// It is too short or too long.
    #[error("a password has from {PASSWORD_BYTES_MIN} to {PASSWORD_BYTES_MAX} bytes, not {0}; choose another one")]
    Length(usize),
    /// It could not be hashed.
    #[error("the password can't be hashed: {0}; try again")]
    Hash(#[source] Cause),
}

impl PasswordError {
    /// Returns whether the same password may be taken later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Hash(_))
    }
}

/// Hashes a password under a new salt. Blocks for tens of milliseconds.
pub(crate) fn hash_password(env: &Env, password: &str) -> Result<Verifier, PasswordError> {
    if !(PASSWORD_BYTES_MIN..=PASSWORD_BYTES_MAX).contains(&password.len()) {
        return Err(PasswordError::Length(password.len()));
    }
    let failed = |error: &dyn fmt::Display| PasswordError::Hash(error.to_string().into());
    let mut salt = [0; SALT_BYTES];
    env.rng().fill(&mut salt);
    let salt = SaltString::encode_b64(&salt).map_err(|error| failed(&error))?;
    let params = Params::new(ARGON2_MEMORY_KIB, ARGON2_ITERATIONS, ARGON2_LANES, None);
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params.map_err(|error| failed(&error))?);
    let hash = argon2.hash_password(password.as_bytes(), &salt).map_err(|error| failed(&error))?;
    Ok(Verifier::new(hash.to_string()))
}

/// Returns whether a password is the one that was hashed. Blocks for tens of milliseconds. Without a verifier it takes
/// as long, and returns `false`, so that the time does not show whether a user exists.
pub(super) fn is_password(verifier: Option<&Verifier>, password: &str) -> bool {
    /// The hash of a random text under the usual parameters.
    const OF_NOBODY: &str =
        "$argon2id$v=19$m=19456,t=2,p=1$cXVvcmF0ZSBub2JvZHk$9bkkhS3PsnLBXRqVYX6nDGPwcQC6Lq2mNCWrC0Jp2Vk";
    let text = verifier.map_or(OF_NOBODY, Verifier::text);
    let Some(hash) = parsed(text) else { return false };
    // Compares in constant time.
    let matches = Argon2::default().verify_password(password.as_bytes(), &hash).is_ok();
    matches && verifier.is_some()
}

/// Refuses a hash that no node can check, or only at a high cost.
pub(crate) fn check_verifier(verifier: &Verifier) -> Result<(), Failure> {
    if parsed(verifier.text()).is_some() {
        return Ok(());
    }
    let text = format!(
        "the hash of the password is not Argon2id version 19 in PHC format with at most m={MEMORY_KIB_MAX}, \
         t={ITERATIONS_MAX} and p={LANES_MAX}; set the password through this library or the command line"
    );
    Err(Failure::new(FailureKind::Refused, text))
}

/// Parses a hash that nodes can check.
fn parsed(text: &str) -> Option<PasswordHash<'_>> {
    let hash = PasswordHash::new(text).ok()?;
    let params = Params::try_from(&hash).ok()?;
    let is_cheap =
        params.m_cost() <= MEMORY_KIB_MAX && params.t_cost() <= ITERATIONS_MAX && params.p_cost() <= LANES_MAX;
    let is_usual = hash.algorithm.as_str() == "argon2id" && hash.version == Some(Version::V0x13.into());
    (is_cheap && is_usual && hash.hash.is_some() && hash.salt.is_some()).then_some(hash)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn only_the_password_matches() {
        let env = Env::real();
        let verifier = hash_password(&env, "correct horse").unwrap();
        assert!(verifier.text().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "the parameters");
        assert_eq!(check_verifier(&verifier), Ok(()));
        assert!(is_password(Some(&verifier), "correct horse"));
        assert!(!is_password(Some(&verifier), "correct horsf"));
        assert!(!is_password(None, "correct horse"));
        assert!(hash_password(&env, "correct horse").unwrap() != verifier, "the salt differs");
    }

    #[test]
    fn the_hash_of_nobody_takes_as_long_as_any_other() {
        // Otherwise `is_password` would return at once.
        let of_nobody =
            "$argon2id$v=19$m=19456,t=2,p=1$cXVvcmF0ZSBub2JvZHk$9bkkhS3PsnLBXRqVYX6nDGPwcQC6Lq2mNCWrC0Jp2Vk";
        assert!(parsed(of_nobody).is_some());
    }

    #[test]
    fn what_costs_too_much_to_check_is_refused() {
        let hash = |algorithm: &str, params: &str| {
            Verifier::new(format!(
                "${algorithm}${params}$cXVvcmF0ZSBub2JvZHk$9bkkhS3PsnLBXRqVYX6nDGPwcQC6Lq2mNCWrC0Jp2Vk"
            ))
        };
        assert_eq!(check_verifier(&hash("argon2id", "v=19$m=65536,t=10,p=4")), Ok(()));
        for (algorithm, params) in [
            ("argon2id", "v=19$m=65537,t=1,p=1"),
            ("argon2id", "v=19$m=64,t=11,p=1"),
            ("argon2id", "v=19$m=64,t=1,p=5"),
            ("argon2id", "v=16$m=64,t=1,p=1"),
            ("argon2i", "v=19$m=64,t=1,p=1"),
        ] {
            assert!(check_verifier(&hash(algorithm, params)).is_err(), "{algorithm} {params}");
        }
        assert!(check_verifier(&Verifier::new("$argon2id$")).is_err());
    }

    #[test]
    fn passwords_have_bounds() {
        let env = Env::real();
        for len in [0, PASSWORD_BYTES_MIN - 1, PASSWORD_BYTES_MAX + 1] {
            assert_eq!(hash_password(&env, &"x".repeat(len)), Err(PasswordError::Length(len)));
        }
    }

    #[test]
    fn tokens_differ_and_are_not_printed() {
        let env = Env::real();
        let (one, other) = (NewToken::draw(&env), NewToken::draw(&env));
        assert!(one != other && one.hash() != other.hash());
        assert_eq!(one.text().len(), TOKEN_PREFIX.len() + 2 * TOKEN_BYTES);
        let digits = one.text().strip_prefix(TOKEN_PREFIX).unwrap();
        assert!(!format!("{one:?}").contains(digits));
        assert_eq!(token_hash(one.text()), one.hash());
    }
}
