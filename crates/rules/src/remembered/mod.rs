//! What is remembered of Nodes beyond their lifetime and that of this process: an entry for all Nodes of one namespace,
//! made from templates of equal specs, with one architecture. A new Node of these templates will have it.
//!
//! Merging is commutative, associative and idempotent, so that replicas that see Nodes in any order, or write at the same
//! time, come to the same entry and lose none.

mod content;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};

pub use self::content::{Content, LONGEST_ENTRY, MOST_BYTES, MOST_ENTRIES, SetAside, fits, plan};
pub use super::drivers::{Devices, Offers};
use super::{
    Amounts, GroupId, ObservedResources, Quantity,
    capi::{InfrastructureRef, Node, NodeResources, OWN_CAPACITY_PREFIX, ScalableResource, SpecDigest},
    labels::{self, ARCH},
    problem::{Problem, ProblemKind, switch},
    resource_list::HUGE_PAGES,
};

/// The suffix of the annotation of a group that opts out.
pub(crate) const REMEMBER: &str = "remember";

/// The age from which on an entry is renewed though nothing else is new: the oldest are dropped first.
const RENEWED_AFTER: SignedDuration = SignedDuration::from_hours(24);
/// The maximum bytes of an entry's labels other than [`Node::TEMPLATE_LABELS`].
const MOST_LABELS: usize = 4 << 10;
/// The domain of node-feature-discovery's labels, of which a Node has dozens and hardly any Pod selects one.
const HARDWARE: &str = "feature.node.kubernetes.io/";
/// The maximum number of groups that an entry names.
const MOST_GROUPS: usize = 8;
/// The percentage by which a Node must be smaller to be reported: two Nodes of one machine type differ a little.
const TOLERANCE: i64 = 1;

/// The content of the templates that Nodes of a namespace are made from. Their names don't count: a Cluster's topology
/// renames templates.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Templates {
    /// The namespace.
    pub namespace: ArcStr,
    /// The digest of all specs.
    digest: SpecDigest,
}

/// What is known of a bootstrap template.
#[derive(Clone, Copy, Debug)]
pub enum Bootstrap<'a> {
    /// The object names none.
    None,
    /// It can't be read.
    Unreadable,
    /// Its spec.
    Known(&'a InfrastructureRef, SpecDigest),
}

impl Templates {
    /// Returns the content of an infrastructure template and a bootstrap template.
    pub fn new(
        namespace: &ArcStr,
        (infrastructure, spec): (&InfrastructureRef, SpecDigest),
        bootstrap: Bootstrap<'_>,
    ) -> Self {
        let part = |of: &InfrastructureRef, spec: SpecDigest| format!("{}/{}={spec};", of.group, of.kind);
        let mut text = part(infrastructure, spec);
        match bootstrap {
            Bootstrap::None => text.push('-'),
            Bootstrap::Unreadable => text.push('?'),
            Bootstrap::Known(reference, spec) => text.push_str(&part(reference, spec)),
        }
        Self { namespace: namespace.clone(), digest: SpecDigest::of_bytes(text.as_bytes()) }
    }

    /// Returns the first key of these templates, in the order of keys.
    pub fn first(&self) -> Key {
        Key { templates: self.clone(), arch: ArcStr::new() }
    }
}

/// The key of an entry.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Key {
    /// The content of the templates of its Nodes.
    pub templates: Templates,
    arch: ArcStr,
}

impl Key {
    /// Returns the key of Nodes with this architecture; `None` if its name can't be part of a key.
    pub fn new(templates: &Templates, arch: &str) -> Option<Self> {
        is_arch(arch).then(|| Self { templates: templates.clone(), arch: arch.into() })
    }

    /// Returns the architecture.
    pub fn arch(&self) -> &str {
        &self.arch
    }

    /// Parses the key of a ConfigMap's data: `namespace.architecture.digest`.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '.');
        let (namespace, arch, digest) = (parts.next()?, parts.next()?, parts.next()?);
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_namespace = (1..=63).contains(&namespace.len()) && namespace.chars().all(is_name);
        let digest = SpecDigest::parse(digest)?;
        let templates = Templates { namespace: namespace.into(), digest };
        (is_namespace && is_arch(arch)).then(|| Self { templates, arch: arch.into() })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.templates.namespace, self.arch, self.templates.digest)
    }
}

fn is_arch(text: &str) -> bool {
    (1..=32).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
}

/// A Kubernetes version without its patch.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Minor(u16, u16);

impl Minor {
    /// Parses a version such as `v1.35.2` or `1.35`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix('v').unwrap_or(text).splitn(3, '.');
        let mut number = || parts.next()?.parse().ok();
        Some(Self(number()?, number()?))
    }
}

impl fmt::Display for Minor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// The Node that was seen last, and when.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Seen {
    /// The time.
    pub at: Timestamp,
    /// The Node's name.
    pub node: ArcStr,
    /// Its group.
    pub group: GroupId,
    /// The Cluster of the group, in the group's namespace; empty if it isn't known.
    pub cluster: ArcStr,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node {} of {}", self.node, self.group)?;
        if !self.cluster.is_empty() {
            write!(f, " in Cluster {}", self.cluster)?;
        }
        write!(f, ", {}", self.at.strftime("%Y-%m-%d %H:%MZ"))
    }
}

/// What is remembered of the Nodes of a key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// The Node that was seen last.
    pub seen: Seen,
    /// The smallest amounts, of resources that all have.
    pub resources: BTreeMap<ArcStr, Amounts>,
    /// The labels on which they agreed; `None` if they differ.
    labels: BTreeMap<ArcStr, Option<ArcStr>>,
    /// The features that all kubelets of the newest minor version declare, in order.
    pub declared_features: Vec<String>,
    /// The volumes and devices, as far as they were read.
    pub offers: Offers,
    /// The newest minor version of Kubernetes.
    pub version: Option<Minor>,
    /// True if one of them had long been ready, or went without devices that were remembered: no more are expected.
    settled: bool,
    /// Their groups, the first ones in order.
    groups: BTreeSet<GroupId>,
    /// The failure domain of their Machines' owners; `Err` if they are of several.
    failure_domain: Result<Option<ArcStr>, Several>,
}

/// The Nodes were of several failure domains.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Several;

/// A resource of which a Node has less than what was remembered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Smaller {
    /// The resource.
    pub resource: ArcStr,
    /// The allocatable amount that was remembered.
    pub remembered: Quantity,
    /// The Node's.
    pub now: Quantity,
}

impl Entry {
    /// Returns what a Node of this owner shows; `None` if it doesn't report its resources. Labels that the owner states
    /// aren't remembered: each group states its own.
    pub fn of(node: &Node, owner: &ScalableResource, group: &GroupId, now: Timestamp) -> Option<Self> {
        let shown = ObservedResources::of(node, group.clone())?;
        let mut resources = shown.resources;
        let mut settled = node.resources.as_ref().is_some_and(NodeResources::is_settled);
        for (_, amounts) in resources.iter_mut().filter(|(name, _)| name.contains('/')) {
            // Devices that are out of service come back, and a new Node has them all. None at all are listed after a restart
            // of the kubelet, or of the device plugin.
            amounts.allocatable = amounts.capacity;
            settled &= !amounts.capacity.is_zero();
        }
        let is_stated = |key: &str| owner.template_labels.contains_key(key) || owner.node_labels.contains_key(key);
        let counts = |key: &str, value: &str| {
            let is_valid = labels::check_key(key).is_ok() && labels::check_value(value).is_ok();
            key != ARCH && !value.is_empty() && is_valid && !is_stated(key)
        };
        let others = node.other_labels.text().into_iter().flat_map(|text| text.lines());
        let others = others.filter_map(|line| line.split_once('=')).filter(|(key, value)| counts(key, value));
        let mut labels = BTreeMap::new();
        let mut take = |key: &str, value: &str| labels.insert(ArcStr::from(key), Some(ArcStr::from(value)));
        for (key, value) in few(others.collect()) {
            take(key, value);
        }
        for (key, value) in node.template_labels.iter().filter(|(key, value)| counts(key, value)) {
            take(key, value);
        }
        Some(Self {
            seen: Seen {
                at: now,
                node: node.meta.key.name.clone(),
                group: group.clone(),
                cluster: owner.cluster_name.clone(),
            },
            resources,
            labels,
            declared_features: shown.declared_features,
            offers: Offers::default(),
            version: owner.version.as_deref().and_then(Minor::parse),
            settled,
            groups: BTreeSet::from([group.clone()]),
            failure_domain: Ok(owner.failure_domain.clone()),
        })
    }

    /// Returns what both show: the smallest amount of what both have, and the labels on which they agree. What a Node
    /// gets only after a while counts as missing only of one that is settled.
    pub fn merge(&self, other: &Self) -> Self {
        let (version, declared_features) = features(self, other);
        Self {
            seen: self.seen.clone().max(other.seen.clone()),
            resources: resources(self, other),
            labels: merged_labels(self, other),
            declared_features,
            offers: self.offers.merge(&other.offers),
            version,
            settled: self.settled || other.settled,
            groups: self.groups.union(&other.groups).take(MOST_GROUPS).cloned().collect(),
            failure_domain: if self.failure_domain == other.failure_domain {
                self.failure_domain.clone()
            } else {
                Err(Several)
            },
        }
    }

    /// Returns true if this one, which includes `known`, says something new that is worth a write.
    pub fn is_news(&self, known: &Self) -> bool {
        self.seen.at.duration_since(known.seen.at) >= RENEWED_AFTER
            || *self != Self { seen: self.seen.clone(), ..known.clone() }
    }

    /// Returns the first resource of which a Node has clearly less than is remembered.
    pub fn smaller(&self, node: &Self) -> Option<Smaller> {
        self.resources.iter().filter(|(name, _)| node.is_final(name)).find_map(|(name, amounts)| {
            let now = node.resources.get(name).map_or(Quantity::ZERO, |amounts| amounts.allocatable);
            let remembered = amounts.allocatable;
            let is_less = now < remembered && (remembered - now).is_more_than_percent(TOLERANCE, remembered);
            is_less.then(|| Smaller { resource: name.clone(), remembered, now })
        })
    }

    /// Returns the labels that a new Node of this group will have. Those that name a place count for the groups whose Nodes
    /// had them, and for those that have their failure domain. Those that aren't of the machine itself need all templates to be equal.
    pub(crate) fn labels_for(
        &self,
        group: &GroupId,
        object: &ScalableResource,
        is_whole: bool,
    ) -> impl Iterator<Item = (&str, &ArcStr)> {
        let is_own = self.groups.contains(group);
        let is_same_place = match &self.failure_domain {
            Ok(domain) => *domain == object.failure_domain && (is_own || domain.is_some()),
            // What Nodes of several agree on doesn't depend on it.
            Err(Several) => true,
        };
        let counts = move |key: &str| {
            let is_of_machine = Node::TEMPLATE_LABELS.contains(&key);
            (is_same_place || !is_place(key)) && (is_of_machine || is_whole || is_own)
        };
        let agreed = self.labels.iter().filter_map(|(key, value)| Some((key.as_str(), value.as_ref()?)));
        agreed.filter(move |(key, _)| counts(key))
    }

    /// Returns the entry with these volumes and devices too.
    pub fn offering(&self, offers: &Offers) -> Self {
        self.merge(&Self { offers: offers.clone(), ..self.clone() })
    }

    /// Returns the entry of a Node that won't show more.
    pub fn settled(self) -> Self {
        Self { settled: true, ..self }
    }

    /// Returns true if the Nodes had been ready for so long that what they lack won't come.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled
    }

    /// Returns true if the amount of a resource is final, or that there is none. A device plugin registers its devices some
    /// time after the Node.
    fn is_final(&self, resource: &str) -> bool {
        self.settled || !is_extended(resource)
    }

    /// Returns the entry without what is alike in devices.
    fn without_alike(mut self) -> Self {
        self.offers = self.offers.without_alike();
        self
    }

    /// Returns the entry without the labels that make it too long: those that describe hardware, or all others too.
    fn without_labels(mut self, of_hardware_only: bool) -> Self {
        let is_kept = |key: &str| {
            if of_hardware_only { !key.starts_with(HARDWARE) } else { Node::TEMPLATE_LABELS.contains(&key) }
        };
        self.labels.retain(|key, _| is_kept(key));
        self
    }
}

/// Returns as many of the labels as an entry takes, those of the hardware last.
fn few<'a>(mut labels: Vec<(&'a str, &'a str)>) -> Vec<(&'a str, &'a str)> {
    labels.sort_by_key(|(key, _)| key.starts_with(HARDWARE));
    let mut bytes = 0;
    labels.retain(|(key, value)| {
        bytes += key.len() + value.len();
        bytes <= MOST_LABELS
    });
    labels
}

/// Returns true for a label that says where a Node is.
fn is_place(label: &str) -> bool {
    let (domain, name) = label.split_once('/').unwrap_or(("", label));
    domain.split('.').any(|part| part == "topology") || name.ends_with("zone") || name.ends_with("region")
}

/// Returns true for a resource that may appear some time after the Node.
fn is_extended(resource: &str) -> bool {
    resource.contains('/') || resource.starts_with(HUGE_PAGES)
}

fn resources(a: &Entry, b: &Entry) -> BTreeMap<ArcStr, Amounts> {
    let by = |one: fn(Quantity, Quantity) -> Quantity, a: &Amounts, b: &Amounts| Amounts {
        capacity: one(a.capacity, b.capacity),
        allocatable: one(a.allocatable, b.allocatable),
    };
    let names: BTreeSet<_> = a.resources.keys().chain(b.resources.keys()).collect();
    let amounts = |name: &ArcStr| {
        let (of_a, of_b) = (a.resources.get(name), b.resources.get(name));
        match (a.is_final(name), b.is_final(name)) {
            (true, true) => Some(by(Ord::min, of_a?, of_b?)),
            (true, false) => of_a.copied(),
            (false, true) => of_b.copied(),
            (false, false) => match (of_a, of_b) {
                (Some(a), Some(b)) => Some(by(Ord::max, a, b)),
                (one, None) | (None, one) => one.copied(),
            },
        }
    };
    names.into_iter().filter_map(|name| Some((name.clone(), amounts(name)?))).collect()
}

fn merged_labels(a: &Entry, b: &Entry) -> BTreeMap<ArcStr, Option<ArcStr>> {
    let keys: BTreeSet<_> = a.labels.keys().chain(b.labels.keys()).collect();
    let value = |key: &ArcStr| match (a.labels.get(key), b.labels.get(key)) {
        (Some(a), Some(b)) => Some(a.clone().filter(|_| a == b)),
        (Some(value), None) => (!b.settled).then(|| value.clone()),
        (None, Some(value)) => (!a.settled).then(|| value.clone()),
        (None, None) => None,
    };
    let labels = keys.into_iter().filter_map(|key| Some((key.clone(), value(key)?)));
    // Of a settled Node all labels are known, so that none need be kept to say that Nodes differ.
    let is_kept = |(_, value): &(ArcStr, Option<ArcStr>)| value.is_some() || !(a.settled || b.settled);
    labels.filter(is_kept).collect()
}

fn features(a: &Entry, b: &Entry) -> (Option<Minor>, Vec<String>) {
    let features = match a.version.cmp(&b.version) {
        std::cmp::Ordering::Less => b.declared_features.clone(),
        std::cmp::Ordering::Greater => a.declared_features.clone(),
        std::cmp::Ordering::Equal => {
            let of_both = a.declared_features.iter().filter(|feature| b.declared_features.contains(feature));
            of_both.cloned().collect()
        }
    };
    (a.version.max(b.version), features)
}

/// Returns false if a group's annotation says that nothing is remembered of its Nodes, nor used for it.
///
/// # Errors
/// If the annotation is neither true nor false.
pub fn is_wanted(group: &ScalableResource) -> Result<bool, Problem> {
    let key = format!("{OWN_CAPACITY_PREFIX}{REMEMBER}");
    switch((ProblemKind::Capacity, &key), &group.annotations, true)
}

/// Returns the note on a Node that was smaller than what was remembered when a size was raised for it.
pub fn note_of_smaller(node: &str, seen: &Seen, smaller: &Smaller) -> String {
    let Smaller { resource, remembered, now } = smaller;
    format!(
        "Node {node} has {now} of {resource} for pods, and {remembered} was remembered from {seen}: the smaller amount counts \
         from now on; state it by annotation if Nodes differ"
    )
}
