//! `quorate completions`: prints what a shell needs to complete the commands and options of `quorate`.

use clap::{Args, CommandFactory as _};
use clap_complete::{Shell, generate};

use crate::args::Arguments;
use crate::error::Result;
use crate::output;

/// Options of `quorate completions`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  quorate completions bash > ~/.local/share/bash-completion/completions/quorate
  quorate completions zsh > ~/.zfunc/_quorate
  quorate completions fish > ~/.config/fish/completions/quorate.fish")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Runs the command.
pub fn run(args: &CompletionsArgs) -> Result<()> {
    let mut script = Vec::new();
    generate(args.shell, &mut Arguments::command(), "quorate", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
