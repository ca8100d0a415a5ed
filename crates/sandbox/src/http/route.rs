//! The meaning of a request's path, query and headers.

use std::collections::HashMap;

use http::{HeaderMap, Method, header};
use percent_encoding::percent_decode_str;

use crate::api::{PatchKind, Refusal, Resource, Subresource};

/// The target of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    /// `/version`
    Version,
    /// `/livez`, `/readyz` or `/healthz`.
    Health,
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/<group>`
    Group(String),
    /// `/api/v1`, `/apis/<group>/<version>`
    Resources {
        group: String,
        version: String,
    },
    /// `/openapi/v2`
    OldSchemas,
    /// `/openapi/v3`
    Schemas,
    /// `/openapi/v3/…`; the group is empty for core kinds.
    Schema {
        group: String,
        version: String,
    },
    AccessReview,
    /// All objects of a kind, in a namespace or in all.
    Collection {
        resource: Resource,
        namespace: String,
    },
    /// One object, or a subresource of it; `None` for one that isn't supported.
    Object {
        resource: Resource,
        namespace: String,
        name: String,
        subresource: Option<Subresource>,
    },
    /// The binding of a Pod to a Node.
    Binding {
        namespace: String,
        name: String,
    },
    /// The eviction of a Pod.
    Eviction {
        namespace: String,
        name: String,
    },
    /// A path that doesn't exist.
    Nowhere,
}

impl Route {
    pub(super) fn parse(path: &str) -> Self {
        let segments: Vec<String> = path
            .split('/')
            .filter(|segment| !segment.is_empty())
            .map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned())
            .collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match segments.as_slice() {
            ["version"] => Self::Version,
            ["livez" | "readyz" | "healthz", ..] => Self::Health,
            ["api"] => Self::CoreVersions,
            ["apis"] => Self::Groups,
            ["openapi", "v2"] => Self::OldSchemas,
            ["openapi", "v3"] => Self::Schemas,
            ["openapi", "v3", "api", version] => Self::Schema { group: String::new(), version: (*version).to_owned() },
            ["openapi", "v3", "apis", group, version] => {
                Self::Schema { group: (*group).to_owned(), version: (*version).to_owned() }
            }
            ["apis", group] => Self::Group((*group).to_owned()),
            ["api", "v1", rest @ ..] => Self::in_version("", "v1", rest),
            ["apis", group, version, rest @ ..] => Self::in_version(group, version, rest),
            _ => Self::Nowhere,
        }
    }

    fn in_version(group: &str, version: &str, rest: &[&str]) -> Self {
        let resource = |plural: &str| Resource::new(group.to_owned(), version.to_owned(), plural.to_owned());
        let object = |plural: &str, namespace: &str, name: &str, part: &str| Self::Object {
            resource: resource(plural),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: match part {
                "" => Some(Subresource::Main),
                "status" => Some(Subresource::Status),
                "scale" => Some(Subresource::Scale),
                _ => None,
            },
        };
        match rest {
            [] => Self::Resources { group: group.to_owned(), version: version.to_owned() },
            ["selfsubjectaccessreviews"] if group == "authorization.k8s.io" => Self::AccessReview,
            ["namespaces", name, "status"] if group.is_empty() => object("namespaces", "", name, "status"),
            ["namespaces", name] if group.is_empty() => object("namespaces", "", name, ""),
            ["namespaces", namespace, "pods", name, "binding"] if group.is_empty() => {
                Self::Binding { namespace: (*namespace).to_owned(), name: (*name).to_owned() }
            }
            ["namespaces", namespace, "pods", name, "eviction"] if group.is_empty() => {
                Self::Eviction { namespace: (*namespace).to_owned(), name: (*name).to_owned() }
            }
            ["namespaces", namespace, plural] => {
                Self::Collection { resource: resource(plural), namespace: (*namespace).to_owned() }
            }
            ["namespaces", namespace, plural, name] => object(plural, namespace, name, ""),
            ["namespaces", namespace, plural, name, part] => object(plural, namespace, name, part),
            [plural] => Self::Collection { resource: resource(plural), namespace: String::new() },
            [plural, name] => object(plural, "", name, ""),
            [plural, name, part] => object(plural, "", name, part),
            _ => Self::Nowhere,
        }
    }

    pub(super) fn verb(&self, method: &Method, query: &Query) -> &'static str {
        match (self, method.as_str()) {
            (Self::Collection { .. }, "GET") if query.flag("watch") => "watch",
            (Self::Collection { .. }, "GET") => "list",
            (Self::Collection { .. }, "DELETE") => "deletecollection",
            (_, "GET" | "HEAD") => "get",
            (_, "POST") => "create",
            (_, "PUT") => "update",
            (_, "PATCH") => "patch",
            (_, "DELETE") => "delete",
            (_, _) => "",
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Query(HashMap<String, String>);

impl Query {
    pub(super) fn parse(query: &str) -> Self {
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// Returns the value of a parameter, unless it is absent or empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| matches!(value.as_str(), "true" | "1" | ""))
    }

    /// Parses a parameter as a whole number.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Refusal> {
        self.get(name)
            .map(|value| {
                value.parse().map_err(|_| {
                    Refusal::bad_request(format!("parameter {name} must be a whole number, and is {value:?}"))
                })
            })
            .transpose()
    }

    pub(super) fn dry_run(&self) -> Result<bool, Refusal> {
        match self.get("dryRun") {
            None => Ok(false),
            Some("All") => Ok(true),
            Some(other) => Err(Refusal::new(
                422,
                "Invalid",
                format!("dryRun: Unsupported value: {other:?}: supported values: \"All\""),
            )),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// The objects.
    Plain,
    /// A table of rows with cells, for people.
    Table,
    /// Their metadata alone.
    Metadata,
    /// The aggregated form of discovery.
    Discovery,
}

/// Returns the client's most preferred form among those that are supported.
pub(super) fn accepted(headers: &HeaderMap) -> Result<Form, Refusal> {
    let Some(accept) = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()) else {
        return Ok(Form::Plain);
    };
    accept
        .split(',')
        .find_map(|range| {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next()?;
            let parameters: HashMap<&str, &str> = parts.filter_map(|part| part.split_once('=')).collect();
            if !matches!(media, "application/json" | "*/*" | "application/*") {
                return None;
            }
            let version = parameters.get("v").copied().unwrap_or_default();
            match parameters.get("as").copied() {
                None => Some(Form::Plain),
                Some("Table") if version == "v1" => Some(Form::Table),
                Some("PartialObjectMetadata" | "PartialObjectMetadataList") if version == "v1" => Some(Form::Metadata),
                Some("APIGroupDiscoveryList") if version == "v2" => Some(Form::Discovery),
                Some(_) => None,
            }
        })
        .ok_or_else(|| Refusal::not_acceptable(&["application/json"]))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentType {
    /// JSON, or no content type.
    Json,
    Patch(PatchKind),
    /// Server-side apply, which isn't supported.
    Apply,
    /// Kubernetes' protobuf, which isn't supported.
    Protobuf,
    /// An unsupported content type.
    Unknown,
}

/// Returns the content type that a request states for its body.
pub(super) fn content_type(headers: &HeaderMap) -> ContentType {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match given.split(';').next().unwrap_or_default().trim() {
        "" | "application/json" => ContentType::Json,
        "application/merge-patch+json" => ContentType::Patch(PatchKind::Merge),
        "application/json-patch+json" => ContentType::Patch(PatchKind::Json),
        "application/strategic-merge-patch+json" => ContentType::Patch(PatchKind::Strategic),
        "application/apply-patch+yaml" => ContentType::Apply,
        "application/vnd.kubernetes.protobuf" => ContentType::Protobuf,
        _ => ContentType::Unknown,
    }
}

pub(super) fn token_of(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}
