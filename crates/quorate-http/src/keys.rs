//! Plain HTTP for keys: a key, or a field of a hash, is a resource, and its version is its entity tag.
//!
//! # Invariants
//!
//! - A request that writes is one entry of the log, with its conditions. So of two that depend on the same version, at
//!   most one is done.
//! - An answer never shows an older state than its entity tag.
//! - What is not understood is refused: a parameter, a condition, an unreadable escape in a path.

mod asked;
mod commands;
mod conditions;
mod encode;
mod listing;
mod ranges;
mod read;
mod target;
mod write;

pub(crate) use conditions::tag;
pub(crate) use read::find;
pub(crate) use target::{Target, described, is_done};

use quorate::Level;

use crate::asked::Asked;
use crate::error::Problem;
use crate::message::{Answer, Request, is_read};
use crate::resource::Resource;
use crate::work::Work;

/// The path of all keys.
pub(crate) const ALL: &str = "/keys";

/// What the path of a key starts with. The rest is the key, percent-encoded; it may contain slashes as they are.
const ONE: &str = "/keys/";

/// The paths, as they are described.
#[cfg(test)]
pub(crate) const PATHS: [&str; 2] = ["/keys", "/keys/{key}"];

/// Returns the methods that a path allows, as the header `Allow` lists them.
pub(crate) fn methods(resource: Resource) -> &'static str {
    match resource {
        Resource::All => "GET, HEAD, POST",
        Resource::One => "GET, HEAD, PUT, DELETE, POST",
    }
}

/// Answers a request, whose reads have this level.
pub(crate) async fn serve(
    mut work: Work,
    resource: Resource,
    level: Level,
    request: &Request,
) -> Result<Answer, Problem> {
    let asked = Asked::of(request)?;
    let reads = is_read(&request.method);
    match resource {
        Resource::All if reads => listing::list(&work, &asked).await,
        Resource::All => commands::run(&mut work, &asked, &request.body).await,
        Resource::One if reads => read::get(&work, &asked, level).await,
        Resource::One => write::change(&mut work, &asked, request).await,
    }
}
