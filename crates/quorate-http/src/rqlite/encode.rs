//! The results of rqlite, as JSON.

use std::borrow::Cow;

use quorate::{Rows, Value};

use super::asked::Asked;
use super::run::Done;
use crate::json::Json;
use crate::work::Ran;

/// Writes the result of a statement.
pub(super) fn write(json: &mut Json, done: &Done, asked: &Asked) {
    let mut fields = Fields { json, is_first: true };
    fields.json.raw("{");
    match &done.ran {
        Err(problem) => {
            fields.field("error").string(&problem.to_string());
        }
        Ok(ran) if done.is_query && asked.associative => associative(&mut fields, &ran.rows, asked),
        Ok(ran) if done.is_query => table(&mut fields, &ran.rows, asked),
        Ok(ran) => counts(&mut fields, ran),
    }
    if asked.timings {
        fields.field("time").float(done.time.as_secs_f64());
    }
    fields.json.raw("}");
}

/// An object that is being written.
struct Fields<'a> {
    json: &'a mut Json,
    is_first: bool,
}

impl Fields<'_> {
    fn field(&mut self, name: &str) -> &mut Json {
        if !self.is_first {
            self.json.raw(",");
        }
        self.is_first = false;
        self.json.string(name).raw(":")
    }
}

/// Zeros are left out, as rqlite does.
fn counts(fields: &mut Fields<'_>, ran: &Ran) {
    if ran.last_insert_rowid != 0 {
        fields.field("last_insert_id").integer(ran.last_insert_rowid);
    }
    if ran.changes != 0 {
        fields.field("rows_affected").integer(ran.changes);
    }
}

fn table(fields: &mut Fields<'_>, rows: &Rows, asked: &Asked) {
    fields.field("columns").list(rows.columns().iter(), |json, name| {
        json.string(name);
    });
    fields.field("types").list(types(rows), |json, name| {
        json.string(&name);
    });
    if !rows.is_empty() {
        fields.field("values").list(rows, |json, row| {
            json.list(row.values(), |json, value| write_value(json, value, asked));
        });
    }
}

fn associative(fields: &mut Fields<'_>, rows: &Rows, asked: &Asked) {
    let types = fields.field("types");
    object(types, rows.columns().iter().zip(self::types(rows)), |json, name| {
        json.string(&name);
    });
    fields.field("rows").list(rows, |json, row| {
        object(json, rows.columns().iter().zip(row.values()), |json, value| write_value(json, value, asked));
    });
}

fn object<'a, T>(json: &mut Json, pairs: impl Iterator<Item = (&'a String, T)>, mut write: impl FnMut(&mut Json, T)) {
    let mut fields = Fields { json, is_first: true };
    fields.json.raw("{");
    for (name, value) in pairs {
        write(fields.field(name), value);
    }
    fields.json.raw("}");
}

/// Returns the types of the columns: the declared one, or that of the first value that is not NULL.
fn types(rows: &Rows) -> impl Iterator<Item = Cow<'_, str>> {
    let name = |value: &Value| match value {
        Value::Null => None,
        Value::Integer(_) => Some("integer"),
        Value::Real(_) => Some("real"),
        Value::Text(_) => Some("text"),
        Value::Blob(_) => Some("blob"),
    };
    let of_value =
        move |column| rows.iter().find_map(|row| row.values().get(column).and_then(name)).unwrap_or_default();
    (0..rows.columns().len()).map(move |column| match rows.decltype(column) {
        Some(declared) => declared.to_ascii_lowercase().into(),
        None => of_value(column).into(),
    })
}

fn write_value(json: &mut Json, value: &Value, asked: &Asked) {
    match value {
        Value::Null => json.raw("null"),
        Value::Integer(value) => json.integer(*value),
        Value::Real(value) => json.float(*value),
        Value::Text(value) => json.string(value),
        Value::Blob(bytes) if asked.blob_array => json.list(bytes.iter(), |json, byte| {
            json.integer(*byte);
        }),
        Value::Blob(bytes) => json.base64(bytes, true),
    };
}

/// Returns the same JSON with line breaks and indentation. Numbers keep their spelling.
pub(super) fn pretty(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len().saturating_mul(2));
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    let line = |out: &mut Vec<u8>, depth: usize| {
        out.push(b'\n');
        out.resize(out.len().saturating_add(depth.saturating_mul(4)), b' ');
    };
    let mut bytes = json.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if in_string {
            out.push(byte);
            in_string = is_escaped || byte != b'"';
            is_escaped = byte == b'\\' && !is_escaped;
            continue;
        }
        match byte {
            b'{' | b'[' => {
                out.push(byte);
                if let Some(end) = bytes.next_if(|next| matches!(next, b'}' | b']')) {
                    out.push(end);
                } else {
                    depth = depth.saturating_add(1);
                    line(&mut out, depth);
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                line(&mut out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            byte => {
                in_string = byte == b'"';
                out.push(byte);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use proptest::prelude::*;
    use serde_json::{Value as Tree, json};

    use super::*;

    fn tree() -> impl Strategy<Value = Tree> {
        let leaf = prop_oneof![
            Just(Tree::Null),
            any::<i64>().prop_map(|n| json!(n)),
            "\\PC{0,6}|[\"\\\\,:{}\\[\\]]{0,6}".prop_map(|s| json!(s))
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Tree::from),
                proptest::collection::btree_map("[a-z\"]{0,3}", inner, 0..4).prop_map(|map| json!(map)),
            ]
        })
    }

    proptest! {
        #[test]
        fn indented_json_has_the_same_meaning(tree in tree()) {
            let indented = pretty(tree.to_string().as_bytes());
            prop_assert_eq!(serde_json::from_slice::<Tree>(&indented).unwrap(), tree);
        }
    }

    #[test]
    fn results_are_written_as_rqlite_writes_them() {
        let rows = Rows::new(
            ["a".to_owned(), "b".to_owned()].into(),
            vec![Value::Null, 1.into(), "x".into(), vec![255_u8].into()],
        );
        let show = |asked: &Asked| {
            let done = Done { ran: Ok(rows.clone().into()), is_query: true, time: std::time::Duration::ZERO };
            let mut json = Json::default();
            write(&mut json, &done, asked);
            String::from_utf8(json.into_bytes()).unwrap()
        };
        let plain = r#"{"columns":["a","b"],"types":["text","integer"],"values":[[null,1],["x","/w=="]]}"#;
        assert_eq!(show(&Asked::default()), plain);
        let mut asked = Asked::default();
        (asked.associative, asked.blob_array, asked.timings) = (true, true, true);
        let associative =
            r#"{"types":{"a":"text","b":"integer"},"rows":[{"a":null,"b":1},{"a":"x","b":[255]}],"time":0.0}"#;
        assert_eq!(show(&asked), associative);
    }
}
