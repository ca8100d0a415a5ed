//! Clients for `--read-only`, which must never send a request that writes.

use http::{Method, Request};
use kube::{Client, client::Body};
use thiserror::Error;
use tower::{BoxError, service_fn};

use super::Clients;

/// A request that would write.
#[derive(Debug, Error)]
#[error("{0} isn't sent: this program is started with --read-only")]
struct NotSent(Method);

impl Clients {
    /// Returns the same clients, limited to requests that read.
    #[must_use]
    pub fn read_only(&self) -> Self {
        Self { watches: read_only(&self.watches), writes: read_only(&self.writes) }
    }
}

fn read_only(client: &Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let client = client.clone();
    let service = service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            if !matches!(*request.method(), Method::GET | Method::HEAD) {
                return Err(BoxError::from(NotSent(request.method().clone())));
            }
            client.send(request).await.map_err(BoxError::from)
        }
    });
    Client::new(service, namespace)
}
