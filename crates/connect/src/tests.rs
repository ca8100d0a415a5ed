//! Tests of the messages for broken Secrets and kubeconfig files, and of the two clients' behavior on a connection.

mod policies;
mod rotation;
mod secrets;
mod sources;
mod tls_errors;

use http::{Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tower_test::mock::{self, Handle};

use super::ClusterRef;

/// Creates a client whose requests the handle answers.
fn mocked() -> (Client, Handle<Request<Body>, Response<Body>>) {
    let (service, handle) = mock::pair();
    (Client::new(service, "default"), handle)
}

/// Answers the next request and returns its path.
async fn answer(handle: &mut Handle<Request<Body>, Response<Body>>, code: u16, body: &Value) -> String {
    let (request, respond) = handle.next_request().await.expect("a request");
    let body = Body::from(serde_json::to_vec(body).unwrap());
    respond.send_response(Response::builder().status(code).body(body).unwrap());
    request.uri().to_string()
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message})
}

fn prod() -> ClusterRef {
    "team-a/prod".parse().unwrap()
}

/// Returns a kubeconfig with one cluster, user and context; the fields are YAML in flow style.
fn kubeconfig(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: prod, user: admin}}}}]\n\
         clusters: [{{name: prod, cluster: {cluster}}}]\nusers: [{{name: admin, user: {user}}}]\n"
    )
}
