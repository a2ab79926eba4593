//! The prompt of `quorate sql`: statements over several lines up to their semicolon, a history, and a few commands that
//! start with a dot.

use std::path::PathBuf;

use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use crate::error::{Error, Result, Told as _};
use crate::output;
use crate::sql::Runner;
use crate::statements::Split;

const HELP: &str = "\
A statement ends with a semicolon and may take several lines.
.tables          the tables and views
.schema [NAME]   how they, or one of them, were made
.help            this
.quit            leave, as Ctrl-D does; Ctrl-C drops what was typed
";

/// The file in the home directory that keeps what was typed.
const HISTORY_FILE: &str = ".quorate_history";

/// Names of what SQLite and Quorate keep for themselves start so.
const NOT_INTERNAL: &str = r"name NOT LIKE 'sqlite\_%' ESCAPE '\' AND name NOT LIKE '\_\_quorate%' ESCAPE '\'";

/// What was typed at the prompt.
enum Typed {
    Line(String),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D.
    End,
}

/// Whether the prompt comes again.
#[derive(PartialEq, Eq)]
enum Next {
    Prompt,
    Leave,
}

/// Reads and runs until the end of the input or `.quit`. Errors are told and forgotten.
pub async fn run(runner: &Runner) -> Result<()> {
    output::print("Quorate: end a statement with ';', or type .help\n")?;
    let mut keyboard = Keyboard::open()?;
    // What of a statement was typed so far.
    let mut typed = String::new();
    loop {
        let prompt = if typed.is_empty() { "quorate> " } else { "    ...> " };
        let (back, line) = keyboard.read(prompt).await?;
        keyboard = back;
        match line {
            Typed::End => break,
            Typed::Interrupt => typed.clear(),
            Typed::Line(line) if typed.is_empty() && line.trim_start().starts_with('.') => {
                keyboard.remember(line.trim());
                if run_command(runner, line.trim()).await? == Next::Leave {
                    break;
                }
            }
            Typed::Line(line) => {
                typed.push_str(&line);
                typed.push('\n');
                let rest = typed.split_off(Split::of(&typed).rest_at);
                if !typed.trim().is_empty() {
                    keyboard.remember(typed.trim());
                    tell(runner.run(&typed).await);
                }
                typed = if Split::of(&rest).rest.is_some() { rest } else { String::new() };
            }
        }
    }
    keyboard.close();
    Ok(())
}

async fn run_command(runner: &Runner, line: &str) -> Result<Next> {
    let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match (name, argument.trim()) {
        (".quit" | ".exit", _) => return Ok(Next::Leave),
        (".help", _) => output::print(HELP)?,
        (".tables", "") => {
            let sql =
                format!("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND {NOT_INTERNAL} ORDER BY 1");
            tell(runner.run(&sql).await);
        }
        (".schema", name) => tell(show_schema(runner, name).await),
        _ => tell(Err(Error::new(format!("{line}: not known; .help lists the commands")))),
    }
    Ok(Next::Prompt)
}

async fn show_schema(runner: &Runner, name: &str) -> Result<()> {
    let named = match name {
        "" => String::new(),
        name => format!(" AND tbl_name = '{}' COLLATE NOCASE", name.replace('\'', "''")),
    };
    let sql = format!("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND {NOT_INTERNAL}{named} ORDER BY rowid");
    for row in runner.rows(&sql).await? {
        let text: String = row.iter().map(ToString::to_string).collect();
        output::print(&format!("{text};\n"))?;
    }
    Ok(())
}

fn tell(outcome: Result<()>) {
    if let Err(error) = outcome {
        eprintln!("error: {error}");
    }
}

/// Reads lines from the terminal, with a history that is kept between sessions where there is a home to keep it in.
struct Keyboard {
    editor: DefaultEditor,
    history: Option<PathBuf>,
}

impl Keyboard {
    fn open() -> Result<Self> {
        let mut editor = DefaultEditor::new().told(|| "cannot read from the terminal")?;
        let history = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(HISTORY_FILE));
        if let Some(file) = &history {
            // There is none before the first time.
            let _ = editor.load_history(file);
        }
        Ok(Self { editor, history })
    }

    /// Reads a line on a thread of its own, so that the connections to the cluster live on meanwhile.
    async fn read(mut self, prompt: &'static str) -> Result<(Self, Typed)> {
        let reading = tokio::task::spawn_blocking(move || {
            let line = self.editor.readline(prompt);
            (self, line)
        });
        let (keyboard, line) = reading.await.told(|| "cannot read from the terminal")?;
        match line {
            Ok(line) => Ok((keyboard, Typed::Line(line))),
            Err(ReadlineError::Interrupted) => Ok((keyboard, Typed::Interrupt)),
            Err(ReadlineError::Eof) => Ok((keyboard, Typed::End)),
            Err(error) => Err(error).told(|| "cannot read from the terminal"),
        }
    }

    fn remember(&mut self, text: &str) {
        // A history is a convenience: nothing is said when it can't be had.
        let _ = self.editor.add_history_entry(text);
    }

    fn close(mut self) {
        if let Some(file) = self.history.take() {
            let _ = self.editor.save_history(&file);
        }
    }
}
