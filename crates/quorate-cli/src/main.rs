//! The `quorate` binary; everything is in the library beside it.

#![deny(unsafe_code)]

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    quorate_cli::run().await
}
