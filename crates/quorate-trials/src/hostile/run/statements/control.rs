//! Generates statements that are not about rows: pragmas, transactions, other databases, statistics, and text that is
//! not a statement.

use super::{Draft, arguments, names};
use crate::harness::dice::Dice;

/// SQLite's pragmas.
const PRAGMAS: &str = "analysis_limit application_id auto_vacuum automatic_index busy_timeout cache_size cache_spill \
    case_sensitive_like cell_size_check checkpoint_fullfsync collation_list compile_options \
    count_changes data_store_directory data_version database_list default_cache_size defer_foreign_keys \
    empty_result_callbacks encoding foreign_key_check foreign_key_list foreign_keys freelist_count \
    full_column_names fullfsync function_list hard_heap_limit ignore_check_constraints \
    incremental_vacuum index_info index_list index_xinfo integrity_check journal_mode journal_size_limit \
    legacy_alter_table legacy_file_format locking_mode max_page_count mmap_size module_list optimize \
    page_count page_size parser_trace pragma_list query_only quick_check read_uncommitted \
    recursive_triggers reverse_unordered_selects schema_version secure_delete short_column_names \
    shrink_memory soft_heap_limit stats synchronous table_info table_list table_xinfo temp_store \
    temp_store_directory threads trusted_schema user_version vdbe_addoptrace vdbe_debug vdbe_listing \
    vdbe_trace wal_autocheckpoint wal_checkpoint writable_schema nonsense";
/// Arguments of pragmas.
const VALUES: [&str; 22] = [
    "0",
    "1",
    "-1",
    "2",
    "ON",
    "OFF",
    "100",
    "2147483647",
    "9223372036854775807",
    "1e10",
    "'x'",
    "NULL",
    "DELETE",
    "WAL",
    "MEMORY",
    "EXCLUSIVE",
    "FULL",
    "TRUNCATE",
    "'UTF-16'",
    "t1",
    "t2",
    "1024",
];

/// Returns a statement of one of the kinds.
pub fn statement(dice: &Dice) -> Draft {
    match dice.below(10) {
        0..5 => pragma(dice),
        5..7 => Draft::write(transaction(dice)),
        7 => Draft::write(files(dice)),
        8 => no_statement(dice),
        _ => explain(dice),
    }
}

fn pragma(dice: &Dice) -> Draft {
    let pragmas: Vec<&str> = PRAGMAS.split_whitespace().collect();
    let pragma = dice.one(&pragmas);
    let schema = dice.one(&["", "", "", "main.", "temp.", "nowhere."]);
    let value = if dice.chance(80) { dice.one(&VALUES).to_owned() } else { names::name(dice) };
    let sql = match dice.below(8) {
        0 | 1 => format!("PRAGMA {schema}{pragma}"),
        2 | 3 => format!("PRAGMA {schema}{pragma} = {value}"),
        4 | 5 => format!("PRAGMA {schema}{pragma}({value})"),
        6 => format!("SELECT * FROM pragma_{pragma}({value})"),
        _ => format!("SELECT count(*) FROM t2, pragma_{pragma}"),
    };
    if dice.chance(50) { Draft::read(sql) } else { Draft::write(sql) }
}

fn transaction(dice: &Dice) -> String {
    let name = if dice.chance(50) { "s".to_owned() } else { names::name(dice) };
    match dice.below(12) {
        0 => dice.one(&["BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE TRANSACTION", "BEGIN CONCURRENT"]).to_owned(),
        1 => dice.one(&["COMMIT", "END", "END TRANSACTION"]).to_owned(),
        2 => dice.one(&["ROLLBACK", "ROLLBACK TRANSACTION"]).to_owned(),
        3 => format!("ROLLBACK TO {name}"),
        4 => format!("SAVEPOINT {name}"),
        5 => format!("RELEASE SAVEPOINT {name}"),
        6 => "INSERT OR ROLLBACK INTO t2 (id, n) VALUES (1, 1)".to_owned(),
        7 => "INSERT OR FAIL INTO t2 (id, n) SELECT 2000 - a, 1 FROM t1 UNION ALL SELECT 1, 1".to_owned(),
        8 => "CREATE TRIGGER IF NOT EXISTS rb AFTER INSERT ON t3 BEGIN SELECT raise(ROLLBACK, 'no'); END".to_owned(),
        9 => "INSERT OR REPLACE INTO t3 VALUES ('rb', 1)".to_owned(),
        10 => "DELETE FROM t3; DELETE FROM pad".to_owned(),
        _ => "INSERT INTO pad VALUES (changes() + total_changes() + last_insert_rowid())".to_owned(),
    }
}

fn files(dice: &Dice) -> String {
    let name = names::name(dice);
    match dice.below(10) {
        0 => format!("ATTACH ':memory:' AS {name}"),
        1 => format!("ATTACH {} AS other", arguments::any(dice)),
        2 => format!("DETACH {name}"),
        3 => "VACUUM".to_owned(),
        4 => "VACUUM INTO '/tmp/hostile.db'".to_owned(),
        5 => format!("ANALYZE {}", dice.one(&["", "t1", "main", "i1", "sqlite_schema"])),
        6 => format!("REINDEX {}", dice.one(&["", "t1", "NOCASE", "i1", "main.t2"])),
        7 => "CREATE TEMP TABLE hidden (a)".to_owned(),
        8 => "CREATE TEMP VIEW hidden AS SELECT 1".to_owned(),
        _ => "SELECT load_extension('/tmp/hostile.so')".to_owned(),
    }
}

fn no_statement(dice: &Dice) -> Draft {
    let many = dice.one(&[10, 1000, 1_048_570, 1_048_577, 5_000_000]);
    Draft::write(match dice.below(12) {
        0 => String::new(),
        1 => ";".repeat(many),
        2 => " ".repeat(many),
        3 => format!("/*{}*/ DELETE FROM pad", "*".repeat(many)),
        4 => format!("--{}\nDELETE FROM pad", "-".repeat(many)),
        5 => "DELETE FROM pad /* open".to_owned(),
        6 => "DELETE FROM pad WHERE b = 'open".to_owned(),
        7 => "DELETE FROM pad\0 WHERE b = 1".to_owned(),
        8 => "(".repeat(many),
        9 => format!("INSERT INTO pad VALUES ('{}')", "a".repeat(many)),
        10 => format!("INSERT INTO pad VALUES (x'{}')", "ab".repeat(many / 2)),
        _ => format!("SELECT 1{}", "9".repeat(many)),
    })
}

fn explain(dice: &Dice) -> Draft {
    let plan = dice.one(&["EXPLAIN ", "EXPLAIN QUERY PLAN ", "EXPLAIN EXPLAIN "]);
    let statement = dice.one(&[
        "SELECT * FROM t1, t2, t3, tree ORDER BY 1, 2",
        "INSERT INTO t1 (b) VALUES (1)",
        "DELETE FROM tree",
        "VACUUM",
        "CREATE TABLE x (a)",
        "DROP TABLE t1",
        "PRAGMA user_version = 3",
        "BEGIN",
        "ATTACH 'x' AS y",
        "SELECT * FROM v3",
    ]);
    if dice.chance(60) { Draft::read(format!("{plan}{statement}")) } else { Draft::write(format!("{plan}{statement}")) }
}
