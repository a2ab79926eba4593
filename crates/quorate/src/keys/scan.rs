//! Pages of keys and elements.
//!
//! A page starts after the last row of the one before it, so no row comes twice, and none is left out that was there
//! all the time. The pages together are no snapshot: each sees what is there when it is read.

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::try_unfold;
use quorate_model::keys::{Collection, ElementCommand, KeyCommand, KeyEntry, Kind, Order, Page, Span};

use super::call::as_call;
use super::{IntoBytes, Keys, KeysCall};
use crate::error::Error;

/// The rows of a page, unless the caller asks for another number.
const PAGE_ROWS: u64 = 1_000;

/// Returns keys in the order of their bytes. Awaited, it returns the first page.
///
/// ```
/// # async fn f(keys: quorate::Keys) -> Result<(), quorate::Error> {
/// use std::pin::pin;
/// use futures_util::TryStreamExt;
///
/// let mut pages = pin!(keys.scan().prefix("user:").pages());
/// while let Some(users) = pages.try_next().await? {
///     println!("{} keys", users.len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a scan does nothing until it is awaited, or its pages are"]
pub struct Scan {
    keys: Keys,
    span: Span,
    order: Order,
    limit: u64,
    kind: Option<Kind>,
    values: bool,
}

impl Scan {
    pub(super) fn new(keys: Keys) -> Self {
        Self { keys, span: Span::ALL, order: Order::Up, limit: PAGE_ROWS, kind: None, values: false }
    }

    /// Only keys that start with this.
    pub fn prefix(self, prefix: impl IntoBytes) -> Self {
        Self { span: Span::prefix(&prefix.into_bytes()), ..self }
    }

    /// Only keys from `from` on, and below `to`.
    pub fn range(self, from: impl IntoBytes, to: impl IntoBytes) -> Self {
        Self { span: Span { from: from.into_bytes(), to: Some(to.into_bytes()) }, ..self }
    }

    /// From the last key to the first.
    pub fn reverse(self) -> Self {
        Self { order: Order::Down, ..self }
    }

    /// Only keys that hold this.
    pub fn kind(self, kind: Kind) -> Self {
        Self { kind: Some(kind), ..self }
    }

    /// Returns the values of strings, too.
    pub fn values(self) -> Self {
        Self { values: true, ..self }
    }

    /// The most keys of a page, at least 1. The default is 1,000.
    pub fn limit(self, limit: u64) -> Self {
        Self { limit, ..self }
    }

    /// Returns all pages, each when it is asked for.
    pub fn pages(self) -> impl Stream<Item = Result<Vec<KeyEntry>, Error>> + Send {
        pages(self, |scan, next| match scan.order {
            Order::Up => scan.span.from = next,
            Order::Down => scan.span.to = Some(next),
        })
    }

    fn call(self) -> KeysCall<Page<KeyEntry>> {
        let Self { keys, span, order, limit, kind, values } = self;
        keys.run(KeyCommand::Scan { span, order, limit, kind, values })
    }
}

as_call!(Scan => Page<KeyEntry>);

/// Returns the elements of a hash or a set in the order of their fields. Awaited, it returns the first page.
#[derive(Clone, Debug)]
#[must_use = "a scan does nothing until it is awaited, or its pages are"]
pub struct ElementScan {
    keys: Keys,
    of: Collection,
    key: Bytes,
    from: Bytes,
    limit: u64,
}

impl ElementScan {
    pub(super) fn new(keys: Keys, of: Collection, key: Bytes) -> Self {
        Self { keys, of, key, from: Bytes::new(), limit: PAGE_ROWS }
    }

    /// Only elements from this field on.
    pub fn starting_at(self, field: impl IntoBytes) -> Self {
        Self { from: field.into_bytes(), ..self }
    }

    /// The most elements of a page, at least 1. The default is 1,000.
    pub fn limit(self, limit: u64) -> Self {
        Self { limit, ..self }
    }

    /// Returns all pages, each when it is asked for.
    pub fn pages(self) -> impl Stream<Item = Result<Vec<(Bytes, Bytes)>, Error>> + Send {
        pages(self, |scan, next| scan.from = next)
    }

    fn call(self) -> KeysCall<Page<(Bytes, Bytes)>> {
        let Self { keys, of, key, from, limit } = self;
        keys.run(ElementCommand::Scan { of, key, from, limit })
    }
}

as_call!(ElementScan => Page<(Bytes, Bytes)>);

/// Returns the pages of a scan, which `go_on` lets start where the last page says.
fn pages<S, R>(scan: S, go_on: fn(&mut S, Bytes)) -> impl Stream<Item = Result<Vec<R>, Error>> + Send
where
    S: IntoFuture<Output = Result<Page<R>, Error>> + Clone + Send,
    S::IntoFuture: Send,
    R: Send,
{
    try_unfold(Some(scan), move |scan| async move {
        let Some(mut scan) = scan else { return Ok(None) };
        let Page { rows, next } = scan.clone().await?;
        let rest = next.map(|next| {
            go_on(&mut scan, next);
            scan
        });
        Ok(Some((rows, rest)))
    })
}
