//! The description of the endpoints, for programs.

/// The document of OpenAPI 3.1 that `/openapi.json` returns.
pub(crate) const OPENAPI: &str = include_str!("openapi.json");
