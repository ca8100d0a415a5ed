//! The live state of one workload cluster: its groups, the Machines and Nodes of each, their sizes and templates. One
//! writer applies [`Change`]s; readers are answered from memory, at a cost that grows with the answer and not with
//! the fleet. The index must never wait: it has no I/O and no await, and every lock is held for one change or one
//! answer.

mod answer;
mod apply;
mod change;
mod commands;
mod counts;
mod evaluate;
mod failed_delete;
pub mod families;
mod feed;
mod group;
mod hold;
mod increase;
mod log;
mod members;
mod metrics;
mod multimap;
#[cfg(any(test, feature = "test-support"))]
#[doc(hidden)]
pub mod objects;
mod observations;
mod observe;
mod pinned;
mod relations;
mod remembered;
mod remembered_groups;
mod resolve;
mod state;
mod templates;
#[cfg(test)]
mod tests;
mod versions;
mod view;

pub use self::{
    answer::{NoPrice, NodeLabels},
    change::{Change, KindState},
    commands::ScaleView,
    feed::{FedKeys, Feed, IndexFeed, Sink, Tag},
    group::Served,
    hold::Hold,
    log::Notice,
    members::Member,
    metrics::{GroupMetrics, GroupSeries, MemoryMetrics, encode_groups},
    pinned::PinnedGroup,
    remembered::{Memory, MemoryWrite, PlaceView, Reading},
    remembered_groups::{NodeToLookAt, SmallerNode},
    resolve::{NodeQuery, Resolved},
    state::{Index, LONGEST_LOOP},
    templates::{SharedTemplates, Template},
    versions::{Overwritten, WrittenSize},
    view::{Detail, GroupProblem, GroupRollout, GroupSnapshot, InstanceView, OutsideBounds, Sizes, Snapshot, Stats},
};
