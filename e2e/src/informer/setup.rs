//! The resources of one scenario: a kind, two namespaces, a proxy to the API server that can be cut, and a factory of
//! informers behind that proxy. The scenario's own writes bypass it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use kube::{
    Api as KubeApi, Client,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use shared_informer::{Factory, Informer, Projection, Query, Settings};

use super::EventLog;
use crate::{
    control_plane::ControlPlane,
    objects::{Contract, Place},
    proxy::Proxy,
    wait::{SOON, eventually},
};

const GROUP: &str = "informer.sandbox.test";

/// The form in which lists are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lists {
    /// As streams.
    Streamed,
    /// In pages of two objects.
    Paged,
}

impl Lists {
    /// Both forms.
    pub const ALL: [Self; 2] = [Self::Streamed, Self::Paged];

    /// Returns the form as part of a test's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Streamed => "streamed",
            Self::Paged => "paged",
        }
    }
}

/// The environment of one scenario.
pub struct Setup {
    /// The form in which its informers request lists.
    pub lists: Lists,
    /// The kind that no other scenario uses.
    pub kind: ApiResource,
    /// The namespace of its objects, unless another one is named.
    pub namespace: String,
    /// Another existing namespace.
    pub neighbour: String,
    /// The proxy that its informers use.
    pub proxy: Proxy,
    factory: Factory,
    client: Client,
    _plane: Arc<ControlPlane>,
}

impl Setup {
    /// Creates a setup on an API server that other scenarios share.
    pub(super) async fn new(plane: Arc<ControlPlane>, lists: Lists) -> Result<Self> {
        static SCENES: AtomicUsize = AtomicUsize::new(0);
        let proxy = plane.proxy().await?;
        let (client, through) = (plane.plain_client().await?, plane.plain_client_through(&proxy).await?);
        let number = SCENES.fetch_add(1, Ordering::Relaxed);
        let settings = Settings {
            streaming_lists: lists == Lists::Streamed,
            page_size: 2,
            backoff_min: Duration::from_millis(20),
            backoff_max: Duration::from_millis(200),
            ..Settings::default()
        };
        let factory = Factory::new(through, tokio::runtime::Handle::current(), settings);
        let gvk = GroupVersionKind::gvk(GROUP, "v1", &format!("Widget{number}"));
        let kind = ApiResource::from_gvk_with_plural(&gvk, &format!("widget{number}s"));
        let namespace = format!("informer-{number}");
        let neighbour = format!("{namespace}-neighbour");
        let setup = Self { lists, kind, namespace, neighbour, proxy, factory, client, _plane: plane };
        for name in [&setup.namespace, &setup.neighbour] {
            let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            let namespaces = KubeApi::all_with(setup.client.clone(), &place("Namespace"));
            namespaces.create(&PostParams::default(), &object(namespace)?).await?;
        }
        setup.install().await?;
        Ok(setup)
    }

    /// Installs the setup's kind, and waits until it is served.
    pub async fn install(&self) -> Result<()> {
        self.definitions().create(&PostParams::default(), &object(self.definition())?).await?;
        eventually("the kind served", SOON, async || {
            self.objects(&self.namespace).list(&ListParams::default()).await?;
            Ok(())
        })
        .await
    }

    /// Removes the setup's kind with all its objects, and waits until it is served no more.
    pub async fn uninstall(&self) -> Result<()> {
        self.definitions().delete(&self.definition_name(), &DeleteParams::default()).await?;
        eventually("the kind gone", SOON, async || {
            let defined = self.definitions().get_opt(&self.definition_name()).await?;
            ensure!(defined.is_none(), "its definition is there");
            match self.objects(&self.namespace).list(&ListParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                other => bail!("its list answers {other:?}"),
            }
        })
        .await
    }

    /// Creates a Widget.
    pub async fn create(&self, name: &str) -> Result<()> {
        self.create_in(&self.namespace, name).await
    }

    /// Creates a Widget in a namespace.
    pub async fn create_in(&self, namespace: &str, name: &str) -> Result<()> {
        let widget = json!({
            "apiVersion": self.kind.api_version, "kind": self.kind.kind,
            "metadata": { "name": name, "namespace": namespace }, "spec": { "size": 1 },
        });
        self.objects(namespace).create(&PostParams::default(), &object(widget)?).await?;
        Ok(())
    }

    /// Sets a Widget's size.
    pub async fn resize(&self, name: &str, size: u32) -> Result<()> {
        self.patch(name, json!({ "spec": { "size": size } })).await
    }

    /// Sets a Widget's label `pool`.
    pub async fn label(&self, name: &str, pool: &str) -> Result<()> {
        self.patch(name, json!({ "metadata": { "labels": { "pool": pool } } })).await
    }

    async fn patch(&self, name: &str, patch: Value) -> Result<()> {
        let objects = self.objects(&self.namespace);
        objects.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Deletes a Widget.
    pub async fn delete(&self, name: &str) -> Result<()> {
        self.objects(&self.namespace).delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Expires every version so far of the setup's kind for watches. A real API server drops its watch cache of a kind
    /// when the definition changes, as in an upgrade.
    pub async fn expire(&self) -> Result<()> {
        let before = self.version().await?;
        let mut changed = self.definition();
        changed["spec"]["versions"][0]["additionalPrinterColumns"] =
            json!([{ "name": "Size", "type": "integer", "jsonPath": ".spec.size" }]);
        let patch = Patch::Merge(changed);
        self.definitions().patch(&self.definition_name(), &PatchParams::default(), &patch).await?;
        eventually("the version expired", SOON, async || {
            let asked = format!(
                "/apis/{}/namespaces/{}/{}?watch=true&timeoutSeconds=1&resourceVersion={before}",
                self.kind.api_version, self.namespace, self.kind.plural
            );
            let answer = self.client.request_text(http::Request::get(asked).body(Vec::new())?).await;
            let answer = answer.unwrap_or_else(|error| format!("{error:?}"));
            ensure!(answer.contains("410"), "a watch from {before} is answered: {answer}");
            Ok(())
        })
        .await
    }

    async fn version(&self) -> Result<String> {
        let list = self.objects(&self.namespace).list(&ListParams::default()).await?;
        list.metadata.resource_version.context("the list has no resourceVersion")
    }

    /// Returns the synced informer of a query, and the recorded events of a handler of it.
    pub async fn follow(&self, query: Query) -> Result<(Informer<Value>, EventLog)> {
        let informer = self.factory.informer(query, Projection::serde());
        let event_log = EventLog::of(&informer);
        informer.wait_for_sync(SOON).await?;
        event_log.registration.synced().await;
        Ok((informer, event_log))
    }

    /// Returns the query for all Widgets of the setup.
    #[must_use]
    pub fn all(&self) -> Query {
        Query::namespaced(self.kind.clone(), [self.namespace.as_str()])
    }

    /// Returns the number of informers' requests so far whose query contains all of these parts.
    #[must_use]
    pub fn asked(&self, parts: &[&str]) -> usize {
        let asked = self.proxy.asked();
        asked.iter().filter(|target| parts.iter().all(|part| target.contains(part))).count()
    }

    fn objects(&self, namespace: &str) -> KubeApi<DynamicObject> {
        KubeApi::namespaced_with(self.client.clone(), namespace, &self.kind)
    }

    fn definitions(&self) -> KubeApi<DynamicObject> {
        KubeApi::all_with(self.client.clone(), &place("CustomResourceDefinition"))
    }

    fn definition_name(&self) -> String {
        format!("{}.{GROUP}", self.kind.plural)
    }

    fn definition(&self) -> Value {
        let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let kind = &self.kind.kind;
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": self.definition_name() },
            "spec": {
                "group": GROUP,
                "scope": "Namespaced",
                "names": {
                    "kind": kind, "listKind": format!("{kind}List"), "plural": self.kind.plural,
                    "singular": kind.to_lowercase(),
                },
                "versions": [
                    { "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } },
                ],
            },
        })
    }
}

fn place(kind: &str) -> ApiResource {
    Place::of(kind, Contract::V1Beta2).resource
}

fn object(value: Value) -> Result<DynamicObject> {
    serde_json::from_value(value).context("an object that isn't one")
}
