//! Changes to the index: one value per event of any informer. Changes may arrive in any order and repeatedly: the
//! same objects must always result in the same state.

use arcstr::ArcStr;
use std::{collections::BTreeSet, sync::Arc};

use rules::capi::{Cluster, InfrastructureTemplate, KindRef, Machine, Node, ObjectKey, ScalableResource};
use rules::{GroupId, PriceList, remembered::Templates};

use super::templates::Template;

/// A change of one object, or of the state of a template kind.
#[derive(Clone, Debug)]
pub enum Change {
    /// A Cluster was added or updated.
    Cluster(Arc<Cluster>),
    /// A Cluster was deleted.
    ClusterGone(ObjectKey),
    /// A MachineDeployment, MachineSet or MachinePool was added or updated.
    Scalable(Arc<ScalableResource>),
    /// A MachineDeployment, MachineSet or MachinePool was deleted.
    ScalableGone(GroupId),
    /// A MachineDeployment, MachineSet or MachinePool doesn't decode, with the error.
    ScalableUndecodable(GroupId, ArcStr),
    /// A Machine was added or updated.
    Machine(Arc<Machine>),
    /// A Machine was deleted.
    MachineGone(ObjectKey),
    /// A Node was added or updated.
    Node(Arc<Node>),
    /// The Node with this name was deleted.
    NodeGone(ArcStr),
    /// An infrastructure template of a kind was added or updated.
    Template(KindRef, Arc<InfrastructureTemplate>),
    /// An infrastructure template was deleted.
    TemplateGone(KindRef, ObjectKey),
    /// An infrastructure template doesn't decode, with the error.
    TemplateUndecodable(KindRef, ObjectKey, ArcStr),
    /// The state of an infrastructure template kind as a whole has changed.
    Kind(KindRef, KindState),
    /// An infrastructure template kind isn't followed any more; its state and all its templates are forgotten.
    KindGone(KindRef),
    /// The set of unreadable namespaces in scope has changed; the value is the complete set.
    ForbiddenNamespaces(BTreeSet<String>),
    /// What is remembered of Nodes of these templates has changed.
    Remembered(Arc<BTreeSet<Templates>>),
    /// The operator's prices have changed.
    Prices(Arc<PriceList>),
}

impl Change {
    /// Returns the template that was added or updated, or the error for which it doesn't decode.
    pub fn template(&self) -> Option<Template> {
        if let Self::Template(_, template) = self {
            Some(Ok(Arc::clone(template)))
        } else if let Self::TemplateUndecodable(_, _, error) = self {
            Some(Err(error.clone()))
        } else {
            None
        }
    }
}

/// The state of an infrastructure template kind as a whole.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum KindState {
    /// Its first list isn't complete yet, and hasn't failed.
    #[default]
    Pending,
    /// Its first list is complete: an unknown template doesn't exist.
    Synced,
    /// It can't be read, with the reason.
    Unreadable(ArcStr),
}
