//! Hostile statements by number. A statement depends on the seed and its number alone, so that any part of a run can be
//! repeated.

use clap::ValueEnum;
use quorate::Value;
use quorate_env::Rng;
use serde::{Deserialize, Serialize};

use crate::harness::dice::Dice;

mod arguments;
mod control;
mod deep;
mod functions;
mod grammar;
mod heavy;
mod issue;
mod names;

pub use functions::{Function, functions};
pub use names::quote;

/// A statement, and how it is sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hostile {
    pub number: u64,
    pub category: Category,
    pub door: Door,
    pub sql: String,
    /// How many parameters are bound.
    #[serde(default)]
    pub parameters: usize,
}

/// The way in which a statement is hostile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Category {
    /// Statements that are known to have ended or blocked a cluster once.
    Issue,
    /// Functions with extreme arguments.
    Functions,
    /// Odd names.
    Names,
    /// Deep and wide statements.
    Deep,
    /// Endless and huge work.
    Heavy,
    /// Statements that are not about rows: pragmas, transactions, other databases.
    Control,
    /// Random walks through SQLite's syntax diagrams.
    Grammar,
}

/// The call that sends a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Door {
    /// A query of one node's applied state.
    Local,
    /// A linearizable query.
    Linearizable,
    Execute,
    Returning,
    /// A batch, between two statements that succeed.
    Batch,
    Interactive,
}

impl Door {
    /// Returns whether the call may change something.
    pub fn writes(self) -> bool {
        !matches!(self, Self::Local | Self::Linearizable)
    }
}

impl Category {
    /// All categories, with how many of a thousand statements belong to each.
    pub const ALL: [(Self, u64); 7] = [
        (Self::Grammar, 650),
        (Self::Functions, 150),
        (Self::Names, 110),
        (Self::Deep, 45),
        (Self::Control, 35),
        (Self::Heavy, 6),
        (Self::Issue, 4),
    ];

    fn draw(dice: &Dice) -> Self {
        let mut left = dice.below(Self::ALL.iter().map(|(_, share)| share).sum());
        for (category, share) in Self::ALL {
            if left < share {
                return category;
            }
            left -= share;
        }
        Self::Grammar
    }
}

impl Door {
    fn read(dice: &Dice) -> Self {
        dice.one(&[Self::Local, Self::Linearizable])
    }

    fn write(dice: &Dice) -> Self {
        match dice.below(100) {
            0..70 => Self::Execute,
            70..85 => Self::Returning,
            85..95 => Self::Batch,
            _ => Self::Interactive,
        }
    }
}

/// A statement before it has a number.
pub struct Draft {
    pub writes: bool,
    pub sql: String,
    pub parameters: usize,
}

impl Draft {
    pub fn read(sql: impl Into<String>) -> Self {
        Self { writes: false, sql: sql.into(), parameters: 0 }
    }

    pub fn write(sql: impl Into<String>) -> Self {
        Self { writes: true, sql: sql.into(), parameters: 0 }
    }
}

/// All statements of a seed.
pub struct Corpus {
    seed: u64,
    only: Option<Category>,
    functions: Vec<Function>,
}

impl Corpus {
    pub fn new(seed: u64, only: Option<Category>, functions: Vec<Function>) -> Self {
        Self { seed, only, functions }
    }

    /// Returns the statement with this number. The statements of the category `Issue` come first, each once.
    pub fn statement(&self, number: u64) -> Hostile {
        /// Spreads the seeds, so that neighbouring seeds share no numbers.
        const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
        let dice = Dice(Rng::from_seed(self.seed.wrapping_mul(SPREAD) ^ number));
        let first = number < issue::STATEMENTS.len() as u64;
        let category = self.only.unwrap_or(if first { Category::Issue } else { Category::draw(&dice) });
        let draft = match category {
            Category::Issue => issue::statement(number),
            Category::Functions => functions::statement(&dice, &self.functions),
            Category::Names => names::statement(&dice),
            Category::Deep => deep::statement(&dice),
            Category::Heavy => heavy::statement(&dice),
            Category::Control => control::statement(&dice),
            Category::Grammar => grammar::statement(&dice),
        };
        let Draft { writes, sql, parameters } = draft;
        // Some statements are sent by the wrong call.
        let door = if writes != dice.chance(2) { Door::write(&dice) } else { Door::read(&dice) };
        Hostile { number, category, door, sql, parameters }
    }
}

/// Returns the parameters of a statement.
pub fn parameters(count: usize) -> Vec<Value> {
    let one = |number: usize| match number % 5 {
        0 => Value::Integer(i64::MAX),
        1 => Value::Text("%a_*[".to_owned()),
        2 => Value::Real(f64::INFINITY),
        3 => Value::from(vec![0xff, 0, 0xc0]),
        _ => Value::Null,
    };
    (0..count).map(one).collect()
}
