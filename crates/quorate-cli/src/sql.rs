//! `quorate sql`: runs scripts, or opens a prompt where there is none and somebody sits at the terminal.

use std::io::{IsTerminal as _, stdin, stdout};

use crate::access::Access;
use crate::args::SqlArgs;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::shell::{Script, Shell, prompt};

/// Runs the command.
pub async fn run(args: &SqlArgs) -> Result<()> {
    let scripts = scripts(args)?;
    let access = Access::find(&args.access).map_err(Error::of_connection)?;
    let client = Client::connect(&access, args.timeout).await?.with_budget(args.budget);
    let mut shell = Shell::new(client.clone(), access, args);
    let outcome = match scripts {
        Some(scripts) => shell.run_scripts(scripts).await,
        None => prompt::run(&mut shell).await,
    };
    client.close().await;
    outcome
}

/// What to run, opened before anything is run; `None` for a prompt.
fn scripts(args: &SqlArgs) -> Result<Option<Vec<Script>>> {
    if let Some(query) = &args.query {
        return Ok(Some(vec![Script::text(query)]));
    }
    if !args.files.is_empty() {
        return args.files.iter().map(|file| Script::open(file)).collect::<Result<_>>().map(Some);
    }
    let is_prompt = stdin().is_terminal() && stdout().is_terminal();
    Ok((!is_prompt).then(|| vec![Script::stdin()]))
}
