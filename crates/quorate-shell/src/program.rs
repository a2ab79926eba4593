//! Programs of the user that the shell runs at the prompt: the pager and the editor.

use tokio::process::Command;

use crate::command::words;

/// The command line in the first of these variables that is set.
pub fn named_by(variables: &[&str]) -> Option<String> {
    variables.iter().find_map(|variable| std::env::var(variable).ok())
}

/// The program of a command line, with its arguments. No shell interprets it; quotes keep words together.
pub fn of(line: &str) -> Result<Command, String> {
    let words = words(line)?;
    let (program, arguments) = words.split_first().ok_or("its command line is empty")?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}
