//! The API server under test as one case sees it: a namespace of its own, and requests built from plain parts.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::{Value, json};

use super::{
    ForgetHistory,
    call::{Call, Patch},
    objects::{CRDS, GROUP, OLD_VERSION, VERSION, definition},
};

/// The maximum time until a change is visible everywhere, on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// The API server and the namespace that one case runs on.
pub(super) struct Subject<'a> {
    client: kube::Client,
    namespace: String,
    forget_history: &'a ForgetHistory,
}

impl<'a> Subject<'a> {
    pub(super) async fn new(client: kube::Client, number: usize, forget_history: &'a ForgetHistory) -> Result<Self> {
        let subject = Self { client, namespace: format!("conformance-{number}"), forget_history };
        let namespace = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": subject.namespace },
        });
        subject.post("/api/v1/namespaces", &namespace).expect(201).await.context("making a namespace for the case")?;
        Ok(subject)
    }

    /// Returns the namespace of the case.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns a name for a cluster-scoped object that no other case uses.
    pub(super) fn unique(&self, name: &str) -> String {
        format!("{}-{name}", self.namespace)
    }

    /// Returns the path of a core kind's objects in the case's namespace.
    pub(super) fn core(&self, plural: &str) -> String {
        format!("/api/v1/namespaces/{}/{plural}", self.namespace)
    }

    /// Returns the path of the widgets in the case's namespace.
    pub(super) fn widgets(&self) -> String {
        format!("/apis/{GROUP}/{VERSION}/namespaces/{}/widgets", self.namespace)
    }

    /// Returns the path of a widget in the case's namespace.
    pub(super) fn widget(&self, name: &str) -> String {
        format!("{}/{name}", self.widgets())
    }

    pub(super) fn call(&self, method: Method, path: impl Into<String>) -> Call {
        Call::new(self.client.clone(), method, path.into())
    }

    pub(super) fn get(&self, path: impl Into<String>) -> Call {
        self.call(Method::GET, path)
    }

    pub(super) fn post(&self, path: impl Into<String>, body: &Value) -> Call {
        self.call(Method::POST, path).json(body)
    }

    pub(super) fn put(&self, path: impl Into<String>, body: &Value) -> Call {
        self.call(Method::PUT, path).json(body)
    }

    pub(super) fn delete(&self, path: impl Into<String>) -> Call {
        self.call(Method::DELETE, path)
    }

    pub(super) fn patch(&self, path: impl Into<String>, kind: Patch, body: &Value) -> Call {
        self.call(Method::PATCH, path).patch(kind, body)
    }

    /// Makes all resource versions so far too old.
    pub(super) async fn forget_history(&self) -> Result<()> {
        (self.forget_history)().await.context("making the server forget its history")
    }
}

/// Calls `attempt` until it succeeds, and fails with its last error if that takes too long.
pub(super) async fn eventually<T>(what: &str, attempt: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    testkit::attempt::eventually(what, SOON, attempt).await
}

/// Installs the kind Widget and waits until it is served in both versions.
pub(super) async fn install(client: &kube::Client) -> Result<()> {
    let call = |method, path: String| Call::new(client.clone(), method, path);
    call(Method::POST, CRDS.to_owned()).json(&definition("Widget")).expect(201).await?;
    for version in [VERSION, OLD_VERSION] {
        eventually("widgets served", async || {
            let found = call(Method::GET, format!("/apis/{GROUP}/{version}")).expect(200).await?;
            let resources = found["resources"].as_array().context("no resources")?;
            ensure!(resources.len() == 3, "it has {found}");
            let list = call(Method::GET, format!("/apis/{GROUP}/{version}/widgets")).expect(200).await?;
            ensure!(list["kind"] == "WidgetList", "the list is {list}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}
