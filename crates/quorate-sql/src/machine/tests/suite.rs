//! The suite of tests that every machine must pass.

use std::sync::atomic::Ordering;

use quorate_apply::suite::{self, Act, Fixture};

use super::*;
use crate::machine::SqlMachine;

pub(super) struct InFile {
    generations: Generations,
    _dir: tempfile::TempDir,
}

impl InFile {
    fn open(&self) -> SqlMachine {
        let conn = connection::open_writer(&self.generations.current(), 1 << 20).unwrap();
        SqlMachine::open(conn, &IDENTITY, &Extensions::default()).unwrap()
    }
}

impl Fixture for InFile {
    type Machine = SqlMachine;

    fn new() -> (Self, SqlMachine) {
        let dir = tempfile::tempdir().unwrap();
        let generations = Generations::open(Env::real().disk(), dir.path(), 4096, Extensions::default()).unwrap();
        let fixture = Self { generations, _dir: dir };
        let machine = fixture.open();
        (fixture, machine)
    }

    fn restart(&mut self, machine: SqlMachine) -> SqlMachine {
        drop(machine);
        self.open()
    }

    fn setup(&self) -> Vec<Command> {
        vec![command("CREATE TABLE item (key INTEGER PRIMARY KEY, value INTEGER NOT NULL)")]
    }

    fn command(&self, act: Act) -> Command {
        let (sql, params): (_, Vec<Param>) = match act {
            Act::Add(key, value, _) => (
                "INSERT INTO item VALUES (?1, ?2) ON CONFLICT DO NOTHING RETURNING key",
                vec![i64::from(key).into(), i64::from(value).into()],
            ),
            Act::Take(key) => ("DELETE FROM item WHERE key = ?1 RETURNING value", vec![i64::from(key).into()]),
            Act::Expect(key, value) => (
                "INSERT INTO item SELECT -1, NULL WHERE (SELECT value FROM item WHERE key = ?1) IS NOT ?2",
                vec![i64::from(key).into(), i64::from(value).into()],
            ),
            Act::Abort => ("INSERT OR ROLLBACK INTO item VALUES (-1, 0), (-1, 0)", vec![]),
        };
        SqlCommand::Statement(statement(sql, params)).into()
    }

    fn contents(&self, machine: &mut SqlMachine) -> String {
        let conn = machine.connection();
        format!("{:x} {:x}", logical_hash::user(conn).unwrap(), logical_hash::reserved(conn).unwrap())
    }

    /// A change is a write to the `-wal`, so the fault occurs at a COMMIT.
    fn set_room(&self, _: &mut SqlMachine, changes: Option<u64>) {
        let room = changes.map_or(0, |changes| changes + 1);
        self.generations.current().watched().faults.wal_room.store(room, Ordering::Release);
    }
}

#[test]
fn nothing_depends_on_where_batches_end() {
    suite::nothing_depends_on_where_batches_end::<InFile>();
}

#[test]
fn a_fault_is_never_an_outcome() {
    suite::a_fault_is_never_an_outcome::<InFile>();
}
