//! The resources that an API server serves, found by plural, singular, short name or kind, with or without group and
//! version, as kubectl does. Nothing may be guessed; an unknown name is an error.

use std::{collections::BTreeSet, fmt, sync::Arc};

use kube::{
    Client,
    core::{ApiResource, discovery::v2::APIGroupDiscoveryList},
};

use crate::changes::Kind;

/// A resource to watch, with its selectors.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ResourceQuery {
    /// The name or kind of the resource.
    pub by: ResourceRef,
    /// The label selector.
    pub labels: Option<String>,
    /// The field selector.
    pub fields: Option<String>,
}

/// The reference to a resource.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ResourceRef {
    /// A name from the user.
    Name(String),
    /// A kind of Cluster API that is watched by default.
    Kind {
        /// The group.
        group: String,
        /// The version; the preferred one when `None`.
        version: Option<String>,
        /// The kind.
        kind: String,
    },
}

/// A resource in discovery.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Resource {
    /// The kind.
    pub kind: Kind,
    singular: String,
    short_names: Vec<String>,
    /// True if its objects are in namespaces.
    pub namespaced: bool,
    watchable: bool,
}

/// All resources: the core group first, then in the server's order, with the preferred version of each group first.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    resources: Vec<Resource>,
}

/// The reason why a name matches no watchable resource.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NotFound {
    /// No resource has this name.
    #[error(
        "the API server serves no resource {0}: install its CustomResourceDefinition, or wait for it with \
         --allow-missing"
    )]
    Unknown(String),
    /// The resource can't be watched.
    #[error("{0} can't be watched: the API server serves it without the verbs list and watch")]
    NotWatchable(String),
}

impl Resource {
    pub(super) fn api_resource(&self) -> ApiResource {
        let Kind { group, version, kind, plural } = &self.kind;
        ApiResource {
            group: group.clone(),
            version: version.clone(),
            api_version: self.kind.api_version(),
            kind: kind.clone(),
            plural: plural.clone(),
        }
    }

    /// Returns the plural with its group, which is unambiguous.
    pub fn name(&self) -> String {
        let Kind { group, plural, .. } = &self.kind;
        if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") }
    }

    fn has_name(&self, name: &str) -> bool {
        [&self.kind.plural, &self.kind.kind, &self.singular].into_iter().any(|own| own.eq_ignore_ascii_case(name))
    }

    fn has_short_name(&self, name: &str) -> bool {
        self.short_names.iter().any(|own| own.eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for ResourceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "{name:?}"),
            Self::Kind { group, version: None, kind } => write!(f, "{kind}.{group}"),
            Self::Kind { group, version: Some(version), kind } => write!(f, "{kind}.{version}.{group}"),
        }
    }
}

impl Catalog {
    /// Queries the API server, by two requests. A group whose aggregated API server is down is omitted.
    ///
    /// # Errors
    /// If it doesn't respond.
    pub async fn discover(client: &Client) -> Result<Self, kube::Error> {
        let (core, groups) =
            tokio::try_join!(client.list_core_api_versions_aggregated(), client.list_api_groups_aggregated())?;
        Ok(Self { resources: [core, groups].into_iter().flat_map(aggregated).collect() })
    }

    /// Finds a resource.
    ///
    /// # Errors
    /// If there is none of this name or kind, or it can't be watched.
    pub fn find(&self, wanted: &ResourceRef) -> Result<&Resource, NotFound> {
        let found = match wanted {
            ResourceRef::Name(name) => self.by_name(name),
            ResourceRef::Kind { group, version, kind } => self.resources.iter().find(|resource| {
                let own = &resource.kind;
                own.kind == *kind
                    && own.group == *group
                    && version.as_ref().is_none_or(|version| own.version == *version)
            }),
        };
        match found {
            Some(resource) if resource.watchable => Ok(resource),
            Some(resource) => Err(NotFound::NotWatchable(resource.name())),
            None => Err(NotFound::Unknown(wanted.to_string())),
        }
    }

    /// Returns the resources of the same name in other groups.
    pub fn others(&self, wanted: &ResourceRef, found: &Resource) -> Vec<String> {
        let ResourceRef::Name(name) = wanted else { return Vec::new() };
        if name.contains('.') {
            return Vec::new();
        }
        let same = |resource: &&Resource| resource.has_name(name) && resource.kind.group != found.kind.group;
        // Events are served twice, with the same objects.
        let others = self.resources.iter().filter(same).filter(|other| other.kind.kind != "Event");
        others.map(Resource::name).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn by_name(&self, text: &str) -> Option<&Resource> {
        let (name, rest) = text.split_once('.').unwrap_or((text, ""));
        let (version, group) = rest.split_once('.').unwrap_or((rest, ""));
        // A dot may be followed by a group, by a version and a group, or by a version of the core group.
        let places: [(Option<&str>, Option<&str>); 2] = match (rest, version) {
            ("", _) => [(None, None); 2],
            (rest, version) if is_version(version) => [(Some(version), Some(group)), (None, Some(rest))],
            (rest, _) => [(None, Some(rest)); 2],
        };
        let is = |resource: &&Resource, (version, group): (Option<&str>, Option<&str>)| {
            version.is_none_or(|version| resource.kind.version == version)
                && group.is_none_or(|group| resource.kind.group == group)
        };
        let find = |named: &dyn Fn(&Resource) -> bool| {
            places.into_iter().find_map(|place| {
                let mut here = self.resources.iter().filter(|resource| is(resource, place) && named(resource));
                // A resource that can be watched has precedence over one that can't.
                let first = here.clone().next();
                here.find(|resource| resource.watchable).or(first)
            })
        };
        find(&|resource| resource.has_name(name)).or_else(|| find(&|resource| resource.has_short_name(name)))
    }
}

fn is_version(text: &str) -> bool {
    text.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

fn can_be_watched(verbs: &[String]) -> bool {
    ["list", "watch"].into_iter().all(|verb| verbs.iter().any(|own| own == verb))
}

fn aggregated(list: APIGroupDiscoveryList) -> Vec<Resource> {
    let groups = list
        .items
        .into_iter()
        .map(|group| (group.metadata.and_then(|metadata| metadata.name).unwrap_or_default(), group.versions));
    let versions =
        groups.flat_map(|(group, versions)| versions.into_iter().map(move |version| (group.clone(), version)));
    let resources = versions.flat_map(|(group, version)| {
        let name: Arc<str> = version.version.unwrap_or_default().into();
        version.resources.into_iter().map(move |resource| (group.clone(), Arc::clone(&name), resource))
    });
    let resource = |(group, version, resource): (String, Arc<str>, kube::core::discovery::v2::APIResourceDiscovery)| {
        let kind = resource.response_kind.and_then(|kind| kind.kind).filter(|kind| !kind.is_empty())?;
        let plural = resource.resource?;
        Some(Resource {
            singular: resource.singular_resource.filter(|name| !name.is_empty()).unwrap_or_else(|| kind.to_lowercase()),
            short_names: resource.short_names,
            namespaced: resource.scope.as_deref() == Some("Namespaced"),
            watchable: can_be_watched(&resource.verbs),
            kind: Kind { group, version: version.to_string(), kind, plural },
        })
    };
    resources.filter_map(resource).collect()
}
