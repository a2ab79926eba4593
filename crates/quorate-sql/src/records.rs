//! The tables in which apply keeps its records: the applied row, the sessions with their outcomes, the indexes of
//! rejected entries, the users, and the requests with keys. All tables of the store are created here.
//!
//! They change in the same transaction as the data. Unsigned 64-bit numbers are stored as the signed number with the
//! same bits.

use quorate_apply::{AppliedRow, Records, RequestPlace, RequestRecord, SessionRecord};
use quorate_model::codec::{decode_user, encode_user};
use quorate_model::{REJECTIONS_MAX, StoreFault, StoreIdentity, User};
use rusqlite::{Connection, params};

use crate::machine::SqlMachine;
use crate::{classify, events, extensions, keys, locks};

pub mod applied_row;
mod requests;
pub(crate) mod sessions;

const REJECTIONS: &str = "CREATE TABLE IF NOT EXISTS _quorate_rejected (entry INTEGER PRIMARY KEY) STRICT";
const ALL_REJECTIONS: &str = "SELECT entry FROM _quorate_rejected ORDER BY entry";
const ADD_REJECTION: &str = "INSERT OR IGNORE INTO _quorate_rejected (entry) VALUES (?1)";
const TRIM_REJECTIONS: &str = "DELETE FROM _quorate_rejected
    WHERE entry NOT IN (SELECT entry FROM _quorate_rejected ORDER BY entry DESC LIMIT ?1)";

const USERS: &str =
    "CREATE TABLE IF NOT EXISTS _quorate_users (name TEXT PRIMARY KEY, user BLOB NOT NULL) STRICT, WITHOUT ROWID";
const ALL_USERS: &str = "SELECT user FROM _quorate_users ORDER BY name";
const PUT_USER: &str = "REPLACE INTO _quorate_users (name, user) VALUES (?1, ?2)";
const REMOVE_USER: &str = "DELETE FROM _quorate_users WHERE name = ?1";

/// Creates the tables, and that of enabled extensions.
pub(crate) fn create(conn: &Connection, identity: StoreIdentity) -> rusqlite::Result<AppliedRow> {
    let row = AppliedRow::new(identity);
    let transaction = conn.unchecked_transaction()?;
    let tables = [applied_row::TABLE, extensions::TABLE, REJECTIONS, USERS, requests::TABLE];
    for table in tables.into_iter().chain(sessions::TABLES).chain(of_stores()) {
        conn.execute(table, [])?;
    }
    applied_row::write(&row, |values| conn.execute(applied_row::WRITE, values))?;
    transaction.commit()?;
    Ok(row)
}

/// Creates what is missing of the stores beside SQL: since layout level 8 keys, since level 9 locks and events. Since
/// level 10 a view on keys is another one.
fn of_stores() -> impl Iterator<Item = &'static str> {
    keys::schema::all().chain(locks::schema::ALL).chain(events::schema::ALL)
}

/// Upgrades the tables from an older layout, in one transaction.
pub(crate) fn upgrade(conn: &Connection) -> rusqlite::Result<()> {
    let transaction = conn.unchecked_transaction()?;
    for (table, column, kind) in applied_row::ADDED.iter().chain(&sessions::ADDED) {
        if !has_column(conn, table, column)? {
            conn.execute(&format!("ALTER TABLE {table} ADD COLUMN {column} {kind}"), [])?;
        }
    }
    let (view, column, drop) = keys::schema::CHANGED_VIEW;
    if !has_column(conn, view, column)? {
        conn.execute(drop, [])?;
    }
    let tables = [REJECTIONS, extensions::TABLE, USERS, requests::TABLE];
    for table in tables.into_iter().chain(of_stores()) {
        conn.execute(table, [])?;
    }
    transaction.commit()
}

fn has_column(conn: &Connection, table: &str, column: &str) -> rusqlite::Result<bool> {
    conn.query_row("SELECT count(*) FROM pragma_table_info(?1) WHERE name = ?2", [table, column], |row| row.get(0))
}

impl SqlMachine {
    fn write_record(&mut self, sql: &'static str, values: &[&dyn rusqlite::ToSql]) -> Result<(), StoreFault> {
        self.db.execute(sql, values).map(drop).map_err(|error| classify::own(&error))
    }
}

impl Records for SqlMachine {
    fn applied_row(&mut self) -> Result<AppliedRow, StoreFault> {
        applied_row::read(self.connection())?
            .ok_or_else(|| StoreFault::Damaged("the table of the applied row is missing".to_owned()))
    }

    fn write_applied_row(&mut self, row: &AppliedRow) -> Result<(), StoreFault> {
        applied_row::write(row, |values| self.write_record(applied_row::WRITE, values))
    }

    fn sessions(&mut self) -> Result<Vec<(SessionRecord, u64)>, StoreFault> {
        sessions::all(self.connection()).map_err(|error| classify::own(&error))
    }

    fn write_session(&mut self, session: &SessionRecord) -> Result<(), StoreFault> {
        let SessionRecord { id, used, floor, highest, ref recent } = *session;
        let [id, used, floor, highest] = [id, used, floor, highest].map(u64::cast_signed);
        self.write_record(sessions::PUT, params![id, used, floor, highest, recent])
    }

    fn remove_session(&mut self, id: u64) -> Result<(), StoreFault> {
        self.write_record(sessions::REMOVE, params![id.cast_signed()])
    }

    fn outcome(&mut self, session: u64, sequence: u64) -> Result<Option<Option<Vec<u8>>>, StoreFault> {
        let key = params![session.cast_signed(), sequence.cast_signed()];
        self.db.first_row(sessions::OUTCOME, key, |row| row.get(0)).map_err(|error| classify::own(&error))
    }

    fn write_outcome(&mut self, session: u64, sequence: u64, outcome: Option<&[u8]>) -> Result<(), StoreFault> {
        self.write_record(sessions::KEEP, params![session.cast_signed(), sequence.cast_signed(), outcome])
    }

    fn remove_outcomes(&mut self, session: u64, upto: u64) -> Result<(), StoreFault> {
        self.write_record(sessions::FORGET, params![session.cast_signed(), upto.cast_signed()])
    }

    fn rejections(&mut self) -> Result<Vec<u64>, StoreFault> {
        let read = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0).map(i64::cast_unsigned);
        let all = |conn: &Connection| conn.prepare(ALL_REJECTIONS)?.query_map([], read)?.collect::<Result<_, _>>();
        all(self.connection()).map_err(|error| classify::own(&error))
    }

    fn write_rejection(&mut self, index: u64) -> Result<(), StoreFault> {
        self.write_record(ADD_REJECTION, params![index.cast_signed()])?;
        self.write_record(TRIM_REJECTIONS, params![i64::try_from(REJECTIONS_MAX).unwrap_or(i64::MAX)])
    }

    fn users(&mut self) -> Result<Vec<User>, StoreFault> {
        let read = |row: &rusqlite::Row<'_>| row.get::<_, Vec<u8>>(0);
        let all = |conn: &Connection| conn.prepare(ALL_USERS)?.query_map([], read)?.collect::<Result<Vec<_>, _>>();
        let encoded = all(self.connection()).map_err(|error| classify::own(&error))?;
        let damaged = |error| StoreFault::Damaged(format!("a user can't be decoded: {error}"));
        encoded.into_iter().map(|user| decode_user(&user.into()).map_err(damaged)).collect()
    }

    fn write_user(&mut self, user: &User) -> Result<(), StoreFault> {
        self.write_record(PUT_USER, params![user.name, encode_user(user).as_ref()])
    }

    fn remove_user(&mut self, name: &str) -> Result<(), StoreFault> {
        self.write_record(REMOVE_USER, params![name])
    }

    fn request(&mut self, key: &[u8]) -> Result<Option<RequestRecord>, StoreFault> {
        let found = self.db.first_row(requests::OF_KEY, params![key], requests::request);
        found.map_err(|error| classify::own(&error))
    }

    fn oldest_request(&mut self) -> Result<Option<RequestPlace>, StoreFault> {
        self.db.first_row(requests::OLDEST, [], requests::place).map_err(|error| classify::own(&error))
    }

    fn latest_request(&mut self) -> Result<Option<RequestPlace>, StoreFault> {
        self.db.first_row(requests::LATEST, [], requests::place).map_err(|error| classify::own(&error))
    }

    fn write_request(&mut self, request: &RequestRecord) -> Result<(), StoreFault> {
        let RequestRecord { place: RequestPlace { number, low, high, used }, entry, key, hash, outcome } = request;
        let [number, low, high, used, entry] = [number, low, high, used, entry].map(|number| number.cast_signed());
        let (key, outcome) = (key.as_ref(), outcome.as_ref());
        self.write_record(requests::ADD, params![number, low, high, used, entry, key, hash, outcome])
    }

    fn remove_request(&mut self, number: u64) -> Result<(), StoreFault> {
        self.write_record(requests::REMOVE, params![number.cast_signed()])
    }
}
