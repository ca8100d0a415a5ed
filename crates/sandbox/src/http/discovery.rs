//! Discovery: the groups, versions and resources that are served, in the legacy form and in the aggregated one.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::{Api, KindSpec, VersionSpec, priority};

const VERBS: [&str; 7] = ["create", "delete", "get", "list", "patch", "update", "watch"];
const STATUS_VERBS: [&str; 3] = ["get", "patch", "update"];
/// The group of access reviews, which are answered but have no objects.
const REVIEWS: &str = "authorization.k8s.io";

/// Returns `/version`.
pub(crate) fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.0-sandbox", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "memory",
    })
}

/// Returns `/api`.
pub(crate) fn core_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// A group and its versions in order of preference.
struct Group {
    name: String,
    versions: Vec<String>,
}

fn groups(kinds: &[Arc<KindSpec>]) -> Vec<Group> {
    let mut groups: Vec<Group> = vec![Group { name: REVIEWS.to_owned(), versions: vec!["v1".to_owned()] }];
    for kind in kinds.iter().filter(|kind| !kind.group.is_empty()) {
        let served = kind.versions.iter().filter(|version| version.served);
        let at = groups.iter().position(|group| group.name == kind.group).unwrap_or_else(|| {
            groups.push(Group { name: kind.group.clone(), versions: Vec::new() });
            groups.len() - 1
        });
        let Some(group) = groups.get_mut(at) else { continue };
        group.versions.extend(served.map(|version| version.name.clone()));
    }
    for group in &mut groups {
        group.versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
        group.versions.dedup();
    }
    groups.retain(|group| !group.versions.is_empty());
    groups
}

fn group_value(group: &Group) -> Value {
    let version = |version: &String| json!({"groupVersion": format!("{}/{version}", group.name), "version": version});
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    json!({"name": group.name, "versions": versions, "preferredVersion": versions.first()})
}

/// Returns `/apis`.
pub(crate) fn group_list(api: &Api) -> Value {
    let groups: Vec<Value> = groups(&api.kinds()).iter().map(group_value).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// Returns `/apis/<group>`.
pub(crate) fn group(api: &Api, name: &str) -> Option<Value> {
    let groups = groups(&api.kinds());
    let mut value = group_value(groups.iter().find(|group| group.name == name)?);
    value["kind"] = json!("APIGroup");
    value["apiVersion"] = json!("v1");
    Some(value)
}

/// Returns `/api/v1` or `/apis/<group>/<version>`.
pub(crate) fn resources(api: &Api, group: &str, version: &str) -> Option<Value> {
    let kinds = api.kinds();
    let mut resources: Vec<Value> =
        served(&kinds, group, version).flat_map(|(kind, spec)| of_kind(kind, spec)).collect();
    if (group, version) == (REVIEWS, "v1") {
        resources.push(json!({
            "name": "selfsubjectaccessreviews", "singularName": "selfsubjectaccessreview", "namespaced": false,
            "kind": "SelfSubjectAccessReview", "verbs": ["create"],
        }));
    }
    if resources.is_empty() {
        return None;
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources,
    }))
}

fn served<'k>(
    kinds: &'k [Arc<KindSpec>],
    group: &'k str,
    version: &'k str,
) -> impl Iterator<Item = (&'k KindSpec, &'k VersionSpec)> {
    kinds.iter().filter(move |kind| kind.group == group).filter_map(move |kind| Some((&**kind, kind.version(version)?)))
}

fn of_kind(kind: &KindSpec, version: &VersionSpec) -> Vec<Value> {
    let mut main = json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
        "verbs": VERBS,
    });
    if !kind.short_names.is_empty() {
        main["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        main["categories"] = json!(kind.categories);
    }
    let mut resources = vec![main];
    if version.status {
        resources.push(json!({
            "name": format!("{}/status", kind.plural), "singularName": "", "namespaced": kind.namespaced,
            "kind": kind.kind, "verbs": STATUS_VERBS,
        }));
    }
    if version.scale.is_some() {
        resources.push(json!({
            "name": format!("{}/scale", kind.plural), "singularName": "", "namespaced": kind.namespaced,
            "group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": STATUS_VERBS,
        }));
    }
    resources
}

/// Returns `/api` or `/apis` in the aggregated form.
pub(crate) fn aggregated(api: &Api, core: bool) -> Value {
    let kinds = api.kinds();
    let groups =
        if core { vec![Group { name: String::new(), versions: vec!["v1".to_owned()] }] } else { groups(&kinds) };
    let items: Vec<Value> = groups
        .iter()
        .map(|group| {
            let versions: Vec<Value> =
                group.versions.iter().map(|version| aggregated_version(&kinds, &group.name, version)).collect();
            let metadata = if group.name.is_empty() { json!({}) } else { json!({"name": group.name}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn aggregated_version(kinds: &[Arc<KindSpec>], group: &str, version: &str) -> Value {
    let mut resources: Vec<Value> =
        served(kinds, group, version).map(|(kind, spec)| aggregated_kind(kind, spec)).collect();
    if (group, version) == (REVIEWS, "v1") {
        resources.push(json!({
            "resource": "selfsubjectaccessreviews", "singularResource": "selfsubjectaccessreview", "scope": "Cluster",
            "responseKind": {"group": REVIEWS, "version": "v1", "kind": "SelfSubjectAccessReview"}, "verbs": ["create"],
        }));
    }
    json!({"version": version, "freshness": "Current", "resources": resources})
}

fn aggregated_kind(kind: &KindSpec, version: &VersionSpec) -> Value {
    let own = json!({"group": kind.group, "version": version.name, "kind": kind.kind});
    let mut resource = json!({
        "resource": kind.plural, "singularResource": kind.singular,
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "responseKind": own, "verbs": VERBS,
    });
    if !kind.short_names.is_empty() {
        resource["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        resource["categories"] = json!(kind.categories);
    }
    let mut subresources = Vec::new();
    if version.status {
        subresources.push(json!({"subresource": "status", "responseKind": own, "verbs": STATUS_VERBS}));
    }
    if version.scale.is_some() {
        let scale = json!({"group": "autoscaling", "version": "v1", "kind": "Scale"});
        subresources.push(json!({"subresource": "scale", "responseKind": scale, "verbs": STATUS_VERBS}));
    }
    if !subresources.is_empty() {
        resource["subresources"] = json!(subresources);
    }
    resource
}
