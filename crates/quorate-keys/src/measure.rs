//! Estimates of what keys take.

use std::ops::ControlFlow;

use bytes::Bytes;
use quorate_model::keys::{KeySize, KeysReply, Kind, Order, Span};

use crate::keys::{Keys, ReplyBytes};
use crate::limits::SAMPLED_ROWS_MAX;
use crate::ranges::SCORE_BYTES;
use crate::tables::Tables;

/// The first rows of a collection.
#[derive(Default)]
struct Sample {
    rows: u64,
    bytes: u64,
    read: ReplyBytes,
}

impl Sample {
    fn add(&mut self, bytes: usize) -> ControlFlow<()> {
        self.rows += 1;
        self.bytes += bytes as u64;
        let flow = self.read.add(bytes);
        if self.rows >= SAMPLED_ROWS_MAX { ControlFlow::Break(()) } else { flow }
    }
}

impl<T: Tables> Keys<'_, T> {
    pub(crate) fn measure(&mut self, key: &Bytes) -> Result<KeysReply, T::Error> {
        let Some(row) = self.find(key)?.map(|open| open.row) else { return Ok(KeysReply::Missing) };
        self.context.charge_range(SAMPLED_ROWS_MAX)?;
        let (tables, mut sample) = (&mut *self.tables, Sample::default());
        match row.kind {
            Kind::String => {}
            Kind::Hash | Kind::Set => tables.elements(row.id, &Span::ALL, Order::Up, &mut |(field, element)| {
                sample.add(field.len() + element.value.len())
            })?,
            Kind::SortedSet => {
                tables.scores(row.id, &Span::ALL, &mut |(member, _)| sample.add(member.len() + SCORE_BYTES))?
            }
            Kind::List => {
                let all = Span { from: row.head, to: None };
                tables.items(row.id, &all, Order::Up, &mut |(_, value)| sample.add(value.len()))?
            }
        }
        self.context.charge_bytes(sample.bytes as usize)?;
        let rows = sample.bytes.saturating_mul(row.count) / sample.rows.max(1);
        let bytes = (key.len() + row.value.len()) as u64;
        Ok(KeysReply::Size(KeySize { kind: row.kind, count: row.count, bytes: bytes.saturating_add(rows) }))
    }
}
