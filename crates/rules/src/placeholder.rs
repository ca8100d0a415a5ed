//! The ids of instances without a Node, and the names of the Nodes that Cluster Autoscaler makes from templates. Each
//! is resolved to its Machine or group.
//!
//! A Kubernetes name contains no `_` and a namespace no `.`, so the texts are unambiguous.

use crate::capi::{ObjectKey, ScalableKind};
use arcstr::ArcStr;

use super::GroupId;

const FAILED: &str = "failed-machine-";
const DELETING: &str = "deleting-machine-";
const PENDING: &str = "pending-machine-";
const REPLICA: &str = "replica-";
/// The prefix of the ids of instances that come from a recent increase.
const NEW: &str = "new-";
const TEMPLATE_NODE: &str = "template-node-for-";

/// The longest name in Kubernetes.
const LONGEST_NAME: usize = 253;
/// The number of digits of the largest number of a replica.
const LONGEST_INDEX: usize = 10;

/// The Machine or replica that a placeholder id stands for.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum PlaceholderRef {
    /// A Machine without a Node.
    Machine(ObjectKey),
    /// A replica of this group that has no Machine yet.
    Replica(GroupId),
}

impl PlaceholderRef {
    /// Parses `failed-machine-<ns>_<name>`, `deleting-machine-…`, `pending-machine-…` and
    /// `replica-<Kind>-<ns>_<name>-<i>`; the last two may be prefixed by `new-`. `None` for any other text, such as a
    /// provider id.
    pub fn parse(id: &str) -> Option<Self> {
        let id = id.strip_prefix(NEW).filter(|id| may_be_new(id)).unwrap_or(id);
        if let Some(rest) = [FAILED, DELETING, PENDING].iter().find_map(|prefix| id.strip_prefix(prefix)) {
            return object_key(rest).map(Self::Machine);
        }
        let (kind, rest) = id.strip_prefix(REPLICA)?.split_once('-')?;
        let (key, index) = rest.rsplit_once('-')?;
        if !(1..=LONGEST_INDEX).contains(&index.len()) || !index.bytes().all(|c| c.is_ascii_digit()) {
            return None;
        }
        Some(Self::Replica(GroupId::new(ScalableKind::parse(kind)?, object_key(key)?)))
    }
}

fn may_be_new(id: &str) -> bool {
    id.starts_with(PENDING) || id.starts_with(REPLICA)
}

/// Prefixes the id of a Machine without a Node, or of a replica without a Machine, by `new-`: it comes from a recent
/// increase. Leaves any other id unchanged.
pub fn rename_new(id: &mut String) {
    if may_be_new(id) {
        id.insert_str(0, NEW);
    }
}

fn object_key(text: &str) -> Option<ObjectKey> {
    let (namespace, name) = text.split_once('_')?;
    let is_name = |text: &str| !text.is_empty() && !text.contains(['_', '/']);
    (is_name(namespace) && is_name(name)).then(|| ObjectKey::new(ArcStr::from(namespace), ArcStr::from(name)))
}

pub(super) fn failed(machine: &ObjectKey) -> String {
    format!("{FAILED}{}_{}", machine.namespace, machine.name)
}

pub(super) fn deleting(machine: &ObjectKey) -> String {
    format!("{DELETING}{}_{}", machine.namespace, machine.name)
}

pub(super) fn pending(machine: &ObjectKey) -> String {
    format!("{PENDING}{}_{}", machine.namespace, machine.name)
}

pub(super) fn replica(group: &GroupId, index: u32) -> String {
    format!("{REPLICA}{}-{}_{}-{index}", group.kind, group.key.namespace, group.key.name)
}

/// Returns the groups for which a Node named `template-node-for-<group id>-…` may have been made, the longest name
/// first: the first group that exists is the right one. Any other name has no candidates, at the cost of one
/// comparison. Candidates that are too long for a name are skipped, which limits their number for a long text.
pub fn template_node_groups(name: &str) -> impl Iterator<Item = GroupId> + '_ {
    let parts = name.strip_prefix(TEMPLATE_NODE).and_then(|id| {
        let (kind, rest) = id.split_once('/')?;
        let (namespace, rest) = rest.split_once('/')?;
        let kind = ScalableKind::parse(kind)?;
        let is_namespace = !namespace.is_empty() && namespace.len() <= LONGEST_NAME;
        (is_namespace && !rest.contains('/')).then_some((kind, namespace, rest))
    });
    parts.into_iter().flat_map(|(kind, namespace, rest)| {
        let ends = rest.rmatch_indices('-').filter_map(|(end, _)| rest.get(..end));
        let ends = ends.filter(|name| !name.is_empty() && name.len() <= LONGEST_NAME);
        ends.map(move |name| GroupId::new(kind, ObjectKey::new(namespace, name)))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn key(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey::new(namespace, name)
    }

    #[rstest]
    #[case("")]
    #[case("aws:///eu-central-1a/i-0123456789")]
    #[case("worker-1")]
    #[case("failed-machine-")]
    #[case("failed-machine-worker-1")]
    #[case("failed-machine-_worker-1")]
    #[case("failed-machine-team-a_")]
    #[case("failed-machine-team-a_worker_1")]
    #[case("failed-machine-team-a/worker_1")]
    #[case("lost-machine-team-a_worker-1")]
    #[case("new-failed-machine-team-a_worker-1")]
    #[case("new-new-pending-machine-team-a_worker-1")]
    #[case("replica-MachineDeployment-team-a_workers")]
    #[case("replica-MachineDeployment-team-a_workers-")]
    #[case("replica-MachineDeployment-team-a_workers-x")]
    #[case("replica-MachineDeployment-team-a_workers-+1")]
    #[case("replica-MachineDeployment-team-a-0")]
    #[case("replica-Machine-team-a_workers-0")]
    #[case("replica-MachineDeployment")]
    fn any_other_text_is_no_placeholder(#[case] id: &str) {
        assert_eq!(PlaceholderRef::parse(id), None);
    }

    #[rstest]
    #[case::plain("template-node-for-MachineDeployment/team-a/workers-123", &["MachineDeployment/team-a/workers"])]
    #[case::the_longest_first(
        "template-node-for-MachineSet/team-a/md-0-workers-123-upcoming-1",
        &[
            "MachineSet/team-a/md-0-workers-123-upcoming",
            "MachineSet/team-a/md-0-workers-123",
            "MachineSet/team-a/md-0-workers",
            "MachineSet/team-a/md-0",
            "MachineSet/team-a/md",
        ]
    )]
    #[case::no_suffix("template-node-for-MachineDeployment/team-a/workers", &[])]
    #[case::an_unknown_kind("template-node-for-Machine/team-a/workers-1", &[])]
    #[case::no_namespace("template-node-for-MachineDeployment/workers-1", &[])]
    #[case::a_slash_too_many("template-node-for-MachineDeployment/team-a/workers-1/x-2", &[])]
    #[case::another_name("worker-1", &[])]
    #[case::empty("", &[])]
    fn a_template_node_leads_to_its_candidates(#[case] name: &str, #[case] expected: &[&str]) {
        assert_eq!(template_node_groups(name).map(|id| id.to_string()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_text_of_any_length_has_no_more_candidates_than_a_name() {
        let name = "a-".repeat(100_000);
        let candidates: Vec<_> = template_node_groups(&format!("{TEMPLATE_NODE}MachineSet/team-a/{name}")).collect();
        assert_eq!(candidates.len(), 127);
        assert!(candidates.iter().all(|id| id.key.name.len() <= LONGEST_NAME));
        assert_eq!(template_node_groups(&format!("{TEMPLATE_NODE}MachineSet/{name}/{name}")).count(), 0);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in any::<String>(), rest in "[a-zA-Z/_0-9ä-]{0,30}") {
            let _ = PlaceholderRef::parse(&text);
            for prefix in [FAILED, DELETING, PENDING, REPLICA, TEMPLATE_NODE] {
                let id = format!("{prefix}{rest}");
                let _ = PlaceholderRef::parse(&id);
                let _ = template_node_groups(&id).count();
            }
        }

        #[test]
        fn every_placeholder_leads_back(
            namespace in "[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", name in "[a-z0-9]([a-z0-9.-]{0,8}[a-z0-9])?",
            kind in 0..3_usize, index in any::<u32>(),
        ) {
            let key = key(&namespace, &name);
            for mut id in [failed(&key), deleting(&key), pending(&key)] {
                prop_assert_eq!(PlaceholderRef::parse(&id), Some(PlaceholderRef::Machine(key.clone())));
                rename_new(&mut id);
                prop_assert_eq!(id.starts_with("new-"), id.ends_with(&pending(&key)));
                prop_assert_eq!(PlaceholderRef::parse(&id), Some(PlaceholderRef::Machine(key.clone())));
            }
            let group = GroupId::new(ScalableKind::ALL[kind], key);
            let mut id = replica(&group, index);
            prop_assert_eq!(PlaceholderRef::parse(&id), Some(PlaceholderRef::Replica(group.clone())));
            rename_new(&mut id);
            prop_assert_eq!(id.starts_with("new-replica-"), true);
            prop_assert_eq!(PlaceholderRef::parse(&id), Some(PlaceholderRef::Replica(group.clone())));
            let node = format!("template-node-for-{group}-{index}");
            prop_assert_eq!(template_node_groups(&node).next(), Some(group));
        }
    }
}
