//! What the handles to other stores have of a handle to a database: they are that handle, with other methods.

use futures_util::future::BoxFuture;
use quorate_env::Env;
use quorate_model::Topic;

use super::Sql;
use crate::error::Error;
use crate::events::Events;
use crate::keys::Keys;
use crate::runtime::Runtime;

impl Sql {
    /// Returns the handle to the keys of the database, with the options of this one.
    pub fn keys(&self) -> Keys {
        Keys::new(self.clone())
    }

    /// Returns the handle to the events of the database, with the options of this one.
    pub fn events(&self) -> Events {
        Events::new(self.clone())
    }

    /// Registers a waiter for a topic. The caller must look for what it waits for after this has returned, and again
    /// when the future ends that it returns.
    pub(crate) async fn register(&self, topic: Topic) -> Result<BoxFuture<'static, ()>, Error> {
        self.submitter.register(topic, self.deadline).await
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        self.submitter.runtime()
    }

    pub(crate) fn env(&self) -> &Env {
        self.submitter.runtime().env()
    }
}
