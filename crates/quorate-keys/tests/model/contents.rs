//! What tables hold, as the model has it.

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_keys::*;

use super::{Entry, Field, Held, Name};
use crate::common::{ALL_PLACES, collect};

/// Returns what the tables hold, as the model has it.
pub fn contents(tables: &mut Memory) -> BTreeMap<Name, Entry> {
    let rows: Vec<_> = tables.rows().cloned().collect();
    let entry = |(space, key, row): (Space, Bytes, KeyRow)| {
        let fields = || {
            let elements = collect!(tables, elements, row.id, &Span::ALL, Order::Up);
            let field = |element: Element| Field {
                value: element.value,
                version: element.version,
                expires_at: element.expires_at,
            };
            elements.into_iter().map(|(name, element)| (name, field(element))).collect()
        };
        let held = match row.kind {
            Kind::String => Held::String(row.value.clone()),
            Kind::Hash => Held::Hash({ fields }()),
            Kind::Set => Held::Set({ fields }()),
            Kind::SortedSet => {
                let places = collect!(tables, members, row.id, &ALL_PLACES, Order::Up);
                let expiries = collect!(tables, expiries, row.id, Order::Up);
                Held::SortedSet(
                    places.into_iter().map(|(score, member)| (member, score.get())).collect(),
                    expiries.into_iter().map(|(at, member)| (member, at)).collect(),
                )
            }
            Kind::List => {
                let items = collect!(tables, items, row.id, &Span { from: i64::MIN, to: None }, Order::Up);
                Held::List(items.into_iter().map(|(_, value)| value).collect())
            }
        };
        ((space, key), Entry { held, version: row.version, expires_at: row.expires_at })
    };
    rows.into_iter().map(entry).collect()
}
