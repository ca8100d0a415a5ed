//! Checks at the start that find failures early: a missing permission, a selector that the API server refuses, a
//! namespace that doesn't exist. Each failure is one line with its remedy.

use anyhow::{anyhow, bail};
use http::StatusCode;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{ListParams, WatchParams},
    core::{ApiResource, DynamicObject, Request},
};
use shared_informer::Namespaces;

use super::{
    catalog::{Resource, ResourceQuery},
    config::{Config, Narrowing},
};
use crate::changes::Kind;
use connect::cause;

/// Tries to list and watch a resource, in all watched namespaces. A failure that may be temporary is ignored.
pub(super) async fn check(
    client: &Client,
    resource: &Resource,
    namespaces: &Namespaces,
    wanted: &ResourceQuery,
) -> anyhow::Result<()> {
    let places: Vec<Option<&str>> = match namespaces {
        Namespaces::All => vec![None],
        Namespaces::Only(names) => names.iter().map(|name| Some(name.as_str())).collect(),
    };
    for place in places {
        let attempt = Attempt { client, resource, api: resource.api_resource(), place, wanted };
        if let Some(version) = attempt.list().await? {
            attempt.watch(&version).await?;
        }
    }
    Ok(())
}

/// Returns an error if a namespace doesn't exist. If the program may not read a namespace, there is no error.
pub(super) async fn check_namespaces(client: &Client, namespaces: &Namespaces) -> anyhow::Result<()> {
    let Namespaces::Only(names) = namespaces else { return Ok(()) };
    let api: Api<Namespace> = Api::all(client.clone());
    for name in names {
        match api.get(name).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                bail!("namespace {name:?} isn't there: correct --namespace, or wait for it with --allow-missing");
            }
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

/// Warns if the watched Cluster doesn't exist: it may be created later, or its name may be wrong. If the program may
/// not read the Cluster, there is no warning.
pub(super) async fn look_for_cluster(client: &Client, config: &Config, found: &[(ResourceQuery, Option<Resource>)]) {
    let Some(Narrowing { group, cluster }) = &config.narrowing else { return };
    let is_cluster = |resource: &&Resource| resource.kind.kind == "Cluster" && resource.kind.group == *group;
    let Some(resource) = found.iter().filter_map(|(_, resource)| resource.as_ref()).find(is_cluster) else { return };
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), cluster.namespace(), &resource.api_resource());
    if matches!(api.get(cluster.name()).await, Err(kube::Error::Api(status)) if status.code == 404) {
        tracing::warn!("Cluster {cluster} doesn't exist: its objects are shown once created; or correct --cluster");
    }
}

struct Attempt<'a> {
    client: &'a Client,
    resource: &'a Resource,
    api: ApiResource,
    place: Option<&'a str>,
    wanted: &'a ResourceQuery,
}

impl Attempt<'_> {
    /// Lists one object. Returns the list's resource version, or `None` if the failure may be temporary.
    async fn list(&self) -> anyhow::Result<Option<String>> {
        let params = ListParams {
            label_selector: self.wanted.labels.clone(),
            field_selector: self.wanted.fields.clone(),
            limit: Some(1),
            ..ListParams::default()
        };
        let Ok(request) = Request::new(self.path()).list(&params) else { return Ok(None) };
        let answer: Result<serde_json::Value, _> = self.client.request(request).await;
        match answer {
            Ok(list) => Ok(list["metadata"]["resourceVersion"].as_str().map(str::to_owned)),
            Err(error) => self.judge("list", &error).map(|()| None),
        }
    }

    /// Starts a watch, and stops it at the first response.
    async fn watch(&self, version: &str) -> anyhow::Result<()> {
        let params = WatchParams {
            label_selector: self.wanted.labels.clone(),
            field_selector: self.wanted.fields.clone(),
            timeout: Some(1),
            bookmarks: false,
            send_initial_events: false,
        };
        let Ok(request) = Request::new(self.path()).watch(&params, version) else { return Ok(()) };
        match self.client.request_stream(request).await {
            Ok(_) => Ok(()),
            Err(error) => self.judge("watch", &error),
        }
    }

    fn path(&self) -> String {
        <DynamicObject as kube::Resource>::url_path(&self.api, self.place)
    }

    fn rule(&self) -> String {
        let Kind { group, plural, .. } = &self.resource.kind;
        let role = if self.place.is_some() { "Role" } else { "ClusterRole" };
        format!("{{apiGroups: [{group:?}], resources: [{plural:?}], verbs: [\"list\", \"watch\"]}} in a {role}")
    }

    /// Returns an error for a permanent failure.
    fn judge(&self, verb: &str, error: &kube::Error) -> anyhow::Result<()> {
        let unanswered = || anyhow!("can't ask the API server: {}", cause(error));
        let kube::Error::Api(status) = error else { return Err(unanswered()) };
        let place = self.place.map_or_else(|| "in all namespaces".to_owned(), |name| format!("in namespace {name}"));
        let place = if self.resource.namespaced { place } else { "in the cluster".to_owned() };
        let (resource, reason) = (self.resource.name(), &status.message);
        match StatusCode::from_u16(status.code) {
            Ok(StatusCode::FORBIDDEN) => {
                let rule = self.rule();
                bail!("forbidden to {verb} {resource} {place}: {reason}: grant it by a rule such as {rule}")
            }
            Ok(StatusCode::UNAUTHORIZED) => Err(unanswered()),
            Ok(StatusCode::BAD_REQUEST) => {
                let labels = self.wanted.labels.iter().map(|text| format!(" with --selector {text:?}"));
                let fields = self.wanted.fields.iter().map(|text| format!(" with --field-selector {text:?}"));
                let selectors: String = labels.chain(fields).collect();
                bail!("the API server refuses to list {resource} {place}{selectors}: {reason}")
            }
            // The informer will retry.
            _ => Ok(()),
        }
    }
}
