//! The statements of a request, from JSON or from plain text.
//!
//! A text parameter stays a text, whatever it looks like; rqlite makes a blob of texts such as `x'AB'`. A list of
//! numbers from 0 to 255 is a blob.

use hyper::header::CONTENT_TYPE;
use quorate::Value;
use serde_json::Value as Json;

use crate::error::Problem;
use crate::message::Request;
use crate::options::STATEMENTS_MAX;
use crate::text::bind;
use crate::work::Bound;

/// A statement, with its parameters as the client gave them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Statement {
    pub(super) sql: String,
    by_position: Vec<Value>,
    by_name: Vec<(String, Value)>,
}

impl Statement {
    /// Returns a statement without parameters.
    pub(super) fn plain(sql: String) -> Self {
        Self { sql, by_position: Vec::new(), by_name: Vec::new() }
    }

    pub(super) fn bound(self) -> Result<Bound, Problem> {
        let params = bind(&self.sql, self.by_position, self.by_name)?;
        Ok((self.sql, params))
    }
}

/// Returns the statements of a body.
pub(super) fn statements(request: &Request) -> Result<Vec<Statement>, Problem> {
    let content = request.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if content.trim_start().starts_with("text/plain") {
        let text = std::str::from_utf8(&request.body).map_err(|error| Problem::malformed(error.to_string()))?;
        return Ok(vec![Statement::plain(text.to_owned())]);
    }
    of_json(&request.body)
}

fn of_json(body: &[u8]) -> Result<Vec<Statement>, Problem> {
    let body: Vec<Json> = serde_json::from_slice(body).map_err(|error| Problem::malformed(error.to_string()))?;
    if body.is_empty() || body.len() > STATEMENTS_MAX {
        return Err(Problem::malformed(format!("give from 1 to {STATEMENTS_MAX} statements, as a list")));
    }
    body.into_iter().map(statement).collect()
}

/// Reads any bytes as statements, for fuzzing; returns how many they are.
pub(crate) fn fuzz_statements(body: &[u8]) -> usize {
    of_json(body).map_or(0, |statements| statements.into_iter().filter(|one| one.clone().bound().is_ok()).count())
}

fn statement(json: Json) -> Result<Statement, Problem> {
    let parts = match json {
        Json::String(sql) => return Ok(Statement::plain(sql)),
        Json::Array(parts) => parts,
        _ => return Err(Problem::malformed("a statement is a string, or a list of a string and parameters")),
    };
    let mut parts = parts.into_iter();
    let Some(Json::String(sql)) = parts.next() else {
        return Err(Problem::malformed("the first item of a statement is its text"));
    };
    let mut statement = Statement::plain(sql);
    for part in parts {
        match part {
            Json::Object(named) => {
                for (name, part) in named {
                    statement.by_name.push((name, value(part)?));
                }
            }
            part => statement.by_position.push(value(part)?),
        }
    }
    Ok(statement)
}

fn value(json: Json) -> Result<Value, Problem> {
    Ok(match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Integer(value.into()),
        Json::Number(number) => match number.as_i64() {
            Some(value) => Value::Integer(value),
            None => Value::Real(number.as_f64().ok_or_else(|| Problem::malformed(format!("the number {number}")))?),
        },
        Json::String(value) => Value::Text(value),
        Json::Array(bytes) => {
            let byte = |json: &Json| u8::try_from(json.as_u64()?).ok();
            let bytes: Option<Vec<u8>> = bytes.iter().map(byte).collect();
            Value::Blob(
                bytes.ok_or_else(|| Problem::malformed("a list as a parameter is a blob: bytes from 0 to 255"))?.into(),
            )
        }
        Json::Object(_) => return Err(Problem::malformed("a value by name can't be an object")),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parameters_keep_their_types() {
        let body = br#"["a", ["b", 9223372036854775807, 1.0, 18446744073709551615, "x'AB'", [0, 255], null, true],
            ["c", {"n": 1}]]"#;
        let read = of_json(body).unwrap();
        let values = [
            Value::Integer(i64::MAX),
            Value::Real(1.0),
            Value::Real(18_446_744_073_709_551_615.0),
            Value::Text("x'AB'".to_owned()),
            Value::Blob(vec![0, 255].into()),
            Value::Null,
            Value::Integer(1),
        ];
        assert_eq!(read[1].by_position, values);
        assert_eq!(read[2].by_name, [("n".to_owned(), Value::Integer(1))]);
        assert_eq!(read[0], Statement::plain("a".to_owned()));
    }

    #[test]
    fn bodies_that_are_no_statements_are_refused() {
        for body in
            ["", "{}", "[]", "[1]", "[[]]", "[[1]]", "[[\"a\", [256]]]", "[[\"a\", {\"b\": {}}]]", "[[\"a\", [1.5]]]"]
        {
            assert!(of_json(body.as_bytes()).is_err(), "{body}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_statements_or_an_error(body in any::<Vec<u8>>(), text in "[\\[\\]{}\",:a0-9 ?-]{0,40}") {
            let _ = (fuzz_statements(&body), fuzz_statements(text.as_bytes()));
        }
    }
}
