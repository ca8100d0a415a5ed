//! The objects that an informer holds, and the URLs to request them. This file must never depend on a kind's meaning,
//! and must work for any resource.

use std::{collections::BTreeSet, fmt, time::Duration};

use kube::{
    Resource,
    api::{ListParams, WatchParams},
    core::{ApiResource, DynamicObject, Request, request},
};

/// The namespaces that an informer covers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Namespaces {
    /// All namespaces, by one watch. The only choice for cluster-scoped resources.
    All,
    /// Only these, by one watch each, which needs no permission for all namespaces. With an empty set, the informer
    /// is empty and synced at once.
    Only(BTreeSet<String>),
}

impl fmt::Display for Namespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all namespaces"),
            Self::Only(names) if names.is_empty() => f.write_str("no namespace"),
            Self::Only(names) => {
                for (position, name) in names.iter().enumerate() {
                    if position > 0 {
                        f.write_str(", ")?;
                    }
                    f.write_str(name)?;
                }
                Ok(())
            }
        }
    }
}

/// The selection of objects that an informer holds. Two equal queries for the same type share one informer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Query {
    /// The resource; group, version and plural make the URL.
    pub resource: ApiResource,
    /// The namespaces.
    pub namespaces: Namespaces,
    /// Label selector in Kubernetes' syntax, such as `app=web,tier!=cache`.
    pub labels: Option<String>,
    /// Field selector in Kubernetes' syntax, such as `metadata.name=one`.
    pub fields: Option<String>,
}

impl Query {
    /// Selects all objects of a resource.
    #[must_use]
    pub fn all(resource: ApiResource) -> Self {
        Self { resource, namespaces: Namespaces::All, labels: None, fields: None }
    }

    /// Selects all objects of a resource in these namespaces.
    #[must_use]
    pub fn namespaced<N: Into<String>>(resource: ApiResource, namespaces: impl IntoIterator<Item = N>) -> Self {
        Self { namespaces: Namespaces::Only(namespaces.into_iter().map(Into::into).collect()), ..Self::all(resource) }
    }

    /// Adds a label selector.
    #[must_use]
    pub fn labels(self, selector: impl Into<String>) -> Self {
        Self { labels: Some(selector.into()), ..self }
    }

    /// Adds a field selector.
    #[must_use]
    pub fn fields(self, selector: impl Into<String>) -> Self {
        Self { fields: Some(selector.into()), ..self }
    }

    /// Returns the resource for display: `plural.group/version`, or `plural/version` in the core group.
    pub(super) fn resource_name(&self) -> String {
        let ApiResource { group, version, plural, .. } = &self.resource;
        if group.is_empty() { format!("{plural}/{version}") } else { format!("{plural}.{group}/{version}") }
    }

    /// Returns true if the content of these objects is secret, so that not even a decoding error may quote it.
    pub(super) fn is_secret(&self) -> bool {
        self.resource.group.is_empty() && self.resource.plural == "secrets"
    }

    pub(super) fn scopes(&self) -> Vec<Scope> {
        let scope = |namespace: Option<&String>| Scope {
            namespace: namespace.cloned(),
            path: DynamicObject::url_path(&self.resource, namespace.map(String::as_str)),
            labels: self.labels.clone(),
            fields: self.fields.clone(),
        };
        match &self.namespaces {
            Namespaces::All => vec![scope(None)],
            Namespaces::Only(names) => names.iter().map(|name| scope(Some(name))).collect(),
        }
    }
}

/// One list and watch: a resource in one namespace, or in all.
#[derive(Debug, Clone)]
pub(super) struct Scope {
    /// `None` for all namespaces.
    pub(super) namespace: Option<String>,
    path: String,
    labels: Option<String>,
    fields: Option<String>,
}

impl Scope {
    /// Builds the request for one page, or for the whole list if `limit` is `None`. It has no resource version, so
    /// the answer is the most recent state and never older than an earlier answer.
    pub(super) fn list(
        &self,
        limit: Option<u32>,
        continue_token: Option<&str>,
    ) -> Result<http::Request<Vec<u8>>, request::Error> {
        let params = ListParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            limit,
            continue_token: continue_token.map(Into::into),
            ..ListParams::default()
        };
        Request::new(&self.path).list(&params)
    }

    /// Builds the request for a streamed list: a watch that begins with all objects and a bookmark at their end. Like
    /// [`Scope::list`] it has no resource version, so the answer is the most recent state.
    pub(super) fn stream(&self, timeout: Duration) -> Result<http::Request<Vec<u8>>, request::Error> {
        self.watch_with(true, "", timeout)
    }

    /// Builds the request for a watch with bookmarks, which the server ends after `timeout` (rounded up to whole
    /// seconds).
    pub(super) fn watch(
        &self,
        resource_version: &str,
        timeout: Duration,
    ) -> Result<http::Request<Vec<u8>>, request::Error> {
        self.watch_with(false, resource_version, timeout)
    }

    fn watch_with(
        &self,
        send_initial_events: bool,
        resource_version: &str,
        timeout: Duration,
    ) -> Result<http::Request<Vec<u8>>, request::Error> {
        let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
        let params = WatchParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            timeout: Some(u32::try_from(seconds.max(1)).unwrap_or(u32::MAX)),
            bookmarks: true,
            send_initial_events,
        };
        let mut request = Request::new(&self.path).watch(&params, resource_version)?;
        // A watch whose events are compressed one by one is decoded only up to its first event (tower-http#737).
        request.headers_mut().insert(http::header::ACCEPT_ENCODING, http::HeaderValue::from_static("identity"));
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use kube::core::GroupVersionKind;

    use super::*;

    fn resource() -> ApiResource {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.io", "v1", "Widget"), "widgets")
    }

    #[test]
    fn a_resource_is_named_with_its_group_and_version() {
        assert_eq!(Query::all(resource()).resource_name(), "widgets.example.io/v1");
        let nodes = ApiResource::erase::<k8s_openapi::api::core::v1::Node>(&());
        assert_eq!(Query::all(nodes).resource_name(), "nodes/v1");
    }

    #[test]
    fn a_list_asks_for_the_most_recent_state_page_by_page() {
        let scope = &Query::all(resource()).labels("a=b").fields("c=d").scopes()[0];
        let request = scope.list(Some(500), Some("next")).unwrap();
        assert_eq!(
            request.uri(),
            "/apis/example.io/v1/widgets?&fieldSelector=c%3Dd&labelSelector=a%3Db&limit=500&continue=next"
        );
    }

    #[test]
    fn a_watch_asks_for_bookmarks_and_no_compression() {
        let scope = &Query::namespaced(resource(), ["one"]).scopes()[0];
        let request = scope.watch("7", Duration::from_millis(1500)).unwrap();
        assert_eq!(
            request.uri(),
            "/apis/example.io/v1/namespaces/one/widgets?&watch=true&timeoutSeconds=2&allowWatchBookmarks=true&resourceVersion=7"
        );
        assert_eq!(request.headers()["accept-encoding"], "identity");
    }
}
