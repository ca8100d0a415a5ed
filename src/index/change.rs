//! Changes to the index: one value per event, whatever informer it came from. The index takes changes in any order and
//! with repeats, and the same objects give the same state.

use arcstr::ArcStr;
use std::{collections::BTreeSet, sync::Arc};

use capi::{Cluster, InfrastructureTemplate, KindRef, Machine, Node, ObjectKey, ScalableResource};
use nodegroup::{GroupId, PriceList};

/// One change of one object, or of what is known of a template kind.
#[derive(Clone, Debug)]
pub enum Change {
    /// A Cluster was added or updated.
    Cluster(Arc<Cluster>),
    /// A Cluster is gone.
    ClusterGone(ObjectKey),
    /// A MachineDeployment, MachineSet or MachinePool was added or updated.
    Scalable(Arc<ScalableResource>),
    /// A MachineDeployment, MachineSet or MachinePool is gone.
    ScalableGone(GroupId),
    /// A MachineDeployment, MachineSet or MachinePool doesn't decode: its error.
    ScalableUndecodable(GroupId, ArcStr),
    /// A Machine was added or updated.
    Machine(Arc<Machine>),
    /// A Machine is gone.
    MachineGone(ObjectKey),
    /// A Node was added or updated.
    Node(Arc<Node>),
    /// The Node of that name is gone.
    NodeGone(ArcStr),
    /// An infrastructure template of a kind was added or updated.
    Template(KindRef, Arc<InfrastructureTemplate>),
    /// An infrastructure template is gone.
    TemplateGone(KindRef, ObjectKey),
    /// An infrastructure template doesn't decode: its error.
    TemplateUndecodable(KindRef, ObjectKey, ArcStr),
    /// The state of an infrastructure template kind as a whole has changed.
    Kind(KindRef, KindState),
    /// Nothing is known of an infrastructure template kind any more, and none of its templates.
    KindGone(KindRef),
    /// The namespaces of the scope that can't be read are these now, and no others.
    ForbiddenNamespaces(BTreeSet<String>),
    /// The operator's prices have changed.
    Prices(Arc<PriceList>),
}

/// The state of an infrastructure template kind as a whole.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum KindState {
    /// Its first list isn't complete yet, and nothing speaks against it.
    #[default]
    Pending,
    /// Its first list is complete: a template that isn't known doesn't exist.
    Synced,
    /// It can't be read: why.
    Unreadable(ArcStr),
}
