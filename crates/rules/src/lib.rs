//! The rules of node groups as pure functions and values: the definition of a group, its bounds, the state of its
//! instances, its options, and the template of the Node that would join. Every rule is here, and only once.
//!
//! [`capi`] has Cluster API's objects as they are read. There is no cluster, no client and no I/O here. It must never
//! panic, whatever an annotation holds.

pub mod architecture;
pub mod call_error;
pub mod capacity;
pub mod capi;
pub mod drivers;
pub mod duration;
pub mod evaluate;
pub mod failure;
pub mod field_manager;
pub mod group_version;
mod id;
pub mod instance;
pub mod label_selector;
pub mod labels;
pub mod log_limit;
mod named;
mod node_claim;
mod node_labels;
pub mod observed;
pub mod options;
pub mod placeholder;
pub mod pod;
pub mod price;
mod problem;
pub mod provenance;
pub mod provider_id;
pub mod quantity;
pub mod remembered;
pub mod replacement;
pub mod resource_list;
pub mod resource_slices;
pub mod rollout;
pub mod scope;
pub mod size;
pub mod taints;
pub mod template;
#[cfg(test)]
pub(crate) mod testing;
pub mod text;
pub mod topology;

pub use architecture::{Architecture, UnknownArchitecture};
pub use capacity::GPU_LABEL;
pub use drivers::{Driver, DriverKind};
pub use duration::GoDuration;
pub use evaluate::{Definition, Excluded, Exclusion, InfrastructureState, Rules, evaluate};
pub use failure::{CapacityWords, Grace, Lack, TERMINAL, Terminal};
pub use id::GroupId;
pub use instance::{
    DeleteConditions, ErrorRules, Instance, InstanceCounts, InstanceError, InstanceState, MachineView, PoolView,
    Shortage,
};
pub use label_selector::{LabelSelector, LabelSelectorError};
pub use node_claim::NodeClaim;
pub use observed::{Amounts, ObservedResources, RealNodes, Remembered};
pub use options::Overrides;
pub use placeholder::{PlaceholderRef, template_node_groups};
pub use pod::Requests;
pub use price::{GroupPrice, Price, PriceList, UnitPrices};
pub use problem::{Problem, ProblemKind};
pub use provenance::{ObservedNode, Source, Sourced, SourcedMap, Stated, TemplateName};
pub use quantity::Quantity;
pub use resource_list::ResourceList;
pub use rollout::{Rollout, RolloutCause};
pub use scope::{Scope, ScopeSpec};
pub use size::{Bounds, SizeError};
pub use taints::{Taint, TaintEffect};
pub use template::{FromZero, NodeTemplate, TemplateRules};
