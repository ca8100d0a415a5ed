//! The same answers without sockets, for a simulator that transports requests, answers and watch lines itself.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::request::Parts;
use tokio_util::sync::CancellationToken;

use super::{
    Server, ServerSettings,
    answer::Answer,
    handle::{self, Received},
    route::{Query, Route},
};
use crate::api::Api;

/// An API that answers in the caller's task. The body of a watch is driven by its reader. There are no faults here: the
/// simulator that transports the requests can lose, delay and change them.
#[derive(Clone, Debug)]
pub struct InProcess {
    server: Arc<Server>,
}

impl InProcess {
    /// Serves this API; of the settings, only the bookmark interval is used.
    #[must_use]
    pub fn new(api: Api, settings: ServerSettings) -> Self {
        let server = Server::new(api, SocketAddr::from(([127, 0, 0, 1], 443)), settings, CancellationToken::new());
        Self { server: Arc::new(server) }
    }

    /// Returns the API that is served.
    #[must_use]
    pub fn api(&self) -> &Api {
        &self.server.api
    }

    /// Returns the verb of a request: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`,
    /// `deletecollection`.
    #[must_use]
    pub fn verb(parts: &Parts) -> &'static str {
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        Route::parse(parts.uri.path()).verb(&parts.method, &query)
    }

    /// Executes and answers a request.
    #[must_use]
    pub fn answer(&self, parts: Parts, body: Bytes) -> Answer {
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let route = Route::parse(parts.uri.path());
        let verb = route.verb(&parts.method, &query);
        handle::handle(&self.server, &Received { parts, route, query, verb, body })
    }
}
