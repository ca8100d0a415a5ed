//! The permissions that this program needs, as one table: `check` verifies each of them, and the chart's RBAC is tested
//! against them. Each permission names the feature that breaks without it. Never list a permission that nothing uses.

use std::{collections::BTreeSet, fmt};

use rules::{
    capi::{DEFAULT_GROUP, ObjectKey, ScalableKind},
    named_enum,
};
use serde::{Serialize, Serializer};

use connect::SecretRef;
use connect::discovery::CoreResources;

/// A cluster.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The cluster in which Cluster API runs.
    Management,
    /// The cluster whose Nodes are scaled.
    Workload,
}

impl Side {
    /// Returns the name for checks.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Management => "management",
            Self::Workload => "workload",
        }
    }
}

/// One permission that this program needs.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Right {
    /// The cluster.
    pub cluster: Side,
    /// The API group; empty for the core group.
    pub group: String,
    /// The resource, in the plural.
    pub resource: String,
    /// The subresource: `scale`, or none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subresource: Option<&'static str>,
    /// The verb.
    pub verb: &'static str,
    /// The namespace; `None` is all of them, or a cluster-scoped resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The only object for which it is needed; `None` is all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The only kind of node group that needs it.
    #[serde(skip)]
    pub only_for: Option<ScalableKind>,
    /// The feature that breaks without this permission.
    pub breaks: Breaks,
}

named_enum! {
    /// The feature that breaks without a permission. All other features still work.
    #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub enum Breaks {
        /// `list` of a kind that the index holds.
        FirstList = "first_list",
        /// `list` of Machines, which deletes also need.
        MachineList = "machine_list",
        /// `watch` of a kind that the index holds.
        Watches = "picture",
        /// `get` of the kubeconfig Secret.
        WorkloadAccess = "workload_access",
        /// `patch` of `/scale`.
        Sizes = "sizes",
        /// `get` of a group's object.
        Repeats = "repeats",
        /// `get` of Machines.
        MachineReads = "machine_reads",
        /// `patch` of Machines, where they are marked rather than deleted.
        Marks = "marks",
        /// `delete` of Machines.
        Deletions = "deletions",
        /// `create` of Events.
        Events = "events",
        /// `patch` of Events.
        EventSeries = "event_series",
        /// `list` of a kind of infrastructure template.
        Templates = "templates",
        /// `watch` of a kind of infrastructure template.
        TemplateChanges = "template_changes",
        /// `list` and `watch` of a kind of bootstrap template.
        BootstrapTemplates = "bootstrap_templates",
        /// `list` and `watch` of a ConfigMap that remembers Nodes.
        Memory = "memory",
        /// `patch` of a ConfigMap that remembers Nodes.
        MemoryWrites = "memory_writes",
    }
}

impl Breaks {
    /// Returns true if only a convenience is lost: scaling goes on without it.
    pub(super) fn is_optional(self) -> bool {
        match self {
            Self::BootstrapTemplates | Self::Memory | Self::MemoryWrites => true,
            Self::FirstList
            | Self::MachineList
            | Self::Watches
            | Self::WorkloadAccess
            | Self::Sizes
            | Self::Repeats
            | Self::MachineReads
            | Self::Marks
            | Self::Deletions
            | Self::Events
            | Self::EventSeries
            | Self::Templates
            | Self::TemplateChanges => false,
        }
    }
}

impl Serialize for Breaks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Writes the consequence for people.
impl fmt::Display for Breaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FirstList => {
                "where the API server doesn't stream lists, the program never becomes ready: Refresh fails, and nothing is scaled"
            }
            Self::MachineList => {
                "where the API server doesn't stream lists, the program never becomes ready: Refresh fails, and nothing is \
                 scaled; and replicas without a Machine aren't given up"
            }
            Self::Watches => "its changes aren't seen: Refresh fails after --max-staleness, and nothing is scaled",
            Self::WorkloadAccess => {
                "the workload cluster isn't reached: the program never becomes ready, Refresh fails, and nothing is scaled"
            }
            Self::Sizes => "nothing is scaled up or down",
            Self::Repeats => {
                "a size write that another one came before fails instead of being repeated, so that Machines deleted for it \
                 are replaced; and a field manager that puts sizes back isn't named"
            }
            Self::MachineReads => {
                "a Machine that has changed a moment ago isn't deleted, and no Machine is replaced at the minimum size"
            }
            Self::Marks => {
                "no Node of these node groups is removed: their Machines get the annotation delete-machine before the size \
                 is lowered"
            }
            Self::Deletions => "no Node is removed, and no Machine is replaced at the minimum size",
            Self::Events => "no Events show what was done",
            Self::EventSeries => "Events that repeat aren't counted",
            Self::Templates => {
                "where the API server doesn't stream lists, node groups whose capacity only the template says can't \
                 scale from zero"
            }
            Self::TemplateChanges => "changes of templates aren't seen until the next start",
            Self::BootstrapTemplates => {
                "Nodes are remembered by their infrastructure template alone, and other groups don't get their labels"
            }
            Self::Memory => "Nodes that were remembered before the start aren't known",
            Self::MemoryWrites => "Nodes are remembered until the next start only",
        })
    }
}

impl Right {
    /// Returns the resource with its subresource and group, in kubectl's syntax: `machines.cluster.x-k8s.io`.
    pub fn target(&self) -> String {
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        let part = self.subresource.map(|part| format!("/{part}")).unwrap_or_default();
        format!("{}{group}{part}", self.resource)
    }

    /// Returns the RBAC rule that grants the permission, and the role that contains the rule.
    pub fn rule(&self) -> String {
        let part = self.subresource.map(|part| format!("/{part}")).unwrap_or_default();
        let names = self.name.as_ref().map(|name| format!(", resourceNames: [{name}]")).unwrap_or_default();
        let role = match &self.namespace {
            Some(namespace) => format!("a Role in {namespace}"),
            None => "a ClusterRole".to_owned(),
        };
        format!(
            "{{apiGroups: [{:?}], resources: [{}{part}]{names}, verbs: [{}]}} in {role}",
            self.group, self.resource, self.verb
        )
    }
}

/// Writes `patch machines.cluster.x-k8s.io in namespace team-a`.
impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.target())?;
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => f.write_str(" in the whole cluster"),
        }
    }
}

/// The inputs that determine the needed permissions.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Needs {
    /// Cluster API's group.
    pub group: String,
    /// The namespaces of the scope; `None` is all.
    pub namespaces: Option<BTreeSet<String>>,
    /// The plurals of optional kinds that the group doesn't serve, such as `machinepools`.
    pub not_served: BTreeSet<&'static str>,
    /// The kinds of infrastructure templates that groups refer to: group and plural.
    pub templates: Vec<(String, String)>,
    /// The same of bootstrap templates, by which Nodes are remembered.
    pub bootstrap: Vec<(String, String)>,
    /// The ConfigMaps that remember Nodes.
    pub remember: Vec<ObjectKey>,
    /// The Secret that gives access to the workload cluster.
    pub secret: Option<SecretRef>,
    /// True if no Nodes are read.
    pub without_nodes: bool,
    /// True if the program writes anything.
    pub writes: bool,
    /// True if Events are posted.
    pub events: bool,
}

/// The permissions for one resource.
struct Row {
    resource: &'static str,
    subresource: Option<&'static str>,
    verbs: &'static [(&'static str, Breaks)],
    only_for: Option<ScalableKind>,
    writes: bool,
}

const READ: &[(&str, Breaks)] = &[("list", Breaks::FirstList), ("watch", Breaks::Watches)];
const READ_MACHINES: &[(&str, Breaks)] = &[("list", Breaks::MachineList), ("watch", Breaks::Watches)];
const REPEAT: &[(&str, Breaks)] = &[("get", Breaks::Repeats)];
const RESIZE: &[(&str, Breaks)] = &[("patch", Breaks::Sizes)];
const OF_MACHINES: &[(&str, Breaks)] = &[("get", Breaks::MachineReads), ("delete", Breaks::Deletions)];
const MARK_MACHINES: &[(&str, Breaks)] = &[("patch", Breaks::Marks)];

const fn read(resource: &'static str) -> Row {
    Row { resource, subresource: None, verbs: READ, only_for: None, writes: false }
}

const fn repeat(resource: &'static str, kind: ScalableKind) -> Row {
    Row { resource, subresource: None, verbs: REPEAT, only_for: Some(kind), writes: true }
}

const fn resize(resource: &'static str, kind: ScalableKind) -> Row {
    Row { resource, subresource: Some("scale"), verbs: RESIZE, only_for: Some(kind), writes: true }
}

const CLUSTERS: &str = "clusters";
const DEPLOYMENTS: &str = "machinedeployments";
const MACHINES: &str = "machines";
const POOLS: &str = "machinepools";

/// Returns the plurals of the kinds that a group doesn't serve. If its resources are unknown, it is assumed to serve
/// all but MachinePools.
pub fn not_served(core: Option<&CoreResources>) -> BTreeSet<&'static str> {
    let Some(core) = core else { return [POOLS].into() };
    let optional = [(CLUSTERS, &core.cluster), (DEPLOYMENTS, &core.machine_deployment), (POOLS, &core.machine_pool)];
    optional.into_iter().filter(|(_, resource)| resource.is_none()).map(|(plural, _)| plural).collect()
}

/// The permissions for Cluster API's own kinds, in the namespaces of the scope.
const CORE: [Row; 13] = [
    read(CLUSTERS),
    read(DEPLOYMENTS),
    read("machinesets"),
    Row { verbs: READ_MACHINES, ..read(MACHINES) },
    read(POOLS),
    resize(DEPLOYMENTS, ScalableKind::MachineDeployment),
    resize("machinesets", ScalableKind::MachineSet),
    resize(POOLS, ScalableKind::MachinePool),
    repeat(DEPLOYMENTS, ScalableKind::MachineDeployment),
    repeat("machinesets", ScalableKind::MachineSet),
    repeat(POOLS, ScalableKind::MachinePool),
    Row { resource: MACHINES, subresource: None, verbs: OF_MACHINES, only_for: None, writes: true },
    Row {
        resource: MACHINES,
        subresource: None,
        verbs: MARK_MACHINES,
        only_for: Some(ScalableKind::MachinePool),
        writes: true,
    },
];

const OF_TEMPLATES: &[(&str, Breaks)] = &[("list", Breaks::Templates), ("watch", Breaks::TemplateChanges)];
const OF_BOOTSTRAP: &[(&str, Breaks)] = &[("list", Breaks::BootstrapTemplates), ("watch", Breaks::BootstrapTemplates)];
const OF_MEMORY: &[(&str, Breaks)] =
    &[("list", Breaks::Memory), ("watch", Breaks::Memory), ("patch", Breaks::MemoryWrites)];
const OF_EVENTS: &[(&str, Breaks)] = &[("create", Breaks::Events), ("patch", Breaks::EventSeries)];

impl Needs {
    /// Returns all needed permissions, sorted for people.
    pub fn rights(&self) -> Vec<Right> {
        // MachineSets of other groups replace a Machine that is being deleted at once: all Machines are marked there.
        let marks_all = self.group != DEFAULT_GROUP;
        let only_for = |row: &Row| if marks_all && row.resource == MACHINES { None } else { row.only_for };
        let is_served = |row: &Row| {
            let is_of_pools = only_for(row) == Some(ScalableKind::MachinePool);
            !self.not_served.contains(if is_of_pools { POOLS } else { row.resource })
        };
        let rows = CORE.iter().filter(|row| (self.writes || !row.writes) && is_served(row));
        let mut rights: Vec<_> = rows
            .flat_map(|row| {
                let right = |verb, breaks| Right {
                    subresource: row.subresource,
                    only_for: only_for(row),
                    ..plain(Side::Management, &self.group, row.resource, verb, breaks)
                };
                row.verbs.iter().flat_map(move |(verb, breaks)| self.in_scope(right(verb, *breaks)))
            })
            .collect();
        if self.writes && self.events {
            rights.extend(self.each(OF_EVENTS, "events.k8s.io", "events"));
        }
        for (group, resource) in &self.templates {
            rights.extend(self.each(OF_TEMPLATES, group, resource));
        }
        for (group, resource) in &self.bootstrap {
            rights.extend(self.each(OF_BOOTSTRAP, group, resource));
        }
        let of_memory = OF_MEMORY.iter().filter(|(_, breaks)| self.writes || *breaks != Breaks::MemoryWrites);
        for config_map in &self.remember {
            rights.extend(of_memory.clone().map(|(verb, breaks)| Right {
                namespace: Some(config_map.namespace.to_string()),
                name: Some(config_map.name.to_string()),
                ..plain(Side::Management, "", "configmaps", verb, *breaks)
            }));
        }
        rights.extend(self.secret.as_ref().map(|secret| Right {
            namespace: Some(secret.namespace().to_owned()),
            name: Some(secret.name().to_owned()),
            ..plain(Side::Management, "", "secrets", "get", Breaks::WorkloadAccess)
        }));
        if !self.without_nodes {
            rights.extend(READ.iter().map(|(verb, breaks)| plain(Side::Workload, "", "nodes", verb, *breaks)));
        }
        rights
    }

    fn each(&self, verbs: &[(&'static str, Breaks)], group: &str, resource: &str) -> Vec<Right> {
        verbs
            .iter()
            .map(|(verb, breaks)| plain(Side::Management, group, resource, verb, *breaks))
            .flat_map(|right| self.in_scope(right))
            .collect()
    }

    /// Returns the permission in each namespace of the scope.
    fn in_scope(&self, right: Right) -> Vec<Right> {
        match &self.namespaces {
            None => vec![right],
            Some(namespaces) => {
                let within = |namespace: &String| Right { namespace: Some(namespace.clone()), ..right.clone() };
                namespaces.iter().map(within).collect()
            }
        }
    }
}

fn plain(cluster: Side, group: &str, resource: &str, verb: &'static str, breaks: Breaks) -> Right {
    Right {
        cluster,
        group: group.to_owned(),
        resource: resource.to_owned(),
        subresource: None,
        verb,
        namespace: None,
        name: None,
        only_for: None,
        breaks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs() -> Needs {
        Needs {
            group: "cluster.x-k8s.io".to_owned(),
            namespaces: Some(["team-a".to_owned()].into()),
            not_served: [POOLS].into(),
            writes: true,
            events: true,
            ..Needs::default()
        }
    }

    fn printed(needs: &Needs) -> Vec<String> {
        needs.rights().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_cluster_needs_rights_in_its_namespace_and_to_its_nodes() {
        let needs = Needs { secret: Some(SecretRef::of(&"team-a/prod".parse().unwrap())), ..needs() };
        let expected = "\
list clusters.cluster.x-k8s.io in namespace team-a
watch clusters.cluster.x-k8s.io in namespace team-a
list machinedeployments.cluster.x-k8s.io in namespace team-a
watch machinedeployments.cluster.x-k8s.io in namespace team-a
list machinesets.cluster.x-k8s.io in namespace team-a
watch machinesets.cluster.x-k8s.io in namespace team-a
list machines.cluster.x-k8s.io in namespace team-a
watch machines.cluster.x-k8s.io in namespace team-a
patch machinedeployments.cluster.x-k8s.io/scale in namespace team-a
patch machinesets.cluster.x-k8s.io/scale in namespace team-a
get machinedeployments.cluster.x-k8s.io in namespace team-a
get machinesets.cluster.x-k8s.io in namespace team-a
get machines.cluster.x-k8s.io in namespace team-a
delete machines.cluster.x-k8s.io in namespace team-a
create events.events.k8s.io in namespace team-a
patch events.events.k8s.io in namespace team-a
get secrets prod-kubeconfig in namespace team-a
list nodes in the whole cluster
watch nodes in the whole cluster";
        assert_eq!(printed(&needs).join("\n"), expected);
    }

    #[test]
    fn a_program_that_writes_nothing_needs_only_the_verbs_list_and_watch() {
        let needs = Needs { writes: false, not_served: BTreeSet::new(), ..needs() };
        assert!(needs.rights().iter().all(|right| matches!(right.verb, "list" | "watch")));
        assert!(printed(&needs).contains(&"list machinepools.cluster.x-k8s.io in namespace team-a".to_owned()));
    }

    #[test]
    fn a_group_without_clusters_and_machine_deployments_needs_no_rights_to_them() {
        let not_served = BTreeSet::from([CLUSTERS, DEPLOYMENTS, POOLS]);
        let needs = Needs { group: "machine.openshift.io".to_owned(), not_served, ..needs() };
        let printed = printed(&needs);
        assert!(printed.contains(&"patch machinesets.machine.openshift.io/scale in namespace team-a".to_owned()));
        let is_other = |right: &String| [CLUSTERS, DEPLOYMENTS, POOLS].iter().any(|plural| right.contains(plural));
        assert!(!printed.iter().any(is_other), "{printed:#?}");
    }

    #[test]
    fn machines_are_patched_for_machine_pools_and_for_other_groups_alone() {
        let marks = |needs: &Needs| {
            let rights = needs.rights();
            let marks: Vec<_> = rights.iter().filter(|right| right.breaks == Breaks::Marks).collect();
            marks.into_iter().map(|right| (right.to_string(), right.only_for)).collect::<Vec<_>>()
        };
        let of = |group: &str| format!("patch machines.{group} in namespace team-a");
        assert_eq!(marks(&needs()), []);
        let with_pools = Needs { not_served: BTreeSet::new(), ..needs() };
        assert_eq!(marks(&with_pools), [(of("cluster.x-k8s.io"), Some(ScalableKind::MachinePool))]);
        let of_another = Needs { group: "cluster.k8s.io".to_owned(), ..needs() };
        assert_eq!(marks(&of_another), [(of("cluster.k8s.io"), None)]);
    }

    #[test]
    fn of_the_groups_themselves_nothing_is_patched() {
        let needs = Needs { not_served: BTreeSet::new(), ..needs() };
        let patched: Vec<_> = needs.rights().into_iter().filter(|right| right.verb == "patch").collect();
        let is_expected = |right: &Right| {
            right.subresource == Some("scale") || right.resource == "events" || right.breaks == Breaks::Marks
        };
        assert!(patched.iter().all(is_expected), "{patched:#?}");
    }

    #[test]
    fn without_nodes_nothing_of_the_workload_cluster_is_needed() {
        let needs = Needs { without_nodes: true, ..needs() };
        assert!(needs.rights().iter().all(|right| right.cluster == Side::Management));
    }

    #[test]
    fn nodes_are_remembered_in_config_maps_by_their_names() {
        let bootstrap = vec![("bootstrap.cluster.x-k8s.io".to_owned(), "xconfigtemplates".to_owned())];
        let remember = vec![ObjectKey::new("capi", "remembered")];
        let of =
            |needs: &Needs| needs.rights().into_iter().filter(|right| right.breaks.is_optional()).collect::<Vec<_>>();
        let rights = of(&Needs { bootstrap, remember, ..needs() });
        let named: Vec<_> = rights.iter().map(ToString::to_string).collect();
        let expected = [
            "list xconfigtemplates.bootstrap.cluster.x-k8s.io in namespace team-a",
            "watch xconfigtemplates.bootstrap.cluster.x-k8s.io in namespace team-a",
            "list configmaps remembered in namespace capi",
            "watch configmaps remembered in namespace capi",
            "patch configmaps remembered in namespace capi",
        ];
        assert_eq!(named, expected);
        assert_eq!(of(&needs()), []);
    }

    #[test]
    fn without_events_none_are_posted() {
        let needs = Needs { events: false, ..needs() };
        assert!(!needs.rights().iter().any(|right| right.resource == "events"));
    }

    #[test]
    fn each_namespace_needs_the_rights_of_its_own() {
        let namespaces = Some(["a".to_owned(), "b".to_owned()].into());
        let templates = vec![("infrastructure.cluster.x-k8s.io".to_owned(), "xmachinetemplates".to_owned())];
        let needs = Needs { namespaces, templates, ..needs() };
        let templates: Vec<_> =
            printed(&needs).into_iter().filter(|right| right.contains("xmachinetemplates")).collect();
        let expected = ["list", "watch"].map(|verb| {
            ["a", "b"].map(|namespace| {
                format!("{verb} xmachinetemplates.infrastructure.cluster.x-k8s.io in namespace {namespace}")
            })
        });
        assert_eq!(templates, expected.concat());
    }

    #[test]
    fn a_rule_grants_what_is_missing() {
        let needs = Needs { secret: Some(SecretRef::of(&"team-a/prod".parse().unwrap())), ..needs() };
        let rules: Vec<_> = needs.rights().iter().map(Right::rule).collect();
        let scale = r#"{apiGroups: ["cluster.x-k8s.io"], resources: [machinedeployments/scale], verbs: [patch]} in a Role in team-a"#;
        let secret = r#"{apiGroups: [""], resources: [secrets], resourceNames: [prod-kubeconfig], verbs: [get]} in a Role in team-a"#;
        let nodes = r#"{apiGroups: [""], resources: [nodes], verbs: [watch]} in a ClusterRole"#;
        for rule in [scale, secret, nodes] {
            assert!(rules.iter().any(|one| one == rule), "{rules:#?}");
        }
    }
}
