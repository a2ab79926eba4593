//! Reads the segments of a plan in their order, with the next ones on their way.
//!
//! Invariant: memory is bounded by [`AHEAD`] encoded segments and a decoded one.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use quorate_env::{Env, JoinHandle};

use super::{Plan, SegmentObject};
use crate::entries::Segment;
use crate::error::ArchiveError;
use crate::objects::Objects;
use crate::reading::whole;

/// How many segments are asked for before they are needed.
const AHEAD: usize = 8;

/// The segments of a plan that were not read yet.
pub struct Segments<'a> {
    plan: &'a Plan,
    env: Env,
    objects: Arc<dyn Objects>,
    /// The segments that were not asked for yet.
    rest: std::slice::Iter<'a, SegmentObject>,
    coming: VecDeque<(&'a SegmentObject, JoinHandle<Result<Bytes, ArchiveError>>)>,
}

impl<'a> Segments<'a> {
    pub(super) fn of(plan: &'a Plan, env: &Env, objects: &Arc<dyn Objects>) -> Self {
        let (env, objects) = (env.clone(), Arc::clone(objects));
        Self { plan, env, objects, rest: plan.segments.iter(), coming: VecDeque::new() }
    }

    /// Reads the next segment; `None` after the last one.
    pub async fn next(&mut self) -> Result<Option<(&'a SegmentObject, Segment)>, ArchiveError> {
        while self.coming.len() < AHEAD
            && let Some(object) = self.rest.next()
        {
            let (objects, key, outage_max) = (Arc::clone(&self.objects), object.key.clone(), self.plan.outage_max);
            self.coming.push_back((object, self.env.spawn(async move { whole(&*objects, &key, outage_max).await })));
        }
        let Some((object, bytes)) = self.coming.pop_front() else { return Ok(None) };
        let bytes = bytes.await.map_err(|_| ArchiveError::Closed)??;
        let decoded = self.env.blocking(move || Segment::decode(&bytes)).await.ok_or(ArchiveError::Closed)?;
        let found = decoded.map_err(|error| ArchiveError::damaged(&object.key, error.to_string()))?;
        let expected = (self.plan.cluster, self.plan.epoch, object.first, object.last);
        if (found.cluster, found.epoch, found.first, found.last()) != expected {
            return Err(ArchiveError::damaged(&object.key, "it holds other entries than its name says"));
        }
        Ok(Some((object, found)))
    }
}
