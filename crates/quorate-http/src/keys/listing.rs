//! Lists keys, in the order of their bytes.

use hyper::StatusCode;
use quorate::keys::{KeyCommand, KeyEntry, Order, Page, Span};

use super::encode;
use crate::asked::Asked;
use crate::error::Problem;
use crate::json::Json;
use crate::message::{Answer, Content, answer};
use crate::octets::encoded;
use crate::work::Work;

/// Answers with a page of keys.
pub(super) async fn list(work: &Work, asked: &Asked<'_>) -> Result<Answer, Problem> {
    asked.only(&["space", "prefix", "from", "to", "limit", "type", "values", "reverse"])?;
    let order = if asked.flag("reverse")? { Order::Down } else { Order::Up };
    let (span, limit, kind) = (span(asked), asked.limit()?, asked.kind()?);
    let scan = KeyCommand::Scan { span, order, limit, kind, values: asked.flag("values")? };
    let page: Page<KeyEntry> = work.sql().keys().space(asked.space()?).run(scan).await?;
    let mut json = Json::default();
    json.raw("{\"keys\":").list(page.rows, encode::entry);
    let name = if order == Order::Up { "from" } else { "to" };
    let next = page.next.map(|next| encoded(&next));
    asked.write_next(&mut json, next.as_deref().map(|next| (name, next)));
    Ok(answer(StatusCode::OK, Content::Json, json.into_bytes()))
}

/// Returns which keys are asked for: those with the prefix, from the first on, and below the last.
fn span(asked: &Asked<'_>) -> Span {
    let Span { from, to } = asked.bytes("prefix").map_or(Span::ALL, Span::prefix);
    let from = asked.bytes("from").cloned().into_iter().fold(from, Ord::max);
    let to = to.into_iter().chain(asked.bytes("to").cloned()).min();
    Span { from, to }
}
