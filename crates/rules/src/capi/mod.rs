//! Cluster API's objects as this program reads them: thin values decoded from JSON, the same for the
//! contract versions v1beta1 and v1beta2, and the annotation keys that depend on the API group.
//!
//! No rule is here: the other modules decide on the meaning of the fields. A field that no rule reads must never be
//! kept, since a fleet has a hundred thousand of these objects.

mod cluster;
mod keys;
mod machine;
mod node;
mod scalable;
mod template;
mod wire;

use std::{fmt, sync::Arc};

use arcstr::ArcStr;

pub use cluster::{Cluster, NotBefore, Topology};
pub use keys::{
    CAPACITY_ERROR_GRACE, CAPACITY_PREFIX, CLIENT_NOT_BEFORE, DEFAULT_GROUP, DEFER_UPGRADE, HOLD_UPGRADE_SEQUENCE,
    KARPENTER_MEMBER, Keys, OPENSHIFT_GROUP, OWN_CAPACITY_PREFIX, OWN_PREFIX, PAUSED, PRICE_PER_HOUR,
    REPLICAS_MANAGED_BY, SCALE_DOWN_WHILE_ROLLING_OUT, TOPOLOGY_NAME, TOPOLOGY_POOL_NAME,
};
pub use machine::{Condition, Created, Failure, Machine, MachinePhase, Rare};
pub use node::{Node, NodeResources, OtherLabels, SETTLED_AFTER, TemplateLabels};
pub use scalable::{InfrastructureRef, MachineTaint, Propagation, ScalableKind, ScalableResource};
pub use shared_informer::{Interner, Metadata as Meta, ObjectKey, Uid};
pub use template::{InfrastructureTemplate, SpecDigest};
pub use wire::{LONGEST_MESSAGE, LONGEST_VALUE, MOST_KEPT, MOST_LISTED, is_unread, time};

/// The inputs of decoding besides the JSON: the annotation keys in force and the interner of repeated text.
///
/// One value serves a whole management cluster.
#[derive(Debug)]
pub struct Context {
    /// The keys of the API group in use.
    pub keys: Keys,
    /// The interner for texts that repeat from object to object.
    pub interner: Arc<Interner>,
}

impl Context {
    /// Creates the context of an API group: `cluster.x-k8s.io` unless `CAPI_GROUP` overrides it.
    pub fn new(group: &str) -> Arc<Self> {
        Arc::new(Self { keys: Keys::new(group), interner: Arc::default() })
    }

    /// Returns the function that reads the name of an object's Cluster from its JSON, for objects that don't decode.
    fn salvage(context: &Arc<Self>) -> impl Fn(&str) -> Option<ArcStr> + Send + Sync + 'static {
        let context = Arc::clone(context);
        move |json| Some(context.interner.intern(&wire::cluster_name(json, &context.keys)?))
    }
}

// A kind whose version isn't chosen yet.

/// A group and a kind, without a version.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct KindRef {
    /// The API group.
    pub group: ArcStr,
    /// The kind.
    pub kind: ArcStr,
}

impl fmt::Display for KindRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind, self.group)
    }
}

impl From<&InfrastructureRef> for KindRef {
    fn from(reference: &InfrastructureRef) -> Self {
        Self { group: reference.group.clone(), kind: reference.kind.clone() }
    }
}

#[cfg(test)]
mod tests;
