//! `quorate sql`: runs statements one after the other, or opens a prompt.

use std::io::{IsTerminal as _, Read as _};

use quorate::Value;

use crate::access::Access;
use crate::args::{Format, Level, SqlArgs};
use crate::client::Client;
use crate::error::{Result, Told as _};
use crate::format;
use crate::output;
use crate::prompt;
use crate::statements::Split;

/// Bytes of a script on the standard input.
const SCRIPT_BYTES_MAX: u64 = 64 << 20;

/// Runs the command.
pub async fn run(args: &SqlArgs) -> Result<()> {
    let access = Access::find(&args.access)?;
    let runner = Runner { client: Client::connect(&access).await?, format: args.format, level: args.level };
    let outcome = match &args.query {
        Some(query) => runner.run(query).await,
        None if std::io::stdin().is_terminal() => prompt::run(&runner).await,
        None => runner.run(&script()?).await,
    };
    runner.client.close().await;
    outcome
}

fn script() -> Result<String> {
    let mut script = String::new();
    let read = std::io::stdin().take(SCRIPT_BYTES_MAX).read_to_string(&mut script);
    read.told(|| "cannot read the standard input")?;
    Ok(script)
}

/// Runs statements and prints what they give.
pub struct Runner {
    client: Client,
    format: Format,
    level: Level,
}

impl Runner {
    /// Runs statements in their order, each by itself, up to the first that fails.
    pub async fn run(&self, text: &str) -> Result<()> {
        for statement in Split::of(text).all() {
            let answer = self.client.run(statement, self.level).await?;
            output::print(&format::text(&answer, self.format, format::terminal_width()))?;
        }
        Ok(())
    }

    /// The rows of one statement, unprinted.
    pub async fn rows(&self, statement: &str) -> Result<Vec<Vec<Value>>> {
        Ok(self.client.run(statement, self.level).await?.rows)
    }
}
