//! How much there is.

use hyper::StatusCode;
use quorate::Keys;
use quorate::keys::{KeyCommand, KeysReply, Kind};

use super::{KEYS, TABLES};
use crate::asked::Asked;
use crate::error::Problem;
use crate::json::Json;
use crate::message::{Answer, Content, answer};
use crate::octets::write;

/// Answers with the number of elements of a table, or of all keys.
pub(super) async fn one(keys: &Keys, asked: &Asked<'_>) -> Result<Answer, Problem> {
    asked.only(&["tb"])?;
    let mut json = Json::default();
    match asked.bytes("tb") {
        None => total(&mut json, keys).await?,
        Some(table) => {
            let measured = keys.space(TABLES).run(KeyCommand::Measure { key: table.clone() });
            let KeysReply::Size(size) = measured.await? else { return Err(Problem::NoKey) };
            json.raw("{\"table\":");
            write(&mut json, table);
            json.raw(",\"type\":").string(letter(size.kind)).raw(",\"count\":").integer(size.count);
            json.raw(",\"size\":").integer(size.bytes).raw("}");
        }
    }
    Ok(answer(StatusCode::OK, Content::Json, json.into_bytes()))
}

/// Answers with the number of all keys. Tables are listed by `GET /keys?space=1`.
pub(super) async fn all(keys: &Keys, asked: &Asked<'_>) -> Result<Answer, Problem> {
    asked.only(&[])?;
    let mut json = Json::default();
    json.raw("[");
    total(&mut json, keys).await?;
    json.raw("]");
    Ok(answer(StatusCode::OK, Content::Json, json.into_bytes()))
}

/// Answers with the number of files of a store: one, so that a client lists the keys of one.
pub(super) fn file_count(asked: &Asked<'_>) -> Result<Answer, Problem> {
    asked.only(&[])?;
    Ok(answer(StatusCode::OK, Content::Text, "1"))
}

async fn total(json: &mut Json, keys: &Keys) -> Result<(), Problem> {
    let count: u64 = keys.space(KEYS).run(KeyCommand::CountAll).await?;
    json.raw("{\"TOTALIZE\":{\"KVPAIR\":{\"count\":").integer(count).raw("}}}");
    Ok(())
}

/// Returns the letter of a table's type.
fn letter(kind: Kind) -> &'static str {
    match kind {
        Kind::Hash => "H",
        Kind::Set => "S",
        Kind::SortedSet => "Z",
        Kind::String | Kind::List => "N",
    }
}
