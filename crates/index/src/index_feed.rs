//! The object types that an index is fed with: the change that each state of an object makes.

use std::{collections::HashSet, sync::Arc};

use arcstr::ArcStr;
use rules::GroupId;
use rules::capi::{Cluster, InfrastructureTemplate, KindRef, Machine, Node, ObjectKey, ScalableKind, ScalableResource};
use shared_informer::Object;

use super::{Change, Index, tag::Tag};

/// An object type that the index is fed with.
pub trait IndexFeed: Send + Sync + Sized + 'static {
    /// The kind, for a type that represents several.
    type Kind: Clone + Send + Sync + 'static;

    /// Returns the change for an object.
    fn present(kind: &Self::Kind, object: &Arc<Self>) -> Change;
    /// Returns the change for an object that doesn't decode. `None` keeps its last state, since an existing Machine
    /// must not count as a missing one, nor a paused Cluster as an unpaused one.
    #[must_use]
    fn undecodable(_: &Self::Kind, _: ObjectKey, _: ArcStr) -> Option<Change> {
        None
    }

    /// Returns the change for the present state of an object. `None` stands for one that doesn't decode, whose last state
    /// stays.
    fn change(kind: &Self::Kind, object: &Object<Self>) -> Option<Change> {
        match &object.content {
            Ok(content) => Some(Self::present(kind, content)),
            Err(error) => Self::undecodable(kind, object.metadata.key.clone(), error.message().clone()),
        }
    }

    /// Returns the change for a deleted object.
    fn deleted(kind: &Self::Kind, key: ObjectKey) -> Change;
    /// Returns the keys of this kind in the index.
    fn keys(index: &Index, kind: &Self::Kind) -> HashSet<ObjectKey>;

    /// Returns the Cluster of an object. Nodes have none: they are of one cluster as a whole. Nor have infrastructure
    /// templates, which groups of several Clusters may share.
    #[must_use]
    fn tag(_: &Self) -> Tag<'_> {
        Tag::None
    }

    /// Returns the Cluster of an object as it was read. One that doesn't decode may name it nevertheless.
    #[must_use]
    fn tag_of(object: &Object<Self>) -> Tag<'_> {
        match &object.content {
            Ok(content) => Self::tag(content),
            Err(error) => error.salvaged().map_or(Tag::Unreadable, Tag::Cluster),
        }
    }
}

impl IndexFeed for Cluster {
    type Kind = ();

    fn present((): &(), object: &Arc<Self>) -> Change {
        Change::Cluster(Arc::clone(object))
    }

    fn deleted((): &(), key: ObjectKey) -> Change {
        Change::ClusterGone(key)
    }

    fn keys(index: &Index, (): &()) -> HashSet<ObjectKey> {
        index.keys(|live| live.clusters.keys().cloned().collect())
    }

    fn tag(object: &Self) -> Tag<'_> {
        Tag::Cluster(&object.meta.key.name)
    }
}

impl IndexFeed for ScalableResource {
    type Kind = ScalableKind;

    fn present(_: &ScalableKind, object: &Arc<Self>) -> Change {
        Change::Scalable(Arc::clone(object))
    }

    fn undecodable(kind: &ScalableKind, key: ObjectKey, error: ArcStr) -> Option<Change> {
        Some(Change::ScalableUndecodable(GroupId::new(*kind, key), error))
    }

    fn deleted(kind: &ScalableKind, key: ObjectKey) -> Change {
        Change::ScalableGone(GroupId::new(*kind, key))
    }

    fn keys(index: &Index, kind: &ScalableKind) -> HashSet<ObjectKey> {
        index.keys(|live| {
            let known = live.groups.iter().filter(|(id, group)| id.kind == *kind && group.is_known());
            known.map(|(id, _)| id.key.clone()).collect()
        })
    }

    fn tag(object: &Self) -> Tag<'_> {
        let owner = object.deployment.as_ref().map(|name| (ScalableKind::MachineDeployment, name));
        Tag::named(&object.cluster_name, owner)
    }
}

impl IndexFeed for Machine {
    type Kind = ();

    fn present((): &(), object: &Arc<Self>) -> Change {
        Change::Machine(Arc::clone(object))
    }

    fn deleted((): &(), key: ObjectKey) -> Change {
        Change::MachineGone(key)
    }

    fn keys(index: &Index, (): &()) -> HashSet<ObjectKey> {
        index.keys(|live| live.machines.keys().cloned().collect())
    }

    fn tag(object: &Self) -> Tag<'_> {
        Tag::named(&object.cluster_name, object.owner.as_ref().map(|(kind, name)| (*kind, name)))
    }
}

impl IndexFeed for Node {
    type Kind = ();

    fn present((): &(), object: &Arc<Self>) -> Change {
        Change::Node(Arc::clone(object))
    }

    fn deleted((): &(), key: ObjectKey) -> Change {
        Change::NodeGone(key.name)
    }

    fn keys(index: &Index, (): &()) -> HashSet<ObjectKey> {
        index.keys(|live| live.nodes.values().map(|node| node.meta.key.clone()).collect())
    }
}

impl IndexFeed for InfrastructureTemplate {
    type Kind = KindRef;

    fn present(kind: &KindRef, object: &Arc<Self>) -> Change {
        Change::Template(kind.clone(), Arc::clone(object))
    }

    fn undecodable(kind: &KindRef, key: ObjectKey, error: ArcStr) -> Option<Change> {
        Some(Change::TemplateUndecodable(kind.clone(), key, error))
    }

    fn deleted(kind: &KindRef, key: ObjectKey) -> Change {
        Change::TemplateGone(kind.clone(), key)
    }

    fn keys(index: &Index, kind: &KindRef) -> HashSet<ObjectKey> {
        index.keys(|live| live.templates.keys(kind))
    }
}
