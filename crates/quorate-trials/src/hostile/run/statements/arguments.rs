//! Generates extreme values, as SQL expressions: long, deep, huge, malformed.

use crate::harness::dice::Dice;

/// Lengths at the edges of limits: of patterns, of JSON's depth, of a value, of an int.
const LENGTHS: [u64; 16] = [
    0,
    1,
    2,
    999,
    1000,
    1001,
    10_000,
    24_999,
    50_001,
    300_000,
    1_500_000,
    8_000_000,
    16_777_215,
    16_777_216,
    16_777_217,
    2_147_483_647,
];
const NUMBERS: [&str; 24] = [
    "0",
    "1",
    "-1",
    "2",
    "7",
    "100",
    "999999",
    "2147483647",
    "-2147483648",
    "2147483648",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775807-1",
    "1e308",
    "-1e308",
    "1e999",
    "-1e999",
    "1e-320",
    "-0.0",
    "0.5",
    "1e18",
    "9.3e18",
    "1e999 - 1e999",
    "0x7fffffffffffffff",
];
const PLAIN: [&str; 30] = [
    "NULL",
    "''",
    "x''",
    "'a'",
    "'%'",
    "'_'",
    "'*'",
    "'['",
    "'[^'",
    "'[]]'",
    "'\\'",
    "x'00'",
    "x'ff'",
    "CAST(x'ff80fe' AS TEXT)",
    "CAST(x'6100620063' AS TEXT)",
    "CAST(x'c0af' AS TEXT)",
    "CAST(x'eda080' AS TEXT)",
    "char(0)",
    "char(0x10ffff, 0xd800)",
    "'NaN'",
    "'inf'",
    "'0x10'",
    "'1e5'",
    "' 12abc'",
    "'é𝔘́'",
    "b",
    "e",
    "d",
    "a",
    "rowid",
];
const DATES: [&str; 26] = [
    "'now'",
    "'9999-12-31 23:59:59.999'",
    "'-4713-11-24 12:00:00'",
    "'0000-00-00'",
    "'2000-02-30'",
    "'24:00:00'",
    "'2000-01-01T00:00+14:00'",
    "'2000-01-01T00:00-99:99'",
    "5373484.5",
    "-1e10",
    "1e15",
    "'+1e10 years'",
    "'-99999 months'",
    "'+9223372036854775807 days'",
    "'weekday 9'",
    "'weekday 6'",
    "'localtime'",
    "'utc'",
    "'julianday'",
    "'unixepoch'",
    "'auto'",
    "'subsec'",
    "'start of month'",
    "'ceiling'",
    "'+0001-11-30'",
    "'%s %f %J %W'",
];
const FORMATS: [&str; 24] = [
    "'%99999999d'",
    "'%.99999999f'",
    "'%2147483647s'",
    "'%*d'",
    "'%.*f'",
    "'%!.999999999f'",
    "'%s%s%s%s'",
    "'%n'",
    "'%Q'",
    "'%w'",
    "'%q'",
    "'%.*c'",
    "'%,d'",
    "'%!s'",
    "'%-50000000s'",
    "'%#!.26g'",
    "'%.16777216c'",
    "'%z'",
    "'%'",
    "'%-+0 #!,x'",
    "'%1$s'",
    "'%.1000000e'",
    "'%llllld'",
    "'%016777217d'",
];
const PATHS: [&str; 12] = [
    "'$'",
    "'$.a'",
    "'$[0]'",
    "'$[#-1]'",
    "'$[99999999999999999999]'",
    "'$.\"\"'",
    "'$..a'",
    "'$['",
    "'a'",
    "'$[#]'",
    "'$.a[0].b[1]'",
    "'$[#-99999999999]'",
];
/// The pieces of long texts.
const PIECES: [&str; 12] = ["a", "%a", "*a", "_", "?", "[a-z]", "[", "%", "*", "a*b", " the", "-"];

/// Returns a length, seldom a very large one.
fn length(dice: &Dice) -> u64 {
    let edge = dice.one(&LENGTHS);
    if edge > 1_000_000 && dice.chance(60) { dice.below(60_000) } else { edge }
}

/// Returns a long text.
pub fn long(dice: &Dice) -> String {
    let n = length(dice);
    match dice.below(12) {
        0..4 => format!("printf('%.*c',{n},'{}')", dice.one(&["a", "%", "*", "[", "_", "0", "''", "é"])),
        4 => format!("zeroblob({n})"),
        5 => format!("randomblob({n})"),
        6 => format!("hex(zeroblob({}))", n / 2),
        7 => format!("CAST(zeroblob({n}) AS TEXT)"),
        8 => format!("printf('%.*c',{n},'a')||{}", dice.one(&["'b'", "x'01'", "char(0)"])),
        9 => format!("'%'||printf('%.*c',{},'a')||'b'", n.min(60_000)),
        _ => {
            let piece = dice.one(&PIECES);
            format!("replace(printf('%.*c',{},'x'),'x','{piece}')", n.min(9_000_000))
        }
    }
}

/// Returns JSON, as text or as a blob.
pub fn json(dice: &Dice) -> String {
    let depth = dice.one(&[3, 998, 999, 1000, 1001, 1002, 2001, 100_000, 5_000_000]);
    let wide = dice.one(&[2, 1000, 100_000, 3_000_000]);
    let text = match dice.below(10) {
        0 | 1 => format!("printf('%.*c%.*c',{depth},'[',{depth},']')"),
        2 => format!("replace(printf('%.*c',{},'a'),'a','{{\"a\":')||1||printf('%.*c',{0},'}}')", depth.min(2_000_000)),
        3 | 4 => format!("'['||replace(printf('%.*c',{wide},'a'),'a','1,')||'1]'"),
        5 => format!("'{{'||replace(printf('%.*c',{},'a'),'a','\"k\":[],')||'\"z\":1}}'", wide.min(1_500_000)),
        6 => format!("'\"'||replace(printf('%.*c',{},'a'),'a','\\u0061')||'\"'", wide.min(2_000_000)),
        7 => format!("printf('%.*c',{depth},'[')"),
        8 => {
            dice.one(&["'{a:0x1f,/*c*/b:+Infinity,}'", "'[1e999,-1e999,NaN]'", "'\"\\ud800\"'", "'1e'", "'{]'"]).into()
        }
        _ => dice.one(&["x'0b'", "x'fc'", "x'cb00'", "x'ff'", "x'dbffffffffff00'", "x'7c'", "x'1361'"]).into(),
    };
    if dice.chance(20) { format!("jsonb({text})") } else { text }
}

/// Returns an argument of any kind.
pub fn any(dice: &Dice) -> String {
    match dice.below(20) {
        0..5 => dice.one(&PLAIN).to_owned(),
        5..9 => dice.one(&NUMBERS).to_owned(),
        9..14 => long(dice),
        14..16 => json(dice),
        16 => dice.one(&PATHS).to_owned(),
        17 => dice.one(&FORMATS).to_owned(),
        18 => dice.one(&DATES).to_owned(),
        _ => {
            format!("'$'||replace(printf('%.*c',{},'x'),'x','{}')", length(dice).min(900_000), dice.one(&["[0]", ".a"]))
        }
    }
}

/// Returns an argument that fits the name of a function, so that it passes the function's first check.
pub fn fitting(dice: &Dice, function: &str, position: usize) -> String {
    let is = |part: &str| function.contains(part);
    if dice.chance(25) {
        return any(dice);
    }
    if is("json") || is("->") {
        return if position == 0 { json(dice) } else { dice.one(&PATHS).to_owned() };
    }
    if is("date") || is("time") || is("julian") || is("epoch") {
        let format = position == 0 && is("strf");
        return if format { "'%d %f %H %j %J %s %w %Y %%'".into() } else { dice.one(&DATES).to_owned() };
    }
    if (is("printf") || is("format")) && position == 0 {
        return dice.one(&FORMATS).to_owned();
    }
    if is("like") || is("glob") || is("instr") || is("replace") || is("trim") || is("concat") || is("regexp") {
        return long(dice);
    }
    if is("substr") || is("char") || is("round") || is("abs") || is("nth") || is("ntile") || is("random") {
        return if position == 0 { any(dice) } else { dice.one(&NUMBERS).to_owned() };
    }
    any(dice)
}
